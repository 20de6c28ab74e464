"""The linear form from end to end: input, filter, map, reduce; or a single job."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import msgspec

from rota.errors import BadInput, ItemsFailed
from rota.pipelines.definition.model import Filter, Input
from rota.pipelines.definition.sections import MapStep, ReduceStep
from rota.pipelines.definition.sources import StdinSource
from rota.pipelines.run import withheld_items
from rota.pipelines.run.context import PipelineContext
from rota.pipelines.run.filter_stage import ask_again, filter_items, sieve_of_filter
from rota.pipelines.run.generated_items import generated
from rota.pipelines.run.inputs import Item, items_of
from rota.pipelines.run.map_stage import linear_map, reader_of
from rota.pipelines.run.prompt_builder import PromptBuilder
from rota.pipelines.run.reduce import OUTPUT, AiReduce, put_reply, reduce_by_form, shown
from rota.pipelines.run.results import Source, Spool, outcomes, source_of_map
from rota.pipelines.run.run_store import RunReader
from rota.pipelines.run.sharding import Sharding
from rota.pipelines.run.single_call import call
from rota.pipelines.run.stages import FILTER, INPUT, JOB, REDUCE
from rota.pipelines.run.withheld_items import Withheld


async def perform_linear(context: PipelineContext, sharding: Sharding | None = None) -> None:
    """Input, filter, map and reduce. Raises what stopped the run; finished items are recorded."""
    pipeline = context.snapshot.pipeline
    total = await load_input(context)
    held: dict[int, Withheld] = {}
    if pipeline.filter is not None:
        kept = await _filter(context, pipeline.filter, total)
        held = await withheld_items.read(context.run_store, FILTER)
        late = sum(not each.is_failed for each in held.values())
        context.progress.filtered, total = total - kept + late, kept
    assert pipeline.map is not None
    assert pipeline.reduce is not None
    source = source_of_map(context.run_store, context.snapshot, held)
    context.progress.enter("mapping", total=total - len(held))
    shards = await _map(context, pipeline.map, source, total, sharding)
    context.progress.enter("reducing", total=total)
    with Spool() as spool:
        await spool.take(outcomes(source._replace(shards=shards)))
        check_items(spool)
        await _reduce(context, pipeline.reduce, spool)


async def _filter(context: PipelineContext, section: Filter, total: int) -> int:
    done = await context.run_store.item_list(FILTER)
    if done is None:
        context.progress.enter("filtering", total=total)
        return await filter_items(
            context, FILTER, INPUT, FILTER, sieve_of_filter(context.snapshot, section)
        )
    held = await context.run_store.item_list(FILTER + withheld_items.SUFFIX)
    if held is not None and held.count and held.attempt < context.run_store.claim.attempt:
        context.progress.enter("filtering", total=held.count)
        await ask_again(context, FILTER, FILTER, sieve_of_filter(context.snapshot, section))
    return done.count


async def _map(
    context: PipelineContext, step: MapStep, source: Source, total: int, sharding: Sharding | None
) -> list[RunReader]:
    unasked = sum(each.is_failed for each in source.withheld.values())
    stage = linear_map(context, step, total, failed_before=unasked)
    shards = [] if sharding is None else await sharding.shards_of(context, source.item_list, total)
    await stage.mark(shards)
    items, held = context.run_store.items(source.item_list), source.withheld
    await stage.perform(placed async for placed in items if placed.position not in held)
    return shards


def check_items(spool: Spool) -> None:
    """ItemsFailed if all items failed: there is nothing to reduce."""
    tally = spool.tally
    if tally.failed and not tally.processed:
        first = tally.errors[0]
        raise ItemsFailed(
            f"all {tally.failed} items failed; the first: {first.type}: {first.message}",
            failed=tally.failed,
        )


async def _reduce(context: PipelineContext, step: ReduceStep, spool: Spool) -> None:
    if step.type != "ai":
        await reduce_by_form(context, OUTPUT, step.type, spool.outcomes)
        return
    if not spool.tally.processed:
        context.warnings.append("there was nothing to reduce")
        return
    reduce = AiReduce(
        context, REDUCE, PromptBuilder(context.snapshot, REDUCE, step),
        partial(shown, spool.outcomes, failures=step.include_failures), spool.tally.counts,
        step.max_chars,
    )  # fmt: skip
    await put_reply(context, OUTPUT, await reduce.perform())


async def perform_job(context: PipelineContext) -> None:
    """One call; its reply is the result."""
    job = context.snapshot.pipeline.job
    assert job is not None
    context.progress.enter("mapping", total=1)
    asking = PromptBuilder(context.snapshot, JOB, job)
    record = await call(context, JOB, asking.without_item(), reader_of(asking.fields))
    context.progress.done = 1
    await put_reply(context, OUTPUT, record)


async def load_input(context: PipelineContext) -> int:
    """Record the input items, unless an earlier attempt did; returns how many."""
    loaded = await context.run_store.item_list(INPUT)
    if loaded is not None:
        return loaded.count
    context.progress.enter("loading")
    section = context.snapshot.pipeline.input
    assert section is not None, "checked when the pipeline was read"
    return await context.run_store.put_items(INPUT, await _items(context, section))


async def _items(context: PipelineContext, section: Input) -> AsyncIterator[Item]:
    given = context.snapshot.items
    limit = context.snapshot.overrides.limit
    if limit is not None:
        section = msgspec.structs.replace(section, limit=limit)
    if given is None and isinstance(section.source, StdinSource) and context.stdin is None:
        raise BadInput(
            f"{context.snapshot.pipeline_id} reads standard input, and there is none here",
            hint="Run it with `rota pipeline run` and a pipe, or give items at the start.",
        )
    if given is None and section.generate is not None:
        given = await generated(context, "generate", section.generate)
    return items_of(section, context.snapshot.path, given=given, stdin=context.stdin)
