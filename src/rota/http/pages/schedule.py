"""The page of one schedule: calendar, ledger, why, what comes next, and its verbs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta

from rota.client.schedule_pages import OutcomeCalendar
from rota.client.schedule_view import Occurrence, ScheduleView
from rota.core.runs.lifecycle import Status
from rota.core.runs.model import Run
from rota.core.schedules.intent import ENDED
from rota.core.time.instants import instant, span
from rota.errors import BadInput, RotaError
from rota.explain.why import why as explain
from rota.http.pages import chart
from rota.http.pages.forms import read_input
from rota.http.pages.occurrence_view import (
    DAYS,
    calendar_of,
    outcome_of,
    totals_of,
    usual_us,
    words_counted,
    words_of,
)
from rota.http.pages.run import Fact
from rota.http.pages.schedule_ledger import ledger_of
from rota.http.pages.status import STATES
from rota.http.pages.text import WallClock, city, counted, duration, form_text, rough, schedule_href
from rota.http.pages.view import button, clock_of, form_target, link, page
from rota.http.pages.why_view import WhyClause, schedule_walk
from rota.http.request import Answer, Redirect, WebRequest
from rota.schedules.preview import read_time, time_in, zone_of

LIVE = "schedule run"
DURATIONS = 40
OVERLAPS = {
    "queue": "queue: one waits, further ones merge into it",
    "queue-all": "queue-all: every one waits",
    "skip": "skip: do not run it",
    "allow": "allow: run side by side",
    "cancel-running": "cancel-running: the newer one replaces it",
}
MISSES = {
    "run": "run: only the latest", "skip": "skip: none of them", "all": "all: the latest ones",
}  # fmt: skip


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
    example: str
    clauses: list[WhyClause]
    hint: str


@dataclass(frozen=True)
class DurationView:
    """How long runs took."""

    line: str
    points: str
    text: str


@dataclass(frozen=True)
class CommandForm:
    """The typed text of a form that was refused; `opens` names the form."""

    opens: str = ""
    input: str = ""
    note: str = ""
    until: str = ""


@dataclass(frozen=True)
class BackfillForm:
    """The content of the form; `count` is the count of a dry run."""

    text: str
    start: str
    end: str
    counted: str = ""
    count: int = 0


async def show(
    request: WebRequest, problem: RotaError | None = None, backfill: BackfillForm | None = None
) -> Answer:
    """The page."""
    client, here = request.client, clock_of(request)
    name = request.parameters["name"]
    view = await client.schedules.get(name)
    zone = zone_of(view.intent.spec)
    there = WallClock(zone, here.now)
    start, end = _window(there)
    calendar = await client.schedules.calendar(name, start, end, by="hour")
    rows = await client.schedules.history(name, end=end, limit=DURATIONS)
    upcoming = [] if view.problem else await client.schedules.preview(name, 5)
    is_paused = view.schedule.status == Status.PAUSED
    href = schedule_href(name)
    return page(
        request, "schedule.html", title=name, place="schedules", live=LIVE, problem=problem,
        name=name, href=href,
        state=state_of_schedule(view), sentence=sentence_of(view, here, there),
        follows=follows_of(totals_of(calendar), rows, there), is_paused=is_paused, zone_name=zone,
        two_zones=zone != request.zone, typed=_typed(request, view, problem),
        calendar=calendar_of(calendar, view.intent, there, href=href, is_paused=is_paused),
        ledger=await ledger_of(request, view, there), spread=duration_view(rows),
        facts=facts_of(view, there), differences=view.differences,
        next=[_next(occurrence, here, there) for occurrence in upcoming],
        why=await _why(request, name, there), backfill=backfill or _backfill(calendar, there),
    )  # fmt: skip


def _typed(request: WebRequest, view: ScheduleView, problem: RotaError | None) -> CommandForm:
    """The forms of the page: as the schedule is, or as they were typed when they were refused."""
    stored = form_text(view.schedule.input)
    if problem is None:
        return CommandForm(input=stored)
    typed, verb = request.form(), request.path.rpartition("/")[2]
    given = typed.get("input") if verb == "trigger" else stored
    return CommandForm(verb, given, typed.get("note"), typed.get("until"))


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
    notes = []
    running = [run for run in rows if outcome_of(run) == "running"]
    if running:
        notes.append(f"The run of {there.day(running[0].due_at or running[0].created_at)} is open.")
    if totals["missed"]:
        notes.append(_missed(totals["missed"]))
    if totals["failed"]:
        notes.append(f"{counted(totals['failed'], 'occurrence')} failed.")
    for word, what in (
        ("skipped", "skipped"), ("paused", "skipped during a pause"), ("cancelled", "cancelled"),
    ):  # fmt: skip
        if count := totals[word]:
            were = "was" if count == 1 else "were"
            notes.append(f"{counted(count, 'occurrence')} {were} {what}.")
    if not notes and (fired := totals["fired"]):
        which = "The only occurrence" if fired == 1 else f"All {fired:,} occurrences"
        notes.append(f"{which} of the last {DAYS} days ran.")
    return " ".join(notes)


def _missed(count: int) -> str:
    were = "was" if count == 1 else "were"
    return f"{counted(count, 'occurrence')} of the last {DAYS} days {were} missed."


def _next(occurrence: Occurrence, here: WallClock, there: WallClock) -> NextRow:
    at = instant(occurrence.runs_at)
    return NextRow(there.day(at), here.day(at), rough(at - here.now), occurrence.notes)


async def _why(request: WebRequest, name: str, there: WallClock) -> WhyView:
    asked = request.query.get("at").strip()
    example = there.local(there.now).strftime("%Y-%m-%d %H:00")
    try:
        at = read_time(asked, there.zone, there.now) if asked else None
        answer = await explain(request.client, name, at=at)
    except RotaError as error:
        clauses = [WhyClause("", f"{error.message}.", "s-bad", "bad", is_hit=True)]
        return WhyView(asked, example, clauses, error.advice)
    return WhyView(asked, example, schedule_walk(answer), answer.hint or "")


def duration_view(rows: Sequence[Run]) -> DurationView | None:
    """The durations of the newest runs as a curve."""
    ended = [run for run in rows if run.started_at and run.finished_at][:DURATIONS]
    if len(ended) < 3:
        return None
    took = [(run.finished_at or 0) - (run.started_at or 0) for run in reversed(ended)]
    p50, p95 = usual_us(ended), usual_us(ended, 0.95)
    text = f"p50 {duration(p50)}, p95 {duration(p95)}, longest {duration(max(took))}."
    return DurationView(f"last {len(ended)} runs", chart.polyline(took), text)


def facts_of(view: ScheduleView, there: WallClock) -> list[Fact]:
    """The definition."""
    row, intent = view.schedule, view.intent
    policies = intent.policies
    retries = policies.retry.attempts - 1 if policies.retry else 0
    facts = [
        Fact("Runs", intent.workflow, link("/runs", name=intent.workflow), is_id=True),
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


# -- forms --------------------------------------------------------------------------------------


def _backfill(calendar: OutcomeCalendar, there: WallClock) -> BackfillForm:
    """The form over what was missed lately, or over the last day."""
    lost = [cell for cell in calendar.cells if words_counted(cell.counts)["missed"]]
    now = there.local(there.now)
    first, last = now - timedelta(days=1), now
    text = "Runs the occurrences of a past range that have no run, oldest first."
    if lost:
        first, last = (
            datetime.combine(cell.day, time(cell.hour or 0), tzinfo=now.tzinfo)
            for cell in (lost[0], lost[-1])
        )
        last = min(now, last + timedelta(hours=1))
        text = f"{_missed(totals_of(calendar)['missed'])} {text}"
    return BackfillForm(text, first.strftime("%Y-%m-%d %H:%M"), last.strftime("%Y-%m-%d %H:%M"))


async def backfill(request: WebRequest) -> Answer:
    """Count what a backfill would start; with `expected`, start it."""
    client, name, form = request.client, request.parameters["name"], request.form()
    typed = BackfillForm("", form.get("from"), form.get("to"))

    zone = zone_of((await client.schedules.get(name)).intent.spec)
    try:
        start, end = (time_in(text, zone, client.clock.now()) for text in (typed.start, typed.end))
        plan = await client.schedules.backfill(name, start, end, dry_run=True)
        expected = form.get("expected")
        if not expected:
            occurrences = counted(plan.occurrence_count, "occurrence")
            summary = f"{occurrences}, {plan.run_count} of them without a run."
            shown = BackfillForm("", typed.start, typed.end, summary, plan.run_count)
            return await show(request, None, shown)
        if expected != str(plan.run_count):
            raise BadInput(
                f"{plan.run_count} would be started now, not {expected}",
                hint="Something changed since you counted. Nothing was started; count again.",
            )
        await client.schedules.backfill(name, start, end)
    except RotaError as error:
        return await show(request, error, typed)
    return Redirect(f"{schedule_href(name)}?done=backfilled")


@form_target(show)
async def pause(request: WebRequest) -> str:
    """Stop firing, with a note, perhaps until a time."""
    client, name, form = request.client, request.parameters["name"], request.form()
    zone = zone_of((await client.schedules.get(name)).intent.spec)
    text = form.get("until").strip()
    until = time_in(text, zone, client.clock.now()) if text else None
    note = form.get("note").strip() or f"by {request.identity.name}"
    await client.schedules.pause(name, note=note, until=until)
    return f"{schedule_href(name)}?done=paused"


@form_target(show)
async def resume(request: WebRequest) -> str:
    """Fire again."""
    name = request.parameters["name"]
    catch_up = bool(request.form().get("catch_up"))
    await request.client.schedules.resume(name, catch_up=catch_up)
    return f"{schedule_href(name)}?done=resumed"


@form_target(show)
async def trigger(request: WebRequest) -> str:
    """Run it now, with the input of the form."""
    client, name = request.client, request.parameters["name"]
    typed = request.form().get("input").strip().replace("\r\n", "\n")
    stored = form_text((await client.schedules.get(name)).schedule.input)
    # An unchanged field means the stored input: a page does not know its secrets.
    given = None if typed == stored else read_input(typed)
    run_id = await client.schedules.trigger(name, input=given)
    return f"/runs/{run_id}?done=triggered"


reset = button(show, schedule_href, "reset", lambda client, name: client.schedules.reset(name))
