"""A schedule as people and programs see it: its row, its meaning, and the tag of its definition."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from rota.core.runs.model import Schedule
from rota.core.schedules.intent import Intent
from rota.core.time.describe import describe
from rota.errors import BadSchedule, ChangedSince
from rota.schedules import definition
from rota.schedules.overrides import FieldDifference, differences


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
