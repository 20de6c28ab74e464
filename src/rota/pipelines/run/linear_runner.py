"""The linear form from end to end: input, filter, map, reduce; or a single job."""

from __future__ import annotations

import json

from rota.errors import ItemsFailed
from rota.pipelines.definition.model import Filter
from rota.pipelines.definition.sections import MapStep, ReduceStep
from rota.pipelines.run import withheld
from rota.pipelines.run.context import PipelineContext
from rota.pipelines.run.filter_stage import ask_again, filter_items, sieve_of_filter
from rota.pipelines.run.load_stage import load_input
from rota.pipelines.run.map_stage import MapOptions, MapStage, reader_of
from rota.pipelines.run.prompt_builder import PromptBuilder, parallel_of
from rota.pipelines.run.reduce_stage import (
    OUTPUT,
    AiReduce,
    pieces_of,
    put_whole,
    reduce_by_form,
)
from rota.pipelines.run.results import Source, Spool, outcomes
from rota.pipelines.run.run_store import ItemRecord, RunReader
from rota.pipelines.run.sharding import Sharding
from rota.pipelines.run.single_call import call
from rota.pipelines.run.stages import FILTER, INPUT, JOB, MAP, REDUCE, mapped_list
from rota.pipelines.run.withheld import Withheld


async def perform_linear(room: PipelineContext, parting: Sharding | None = None) -> None:
    """Input, filter, map and reduce; raises what stopped it, with all that is done kept."""
    pipeline = room.snapshot.pipeline
    total = await load_input(room)
    held: dict[int, Withheld] = {}
    if pipeline.filter is not None:
        kept = await _filter(room, pipeline.filter, total)
        held = await withheld.read(room.notebook, FILTER)
        late = sum(not each.is_failed for each in held.values())
        room.board.filtered, total = total - kept + late, kept
    assert pipeline.map is not None
    assert pipeline.reduce is not None
    item_list = mapped_list(room.snapshot)
    room.board.enter("mapping", total=total - len(held))
    parts = await _map(room, pipeline.map, Source(room.notebook, item_list, MAP, (), held), parting)
    room.board.enter("reducing", total=total)
    with Spool() as spool:
        await spool.take(outcomes(Source(room.notebook, item_list, MAP, parts, held)))
        check_items(spool)
        await _reduce(room, pipeline.reduce, spool)


async def _filter(room: PipelineContext, part: Filter, total: int) -> int:
    done = await room.notebook.item_list(FILTER)
    if done is None:
        room.board.enter("filtering", total=total)
        return await filter_items(room, FILTER, INPUT, FILTER, sieve_of_filter(room, part))
    held = await room.notebook.item_list(FILTER + withheld.SHELF)
    if held is not None and held.count and held.attempt < room.notebook.claim.attempt:
        room.board.enter("filtering", total=held.count)
        await ask_again(room, FILTER, FILTER, sieve_of_filter(room, part))
    return done.count


async def _map(
    room: PipelineContext, part: MapStep, source: Source, parting: Sharding | None
) -> list[RunReader]:
    listed = await room.notebook.item_list(source.item_list)
    total = listed.count if listed else 0
    unasked = sum(each.is_failed for each in source.withheld.values())
    stage = map_stage(room, part, total, failed_before=unasked)
    parts = [] if parting is None else await parting.parts_of(room, source.item_list, total)
    await stage.mark(parts)
    items = room.notebook.items(source.item_list)
    await stage.perform(withheld.without(items, source.withheld))
    return parts


def map_stage(
    room: PipelineContext, part: MapStep, total: int, *, failed_before: int = 0
) -> MapStage:
    """The map over a list of so many items; some have failed in the filter."""
    pace = MapOptions(
        parallel_of(room.snapshot, part.parallel), part.batch_size, part.fail_fast,
        part.max_failures,
    )  # fmt: skip
    asking = PromptBuilder(room.snapshot, MAP, part)
    return MapStage(room, MAP, asking, pace, total, failed_before=failed_before)


def check_items(spool: Spool) -> None:
    """A run in which all items failed has failed too; there is nothing to reduce."""
    tally = spool.tally
    if tally.failed and not tally.processed:
        first = tally.errors[0]
        raise ItemsFailed(
            f"all {tally.failed} items failed; the first: {first.type}: {first.message}",
            failed=tally.failed,
        )


async def _reduce(room: PipelineContext, part: ReduceStep, spool: Spool) -> None:
    if part.type != "ai":
        await reduce_by_form(room, OUTPUT, part.type, spool.results)
        return
    if not spool.tally.processed:
        room.warnings.append("there was nothing to reduce")
        return
    reduce = AiReduce(
        room, REDUCE, PromptBuilder(room.snapshot, REDUCE, part),
        pieces_of(spool.results, failures=part.include_failures), spool.tally.counts,
        part.max_chars,
    )  # fmt: skip
    await put_whole(room, OUTPUT, text_of(await reduce.perform()))


def text_of(record: ItemRecord) -> str:
    """The reply as a text: itself, or its fields as JSON."""

    if record.output is None:
        return record.text or ""
    return json.dumps(record.output, ensure_ascii=False, indent=2) + "\n"


async def perform_job(room: PipelineContext) -> None:
    """One call; its reply is the result."""
    part = room.snapshot.pipeline.job
    assert part is not None
    room.board.enter("mapping", total=1)
    asking = PromptBuilder(room.snapshot, JOB, part)
    record = await call(room, JOB, asking.without_item(), reader_of(asking.fields))
    room.board.done = 1
    await put_whole(room, OUTPUT, text_of(record))
