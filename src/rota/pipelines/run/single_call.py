"""A single call that is a step: asked once, then remembered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rota.pipelines.run.context import PipelineContext
from rota.pipelines.run.map_stage import free, with_value
from rota.pipelines.run.model_caller import LOST, Usage
from rota.pipelines.run.prompt_builder import ModelPrompt
from rota.pipelines.run.run_store import ItemRecord, item_key, record_of


async def call(
    room: PipelineContext,
    stage: str,
    question: ModelPrompt,
    read: Callable[[str], Any],
    position: int = 0,
) -> ItemRecord:
    """The record of the call, from an earlier attempt if there is one; otherwise it is made now.

    A failure is written down with what it took, and raised.
    """
    notebook = room.notebook
    key = item_key(stage, position, question.content)
    known = await _known(room, stage, key, position)
    if known is not None:
        return known
    started_at = notebook.clock.now()
    usage = Usage()
    try:
        value = await room.asker.ask(question, usage, read)
    except LOST:
        raise
    except Exception as error:
        if usage.calls:
            record = usage.record(raw=usage.raw)
            await notebook.note(
                key, kind="call", position=position, output=record, error=error,
                started_at=started_at,
            )  # fmt: skip
        raise
    record = with_value(usage.record(), value)
    await notebook.note(key, kind="call", position=position, output=record, started_at=started_at)
    room.board.count(record)
    room.board.tell()
    return record


async def _known(room: PipelineContext, stage: str, key: str, position: int) -> ItemRecord | None:
    """The answer to an earlier attempt, or to an earlier run of equal content."""
    notebook = room.notebook
    if not notebook.claim.is_fresh:
        found = await notebook.step(key)
        if found is not None and found.status == "completed":
            return record_of(found)
    for cache in room.caches:
        hit = await cache.find(stage, key)
        if hit is not None:
            record = free(hit.record)
            await notebook.note(key, kind="call", position=position, output=record)
            return record
    return None
