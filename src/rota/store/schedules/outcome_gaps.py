"""Occurrences without an outcome, found in a ledger that has outcomes before and after them.

All outcomes lie before the occurrence that a schedule waits for, with one exception: the clock was
set back, and then the schedule was changed or its pause ended. `outcomes_until` of the intent says
how far such outcomes go, so that no other schedule pays for the search.
"""

from __future__ import annotations

import msgspec

from rota.core.runs.lifecycle import Status
from rota.core.runs.model import Schedule
from rota.core.schedules.firing_plan import jitter_us
from rota.core.schedules.intent import NO_FURTHER, Intent
from rota.core.schedules.outcome_gaps import OutcomeGap
from rota.core.time.occurrence_range import OccurrenceRange
from rota.core.time.recurrence import Spec, next_after
from rota.core.typed import json_text
from rota.store.backend.database import Tx
from rota.store.schedules.outcomes import last_recorded_at, recorded_from


async def place(
    tx: Tx, old: Schedule, before: Intent | None, fresh: Schedule, intent: Intent
) -> tuple[Schedule, Intent]:
    """Move a changed schedule to its first occurrence without an outcome. Without such an
    occurrence the schedule is paused as ended."""
    if fresh.due_at is None or not _may_be_recorded(old, before, fresh.due_at):
        return fresh, intent
    last_at = await last_recorded_at(tx, old.id)
    due_at = await first_without_outcome(tx, old.id, intent.spec, fresh.due_at)
    changes = {"outcomes_until": last_at if due_at is not None and due_at <= last_at else 0}
    if due_at is not None and intent.forgiven_at == fresh.due_at:
        changes["forgiven_at"] = due_at
    intent = msgspec.structs.replace(intent, **changes)
    fresh = msgspec.structs.replace(fresh, due_at=due_at, spec=json_text(intent))
    if fresh.status != Status.SCHEDULED:
        return fresh, intent
    if due_at is None:
        rest = msgspec.structs.replace(
            fresh, status=Status.PAUSED, reason=NO_FURTHER, available_at=None
        )
        return rest, intent
    at = due_at + jitter_us(fresh.name, intent.policies)
    return msgspec.structs.replace(fresh, available_at=at), intent


def _may_be_recorded(old: Schedule, before: Intent | None, due_at: int) -> bool:
    """Whether an occurrence from `due_at` on may have an outcome."""
    if before is None or old.due_at is None:
        return True
    return due_at < old.due_at or due_at <= before.outcomes_until


async def first_without_outcome(tx: Tx, schedule_id: str, spec: Spec, at: int | None) -> int | None:
    """The first occurrence without an outcome, from the occurrence `at` on."""
    seen_at = None
    while at is not None and at != seen_at:
        seen_at = at
        for first_at, last_at in await recorded_from(tx, schedule_id, at=at):
            if at is None or at < first_at:
                break
            at = next_after(spec, last_at)
    return at


async def outcome_gap(tx: Tx, schedule_id: str, spec: Spec, at: int) -> OutcomeGap | None:
    """The range without outcomes from the occurrence `at`; None if no outcome ends it."""
    recorded = await recorded_from(tx, schedule_id, at=at, limit=1)
    if not recorded:
        return None
    last_at = recorded[0].first_at - 1
    following = next_after(spec, last_at)
    return OutcomeGap(at, last_at, await first_without_outcome(tx, schedule_id, spec, following))


async def outcome_gaps(
    tx: Tx, schedule_id: str, spec: Spec, after: int, until: int
) -> list[OccurrenceRange]:
    """All ranges without outcomes between two instants."""
    found: list[OccurrenceRange] = []
    at = await first_without_outcome(tx, schedule_id, spec, next_after(spec, after))
    while at is not None and at <= until:
        free = await outcome_gap(tx, schedule_id, spec, at)
        last_at = until if free is None else min(until, free.last_at)
        found.append(OccurrenceRange.of(spec, at - 1, last_at))
        at = None if free is None else free.next_at
    return found
