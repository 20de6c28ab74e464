"""Create and edit a schedule: the form, the preview in words, and the difference of firings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any
from zoneinfo import available_timezones

from rota.client.schedule_view import ScheduleView
from rota.core.time.describe import describe
from rota.core.time.instants import DAY
from rota.core.time.recurrence import (
    Spec,
    between,
    count_between,
    next_after,
    parse,
    skipped_between,
)
from rota.errors import ChangedSince, RotaError
from rota.http.pages.forms import read_input
from rota.http.pages.occurrence_view import words_of
from rota.http.pages.runs import known_names
from rota.http.pages.schedule import MISSES, OVERLAPS
from rota.http.pages.text import (
    WallClock,
    city,
    counted,
    form_text,
    number,
    rough,
    schedule_href,
    sentence,
)
from rota.http.pages.view import clock_of, form_target, page
from rota.http.problems import precondition_required
from rota.http.request import Answer, WebRequest
from rota.schedules.preview import form_of, zone_of

DIFF_MAX = 24
FIRST_MAX = 5
LOOK_AHEAD_US = 400 * DAY  # far enough for both moves of the clock
NOTES_MAX = 2
BURST_PER_DAY = 1_440


@dataclass(frozen=True)
class ScheduleForm:
    """The typed text."""

    name: str = ""
    workflow: str = ""
    when: str = ""
    zone: str = ""
    queue: str = ""
    overlap: str = "queue"
    missed: str = "run"
    input: str = ""
    seen: str = ""
    confirm: str = ""
    asks_confirm: bool = False


@dataclass(frozen=True)
class DiffRow:
    """A firing that comes or goes."""

    kind: str  # add | del
    there: str
    here: str


@dataclass(frozen=True)
class PreviewView:
    """The meaning of the typed schedule."""

    is_new: bool
    zone: str = "UTC"
    two_zones: bool = False
    problem: RotaError | None = None
    is_empty: bool = False
    is_same: bool = False
    words: str = ""
    form: str = ""
    next: str = ""
    week: str = ""
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    diff: Sequence[DiffRow] = ()
    diff_line: str = ""


def preview_of(form: ScheduleForm, old: Spec | None, here: WallClock) -> PreviewView:
    """The preview of what was typed, beside the definition in force."""
    zone, is_new = form.zone or here.zone, old is None
    if not form.when.strip():
        return PreviewView(is_new, is_empty=True)
    try:
        spec = parse(form.when.strip(), zone=zone, now=here.now)
        there = WallClock(zone, here.now)
        first = next_after(spec, here.now)
    except RotaError as error:
        return PreviewView(is_new, problem=error)
    week = count_between(spec, here.now, here.now + 7 * DAY)
    before = ""
    if old is not None:
        before = f" ({number(count_between(old, here.now, here.now + 7 * DAY))} before)"
    diff, line = firings(spec, here, there) if old is None else difference(old, spec, here, there)
    notes = [
        note.text for note in skipped_between(spec, here.now, here.now + LOOK_AHEAD_US, NOTES_MAX)
    ]
    warnings = []
    if week > 7 * BURST_PER_DAY:
        warnings.append(f"It fires {number(week)} times in 7 days. Is that what you want?")
    return PreviewView(
        is_new, zone, zone != here.zone,
        words=sentence(f"{words_of(describe(spec), zone)}, {city(zone)}"),
        form="; ".join(form_of(timing) for timing in spec.timings),
        next="never" if first is None else _both(first, here, there),
        week=f"{counted(week, 'firing')}{before}", notes=notes, warnings=warnings, diff=diff,
        diff_line=line, is_same=old is not None and not diff,
    )  # fmt: skip


def difference(
    old: Spec, spec: Spec, here: WallClock, there: WallClock
) -> tuple[list[DiffRow], str]:
    """The firings of the next 24 hours that come and go."""
    until = here.now + DAY
    was, will = (
        set(between(each_spec, here.now, until, limit=4 * DIFF_MAX)) for each_spec in (old, spec)
    )
    gone, come = was - will, will - was
    rows = [
        DiffRow("del" if at in gone else "add", there.day(at), here.day(at))
        for at in sorted(gone | come)
    ]
    counts = [count_between(each_spec, here.now, until) for each_spec in (spec, old)]
    line = f"{number(counts[0])} instead of {number(counts[1])}"
    if len(rows) > DIFF_MAX:
        line = f"{line}; the first {DIFF_MAX} changes"
    return rows[:DIFF_MAX], line


def firings(spec: Spec, here: WallClock, there: WallClock) -> tuple[list[DiffRow], str]:
    """The first firings of a new schedule."""
    rows: list[DiffRow] = []
    at = next_after(spec, here.now)
    while at is not None and len(rows) < FIRST_MAX:
        rows.append(DiffRow("add", there.day(at), here.day(at)))
        at = next_after(spec, at)
    return rows, f"the first {len(rows)}"


def _both(at: int, here: WallClock, there: WallClock) -> str:
    yours = "" if here.zone == there.zone else f" ({here.day(at)} yours)"
    return f"{there.day(at)}{yours}, in {rough(at - here.now)}"


# -- pages --------------------------------------------------------------------------------------


async def new(request: WebRequest, problem: RotaError | None = None) -> Answer:
    """The form of a new schedule."""
    form = _typed(request) if request.method == "POST" else ScheduleForm(
        workflow=request.query.get("workflow"), zone=request.zone
    )  # fmt: skip
    return await _page(request, form, None, problem)


async def edit(request: WebRequest, problem: RotaError | None = None) -> Answer:
    """The form of one that exists."""
    view = await request.client.schedules.get(request.parameters["name"])
    form = _typed(request) if request.method == "POST" else form_of_view(view)
    if problem is not None and "confirm" in problem.advice.lower():
        form = replace(form, asks_confirm=True)
    return await _page(request, form, view, problem)


def form_of_view(view: ScheduleView) -> ScheduleForm:
    """The form over the definition in force."""
    row, intent = view.schedule, view.intent
    return ScheduleForm(
        row.name, intent.workflow, intent.text, zone_of(intent.spec), row.queue,
        intent.policies.overlap, intent.policies.missed, form_text(row.input),
        view.etag,
    )  # fmt: skip


def _typed(request: WebRequest) -> ScheduleForm:
    form = request.form()
    names = [field.name for field in fields(ScheduleForm) if field.name != "asks_confirm"]
    # Browsers send the rows of a text area with CRLF.
    values: dict[str, Any] = {name: form.get(name).strip().replace("\r\n", "\n") for name in names}
    return ScheduleForm(**values)


async def _page(
    request: WebRequest, form: ScheduleForm, view: ScheduleView | None, problem: RotaError | None
) -> Answer:
    old = None if view is None or view.problem else view.intent.spec
    name = "" if view is None else view.schedule.name
    href = schedule_href(name) if name else "/schedules"
    return page(
        request, "schedule_edit.html", title=f"Edit {name}" if name else "New schedule",
        place="schedules", problem=problem,
        is_new=view is None, name=name, href=href, preview_page=f"{href}/preview",
        form=form, names=await known_names(request), zones=_zones(),
        overlaps=OVERLAPS, misses=MISSES,
        preview=preview_of(form, old, clock_of(request)),
    )  # fmt: skip


@cache
def _zones() -> list[str]:
    return sorted(name for name in available_timezones() if "/" in name and name[:3] != "Etc")


async def preview(request: WebRequest) -> Answer:
    """The same page for what is typed; nothing is saved."""
    return await (edit if "name" in request.parameters else new)(request)


# -- saving -------------------------------------------------------------------------------------


@form_target(new)
async def create(request: WebRequest) -> str:
    """Create it."""
    form = _typed(request)
    await request.client.schedules.create(
        form.name, form.workflow, form.when, timezone=form.zone or None,
        input=read_input(form.input), overlap=form.overlap, missed=form.missed,
        queue=form.queue or None,
    )  # fmt: skip
    return f"{schedule_href(form.name)}?done=created"


@form_target(edit)
async def save(request: WebRequest) -> str:
    """Change it, unless someone else has since the form was opened."""
    client, name, form = request.client, request.parameters["name"], _typed(request)
    if not form.seen:
        raise precondition_required(name)
    view = await client.schedules.get(name)
    if form.seen != view.etag:
        raise ChangedSince(
            "someone changed this schedule since you opened the form",
            hint="Nothing was changed by you. Open it again and look at the new definition.",
        )
    old = form_of_view(view)
    changes: dict[str, Any] = {}
    if form.when != old.when:
        changes["when"] = form.when
    if form.zone and form.zone != old.zone:
        changes["timezone"] = form.zone
    for key in ("overlap", "missed", "queue"):
        if getattr(form, key) and getattr(form, key) != getattr(old, key):
            changes[key] = getattr(form, key)
    if form.input != old.input:
        changes["input"] = read_input(form.input) or {}
    if changes:
        await client.schedules.update(
            name, confirm=bool(form.confirm), if_match=form.seen, **changes
        )
    return f"{schedule_href(name)}?done=saved"
