"""The linear form from end to end: input, filter, map, reduce; or a single job."""

from __future__ import annotations

import json
from typing import Any

from rota.errors import ItemsFailed
from rota.pipelines.document.definition import Filter
from rota.pipelines.document.parts import MapStep, ReduceStep
from rota.pipelines.running.calling import call
from rota.pipelines.running.filtering import filter_items, sieve_of_filter
from rota.pipelines.running.loading import load_input
from rota.pipelines.running.mapping import Pace, Stage, reader_of
from rota.pipelines.running.notebook import ItemRecord
from rota.pipelines.running.parting import Parting
from rota.pipelines.running.questions import Asking, parallel_of
from rota.pipelines.running.reducing import (
    OUTPUT,
    AiReduce,
    pieces_of,
    put_whole,
    reduce_by_form,
)
from rota.pipelines.running.results import Source, Spool, outcomes
from rota.pipelines.running.room import Room
from rota.pipelines.running.stages import FILTER, INPUT, JOB, MAP, REDUCE, mapped_stages


async def perform_linear(room: Room, parting: Parting | None = None) -> None:
    """Input, filter, map and reduce; raises what stopped it, with all that is done kept."""
    pipeline = room.snapshot.pipeline
    total = await load_input(room)
    if pipeline.filter is not None:
        kept = await _filter(room, pipeline.filter, total)
        room.board.filtered, total = total - kept, kept
    assert pipeline.map is not None
    assert pipeline.reduce is not None
    [(_, shelf)] = mapped_stages(room.snapshot)
    room.board.enter("mapping", total=total)
    parts = await _map(room, pipeline.map, shelf, total, parting)
    room.board.enter("reducing", total=total)
    with Spool() as spool:
        await spool.take(outcomes(Source(room.notebook, shelf, MAP, parts)))
        check_items(spool)
        await _reduce(room, pipeline.reduce, spool)


async def _filter(room: Room, part: Filter, total: int) -> int:
    done = await room.notebook.shelf(FILTER)
    if done is not None:
        return done.count
    room.board.enter("filtering", total=total)
    return await filter_items(room, FILTER, INPUT, FILTER, sieve_of_filter(room, part))


async def _map(
    room: Room, part: MapStep, shelf: str, total: int, parting: Parting | None
) -> list[Any]:
    stage = map_stage(room, part, total)
    parts = [] if parting is None else await parting.parts_of(room, shelf, total)
    await stage.mark(parts)
    await stage.perform(room.notebook.items(shelf))
    return parts


def map_stage(room: Room, part: MapStep, total: int) -> Stage:
    """The map over so many items."""
    pace = Pace(
        parallel_of(room.snapshot, part.parallel), part.batch_size, part.fail_fast,
        part.max_failures,
    )  # fmt: skip
    return Stage(room, MAP, Asking(room.snapshot, MAP, part), pace, total)


def check_items(spool: Spool) -> None:
    """A run all of whose items failed has failed too; there is nothing to reduce."""
    tally = spool.tally
    if tally.failed and not tally.processed:
        first = tally.errors[0]
        raise ItemsFailed(
            f"all {tally.failed} items failed; the first: {first.type}: {first.message}",
            failed=tally.failed,
        )


async def _reduce(room: Room, part: ReduceStep, spool: Spool) -> None:
    if part.type != "ai":
        await reduce_by_form(room, OUTPUT, part.type, spool.results)
        return
    if not spool.tally.processed:
        room.warnings.append("there was nothing to reduce")
        return
    reduce = AiReduce(
        room, REDUCE, Asking(room.snapshot, REDUCE, part),
        pieces_of(spool.results, failures=part.include_failures), spool.tally.counts,
        part.max_chars,
    )  # fmt: skip
    await put_whole(room, OUTPUT, text_of(await reduce.perform()))


def text_of(record: ItemRecord) -> str:
    """The reply as a text: itself, or its fields as JSON."""

    if record.output is None:
        return record.text or ""
    return json.dumps(record.output, ensure_ascii=False, indent=2) + "\n"


async def perform_job(room: Room) -> None:
    """One call, whose reply is the result."""
    part = room.snapshot.pipeline.job
    assert part is not None
    room.board.enter("mapping", total=1)
    asking = Asking(room.snapshot, JOB, part)
    record = await call(room, JOB, asking.without_item(), reader_of(asking.fields))
    room.board.done = 1
    await put_whole(room, OUTPUT, text_of(record))
