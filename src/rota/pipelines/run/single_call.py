"""A single call that is a step: a retry reads its record instead of repeating it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rota.pipelines.run.context import PipelineContext
from rota.pipelines.run.map_stage import free, with_value
from rota.pipelines.run.model_caller import LOST, Usage
from rota.pipelines.run.prompt_builder import ModelPrompt
from rota.pipelines.run.run_store import ItemRecord, item_key, record_of


async def call(
    context: PipelineContext,
    stage: str,
    question: ModelPrompt,
    read: Callable[[str], Any],
    position: int = 0,
) -> ItemRecord:
    """The record of the call, from an earlier attempt if there is one; otherwise it is made now.

    A failure is written down with what it took, and raised.
    """
    run_store = context.run_store
    key = item_key(stage, position, question.content)
    known = await _known(context, stage, key, position)
    if known is not None:
        return known
    started_at = run_store.clock.now()
    usage = Usage()
    try:
        value = await context.asker.ask(question, usage, read)
    except LOST:
        raise
    except Exception as error:
        if usage.totals.calls:
            step = run_store.made(
                key, kind="call", position=position, output=usage.record(raw=usage.raw),
                error=error, started_at=started_at,
            )  # fmt: skip
            await run_store.put([step])
        raise
    record = with_value(usage.record(), value)
    step = run_store.made(key, kind="call", position=position, output=record, started_at=started_at)
    await run_store.put([step], usage.owed)
    context.progress.count(record)
    context.progress.report()
    return record


async def _known(
    context: PipelineContext, stage: str, key: str, position: int
) -> ItemRecord | None:
    """The answer to an earlier attempt, or to an earlier run of equal content."""
    run_store = context.run_store
    if not run_store.claim.is_fresh:
        earlier = await run_store.step(key)
        if earlier is not None and earlier.status == "completed":
            return record_of(earlier)
    for cache in context.caches:
        hit = await cache.find(stage, key)
        if hit is not None:
            record = free(record_of(hit))
            step = run_store.made(key, kind="call", position=position, output=record)
            await run_store.put([step])
            return record
    return None
