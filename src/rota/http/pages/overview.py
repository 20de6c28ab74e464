"""The first page: open questions, health, coming occurrences, active runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rota.client.overview import ActivitySeries
from rota.client.schedule_pages import LastOutcomes
from rota.client.schedule_view import ListedCounts, Occurrence, ScheduleView
from rota.core.runs.lifecycle import Status
from rota.core.runs.model import Run
from rota.core.schedules.firing_plan import jitter_us
from rota.core.time.instants import DAY, HOUR, MINUTE, SECOND, instant
from rota.core.time.recurrence import between, count_between
from rota.http.pages import chart
from rota.http.pages.attention import InboxItem, inbox_of
from rota.http.pages.chart import Tile
from rota.http.pages.run_row import RunRowView, run_row
from rota.http.pages.status import STATES, StatusView
from rota.http.pages.text import (
    MISSING,
    Stamp,
    WallClock,
    counted,
    duration,
    number,
    percent,
    schedule_href,
    sentence,
)
from rota.http.pages.view import clock_of, page
from rota.http.pages.workers import FleetView, fleet_of
from rota.http.request import Answer, WebRequest

LIVE = "run schedule automation pipeline worker"
INBOX_MAX = 12
LANES_MAX = 12
RUNNING_ROWS = 8
UPCOMING_MAX = 500
BARS_MAX = 150  # firings of one lane that are drawn one by one
SCHEDULES_MAX = 200
BUCKETS = 48


@dataclass(frozen=True)
class Lane:
    """A schedule with its firings of the next 24 hours."""

    name: str
    href: str
    bars: Sequence[chart.Bar]
    label: str
    next: Stamp | None
    is_paused: bool
    state: StatusView | None
    note: str


async def show(request: WebRequest) -> Answer:
    """The page."""
    client, clock = request.client, clock_of(request)
    schedules = await client.schedules.list(limit=SCHEDULES_MAX)
    outcomes = await client.schedules.last_outcomes(
        [view.schedule.name for view in schedules], last=20
    )
    inbox = await inbox_of(request, outcomes, clock)
    fleet = await fleet_of(request)
    running = await client.runs.list(status="running", limit=RUNNING_ROWS)
    pending = await client.runs.list(status="pending", limit=RUNNING_ROWS)
    counts = await client.overview.counts()
    series = await client.overview.activity(buckets=BUCKETS)
    lanes, lanes_note = await _lanes(request, schedules, outcomes, clock)
    now_running = counts.open.get("running", 0)
    headline, context = sentences(inbox, fleet, await client.schedules.count(), now_running)
    oldest = min((item.since_at for item in inbox), default=None)
    return page(
        request, "overview.html", title="Overview", place="overview", live=LIVE,
        headline=headline, context=context, oldest=clock.stamp(oldest),
        inbox=inbox[:INBOX_MAX],
        inbox_more=f"and {len(inbox) - INBOX_MAX} more" if len(inbox) > INBOX_MAX else "",
        tiles=tiles_of(series, fleet, clock), lanes=lanes, lanes_note=lanes_note,
        ticks=chart.hour_ticks(clock),
        running=[_active(run, fleet, clock) for run in [*running, *pending][:RUNNING_ROWS]],
        running_link=f"all {number(now_running)} running" if now_running else "all runs",
        queues=fleet.queues, workers_line=_workers_line(fleet),
    )  # fmt: skip


def _active(run: Run, fleet: FleetView, clock: WallClock) -> RunRowView:
    """A row of what runs or waits; a pending one says what holds it back."""
    row = run_row(run, clock)
    held = fleet.held_back(run.queue) if run.status == Status.PENDING else ""
    return replace(row, why=held) if held else row


def _workers_line(fleet: FleetView) -> str:
    if not fleet.alive:
        return "no worker is alive"
    return f"{counted(len(fleet.alive), 'worker')} alive, {counted(fleet.slots_free, 'slot')} free"


def sentences(
    inbox: Sequence[InboxItem], fleet: FleetView, schedules: ListedCounts, running: int
) -> tuple[str, str]:
    """How much waits for an operator, and the state of the rest."""
    needs = len(inbox)
    head = "Nothing needs you."
    if needs:
        head = f"{counted(needs, 'thing')} {'needs' if needs == 1 else 'need'} you."
    alive = len(fleet.alive)
    parts = [
        counted(alive, "worker") + " alive" if alive else "no worker is alive",
        counted(schedules.total - schedules.paused, "schedule") + " on" if schedules.total else "",
        counted(running, "run") + " in progress" if running else "nothing runs now",
    ]
    lead = "Everything else runs: " if needs and alive else ""
    return head, sentence(lead + ", ".join(part for part in parts if part))


# -- tiles --------------------------------------------------------------------------------------


def tiles_of(series: ActivitySeries, fleet: FleetView, clock: WallClock) -> list[Tile]:
    """Four numbers over the last 24 hours, or over the newest runs where there are very many."""
    done = [bucket.completed + bucket.failed for bucket in series.buckets]
    failed = [bucket.failed for bucket in series.buckets]
    late = [bucket.late_s_max or 0.0 for bucket in series.buckets]
    known = [bucket.late_s_max for bucket in series.buckets if bucket.late_s_max is not None]
    waits = sum(row.pending for row in fleet.queues)
    waiting_since = [row.oldest for row in fleet.queues if row.oldest]
    oldest = min(waiting_since, key=lambda stamp: stamp.iso, default=None)
    since = "last 24 h" if series.is_whole else f"since {clock.day(instant(series.since))}"
    total, bad = sum(done), sum(failed)
    return [
        Tile(f"Finished, {since}", number(total), "",
            f"peak {number(max(done, default=0))} per 30 min", chart.spark_bars(done),
            "bar-soft2", table=_quarters(done, clock)),
        Tile("Failed", number(bad), percent(bad, total) if total else "",
            "attempts that failed or crashed", chart.spark_bars(failed), "bar-bad",
            table=_quarters(failed, clock)),
        Tile("Schedules late by, worst", duration(round(max(known) * SECOND)) if known else MISSING,
            "", "from the time due to the first start", points=chart.polyline(late)),
        Tile("Waiting for a slot", number(waits), "",
            f"the oldest for {oldest.age}" if oldest else "nothing waits"),
    ]  # fmt: skip


def _quarters(values: Sequence[int], clock: WallClock) -> list[tuple[str, str]]:
    size = len(values) // 4
    rows = []
    for at in range(4):
        first = clock.now - DAY + at * 6 * HOUR
        name = f"{clock.local(first):%H:%M} to {clock.local(first + 6 * HOUR):%H:%M}"
        rows.append((name, number(sum(values[at * size : (at + 1) * size]))))
    return rows


# -- the next 24 hours --------------------------------------------------------------------------


async def _lanes(
    request: WebRequest,
    schedules: Sequence[ScheduleView],
    outcomes: Mapping[str, LastOutcomes],
    clock: WallClock,
) -> tuple[list[Lane], str]:
    """The schedules that fire soonest, each with all its firings; then the paused ones."""
    until = clock.now + DAY
    due = [
        view for view in schedules if view.schedule.status == Status.SCHEDULED and not view.problem
    ]
    soon = [view for view in due if (view.schedule.due_at or until) < until]
    soon.sort(key=lambda view: view.schedule.due_at or until)
    lanes = []
    for view in soon[:LANES_MAX]:
        known = outcomes.get(view.schedule.name)
        usual = round((known.usual_s if known and known.usual_s else 60.0) * SECOND)
        lanes.append(_lane(view, usual, clock))
    paused = [view for view in schedules if view.schedule.status == Status.PAUSED]
    for row in [view.schedule for view in paused if view.schedule.due_at is not None]:
        if len(lanes) < LANES_MAX:
            until_text = "" if row.available_at is None else f"until {clock.day(row.available_at)}"
            lanes.append(Lane(row.name, schedule_href(row.name), (), "paused", None,
                True, STATES["paused"], until_text))  # fmt: skip
    upcoming = await request.client.schedules.upcoming(within="1d", limit=UPCOMING_MAX)
    notes = [_busiest(upcoming, clock)]
    if len(schedules) == SCHEDULES_MAX:
        notes.append(
            f"Only the first {SCHEDULES_MAX} schedules by name are read, also for what was missed."
        )
    if len(soon) > LANES_MAX:
        notes.append(f"The soonest {LANES_MAX} of {counted(len(soon), 'schedule')} are shown.")
    return lanes, " ".join(part for part in notes if part)


def _lane(view: ScheduleView, usual: int, clock: WallClock) -> Lane:
    """A bar for each firing; one band where they are too close for single bars."""
    name, spec = view.schedule.name, view.intent.spec
    first, last = clock.now, clock.now + DAY
    due_at = view.schedule.due_at or first
    count = count_between(spec, first, last)
    if count > BARS_MAX:
        bars = [chart.lane_bar(first, last, first=first, last=last, tone="soft2")]
    else:
        jitter = jitter_us(name, view.intent.policies)
        times = [due_at, *(at for at in between(spec, first, last, limit=BARS_MAX) if at > due_at)]
        bars = [
            chart.lane_bar(at + jitter, at + jitter + usual, first=first, last=last, tone="run")
            for at in times
        ]
    label = f"{counted(max(count, 1), 'firing')}, the first {clock.day(due_at)}"
    stamp = clock.stamp(max(due_at, first))
    return Lane(name, schedule_href(name), bars, label, stamp, False, None, "")


def _busiest(occurrences: Sequence[Occurrence], clock: WallClock) -> str:
    """The minutes at which several schedules fire."""
    minutes: dict[int, set[str]] = {}
    for occurrence in occurrences:
        minutes.setdefault(instant(occurrence.runs_at) // MINUTE, set()).add(occurrence.schedule)
    if not minutes:
        return ""
    at, names = max(minutes.items(), key=lambda item: len(item[1]))
    if len(names) < 3:
        return ""
    return f"{clock.day(at * MINUTE)}: {len(names)} schedules fire at the same time."
