"""Occurrences of a schedule as a page shows them: bars, calendar, ledger rows. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import NamedTuple

from rota.client.schedule_pages import OutcomeCalendar
from rota.core.runs.lifecycle import OPEN, Status, Trigger
from rota.core.runs.model import Run
from rota.core.runs.stored_errors import cause_line
from rota.core.schedules.firing_plan import jitter_us
from rota.core.schedules.intent import Intent, Policies
from rota.core.time.instants import instant
from rota.core.time.recurrence import between
from rota.explain.schedule import pause_of, range_of
from rota.explain.skipped import detailed, skip_clause
from rota.http.pages.chart import Bar
from rota.http.pages.status import StatusView, run_state
from rota.http.pages.text import MISSING, WallClock, clipped, duration, rough, took

BARS = 20
DAYS = 14
HOURS = tuple(f"{hour:02}" for hour in range(24))
RANGE_MAX = 500  # occurrences of one skipped range that a calendar draws


class OutcomeLook(NamedTuple):
    """How occurrences of one outcome look: the bar, the cell of the calendar, the legend."""

    bar: tuple[int, int, str]  # y, height, tone
    cell: tuple[str, str]  # kind, shape
    legend: str


_LOOKS = {
    "fired": OutcomeLook((4, 12, "ok"), ("fired", ""), "fired"),
    "failed": OutcomeLook((0, 20, "bad"), ("failed", "g-x"), "fired, failed"),
    "running": OutcomeLook((4, 12, "run"), ("running", "g-dot"), "running"),
    "skipped": OutcomeLook((8, 8, "warn"), ("overlap", "g-slash"), "skipped"),
    "missed": OutcomeLook((2, 14, "miss"), ("missed", "g-dia"), "missed"),
    "paused": OutcomeLook((13, 3, "rest"), ("paused", "g-bars"), "paused"),
    "cancelled": OutcomeLook((8, 8, "rest"), ("paused", "g-slash"), "cancelled"),
}
_WORST = ("failed", "missed", "skipped", "running", "cancelled", "paused", "fired")


def words_of(text: str, zone: str) -> str:
    """When a schedule fires, without the zone: pages name it beside the words."""
    return text.replace(f" ({zone})", "")


def outcome_of(run: Run) -> str:
    """The outcome of an occurrence, in one of a few words."""
    return outcome_word(run.status, run.reason)


def outcome_word(status: str, reason: str | None) -> str:
    """One of `fired`, `failed`, `running`, `skipped`, `missed`, `paused`, `cancelled`."""
    if status == Status.SKIPPED:
        if reason in ("missed", "too late"):
            return "missed"
        return "paused" if reason == "paused" else "skipped"
    if status in (Status.FAILED, Status.CRASHED):
        return "failed"
    if status == Status.CANCELLED:
        return "cancelled"
    return "running" if status in OPEN else "fired"


def bars_of(outcomes: Sequence[str]) -> tuple[list[Bar], str]:
    """The last 20 occurrences, oldest first, and the same in words."""
    shown = list(outcomes)[-BARS:]
    bars = []
    for at, outcome in enumerate(shown):
        y, height, tone = _LOOKS[outcome].bar
        bars.append(Bar(9.0 * (at + BARS - len(shown)), y, 7, height, tone))
    counts = Counter(shown)
    words = ", ".join(f"{counts[word]} {word}" for word in _LOOKS if counts[word])
    return bars, f"Last {len(shown)}: {words}" if shown else "No occurrence yet"


def usual_us(rows: Iterable[Run], share: float = 0.5) -> int | None:
    """A percentile of the durations of completed runs."""
    took_us = sorted(
        run.finished_at - run.started_at
        for run in rows
        if run.status == Status.COMPLETED and run.finished_at and run.started_at
    )
    return took_us[min(len(took_us) - 1, int(share * len(took_us)))] if took_us else None


# -- ledger -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LedgerLine:
    """One row of the ledger."""

    id: str
    due: str
    state: StatusView
    word: str
    text: str
    run_id: str
    late: str
    took: str
    mark: str


def ledger_line(run: Run, name: str, policies: Policies, clock: WallClock) -> LedgerLine:
    """A row of the ledger, on the schedule's wall clock."""
    state = run_state(run)
    if run.status == Status.SKIPPED:
        first, last, count = range_of(run)
        text = detailed(skip_clause(run.reason or "skipped", policies), run)
        pause = pause_of(run)
        if pause is not None and pause.note:
            text = f"paused: “{pause.note}”"
        due = clock.day(first) if count == 1 else f"{clock.day(first)} to {clock.day(last)}"
        word = state.word if count == 1 else f"{state.word} × {count:,}"
        mark = "bad" if state.tone == "bad" else ""
        return LedgerLine(run.id, due, state, word, text, "", MISSING, MISSING, mark)
    due_at = run.due_at or run.created_at
    late = run.created_at - due_at - jitter_us(name, policies)
    by_schedule = run.trigger == Trigger.SCHEDULE
    is_late = by_schedule and late > policies.on_time_us
    words = {Trigger.MANUAL: "By hand", Trigger.BACKFILL: "Backfilled"}
    word = words.get(Trigger(run.trigger), "Fired late" if is_late else "Fired")
    text = state.word.lower()
    if state.tone == "bad":
        word = f"{word}, {text}"
    if run.status == Status.RUNNING and run.started_at:
        text = f"running, {rough(clock.now - run.started_at)} so far"
    elif run.error:
        text = f"{text}: {clipped(cause_line(run.error), 120)}"
    until = run.finished_at
    return LedgerLine(
        run.id, clock.day(due_at), state, word, text, run.id,
        duration(max(0, late)) if by_schedule else MISSING, took(run.started_at, until),
        "bad" if state.tone == "bad" else "",
    )  # fmt: skip


# -- calendar -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """One hour of one day."""

    kind: str
    shape: str = ""
    title: str = ""
    href: str = ""


@dataclass(frozen=True)
class CalendarDay:
    """One row of the calendar."""

    iso: str
    label: str
    cells: list[Cell]
    sum: str


@dataclass(frozen=True)
class CalendarView:
    """The calendar of outcomes."""

    line: str
    hours: Sequence[str]
    days: list[CalendarDay]
    legend: list[LegendEntry]


@dataclass(frozen=True)
class LegendEntry:
    """A kind of cell, and how many there are."""

    kind: str
    shape: str
    text: str


_QUIET = {"fired", "running", "paused"}


def calendar_of(
    calendar: OutcomeCalendar, intent: Intent, clock: WallClock, *, href: str, is_paused: bool
) -> CalendarView:
    """Outcomes by day and hour on the schedule's wall clock, today first, and what is to come."""
    today = clock.local(clock.now).date()
    cells: dict[tuple[date, int], Counter[str]] = {}
    for cell in calendar.cells:
        cells[cell.day, cell.hour or 0] = words_counted(cell.counts)
    totals = totals_of(calendar)
    future = set() if is_paused else _future_hours(intent, clock, today)
    days = [_day(today - timedelta(days=back), cells, future, href=href) for back in range(DAYS)]
    legend = [
        LegendEntry(*look.cell, f"{look.legend} {totals[word]:,}")
        for word, look in _LOOKS.items()
        if totals[word]
    ]
    if future:
        legend.append(LegendEntry("future", "", "to come"))
    return CalendarView(f"{DAYS} days, hours in {clock.zone}", HOURS, days, legend)


def words_counted(counts: Mapping[str, int]) -> Counter[str]:
    """Counts by `status:reason` as counts by word."""
    words: Counter[str] = Counter()
    for outcome, count in counts.items():
        status, _, reason = outcome.partition(":")
        words[outcome_word(status, reason or None)] += count
    return words


def totals_of(calendar: OutcomeCalendar) -> Counter[str]:
    """All outcomes of a calendar, by word."""
    return sum((words_counted(cell.counts) for cell in calendar.cells), Counter[str]())


def _future_hours(intent: Intent, clock: WallClock, today: date) -> set[tuple[date, int]]:
    midnight = datetime.combine(today + timedelta(days=1), datetime.min.time())
    end = instant(midnight.replace(tzinfo=clock.local(clock.now).tzinfo))
    limit = min(RANGE_MAX, intent.runs_left)
    instants = between(intent.spec, clock.now, end - 1, limit=limit)
    return {(clock.local(at).date(), clock.local(at).hour) for at in instants}


def _day(
    day: date, cells: dict[tuple[date, int], Counter[str]], future: set[tuple[date, int]], *,
    href: str,
) -> CalendarDay:  # fmt: skip
    row, sums = [], Counter[str]()
    for hour in range(24):
        counts = cells.get((day, hour))
        if counts:
            sums.update(counts)
            row.append(_cell(day, hour, counts, href))
        elif (day, hour) in future:
            row.append(Cell("future"))
        else:
            row.append(Cell("none"))
    notable = [f"{sums[word]} {word}" for word in _WORST if sums[word] and word != "fired"]
    label = f"{day:%a} {day.day}"
    return CalendarDay(day.isoformat(), label, row, ", ".join(notable))


def _cell(day: date, hour: int, counts: Counter[str], href: str) -> Cell:
    worst = next(word for word in _WORST if counts[word])
    kind, shape = _LOOKS[worst].cell
    parts = ", ".join(
        f"{counts[word]} {look.legend}" for word, look in _LOOKS.items() if counts[word]
    )
    title = f"{day:%a} {day.day} {hour:02}:00, {parts}"
    target = "" if worst in _QUIET else f"{href}?day={day.isoformat()}#ledger"
    return Cell(kind, shape, title, target)
