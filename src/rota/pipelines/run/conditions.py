"""Whether an execution may begin: `after` and `condition` of its schedule block.

An execution is checked before its first recorded step, and not again. It begins, or waits (asleep,
without a slot), or is skipped with a reason. A start or a retry by hand is never held back.

The rule of `after`: let X be the last time, up to the time this execution is for, at which the
other pipeline was due. It must have completed an execution for X or later; one by hand since X
counts. While that may still happen, this one waits, at most as long as the time to its own next
execution. When it cannot happen any more (failed, cancelled, skipped, paused), it is skipped.
"""

from __future__ import annotations

import asyncio
import glob
from pathlib import Path

import msgspec

from rota.core.pipelines.names import run_name
from rota.core.runs.lifecycle import OPEN, Status, label
from rota.core.runs.model import Claim, Outcome, Schedule
from rota.core.schedules.intent import read_intent
from rota.core.time.instants import DAY, SECOND, iso, span
from rota.core.time.recurrence import next_after, previous_before
from rota.engine.context import EngineContext
from rota.errors import RotaError
from rota.notifications import command
from rota.pipelines.definition.schedule_block import Condition, ScheduleBlock
from rota.pipelines.snapshot import Snapshot
from rota.store.backend.database import Tx
from rota.store.pipelines import dependencies

POLL_US_MIN, POLL_US_MAX = SECOND, 60 * SECOND
AFTER, CONDITION = "after", "condition"


class DependencyState(msgspec.Struct, frozen=True):
    """The state of a pipeline that comes before: done, in progress, or why it will not be."""

    done: bool = False
    hopeless: str | None = None


async def decide(base: EngineContext, claim: Claim, snapshot: Snapshot) -> Outcome | None:
    """For a run of a schedule: None to begin now, otherwise how to settle it instead."""
    block = snapshot.pipeline.schedule
    if block is None or claim.due_at is None:
        return None
    if claim.attempt > 1:  # it has begun before, or a person retries it
        return None
    if not block.after_ids and block.condition is None:
        return None
    if await base.database.read(dependencies.has_begun, claim.root_id):
        return None
    held = await _after(base, claim, block) if block.after_ids else None
    if held is not None or block.condition is None:
        return held
    unmet = await unmet_condition(block.condition, snapshot.path)
    return None if unmet is None else _skipped(claim, CONDITION, unmet)


async def _after(base: EngineContext, claim: Claim, block: ScheduleBlock) -> Outcome | None:
    own = await base.database.read(dependencies.schedule, claim.schedule_id or "")
    if own is None:
        return None  # its schedule is gone, and with it what it should come after
    due_at, now = claim.due_at or 0, base.clock.now()
    waits_for = None
    for pipeline_id in block.after_ids:
        state = await base.database.read(dependency_state, own, pipeline_id, due_at=due_at)
        if state.hopeless is not None:
            return _skipped(claim, AFTER, state.hopeless)
        if not state.done:
            waits_for = waits_for or pipeline_id
    if waits_for is None:
        return None
    until = claim.created_at + patience_us(own, due_at)
    if now >= until:
        waited = span(now - claim.created_at)
        return _skipped(claim, AFTER, f"{waits_for} had not completed after {waited}")
    pause = min(max((now - claim.created_at) // 10, POLL_US_MIN), POLL_US_MAX)
    return Outcome(claim, "suspend", reason=AFTER, wake_at=min(now + pause, until))


async def dependency_state(
    tx: Tx, own: Schedule, pipeline_id: str, *, due_at: int
) -> DependencyState:
    """The state of a pipeline of the same folder, for an execution due at an instant."""
    other = await dependencies.beside(tx, own, run_name(pipeline_id))
    if other is None:
        return DependencyState(hopeless=f"{pipeline_id} has no schedule in this folder")
    since = previous_before(read_intent(other.spec).spec, due_at + 1)
    if since is None:
        return DependencyState(hopeless=f"{pipeline_id} was never due before {iso(due_at)}")
    ends = await dependencies.ends_since(tx, other.id, since=since)
    if any(status == Status.COMPLETED for status, _ in ends):
        return DependencyState(done=True)
    if any(status in OPEN for status, _ in ends):
        return DependencyState()
    if ends:
        return DependencyState(hopeless=f"{pipeline_id} is {label(*ends[-1])} for {iso(since)}")
    coming = other.status == Status.SCHEDULED and other.due_at is not None
    if coming and (other.due_at or 0) <= since:
        return DependencyState()  # due, and about to be fired
    why = f" (it is {other.label})" if other.status == Status.PAUSED else ""
    return DependencyState(hopeless=f"{pipeline_id} has no execution for {iso(since)}{why}")


def patience_us(own: Schedule, due_at: int) -> int:
    """How long an execution waits for its dependencies: the time to its next occurrence."""
    upcoming = next_after(read_intent(own.spec).spec, due_at)
    return DAY if upcoming is None else upcoming - due_at


async def unmet_condition(condition: Condition, folder: Path) -> str | None:
    """The condition that does not hold, as text; None when all hold."""
    for text in _listed(condition.file_exists):
        if not await asyncio.to_thread(_is_there, folder, text):
            return f"{text} is not there"
    for text in _listed(condition.file_missing):
        if await asyncio.to_thread(_is_there, folder, text):
            return f"{text} is there"
    if condition.command is None:
        return None
    try:
        ended = await command.run(condition.command, folder, pass_env=condition.pass_env)
    except RotaError as error:
        return error.message
    return None if ended.code == 0 else ended.end_text(f"`{condition.command}`")


def _listed(given: str | list[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else list(given or [])


def _is_there(folder: Path, text: str) -> bool:
    """A file or folder by its name, or any that fits a pattern such as inbox/*.csv."""
    path = folder / text
    return path.exists() or bool(glob.glob(str(path), recursive=True))


def _skipped(claim: Claim, reason: str, sentence: str) -> Outcome:
    error = {"type": "Skipped", "message": sentence, "kind": reason, "trace": ""}
    return Outcome(claim, "skip", reason=reason, error=msgspec.json.encode(error).decode())
