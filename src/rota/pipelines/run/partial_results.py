"""The result of a run that never came to its reduce: its items, in the requested form."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from rota.pipelines.outcome import ItemOutcome
from rota.pipelines.run import result_reader
from rota.pipelines.run.reduce_formats import ItemResult, reduced

if TYPE_CHECKING:
    from rota.client.client import Client

DONE = ("completed", "failed")


async def partial_output(client: Client, run_id: str) -> str | None:
    """The items that ended, reduced without a call; None where only an AI could reduce them."""
    found = await result_reader.find(client, run_id)
    reduce = found.snapshot.pipeline.reduce
    if reduce is None or reduce.type == "ai":
        return None
    ended = [each async for each in _ended(client, run_id)]
    if not any(each.success for each in ended):
        return None
    return "".join(_again(reduce.type, ended))


async def _ended(client: Client, run_id: str) -> AsyncIterator[ItemResult]:
    async for each in result_reader.items(client, run_id):
        if each.status in DONE:
            yield _result(each)


def _again(kind: str, ended: list[ItemResult]) -> Iterator[str]:
    return reduced(kind, lambda: ended)


def _result(each: ItemOutcome) -> ItemResult:
    return ItemResult(each.item, each.output, each.text, each.error)
