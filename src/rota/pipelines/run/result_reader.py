"""Results of runs for later calls, from any process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, get_args

import msgspec

from rota.core.runs.model import Run
from rota.core.runs.stored_errors import read_error
from rota.core.time.instants import shown
from rota.errors import BadInput, WrongState
from rota.pipelines import snapshot as snapshots
from rota.pipelines.outcome import (
    CostPage,
    CostShare,
    CostUnit,
    ItemOutcome,
    ItemsPage,
    ItemStatus,
    OutcomeWord,
    PipelineResult,
)
from rota.pipelines.run.reduce_formats import ItemResult, reduced
from rota.pipelines.run.reduce_stage import OUTPUT
from rota.pipelines.run.run_store import RunReader
from rota.pipelines.run.summary import item_outcomes, result_of, save_results, summary_of
from rota.pipelines.snapshot import Snapshot

if TYPE_CHECKING:
    from rota.client.client import Client

WHOLE = 1 << 62
# Items that one page reads.
LOOK_MAX = 2_000
_WORDS: dict[str, OutcomeWord] = {
    "completed": "completed", "cancelled": "cancelled", "failed": "failed", "crashed": "failed",
    "waiting": "failed",
}  # fmt: skip


class PipelineRun(NamedTuple):
    """The newest attempt of a pipeline run, and a reader of its records."""

    run: Run
    snapshot: Snapshot
    reader: RunReader


async def find(client: Client, run_id: str) -> PipelineRun:
    """The newest attempt of a run; WrongState when it is not a pipeline's."""
    run = (await client.runs.chain(run_id))[-1]
    if run.kind != "pipeline":
        raise WrongState(f"run {run_id} is not a pipeline run", hint="See `rota run show`.")
    reader = RunReader(client.connection.database, run.root_id)
    return PipelineRun(run, snapshots.read(run.input), reader)


async def result(client: Client, run_id: str) -> PipelineResult:
    """The stored result with its whole output; for an open run, the result so far."""
    found = await find(client, run_id)
    run = found.run
    if run.output is not None:
        stored = msgspec.json.decode(run.output, type=PipelineResult)
        if stored.output is not None or not stored.output_chars:
            return stored
        text = "".join([piece async for piece in found.reader.text(OUTPUT)])
        return msgspec.structs.replace(stored, output=text)
    summary = await summary_of(found.reader, found.snapshot, chars_max=WHOLE)
    ended = run.finished_at or run.started_at or run.created_at
    return result_of(
        summary, found.snapshot, outcome=_WORDS.get(run.status, "partial"),
        duration_ms=(ended - (run.started_at or ended)) // 1000,
        error=read_error(run.error)["message"] if run.error else run.reason,
    )  # fmt: skip


async def items(client: Client, run_id: str) -> AsyncIterator[ItemOutcome]:
    """Every item with its outcome."""
    found = await find(client, run_id)
    async for each in item_outcomes(found.reader, found.snapshot):
        yield each


async def items_page(
    client: Client, run_id: str, *, after: int, limit: int, status: str | None
) -> ItemsPage:
    """One page of the items. The items before it are not read."""
    if status is not None and status not in get_args(ItemStatus):
        raise BadInput(
            f"there is no status {shown(status)} of items",
            hint=f"There are: {', '.join(get_args(ItemStatus))}.",
        )
    run = await find(client, run_id)
    found: list[ItemOutcome] = []
    number = after
    async for each in item_outcomes(run.reader, run.snapshot, skip=after):
        number += 1
        if status is None or each.status == status:
            found.append(each)
        if len(found) == limit or number - after >= max(LOOK_MAX, limit):
            return ItemsPage(found, number)
    return ItemsPage(found, None)


async def cost(client: Client, run_id: str, *, by: CostUnit, after: int, limit: int) -> CostPage:
    """The cost of the items by model, by day or by item."""
    if by not in get_args(CostUnit):
        raise BadInput(f"by={shown(by)} is not a unit", hint="Give model, day or item.")
    if by == "item":
        page = await items_page(client, run_id, after=after, limit=limit, status=None)
        shares = [CostShare(of=str(one.position)).plus(one) for one in page.items if one.calls]
        return CostPage(by, shares, page.next)
    found: dict[str, CostShare] = {}
    async for one in items(client, run_id):
        if one.calls:
            of = (one.model or "") if by == "model" else (one.finished_at or "")[:10]
            found[of] = found.get(of, CostShare(of=of)).plus(one)
    listed = [found[of] for of in sorted(found)]
    end = after + limit
    return CostPage(by, listed[after:end], end if end < len(listed) else None)


async def output(client: Client, run_id: str) -> AsyncIterator[str]:
    """The output, piece by piece."""
    found = await find(client, run_id)
    async for piece in found.reader.text(OUTPUT):
        yield piece


async def write_results(client: Client, run_id: str, folder: Path | None) -> str | None:
    """Write the results file from the records."""
    found = await find(client, run_id)
    ended = await result(client, run_id)
    return await save_results(
        found.reader, found.snapshot, ended, run_id=found.run.root_id,
        started_at=found.run.started_at or found.run.created_at,
        folder=folder or found.snapshot.place,
    )  # fmt: skip


async def partial_output(client: Client, run_id: str) -> str | None:
    """The items that ended, reduced without a call; None where only an AI could reduce them."""
    found = await find(client, run_id)
    reduce = found.snapshot.pipeline.reduce
    if reduce is None or reduce.type == "ai":
        return None
    ended = [
        ItemResult(each.item, each.output, each.text, each.error)
        async for each in item_outcomes(found.reader, found.snapshot, dropped=False)
        if each.status in ("completed", "failed")
    ]
    if not any(each.success for each in ended):
        return None
    return "".join(reduced(reduce.type, lambda: ended))
