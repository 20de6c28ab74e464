"""Many starts of one workflow: their items, and the runs that few commits insert."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rota.client.handle import RunHandle
from rota.core import trace_spans
from rota.core.runs.model import NewRun
from rota.core.runs.names import checked_key
from rota.engine.wakeups import READY, TIMER
from rota.errors import BadInput
from rota.store.runs.start import BulkItem, MinimalItem, start_minimal, start_uniform

if TYPE_CHECKING:
    from rota.client.start import Known, RunOptions, RunStarter

BULK = 500


class Start(NamedTuple):
    """One item of `start_many`: arguments and, if wanted, its own external id and key."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}  # noqa: RUF012
    external_id: str | None = None
    key: str | None = None


Item = tuple[Any, ...] | Start


def items_of(items: Iterable[Item]) -> list[Item]:
    """The items of `start_many`, or BadInput."""
    if not isinstance(items, Iterable):
        raise BadInput(
            f"start_many got {items!r}, not a list of items",
            hint="Give one tuple of arguments for each run, for example [(1,), (2,)].",
        )
    return list(items)


def as_start(item: Item) -> Start:
    """One item of `start_many` in its long form."""
    if isinstance(item, Start):
        return item
    if not isinstance(item, tuple | list):
        raise BadInput(
            f"an item of start_many is {item!r}, not a tuple of arguments",
            hint="Write (value,) for one argument, or Start(kwargs={…}) to name them.",
        )
    return Start(tuple(item))


class Bulk(NamedTuple):
    """Many new runs: what they share, and a row for each."""

    template: NewRun
    rows: Sequence[MinimalItem] | Sequence[BulkItem]
    plain: bool  # whether only id and input differ


async def start_many(
    starter: RunStarter, known: Known, items: Sequence[Item], options: RunOptions
) -> list[RunHandle[Any]]:
    """Insert one run per item, in few commits."""
    client, now = starter.client, starter.client.clock.now()
    definition, name = known
    # Every input is checked before the first run is inserted.
    with trace_spans.start(name, len(items)):
        template, rows, plain = bulk(starter, known, items, options, now)
    store: Any = start_minimal if plain else start_uniform
    returns = definition.signature.returns if definition else None
    handles: list[RunHandle[Any]] = []
    existing: dict[str, str] = {}
    for begin in range(0, len(rows), 2 * BULK):
        # Two at a time: the next batch is prepared while the database stores this one.
        writes = asyncio.gather(
            *(
                client.connection.database.write(store, template, rows[at : at + BULK], now=now)
                for at in range(begin, min(begin + 2 * BULK, len(rows)), BULK)
            )
        )
        await asyncio.sleep(0)  # the database works while the handles are made
        handles += [
            RunHandle(client, row[0], returns, False) for row in rows[begin : begin + 2 * BULK]
        ]
        for found in await writes:
            existing |= found
    await client.connection.wakeups.announce(TIMER if template.available_at > now else READY)
    if not existing:
        return handles
    return [RunHandle(client, existing.get(h.id, h.id), returns, h.id in existing) for h in handles]


def bulk(
    starter: RunStarter, known: Known, items: Sequence[Item], options: RunOptions, now: int
) -> Bulk:
    """Many runs that share everything but a few columns."""
    definition, name = known
    options.check_many()
    template = starter.build_run(known, None, options, now)
    ids = starter.client.ids.take(now, len(items))
    if definition is not None and options.key is None and set(map(type, items)) == {tuple}:
        limit = starter.client.settings.payload_bytes_max
        texts = definition.signature.write_all(items, what=name, bytes_max=limit)
        return Bulk(template, list(zip(ids, texts, strict=True)), plain=True)
    rows = [
        _row(starter, known, run_id, item, options.key)
        for run_id, item in zip(ids, map(as_start, items), strict=True)
    ]
    if any((external_id, key) != (None, None) for _, external_id, key, _ in rows):
        return Bulk(template, rows, plain=False)
    return Bulk(template, [(i, text) for i, _, _, text in rows], plain=True)


def _row(starter: RunStarter, known: Known, run_id: str, item: Start, key: str | None) -> BulkItem:
    for what, given in (("external_id", item.external_id), ("key", item.key)):
        if given is not None:
            checked_key(given, what)
    text = starter.written_input(known, item.args, item.kwargs)
    return (run_id, item.external_id, key if item.key is None else item.key, text)
