"""The page of one schedule: calendar, ledger, why, what comes next, and its verbs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta

from rota.client.schedule_pages import OutcomeCalendar
from rota.client.schedules import Occurrence, ScheduleView
from rota.core.runs.lifecycle import Status
from rota.core.runs.model import Run
from rota.core.schedules.intent import ENDED
from rota.core.time.instants import instant, span
from rota.core.time.zones import zone_named
from rota.errors import BadInput, RotaError
from rota.explain.schedule import Explanation
from rota.explain.schedule import why as explain
from rota.http.pages import chart
from rota.http.pages.occurrence_view import (
    DAYS,
    LedgerLine,
    calendar_of,
    ledger_line,
    noun,
    outcome_of,
    totals_of,
    usual_us,
    words_counted,
    words_of,
)
from rota.http.pages.run import Fact, WhyClause, read_json
from rota.http.pages.status import STATES
from rota.http.pages.text import WallClock, city, duration, rough, segment, stored_value
from rota.http.pages.view import PageProblem, after, clock_of, link, page
from rota.http.request import Answer, WebRequest
from rota.schedules.preview import read_time, to_instant, zone_of

LIVE = "schedule run"
LEDGER_SIZE = 20
DURATIONS = 40
OVERLAPS = {
    "queue": "queue: one waits, further ones merge into it",
    "queue-all": "queue-all: every one waits",
    "skip": "skip: leave it out",
    "allow": "allow: run side by side",
    "cancel-running": "cancel-running: the newer one replaces it",
}
MISSES = {
    "run": "run: only the latest", "skip": "skip: none of them", "all": "all: the latest ones",
}  # fmt: skip


@dataclass(frozen=True)
class Ledger:
    """A page of the ledger."""

    rows: list[LedgerLine]
    line: str
    none: str
    day: str
    is_filtered: bool
    older: str


@dataclass(frozen=True)
class NextRow:
    """A future firing, in two zones."""

    there: str
    here: str
    away: str
    notes: Sequence[str]


@dataclass(frozen=True)
class WhyView:
    """A question and its answer."""

    asked: str
    at: str
    example: str
    clauses: list[WhyClause]
    hint: str


@dataclass(frozen=True)
class DurationView:
    """How long runs took."""

    line: str
    label: str
    points: str
    text: str


@dataclass(frozen=True)
class BackfillForm:
    """The content of the form; `count` is the count of a dry run."""

    text: str
    start: str
    end: str
    counted: str = ""
    count: int = 0


async def show(
    request: WebRequest, problem: PageProblem | None = None, backfill: BackfillForm | None = None
) -> Answer:
    """The page."""
    client, here = request.client, clock_of(request)
    name = request.parameters["name"]
    view = await client.schedules.get(name)
    zone = zone_of(view.intent.spec)
    there = WallClock(zone, here.now)
    start, end = _window(there)
    found = await client.schedules.calendar(name, start, end, by="hour")
    rows = await client.schedules.history(name, end=end, limit=DURATIONS)
    upcoming = [] if view.problem else await client.schedules.preview(name, 5)
    is_paused = view.schedule.status == Status.PAUSED
    href = f"/schedules/{segment(name)}"
    return page(
        request, "schedule.html", title=name, place="schedules", live=LIVE, problem=problem,
        status=200 if problem is None else 422, name=name, href=href,
        state=state_of_schedule(view), sentence=sentence_of(view, here, there),
        follows=follows_of(totals_of(found), rows, there), is_paused=is_paused, zone_name=zone,
        two_zones=zone != request.zone, input_text=stored_value(view.schedule.input).raw,
        calendar=calendar_of(found, view.intent, there, href=href, is_paused=is_paused),
        ledger=await _ledger(request, view, there), spread=duration_view(rows),
        facts=facts_of(view, there), differences=differences_of(view),
        next=[_next(one, here, there) for one in upcoming],
        why=await _why(request, name, there), backfill=backfill or _backfill(found, there),
    )  # fmt: skip


def _window(there: WallClock) -> tuple[datetime, datetime]:
    """From the first midnight of the calendar until now, which is included."""
    now = there.local(there.now)
    first = datetime.combine(now.date() - timedelta(days=DAYS - 1), time(), tzinfo=now.tzinfo)
    return first, now + timedelta(microseconds=1)


def state_of_schedule(view: ScheduleView) -> object:
    """The pill beside the title."""
    row = view.schedule
    if view.problem:
        return STATES["attention"]
    if row.status == Status.PAUSED:
        return STATES["ended" if row.reason in ENDED else "paused"]
    return STATES["scheduled"]


def sentence_of(view: ScheduleView, here: WallClock, there: WallClock) -> str:
    """When it fires, and when next in the reader's time."""
    row = view.schedule
    if view.problem:
        return f"It cannot be read any more: {view.problem}."
    if row.status == Status.PAUSED:
        until = "" if row.available_at is None else f" until {here.day(row.available_at)}"
        return f"Paused{until}: “{row.reason}”." if row.reason not in ENDED else f"{row.reason}."
    words = f"Fires {words_of(view.text, there.zone)} in {city(there.zone)}"
    if row.due_at is None:
        return f"{words}."
    yours = "" if here.zone == there.zone else " your time"
    away = "now" if row.due_at <= here.now else f"in {rough(row.due_at - here.now)}"
    return f"{words}; next at {here.day(row.due_at)}{yours}, {away}."


def follows_of(totals: Counter[str], rows: Sequence[Run], there: WallClock) -> str:
    """The recent deviations from the plan."""
    said = []
    missed, failed = totals["missed"], totals["failed"]
    running = [run for run in rows if outcome_of(run) == "running"]
    if running:
        said.append(f"The run of {there.day(running[0].due_at or running[0].created_at)} is open.")
    if missed:
        said.append(f"{noun(missed)} of the last {DAYS} days {_were(missed)} missed.")
    if failed:
        said.append(f"{noun(failed)} failed.")
    if not said and totals["fired"]:
        said.append(f"All of the last {DAYS} days ran.")
    return " ".join(said)


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def _next(one: Occurrence, here: WallClock, there: WallClock) -> NextRow:
    at = instant(one.runs_at)
    return NextRow(there.day(at), here.day(at), rough(at - here.now), one.notes)


async def _ledger(request: WebRequest, view: ScheduleView, there: WallClock) -> Ledger:
    client, query = request.client, request.query
    name = view.schedule.name
    day, only, before = query.get("day"), query.get("only"), query.get("before")
    start: datetime | None = None
    end: datetime | None = there.local(there.now)
    zone = zone_named(there.zone)
    try:
        if day:
            start = datetime.fromisoformat(day).replace(tzinfo=zone)
            end = start + timedelta(days=1) - timedelta(microseconds=1)
        elif before:
            end = datetime.fromisoformat(before) - timedelta(microseconds=1)
    except ValueError as error:
        raise BadInput(f"{day or before!r} is not a day") from error
    limit = 500 if only else LEDGER_SIZE
    rows = await client.schedules.history(name, start=start, end=end, limit=limit)
    shown = [run for run in rows if not only or outcome_of(run) not in ("fired", "running")]
    lines = [ledger_line(run, name, view.intent.policies, there) for run in shown[:LEDGER_SIZE]]
    older = ""
    if len(rows) == limit and shown:
        last = there.local(shown[:LEDGER_SIZE][-1].due_at or shown[-1].created_at)
        older = link(f"/schedules/{segment(name)}", before=last.isoformat(), only=only)
    return Ledger(
        lines, f"{len(lines)} rows", "No occurrence is in this part of the ledger.", day,
        bool(day or only or before), older,
    )  # fmt: skip


async def _why(request: WebRequest, name: str, there: WallClock) -> WhyView:
    asked = request.query.get("at").strip()
    example = there.local(there.now).strftime("%Y-%m-%d %H:00")
    try:
        at = read_time(asked, there.zone, there.now) if asked else None
        found = await explain(request.client, name, at=at)
    except RotaError as error:
        clauses = [WhyClause("", f"{error.message}.", "s-bad", "bad", is_hit=True)]
        return WhyView(asked, asked, example, clauses, error.advice)
    return WhyView(asked, asked, example, why_clauses(found), found.hint or "")


_GOOD = ("fired_completed", "fired_running", "fired_sleeps", "future", "not_yet")


def why_clauses(found: Explanation) -> list[WhyClause]:
    """The sentence of `rota why`, and the facts it rests on."""
    is_good = found.verdict in _GOOD
    shape, tone = ("g-check", "ok") if is_good else ("s-warn", "warn")
    clauses = [WhyClause("", found.sentence, shape, tone, is_hit=not is_good)]
    names = {"queue": "Queue", "timezone": "Zone", "workers_on": "Workers alive",
        "trigger": "Trigger", "attempt": "Attempt", "note": "Note", "count": "Occurrences"}  # fmt: skip
    for key, label in names.items():
        value = found.facts.get(key)
        if value not in (None, ""):
            clauses.append(WhyClause(label, str(value), "g-dot", "rest"))
    return clauses


def duration_view(rows: Sequence[Run]) -> DurationView | None:
    """The durations of the newest runs as a curve."""
    ended = [run for run in rows if run.started_at and run.finished_at][:DURATIONS]
    if len(ended) < 3:
        return None
    took = [(run.finished_at or 0) - (run.started_at or 0) for run in reversed(ended)]
    p50, p95 = usual_us(ended), usual_us(ended, 0.95)
    text = f"p50 {duration(p50)}, p95 {duration(p95)}, longest {duration(max(took))}."
    return DurationView(f"last {len(ended)} runs", text, chart.polyline(took), text)


def facts_of(view: ScheduleView, there: WallClock) -> list[Fact]:
    """The definition."""
    row, intent = view.schedule, view.intent
    policies = intent.policies
    retries = policies.retry.attempts - 1 if policies.retry else 0
    facts = [
        Fact("Runs", intent.workflow, link("/runs", q=intent.workflow), is_id=True),
        Fact("When", f"{intent.text} ({words_of(view.text, there.zone)})"),
        Fact("Zone", there.zone),
        Fact("Overlap", OVERLAPS.get(policies.overlap, policies.overlap)),
        Fact("Missed", MISSES.get(policies.missed, policies.missed)),
        Fact("Max delay", span(policies.delay_us_max)) if policies.delay_us_max else None,
        Fact("Jitter", f"up to {span(policies.jitter_us)}") if policies.jitter_us else None,
        Fact("Retries", str(retries)) if retries else None,
        Fact("Timeout", span(policies.timeout_us)) if policies.timeout_us else None,
        Fact("Queue", row.queue, link("/runs", queue=row.queue)),
        Fact("Declared by", intent.origin or "an operator"),
        Fact("Created", there.day(row.created_at)),
    ]
    return [fact for fact in facts if fact is not None]


@dataclass(frozen=True)
class DifferenceView:
    """A field that an operator has changed."""

    field: str
    now: str
    code: str


def differences_of(view: ScheduleView) -> list[DifferenceView]:
    """The fields that an operator has changed against the code."""
    return [DifferenceView(one.field, one.value, one.declared) for one in view.differences]


# -- forms --------------------------------------------------------------------------------------


def _backfill(found: OutcomeCalendar, there: WallClock) -> BackfillForm:
    """The form over what was missed lately, or over the last day."""
    lost = [cell for cell in found.cells if words_counted(cell.counts)["missed"]]
    now = there.local(there.now)
    first, last = now - timedelta(days=1), now
    text = "Runs the occurrences of a past range that have no run, oldest first."
    if lost:
        first, last = (
            datetime.combine(cell.day, time(cell.hour or 0), tzinfo=now.tzinfo)
            for cell in (lost[0], lost[-1])
        )
        last = min(now, last + timedelta(hours=1))
        missed = totals_of(found)["missed"]
        text = f"{noun(missed)} of the last {DAYS} days {_were(missed)} missed. {text}"
    return BackfillForm(text, first.strftime("%Y-%m-%d %H:%M"), last.strftime("%Y-%m-%d %H:%M"))


async def backfill(request: WebRequest) -> Answer:
    """Count what a backfill would start; with `expected`, start it."""
    client, name, form = request.client, request.parameters["name"], request.form()
    typed = BackfillForm("", form.get("from"), form.get("to"))

    async def refused(_: WebRequest, problem: PageProblem) -> Answer:
        return await show(request, problem, typed)

    view = await client.schedules.get(name)
    zone, now = zone_of(view.intent.spec), client.clock.now()
    try:
        start, end = (
            datetime.fromtimestamp(
                to_instant(read_time(text, zone, now), zone) / 1e6, zone_named(zone)
            )
            for text in (typed.start, typed.end)
        )
        counted = await client.schedules.backfill(name, start, end, dry_run=True)
        expected = form.get("expected")
        if not expected:
            said = f"{noun(counted.occurrence_count)}, {counted.run_count} of them without a run."
            shown = BackfillForm("", typed.start, typed.end, said, counted.run_count)
            return await show(request, None, shown)
        if expected != str(counted.run_count):
            raise BadInput(
                f"{counted.run_count} would be started now, not {expected}",
                hint="Something changed since you counted. Nothing was started; count again.",
            )
    except RotaError as error:
        return await refused(request, PageProblem.of(error))

    async def act() -> str:
        await client.schedules.backfill(name, start, end)
        return f"/schedules/{segment(name)}?done=backfilled"

    return await after(request, act, refused)


async def pause(request: WebRequest) -> Answer:
    """Stop firing, with a note, perhaps until a time."""

    async def act() -> str:
        client, name, form = request.client, request.parameters["name"], request.form()
        zone = zone_of((await client.schedules.get(name)).intent.spec)
        text, until = form.get("until").strip(), None
        if text:
            at = to_instant(read_time(text, zone, client.clock.now()), zone)
            until = datetime.fromtimestamp(at / 1e6, zone_named(zone))
        note = form.get("note").strip() or f"by {request.identity.name}"
        await client.schedules.pause(name, note=note, until=until)
        return f"/schedules/{segment(name)}?done=paused"

    return await after(request, act, show)


async def resume(request: WebRequest) -> Answer:
    """Fire again."""

    async def act() -> str:
        name = request.parameters["name"]
        catch_up = bool(request.form().get("catch_up"))
        await request.client.schedules.resume(name, catch_up=catch_up)
        return f"/schedules/{segment(name)}?done=resumed"

    return await after(request, act, show)


async def trigger(request: WebRequest) -> Answer:
    """Run it now, with the input of the form."""

    async def act() -> str:
        client, name = request.client, request.parameters["name"]
        given = read_json(request.form().get("input"), "the input")
        if given is not None and not isinstance(given, dict):
            raise BadInput("the input is not an object", hint='Write {"parameter": value}.')
        run_id = await client.schedules.trigger(name, input=given)
        return f"/runs/{run_id}?done=triggered"

    return await after(request, act, show)


async def reset(request: WebRequest) -> Answer:
    """Restore the code's values."""

    async def act() -> str:
        name = request.parameters["name"]
        await request.client.schedules.reset(name)
        return f"/schedules/{segment(name)}?done=reset"

    return await after(request, act, show)
