"""A schedule as people and programs see it: its row, its meaning, and the tag of its definition."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from rota.core.runs.model import Schedule
from rota.core.schedules.intent import Intent, jitter_us
from rota.core.time.describe import describe
from rota.core.time.instants import moment
from rota.core.time.recurrence import Spec, next_after, notes
from rota.errors import BadSchedule, ChangedSince
from rota.schedules import definition
from rota.schedules.overrides import FieldDifference, differences

PREVIEW_MAX = 1000


class Occurrence(NamedTuple):
    """One future occurrence: nominal and effective instant, with remarks about the clock."""

    schedule: str
    due_at: datetime
    runs_at: datetime
    notes: list[str]


class ScheduleView(NamedTuple):
    """A schedule with what it means; `problem` says why that cannot be evaluated any more."""

    schedule: Schedule
    intent: Intent
    text: str
    problem: str | None = None

    @property
    def differences(self) -> Sequence[FieldDifference]:
        """The fields that an operator has changed, with the code's value and the one in force."""
        return differences(self.schedule, self.intent)

    @property
    def etag(self) -> str:
        """A digest of the definition: it changes with every edit, not with every firing."""
        row, intent = self.schedule, self.intent
        parts = (
            intent.workflow, intent.spec, intent.policies, row.queue, row.priority, row.input,
            row.status, row.reason,
        )  # fmt: skip
        return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:16]


def ahead(row: Schedule, now: int, until: int) -> Iterator[tuple[int, str, int, Spec]]:
    """The occurrences of a schedule that fire after now: effective instant, name, nominal instant
    and spec. One that cannot be read has none: it is quarantined when it is due."""
    intent, problem = definition.found(row)
    if problem is not None:
        return
    spread = jitter_us(row.name, intent.policies)
    left = intent.runs_left
    due_at = row.due_at
    if due_at is not None and due_at + spread <= now:  # overdue: it fires any moment
        due_at, left = next_after(intent.spec, now - spread), left - 1
    while due_at is not None and due_at + spread <= until and left > 0:
        yield due_at + spread, row.name, due_at, intent.spec
        due_at, left = next_after(intent.spec, due_at), left - 1


def next_of(name: str, intent: Intent, now: int, count: int) -> list[Occurrence]:
    """The next `count` occurrences from `now`."""
    spread = jitter_us(name, intent.policies)
    if intent.policies.runs_max is not None:
        count = min(count, intent.policies.runs_max - intent.fired_count)
    found: list[Occurrence] = []
    at = next_after(intent.spec, now)
    while at is not None and len(found) < min(count, PREVIEW_MAX):
        found.append(Occurrence(name, moment(at), moment(at + spread), notes(intent.spec, at)))
        at = next_after(intent.spec, at)
    return found


def view_of(schedule: Schedule) -> ScheduleView:
    """A row with what it means."""
    intent, problem = definition.found(schedule)
    if problem is not None:  # a poison row is shown, not hidden
        return ScheduleView(schedule, intent, f"cannot be read: {problem}", problem)
    return ScheduleView(schedule, intent, describe(intent.spec))


def evaluable(shown: ScheduleView) -> ScheduleView:
    """The schedule, or an error when it cannot be evaluated."""
    if shown.problem is None:
        return shown
    name = shown.schedule.name
    raise BadSchedule(
        f"schedule {name} cannot be read any more: {shown.problem}",
        hint=f"Fix it first: `rota schedule update {name}` with what is wrong or lost.",
    )


def check_match(schedule: Schedule, if_match: str | None) -> None:
    """Refuse a change of a definition that differs from the one that the caller has read."""
    if if_match is not None and view_of(schedule).etag != if_match:
        raise ChangedSince(f"schedule {schedule.name} has changed since it was read")
