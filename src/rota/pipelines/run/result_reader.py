"""Results of runs for later calls, from any process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, get_args

import msgspec

from rota.core.runs.model import Run
from rota.core.runs.stored_errors import read_error
from rota.core.time.instants import shown
from rota.errors import BadInput, WrongState
from rota.pipelines import snapshot as snapshots
from rota.pipelines.definition.compiler import graph_of
from rota.pipelines.definition.graph import end_of
from rota.pipelines.definition.model import Pipeline
from rota.pipelines.definition.nodes import MapNode, ReduceNode, parents_of
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
from rota.pipelines.run import row_files
from rota.pipelines.run.frozen_models import frozen
from rota.pipelines.run.reduce import as_rows, reduced
from rota.pipelines.run.results import Spool, outcomes, source_of
from rota.pipelines.run.run_store import RunReader
from rota.pipelines.run.stages import OUTPUT
from rota.pipelines.run.summary import item_outcomes, result_of, save_results
from rota.pipelines.snapshot import Snapshot

if TYPE_CHECKING:
    from rota.client.client import Client

WHOLE = 1 << 62
# Items that one page reads.
PAGE_ITEMS_MAX = 2_000
_OUTCOMES: dict[str, OutcomeWord] = {
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
    return PipelineRun(run, await frozen(reader, snapshots.read(run.input)), reader)


async def result(client: Client, run_id: str) -> PipelineResult:
    """The stored result with its whole output; for an open run, the result so far."""
    pipeline_run = await find(client, run_id)
    run = pipeline_run.run
    if run.output is not None:
        stored = msgspec.json.decode(run.output, type=PipelineResult)
        if stored.output is not None or not stored.output_chars:
            return stored
        text = "".join([piece async for piece in pipeline_run.reader.text(OUTPUT)])
        return msgspec.structs.replace(stored, output=text)
    ended = run.finished_at or run.started_at or run.created_at
    return await result_of(
        pipeline_run.reader, pipeline_run.snapshot, chars_max=WHOLE,
        outcome=_OUTCOMES.get(run.status, "partial"),
        duration_ms=(ended - (run.started_at or ended)) // 1000,
        error=read_error(run.error)["message"] if run.error else run.reason,
    )  # fmt: skip


async def items(client: Client, run_id: str) -> AsyncIterator[ItemOutcome]:
    """Every item with its outcome."""
    pipeline_run = await find(client, run_id)
    async for each in item_outcomes(pipeline_run.reader, pipeline_run.snapshot):
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
    page: list[ItemOutcome] = []
    number = after
    async for each in item_outcomes(run.reader, run.snapshot, skip=after):
        number += 1
        if status is None or each.status == status:
            page.append(each)
        if len(page) == limit or number - after >= max(PAGE_ITEMS_MAX, limit):
            return ItemsPage(page, number)
    return ItemsPage(page, None)


async def cost(client: Client, run_id: str, *, by: CostUnit, after: int, limit: int) -> CostPage:
    """The cost of the items by model, by day or by item."""
    if by not in get_args(CostUnit):
        raise BadInput(f"by={shown(by)} is not a unit", hint="Give model, day or item.")
    if by == "item":
        page = await items_page(client, run_id, after=after, limit=limit, status=None)
        shares = [
            CostShare(of=str(outcome.position)).plus(outcome)
            for outcome in page.items
            if outcome.calls
        ]
        return CostPage(by, shares, page.next)
    sums: dict[str, CostShare] = {}
    async for outcome in items(client, run_id):
        if outcome.calls:
            of = (outcome.model or "") if by == "model" else (outcome.finished_at or "")[:10]
            sums[of] = sums.get(of, CostShare(of=of)).plus(outcome)
    listed = [sums[of] for of in sorted(sums)]
    end = after + limit
    return CostPage(by, listed[after:end], end if end < len(listed) else None)


async def output(client: Client, run_id: str) -> AsyncIterator[str]:
    """The output, piece by piece."""
    pipeline_run = await find(client, run_id)
    async for piece in pipeline_run.reader.text(OUTPUT):
        yield piece


async def write_results(client: Client, run_id: str, folder: Path | None) -> str | None:
    """Write the results file from the records."""
    pipeline_run = await find(client, run_id)
    ended = await result(client, run_id)
    return await save_results(
        pipeline_run.reader, pipeline_run.snapshot, ended, run_id=pipeline_run.run.root_id,
        started_at=pipeline_run.run.started_at or pipeline_run.run.created_at,
        folder=folder or pipeline_run.snapshot.path,
    )  # fmt: skip


async def write_rows(client: Client, run_id: str, path: Path) -> None:
    """Write the items that ended to a file of rows, in the form of its name."""
    run = await find(client, run_id)
    must_have_rows(run.snapshot.pipeline, path)
    with Spool() as spool:
        await spool.take(item_outcomes(run.reader, run.snapshot, dropped=False))
        await asyncio.to_thread(row_files.write_rows, path, *as_rows(spool.outcomes))


def must_have_rows(pipeline: Pipeline, path: Path) -> None:
    """Refuse a file of rows for a result that is one text."""
    nodes = graph_of(pipeline)
    reduce = nodes.get(end_of(nodes) or "")
    if not isinstance(reduce, ReduceNode) or reduce.type == "ai":
        raise BadInput(
            f"{path} holds rows, and the result of this pipeline is one text",
            hint="Name it .md or .txt, or give the pipeline a reduce of type csv.",
        )


async def partial_output(client: Client, run_id: str) -> str | None:
    """The items that ended, reduced without a call; None where only an AI could reduce them."""
    run = await find(client, run_id)
    nodes = run.snapshot.nodes
    reduce = nodes.get(end_of(nodes) or "")
    if not isinstance(reduce, ReduceNode) or reduce.type == "ai":
        return None
    [parent, *others] = parents_of(reduce)
    if others or not isinstance(nodes[parent], MapNode):
        return None
    source = await source_of(run.reader, run.snapshot, nodes, parent)
    ended = [
        each
        async for each in outcomes(source, passes_failed=True)
        if each.status in ("completed", "failed")
    ]
    if not any(each.error is None for each in ended):
        return None
    return "".join(reduced(reduce.type, lambda: ended))
