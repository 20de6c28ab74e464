"""The state of a run from its records: counts, costs, output, results file.

Works on any chain, also one that was cancelled in the middle.
"""

from __future__ import annotations

import asyncio
import json
import logging
import tempfile
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

import msgspec

from rota.ai.budget import NANO
from rota.pipelines.definition.compiler import asked_before
from rota.pipelines.definition.graph import end_of
from rota.pipelines.definition.nodes import (
    AiNode,
    FilterNode,
    LoadNode,
    MapNode,
    ReduceNode,
    parents_of,
)
from rota.pipelines.files import prune_results, write_result
from rota.pipelines.outcome import ItemOutcome, OutcomeWord, PipelineResult
from rota.pipelines.run.results import (
    Spool,
    Tally,
    dropped_items,
    outcome_of,
    outcomes,
    source_of,
    unasked,
    unreadable,
)
from rota.pipelines.run.run_store import PositionedItem, RunReader, stage_prefix
from rota.pipelines.run.stages import OUTPUT, dropped_list, failed_list
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
    tally, totals = Tally(), await reader.call_totals()
    async for each in item_outcomes(reader, snapshot, dropped=False):
        tally.add(each)
    for shard in await reader.shards():
        totals += await shard.call_totals()
    filtered = sum([await _count(reader, dropped_list(each)) for each in _first_filters(snapshot)])
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
        failed_by=dict(sorted(tally.failed_by.items())), definition=snapshot.digest,
        models=sorted(tally.models), **more,
    )  # fmt: skip


async def item_outcomes(
    reader: RunReader, snapshot: Snapshot, *, dropped: bool = True, skip: int = 0
) -> AsyncIterator[ItemOutcome]:
    """Every item with its outcome, without the first `skip`: those of the maps, those that failed
    in a filter and, with `dropped`, those that a filter dropped before a map."""
    async for stage, count in _stages(reader, snapshot, dropped=dropped):
        if skip < count:
            async for outcome in stage(skip=skip):
                yield outcome
        skip = max(0, skip - count)


async def _stages(
    reader: RunReader, snapshot: Snapshot, *, dropped: bool
) -> AsyncIterator[tuple[partial[AsyncIterator[ItemOutcome]], int]]:
    """The parts with outcomes, each with how many it has."""
    nodes = snapshot.nodes
    filters = [node_id for node_id, node in nodes.items() if isinstance(node, FilterNode)]
    for node_id, node in nodes.items():
        if isinstance(node, MapNode):
            source = await source_of(reader, snapshot, nodes, node_id)
            yield partial(outcomes, source), source.own
        elif isinstance(node, AiNode) and not parents_of(node):
            yield partial(_of_call, reader, snapshot, node_id), 1
    for node_id, node in nodes.items():
        listed = await reader.item_list(node_id) if isinstance(node, LoadNode) else None
        if listed is not None and listed.failed:
            yield partial(unreadable, reader, node_id), listed.failed
    for node_id in filters:
        yield partial(unasked, reader, node_id), await _count(reader, failed_list(node_id))
    for node_id in _first_filters(snapshot) if dropped else ():
        count = await _count(reader, dropped_list(node_id))
        yield partial(dropped_items, reader, nodes, node_id), count


def _first_filters(snapshot: Snapshot) -> list[str]:
    """The filters before any call over items. The items that others drop count with the call."""
    nodes = snapshot.nodes
    return [
        node_id
        for node_id, node in nodes.items()
        if isinstance(node, FilterNode) and not asked_before(nodes, node_id)
    ]


async def _of_call(
    reader: RunReader, snapshot: Snapshot, node_id: str, *, skip: int = 0
) -> AsyncIterator[ItemOutcome]:
    """The call of a node that takes no items: it is an item of its own."""
    async for step in reader.steps(stage_prefix(node_id)):
        if skip == 0:
            yield outcome_of(PositionedItem(0, snapshot.parameters), step)
        skip = max(0, skip - 1)


async def _count(reader: RunReader, item_list: str) -> int:
    listed = await reader.item_list(item_list)
    return 0 if listed is None else listed.count


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
    nodes = snapshot.nodes
    end = end_of(nodes)
    last = None if end is None else nodes[end]
    if not chars or not isinstance(last, AiNode | ReduceNode) or not last.output:
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
