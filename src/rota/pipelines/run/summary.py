"""The state of a run from its records: counts, costs, output, results file.

Works on any chain, also one that was cancelled in the middle.
"""

from __future__ import annotations

import asyncio
import json
import logging
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import msgspec

from rota.ai.budget import NANO
from rota.pipelines.definition.nodes import FilterNode, MapNode
from rota.pipelines.files import prune_results, write_result
from rota.pipelines.outcome import ItemOutcome, OutcomeWord, PipelineResult
from rota.pipelines.run import withheld_items
from rota.pipelines.run.reduce import OUTPUT
from rota.pipelines.run.results import (
    Source,
    Spool,
    Tally,
    count_outcomes,
    dropped_items,
    outcome_of,
    outcomes,
    source_of_map,
    source_of_node,
    unasked,
)
from rota.pipelines.run.run_store import PositionedItem, RunReader, stage_prefix
from rota.pipelines.run.stages import FILTER, INPUT, JOB, node_output
from rota.pipelines.run.withheld_items import Withheld
from rota.pipelines.snapshot import Snapshot

log = logging.getLogger("rota.pipelines")
OUTPUT_CHARS_MAX = 2000  # of the text that is in the run's own row


async def result_of(
    reader: RunReader,
    snapshot: Snapshot,
    *,
    chars_max: int,
    outcome: OutcomeWord | None = None,
    **more: Any,
) -> PipelineResult:
    """The records of a chain, summed up in pages. An output of more than `chars_max` is counted
    only. Without `outcome`, the items decide between completed and partial."""
    shards = await reader.shards()
    tally, totals = Tally(), await reader.call_totals()
    async for each in item_outcomes(reader, snapshot, shards, dropped=False):
        tally.add(each)
    for shard in shards:
        totals += await shard.call_totals()
    filtered = await _filtered(reader, snapshot)
    text, chars = await _text(reader, chars_max)
    return PipelineResult(
        outcome=outcome or ("partial" if tally.failed or tally.skipped else "completed"),
        pipeline_id=snapshot.pipeline_id, total=tally.total + filtered,
        processed=tally.processed, failed=tally.failed, skipped=tally.skipped, filtered=filtered,
        output=text, output_chars=chars, output_fields=await _fields(reader, snapshot, chars),
        calls=totals.calls, tokens_in=totals.tokens_in, tokens_out=totals.tokens_out,
        cost_usd=round(totals.cost_usd, 9), unpriced_calls=totals.unpriced,
        unanswered_calls=totals.unanswered, estimated_calls=totals.estimated,
        assumed_tokens=totals.assumed_tokens,
        assumed_cost_usd=round(totals.assumed_nano_usd / NANO, 9), errors=tally.errors,
        failed_by=dict(sorted(tally.failed_by.items())), **more,
    )  # fmt: skip


async def item_outcomes(
    reader: RunReader,
    snapshot: Snapshot,
    shards: list[RunReader] | None = None,
    *,
    dropped: bool = True,
    skip: int = 0,
) -> AsyncIterator[ItemOutcome]:
    """Every item with its outcome, without the first `skip`. With `dropped`, those that a filter
    dropped come last."""
    shards = await reader.shards() if shards is None else shards
    if snapshot.pipeline.mode == "job":
        async for outcome in _of_job(reader, snapshot, skip):
            yield outcome
        return
    has_filter = snapshot.pipeline.filter is not None
    held = await withheld_items.read(reader, FILTER) if has_filter else {}
    for source in await _sources(reader, snapshot, shards, held):
        async for outcome in outcomes(source, skip=skip):
            yield outcome
        skip = max(0, skip - await count_outcomes(source)) if skip else 0
    nodes = (snapshot.pipeline.nodes or {}).items()
    for node_id in [node_id for node_id, node in nodes if isinstance(node, FilterNode)]:
        async for outcome in unasked(reader, node_output(node_id)):
            if skip == 0:
                yield outcome
            skip = max(0, skip - 1)
    if dropped and has_filter:
        async for outcome in dropped_items(reader, FILTER, held, skip=skip):
            yield outcome


async def _of_job(reader: RunReader, snapshot: Snapshot, skip: int) -> AsyncIterator[ItemOutcome]:
    """The call of a pipeline without items."""
    async for step in reader.steps(stage_prefix(JOB)):
        if skip == 0:
            yield outcome_of(PositionedItem(0, snapshot.parameters), step)
        skip = max(0, skip - 1)


async def _sources(
    reader: RunReader, snapshot: Snapshot, shards: list[RunReader], held: Mapping[int, Withheld]
) -> list[Source]:
    """The stages with counted items: the map, or the map nodes of a graph."""
    if snapshot.pipeline.mode == "map-reduce":
        return [source_of_map(reader, snapshot, held, shards)]
    return [
        await source_of_node(reader, snapshot, node_id, node)
        for node_id, node in (snapshot.pipeline.nodes or {}).items()
        if isinstance(node, MapNode)
    ]


async def _filtered(reader: RunReader, snapshot: Snapshot) -> int:
    if snapshot.pipeline.filter is None:
        return 0
    kept, before = await reader.item_list(FILTER), await reader.item_list(INPUT)
    held = await withheld_items.read(reader, FILTER)
    dropped = before.count - kept.count if kept and before else 0
    return dropped + sum(not each.is_failed for each in held.values())


async def _text(reader: RunReader, chars_max: int) -> tuple[str | None, int]:
    pieces: list[str] = []
    chars = 0
    async for piece in reader.text(OUTPUT):
        chars += len(piece)
        if chars <= chars_max:
            pieces.append(piece)
    return ("".join(pieces) if 0 < chars <= chars_max else None), chars


async def _fields(reader: RunReader, snapshot: Snapshot, chars: int) -> dict[str, Any] | None:
    """The fields of the reply that is the output, where it is one with fields."""
    last = snapshot.pipeline.job or snapshot.pipeline.reduce
    if not chars or last is None or not last.output:
        return None
    text = "".join([piece async for piece in reader.text(OUTPUT)])
    return msgspec.json.decode(text, type=dict[str, Any])


# -- the results file ----------------------------------------------------------------------


async def save_results(
    reader: RunReader, snapshot: Snapshot, result: PipelineResult, *, run_id: str, started_at: int,
    folder: Path,
) -> str | None:  # fmt: skip
    """Write the results file beside the pipeline; a disk that refuses is reported in the log."""
    files = snapshot.pipeline.settings.results
    if files.keep == 0:
        return None
    try:
        with Spool() as spool, tempfile.TemporaryFile("w+", encoding="utf-8", newline="") as text:
            await spool.take(item_outcomes(reader, snapshot, dropped=files.dropped), whole=True)
            async for piece in reader.text(OUTPUT):
                text.write(piece)
            pieces = _written(run_id, result, spool, text)
            name = await asyncio.to_thread(write_result, folder, started_at, pieces)
            await asyncio.to_thread(prune_results, folder, files.keep)
            return name
    except OSError as error:
        log.warning("the results of run %s could not be written: %s", run_id, error)
        return None


def _written(run_id: str, result: PipelineResult, spool: Spool, text: IO[str]) -> Iterator[str]:
    head = msgspec.to_builtins(msgspec.structs.replace(result, output=None))
    head = {"run_id": run_id, "success": result.success, **head}
    yield json.dumps(head, ensure_ascii=False, indent=2)[:-2]
    yield ',\n  "output": "'
    text.seek(0)
    while piece := text.read(100_000):
        yield json.dumps(piece, ensure_ascii=False)[1:-1]
    yield '",\n  "items": ['
    for number, each in enumerate(spool.outcomes()):
        yield ("," if number else "") + "\n    " + msgspec.json.encode(each).decode()
    yield "\n  ]\n}\n"
