"""Reading schedules: occurrences, ledger pages, calendars, last outcomes, effects of an edit.
`app.schedules` has these methods."""

from __future__ import annotations

import heapq
import itertools
import re
import sys
from collections.abc import Sequence
from datetime import date, datetime
from statistics import median
from types import EllipsisType
from typing import TYPE_CHECKING, Literal, NamedTuple, Unpack

from rota.client.schedule_view import (
    PREVIEW_MAX,
    Occurrence,
    ScheduleFinder,
    ScheduleView,
    ahead,
    evaluable,
    next_of,
)
from rota.core.runs.filters import checked_status, digest_of, read_cursor
from rota.core.runs.lifecycle import Status, label
from rota.core.runs.model import Run
from rota.core.runs.names import checked_key, checked_limit, checked_name
from rota.core.schedules.intent import Intent
from rota.core.suggest import check_options
from rota.core.time.describe import describe
from rota.core.time.instants import DAY, LAST, SECOND, Duration, instant, iso, micros, moment, shown
from rota.core.time.recurrence import Spec, count_between, notes
from rota.core.time.zones import zone_named
from rota.errors import BadInput, BadSchedule, StaleCursor
from rota.schedules.definition import Edit, PolicyOptions
from rota.schedules.edit import Retiming, When
from rota.store.schedules import outcomes as store
from rota.store.schedules import templates
from rota.store.schedules.outcomes import (
    LedgerPosition,
    OccurrenceOutcome,
    SkippedRange,
    position_of,
)

if TYPE_CHECKING:
    from rota.schedules.preview import Preview

CALENDAR_DAYS_MAX = {"day": 400, "hour": 62}
# Occurrences that one calendar counts.
CALENDAR_RUNS_MAX = 50_000
DURATIONS = 20
OUTCOMES_MAX = 100
# Occurrences that one read, and one page of the ledger, look at for an outcome.
LOOK, LOOK_MAX = 500, 5_000
_CURSOR = re.compile(r"(\d{1,18})\.([0-9a-z]{1,40})\.([0-9a-z]{1,40})")

CalendarUnit = Literal["day", "hour"]


class LedgerPage(NamedTuple):
    """Occurrences with their outcomes, newest first; `next` is None at the end. `looked_back_to`
    is set when the page ended at the bound of its search before it was full."""

    runs: list[Run]
    next: str | None
    looked_back_to: datetime | None = None


class LedgerQuery(NamedTuple):
    """The occurrences that are wanted. `outcome` is a status, or a status with its reason."""

    schedule_id: str
    from_at: int
    to_at: int
    outcome: str

    def fits(self, run: Run) -> bool:
        """Whether an occurrence has the wanted outcome."""
        return self.outcome in ("", run.status, run.label)

    def cursor(self, at: LedgerPosition) -> str:
        """The cursor of the page after a row."""
        return f"{at.at}.{at.id}.{digest_of(self)}"

    def position(self, cursor: str | None) -> LedgerPosition:
        """The position that a cursor holds, or StaleCursor if it was made with other filters."""
        if cursor is None:
            return LedgerPosition()
        found = read_cursor(_CURSOR, cursor)
        if found[3] != digest_of(self):
            raise StaleCursor("the cursor belongs to another schedule or to other filters")
        return LedgerPosition(int(found[1]), found[2])


class CalendarCell(NamedTuple):
    """One day, or one hour of it, in the local time of the zone. `counts` is by outcome, written
    `completed`, `failed`, `skipped:overlap`; an open run counts by its status."""

    day: date
    hour: int | None
    counts: dict[str, int]


class OutcomeCalendar(NamedTuple):
    """Cells that have an occurrence, oldest first. `is_whole` is False when the range holds more
    occurrences than a calendar counts; the oldest are omitted then."""

    zone: str
    unit: CalendarUnit
    cells: list[CalendarCell]
    is_whole: bool


class LastOutcomes(NamedTuple):
    """The newest outcomes of a schedule, oldest first, and the median of how long runs took."""

    outcomes: list[OccurrenceOutcome]
    usual_s: float | None


class ScheduleDiff(NamedTuple):
    """The effect of an edit. `burst` is why `update` would ask for a confirmation: the edit would
    release occurrences at once."""

    text_before: str
    text_after: str
    gained: list[datetime]
    lost: list[datetime]
    burst: str | None


class SchedulePages(ScheduleFinder):
    """Reads about the schedules of one namespace."""

    async def ledger(
        self,
        name: str,
        *,
        after: str | None = None,
        limit: int = 50,
        start: datetime | None = None,
        end: datetime | None = None,
        outcome: str = "",
    ) -> LedgerPage:
        """Read a page of `history`.

        With an outcome, a page looks at 5,000 occurrences; `looked_back_to` says how far, and
        `next` looks further.

        Args:
            name: The schedule.
            after: `next` of the page before.
            limit: At most so many.
            start, end: Only occurrences between these times.
            outcome: Only occurrences with this outcome.

        Returns:
            The occurrences, and `next`.

        Raises:
            UnknownSchedule: There is no schedule of that name.
        """
        wanted = await self._wanted(name, start, end, outcome)
        found, last = await self._occurrences(
            wanted, wanted.position(after), checked_limit(limit), LOOK_MAX
        )
        if last is None:
            return LedgerPage(found, None)
        looked_back_to = moment(last.at) if len(found) < limit else None
        return LedgerPage(found, wanted.cursor(last), looked_back_to)

    async def _wanted(
        self, name: str, start: datetime | None, end: datetime | None, outcome: str
    ) -> LedgerQuery:
        given = outcome.partition(":")[0] if isinstance(outcome, str) else outcome
        checked_status(given, "outcome")
        from_at = 0 if start is None else instant(start)
        to_at = 0 if end is None else instant(end)
        if start is not None and end is not None and to_at < from_at:
            raise BadInput(
                f"the range ends ({iso(to_at)}) before it begins ({iso(from_at)})",
                hint="Swap the two times.",
            )
        return LedgerQuery((await self.get(name)).schedule.id, from_at, to_at, outcome)

    async def _occurrences(
        self, wanted: LedgerQuery, before: LedgerPosition, limit: int, look_max: int
    ) -> tuple[list[Run], LedgerPosition | None]:
        """Occurrences that fit, and the last position that was looked at; None at the end."""
        found: list[Run] = []
        looked = 0
        while looked < look_max:
            size = LOOK if wanted.outcome else limit
            rows = await self._database.read(
                store.history, wanted.schedule_id, limit=size, before=before,
                from_at=wanted.from_at, to_at=wanted.to_at,
            )  # fmt: skip
            for run in filter(wanted.fits, rows):
                found.append(run)
                if len(found) == limit:
                    return found, position_of(run)
            if len(rows) < size:
                return found, None
            before = position_of(rows[-1])
            looked += size
        return found, before

    async def preview(self, name: str, count: int = 5) -> Sequence[Occurrence]:
        """Preview the next `count` occurrences of a schedule, with notes about daylight saving.

        Args:
            name: The schedule.
            count: The number of occurrences.

        Raises:
            UnknownSchedule: There is no schedule of that name.
        """
        shown = evaluable(await self.get(name))
        now = self._now()
        if shown.schedule.status != Status.SCHEDULED:
            return next_of(name, shown.intent, now, count)
        stream = ahead(shown.schedule, now, LAST)
        return [_occurrence(one) for one in itertools.islice(stream, min(count, PREVIEW_MAX))]

    async def upcoming(self, *, within: Duration = "1d", limit: int = 50) -> Sequence[Occurrence]:
        """List the next occurrences of all schedules.

        Args:
            within: How far to look ahead.
            limit: At most so many.

        Returns:
            Occurrences in the order in which they fire. An overdue one is not listed.
        """
        now = self._now()
        until = now + micros(within)
        rows = await self._database.read(
            templates.soonest, namespace=self._namespace, now=now, until=until, limit=limit
        )
        streams = [ahead(row, now, until) for row in rows]
        soonest = itertools.islice(heapq.merge(*streams, key=lambda one: one[0]), limit)
        return [_occurrence(one) for one in soonest]

    async def history(
        self, name: str, *, limit: int = 50, start: datetime | None = None,
        end: datetime | None = None, outcome: str = "",
    ) -> Sequence[Run]:  # fmt: skip
        """Read the ledger: every occurrence with its outcome, newest first.

        Args:
            name: The schedule.
            limit: At most so many rows.
            start: Only occurrences at or after this time.
            end: Only occurrences at or before this time.
            outcome: Only these, by status (`failed`), or by status and reason (`skipped:overlap`).

        Returns:
            One row for each occurrence. It has the id, trigger and start of the first attempt, and
            the status, result and end of the newest one.

        Raises:
            UnknownSchedule: There is no schedule of that name.
            BadInput: There is no such outcome, or `limit` is not a whole number from 1 on.
        """
        checked_limit(limit, sys.maxsize)
        wanted = await self._wanted(name, start, end, outcome)
        return (await self._occurrences(wanted, LedgerPosition(), limit, sys.maxsize))[0]

    async def calendar(
        self,
        name: str,
        start: datetime,
        end: datetime,
        *,
        by: CalendarUnit = "day",
        timezone: str | None = None,
    ) -> OutcomeCalendar:
        """Count outcomes of occurrences by day or by hour. Runs by hand do not count.

        Args:
            name: The schedule.
            start, end: The range, without its end.
            by: day or hour.
            timezone: Another time zone than that of the schedule.

        Returns:
            The counts.

        Raises:
            UnknownSchedule: There is no schedule of that name.
        """
        found = await self.get(name)
        if by not in CALENDAR_DAYS_MAX:
            raise BadInput(f"by={shown(by)} is not a unit", hint="Give day or hour.")
        from_at, to_at = instant(start), instant(end)
        days = CALENDAR_DAYS_MAX[by]
        if not 0 < to_at - from_at <= days * DAY:
            raise BadInput(
                "the range of the calendar is empty or too long",
                hint=f"Give an end after the start, at most {days} days later.",
            )
        timings = found.intent.spec.timings
        where = timezone or (timings[0].zone if timings else "UTC")
        zone_named(where)
        counted = await self._database.read(
            store.counts, found.schedule.id, from_at=from_at, to_at=to_at, limit=CALENDAR_RUNS_MAX
        )
        cells = _Cells(where, by)
        for one in counted.counts:
            reason = one.reason if one.status == Status.SKIPPED else None
            cells.add(one.quarter_at, label(one.status, reason), one.run_count)
        for skipped in counted.ranges:
            cells.spread(found, skipped, from_at, to_at)
        return OutcomeCalendar(where, by, cells.sorted(), counted.is_whole)

    async def last_outcomes(
        self, names: Sequence[str], *, last: int = DURATIONS
    ) -> dict[str, LastOutcomes]:
        """The newest outcomes of many schedules at once, by name; unknown names are omitted.

        Args:
            names: The schedules.
            last: At most so many outcomes of each.
        """
        asked = [checked_name(name, "schedule name") for name in names]
        checked_limit(max(1, len(asked)))
        rows = await self._database.read(
            store.last_named, namespace=self._namespace, names=asked,
            last=checked_limit(last, OUTCOMES_MAX),
        )  # fmt: skip
        return {name: LastOutcomes(listed, _usual_s(listed)) for name, listed in rows.items()}

    async def preview_of(
        self,
        when: str,
        *,
        timezone: str | None = None,
        count: int = 5,
        gap: str = "auto",
        repeat: str = "auto",
    ) -> Preview:
        """Explain a schedule text, and list its next occurrences. Needs no schedule.

        Args:
            when: Cron, an interval, a time or English.
            timezone: An IANA name.
            count: The number of occurrences.
            gap, repeat: Rules for daylight saving.

        Returns:
            The meaning, and the occurrences with notes about daylight saving.

        Raises:
            BadSchedule: The text cannot be read.
        """
        from rota.schedules.preview import look_ahead

        now = self._now()
        checked_key(when, "when")
        return look_ahead(
            [when], zone=timezone, count=checked_limit(count, 100), gap=gap, repeat=repeat, now=now
        )

    async def diff(
        self,
        name: str,
        *,
        when: When | None = None,
        timezone: str | None = None,
        gap: str | None = None,
        repeat: str | None = None,
        start: datetime | EllipsisType | None = ...,
        end: datetime | EllipsisType | None = ...,
        count: int = 20,
        **policies: Unpack[PolicyOptions],
    ) -> ScheduleDiff:
        """Show the effect of an edit, without changing anything.

        Args:
            name: The schedule.
            when, timezone, gap, repeat, start, end, policies: As in `update`.
            count: The number of firings to compare.

        Returns:
            The description before and after, and the firings gained and lost.

        Raises:
            UnknownSchedule: There is no schedule of that name.
        """
        check_options(policies, PolicyOptions, self.diff)
        checked_limit(count, 100)
        found = await self.get(name)
        now = self._now()
        timing = Retiming(when, timezone, gap, repeat, start, end, sub_second=True)
        _, intent = Edit(timing, policies, None, confirm=True).of(found.schedule, now)
        refused = None
        try:
            Edit(timing, policies, None, confirm=False).of(found.schedule, now)
        except BadSchedule as error:
            refused = error.message
        before = [] if found.problem else _firings(name, found.intent, now, count)
        after = _firings(name, intent, now, count)
        # Beyond the end of the shorter list nothing is known about the other one.
        until = min([one[-1] for one in (before, after) if len(one) == count], default=LAST)
        kept = set(before) & set(after)
        return ScheduleDiff(
            found.text, describe(intent.spec),
            [moment(at) for at in after if at not in kept and at <= until],
            [moment(at) for at in before if at not in kept and at <= until],
            refused,
        )  # fmt: skip


def _occurrence(one: tuple[int, str, int, Spec]) -> Occurrence:
    at, name, due_at, spec = one
    return Occurrence(name, moment(due_at), moment(at), notes(spec, due_at))


def _firings(name: str, intent: Intent, now: int, count: int) -> list[int]:
    return [instant(one.runs_at) for one in next_of(name, intent, now, count)]


def _usual_s(listed: Sequence[OccurrenceOutcome]) -> float | None:
    took = [
        (one.finished_at - one.started_at) / SECOND
        for one in listed
        if one.status == Status.COMPLETED and one.started_at and one.finished_at
    ]
    return median(took) if took else None


class _Cells:
    """Counts by cell."""

    def __init__(self, zone: str, unit: CalendarUnit) -> None:
        self._zone = zone_named(zone)
        self._unit = unit
        self._counts: dict[tuple[date, int | None], dict[str, int]] = {}

    def add(self, at: int, outcome: str, count: int) -> None:
        """Count occurrences of an instant."""
        local = moment(at).astimezone(self._zone)
        cell = self._counts.setdefault(
            (local.date(), local.hour if self._unit == "hour" else None), {}
        )
        cell[outcome] = cell.get(outcome, 0) + count

    def spread(self, found: ScheduleView, skipped: SkippedRange, from_at: int, to_at: int) -> None:
        """Count a range of skipped occurrences in the cells where they were due. A schedule that
        has changed since no longer says where: then they count at the end of the range."""
        outcome = label(Status.SKIPPED, skipped.reason)
        spec = found.intent.spec
        size = (
            count_between(spec, skipped.from_at - 1, skipped.to_at) if found.problem is None else 0
        )
        if size != skipped.occurrence_count:
            if from_at <= skipped.to_at < to_at:
                self.add(skipped.to_at, outcome, skipped.occurrence_count)
            return
        step = DAY // 24 // 4
        at = max(skipped.from_at, from_at)
        at -= at % step
        last = min(skipped.to_at, to_at - 1)
        while at <= last:
            first, end = max(at, skipped.from_at, from_at), min(at + step - 1, last)
            count = count_between(spec, first - 1, end)
            if count:
                self.add(at, outcome, count)
            at += step

    def sorted(self) -> list[CalendarCell]:
        """All cells, oldest first."""
        order = sorted(self._counts, key=lambda cell: (cell[0], cell[1] or 0))
        return [CalendarCell(day, hour, self._counts[day, hour]) for day, hour in order]
