"""A schedule as people and programs see it: its row, its meaning, the tag of its definition. It is
found by its name."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from rota.client.connection import ClientPart
from rota.core.runs.lifecycle import Status
from rota.core.runs.model import Schedule
from rota.core.runs.names import checked_name, checked_search
from rota.core.schedules.firing_plan import jitter_us
from rota.core.schedules.intent import Intent
from rota.core.suggest import suggestion
from rota.core.time.describe import describe
from rota.core.time.instants import moment
from rota.core.time.recurrence import Spec, between, next_after, notes
from rota.errors import BadSchedule, ChangedSince, UnknownSchedule
from rota.schedules import definition
from rota.schedules.overrides import FieldDifference, differences
from rota.store.schedules import templates as store

PREVIEW_MAX = 1000
COUNT_MAX = 10_000


class Occurrence(NamedTuple):
    """One future occurrence: nominal and effective instant, with remarks about the clock."""

    schedule: str
    due_at: datetime
    runs_at: datetime
    notes: list[str]


class ScheduleView(NamedTuple):
    """A schedule and its meaning; `problem` says why it can no longer be evaluated."""

    schedule: Schedule
    intent: Intent
    text: str
    problem: str | None = None

    @property
    def differences(self) -> Sequence[FieldDifference]:
        """The fields that an operator has changed, with the declared and the current value."""
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
    return [
        Occurrence(name, moment(at), moment(at + spread), notes(intent.spec, at))
        for at in between(intent.spec, now, sys.maxsize, limit=min(count, PREVIEW_MAX))
    ]


def view_of(schedule: Schedule) -> ScheduleView:
    """A row and its meaning."""
    intent, problem = definition.found(schedule)
    if problem is not None:  # a poison row is shown, not hidden
        return ScheduleView(schedule, intent, f"cannot be read: {problem}", problem)
    return ScheduleView(schedule, intent, describe(intent.spec))


def evaluable(view: ScheduleView) -> ScheduleView:
    """The schedule, or an error when it cannot be evaluated."""
    if view.problem is None:
        return view
    name = view.schedule.name
    raise BadSchedule(
        f"schedule {name} cannot be read any more: {view.problem}",
        hint=f"Repair it first: `rota schedule update {name}` with new values for the unreadable "
        "fields.",
    )


def check_match(schedule: Schedule, if_match: str | None) -> None:
    """Refuse a change of a definition that differs from the one that the caller has read."""
    if if_match is not None and view_of(schedule).etag != if_match:
        raise ChangedSince(f"schedule {schedule.name} has changed since it was read")


class ListedCounts(NamedTuple):
    """The number of schedules, and of those that are paused; 10,000 means that or more."""

    total: int
    paused: int


class ScheduleFinder(ClientPart):
    """Finds the schedules of one namespace."""

    async def get(self, name: str) -> ScheduleView:
        """Find a schedule by name.

        Args:
            name: The schedule.

        Raises:
            UnknownSchedule: There is no schedule of that name.
        """
        checked_name(name, "schedule name")
        found = await self._database.read(store.find, namespace=self._namespace, name=name)
        if found is None:
            raise await self._unknown(name)
        return view_of(found)

    async def list(
        self, *, after: str = "", limit: int = 1000, search: str = "", paused: bool = False
    ) -> Sequence[ScheduleView]:
        """List schedules by name.

        Args:
            after: The last name of the page before.
            limit: At most so many.
            search: A part of the name.
            paused: Only those that are paused.
        """
        rows = await self._database.read(
            store.listing, namespace=self._namespace, after=after, limit=limit,
            search=checked_search(search), status=Status.PAUSED if paused else "",
        )  # fmt: skip
        return [view_of(row) for row in rows]

    async def count(self, *, search: str = "") -> ListedCounts:
        """Count schedules, up to 10,000.

        Args:
            search: A part of the name.
        """
        found = await self._database.read(
            store.count, namespace=self._namespace, search=checked_search(search), limit=COUNT_MAX
        )
        return ListedCounts(*found)

    async def _unknown(self, name: str) -> UnknownSchedule:
        names = [shown.schedule.name for shown in await self.list()]
        hint = suggestion(name, names)
        return UnknownSchedule(f"there is no schedule {name!r}", hint=hint, name=name)
