"""Two runs compared, item by item: which answers changed, and which items only one of them has."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from rota.client.client import Client
from rota.errors import BadInput
from rota.pipelines.outcome import ItemOutcome
from rota.pipelines.run import result_reader

Change: TypeAlias = Literal["changed", "added", "removed"]


class ItemDiff(msgspec.Struct, frozen=True, omit_defaults=True):
    """One item with a difference."""

    change: Change
    key: str
    before: dict[str, Any] | None = None  # status, output or text, error; None: not in the first
    after: dict[str, Any] | None = None


class RunDiff(msgspec.Struct, frozen=True):
    """The comparison of two runs."""

    first: str
    second: str
    same: int
    changed: int
    added: int  # items of the second run alone
    removed: int  # items of the first run alone
    items: list[ItemDiff]

    @property
    def is_same(self) -> bool:
        """Whether every item has the same answer."""
        return not self.items


class _Keyed(NamedTuple):
    key: str
    answer: dict[str, Any]


async def compare(client: Client, first: str, second: str, *, key: str | None = None) -> RunDiff:
    """Compare the answers of two runs. Items belong together if the field `key` is equal; without
    it, if the whole items are equal."""
    before = {each.key: each.answer async for each in _keyed(client, first, key)}
    items: list[ItemDiff] = []
    same = 0
    async for each in _keyed(client, second, key):
        earlier = before.pop(each.key, None)
        if earlier == each.answer:
            same += 1
        else:
            change: Change = "added" if earlier is None else "changed"
            items.append(ItemDiff(change, each.key, earlier, each.answer))
    items += [ItemDiff("removed", name, answer) for name, answer in before.items()]
    counts = Counter(each.change for each in items)
    return RunDiff(
        first, second, same, counts["changed"], counts["added"], counts["removed"], items
    )


async def _keyed(client: Client, run_id: str, key: str | None) -> AsyncIterator[_Keyed]:
    """The items of a run by their keys. Equal items without a key are numbered."""
    seen: Counter[str] = Counter()
    async for outcome in result_reader.items(client, run_id):
        name = _key_of(outcome.item, key, run_id)
        seen[name] += 1
        if seen[name] > 1:
            if key is not None:
                raise BadInput(
                    f"run {run_id} has more than one item with {key} {name}",
                    hint="Choose a field with a value of its own for each item: --key FIELD.",
                )
            name = f"{name} (number {seen[name]})"
        yield _Keyed(name, _answer(outcome))


def _key_of(item: Mapping[str, Any], key: str | None, run_id: str) -> str:
    if key is None:
        return json.dumps(item, sort_keys=True, ensure_ascii=False)
    if key not in item:
        raise BadInput(
            f"an item of run {run_id} has no field {key}: it has {', '.join(item) or 'none'}",
            hint="Choose a field that every item has: --key FIELD.",
        )
    return str(item[key])


def _answer(outcome: ItemOutcome) -> dict[str, Any]:
    """The part of an outcome that is compared: not its cost, nor its time."""
    parts = {"output": outcome.output, "text": outcome.text, "error": outcome.error}
    given = {name: value for name, value in parts.items() if value is not None}
    return {"status": outcome.status, **given}
