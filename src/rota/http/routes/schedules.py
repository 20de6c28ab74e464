"""Routes of schedules."""

from __future__ import annotations

from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from rota.client.schedule_view import ScheduleView
from rota.core.time.instants import moment
from rota.errors import UnknownSchedule
from rota.explain.why import why
from rota.http.fields import (
    CONFLICT,
    NOT_FOUND,
    Limit,
    PageQuery,
    RequestFields,
    Text,
    cursor,
    position,
)
from rota.http.problems import precondition_required
from rota.http.request import WebRequest
from rota.http.response_bodies import (
    BackfillDocument,
    CalendarDocument,
    CellDocument,
    DiffDocument,
    LedgerDocument,
    ListedRun,
    OccurrenceDocument,
    PreviewDocument,
    ScheduleDocument,
    ScheduleListDocument,
    StartedRun,
    WhyDocument,
    document,
    documents,
    written,
)
from rota.http.route import KEY, PREFIX, RouteReply, route
from rota.http.routes.runs import same_input, started
from rota.schedules.preview import zone_of

CHANGED = (*CONFLICT, HTTPStatus.PRECONDITION_FAILED)
Overlap = Literal["queue", "queue-all", "skip", "allow", "cancel-running"]
Missed = Literal["run", "skip", "all"]
When = str | list[str]


def schedule_document(view: ScheduleView) -> ScheduleDocument:
    """A schedule for a program."""
    row, intent = view.schedule, view.intent
    paused = row.status == "paused"
    return document(
        ScheduleDocument, row, workflow=intent.workflow, when=intent.text, text=view.text,
        timezone=zone_of(intent.spec), owner=intent.owner,
        policies=msgspec.to_builtins(intent.policies), last_due_at=row.started_at,
        paused_until=row.available_at if paused else None, problem=view.problem,
        etag=f'"{view.etag}"',
    )  # fmt: skip


def answer(view: ScheduleView, status: int = HTTPStatus.OK) -> RouteReply[ScheduleDocument]:
    """A schedule with its ETag."""
    shown = schedule_document(view)
    headers = {"etag": shown.etag}
    if status == HTTPStatus.CREATED:
        headers["location"] = f"{PREFIX}/schedules/{shown.name}"
    return RouteReply(shown, status, headers)


async def match_of(request: WebRequest, name: str) -> str | None:
    """The tag that the definition must still have. `*` asks for any definition."""
    given = request.headers.get("if-match")
    if given is None:
        return None
    now = (await request.client.schedules.get(name)).etag
    tags = [tag.strip() for tag in given.split(",")]
    return now if given.strip() == "*" or f'"{now}"' in tags else given


class SchedulesQuery(PageQuery, frozen=True, kw_only=True):
    """A page of schedules; `search` is a part of the name."""

    search: Text = ""
    paused: bool = False
    limit: Limit = 100


@route("GET", "/schedules", "read", "schedules.list")
async def list_schedules(request: WebRequest, query: SchedulesQuery) -> ScheduleListDocument:
    """List schedules by name."""
    views = await request.client.schedules.list(
        after=position(query), limit=query.limit, search=query.search, paused=query.paused
    )
    return ScheduleListDocument(
        [schedule_document(view) for view in views],
        cursor(views, query, lambda view: view.schedule.name),
    )


class ZoneBody(RequestFields, frozen=True, kw_only=True):
    """How times of the wall clock become instants."""

    timezone: Text | UnsetType = UNSET
    gap: Text | UnsetType = UNSET
    repeat: Text | UnsetType = UNSET


class OptionsBody(ZoneBody, frozen=True, kw_only=True, omit_defaults=True):
    """The options and policies of a schedule. Null means that there is no such limit; a field that
    is not a limit refuses it."""

    input: dict[str, Any] | UnsetType = UNSET
    queue: Text | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    overlap: Overlap | UnsetType = UNSET
    missed: Missed | UnsetType = UNSET
    missed_max: int | UnsetType = UNSET
    max_delay: Text | UnsetType | None = UNSET
    jitter: Text | UnsetType = UNSET
    max_runs: int | UnsetType | None = UNSET
    pause_after_failures: int | UnsetType | None = UNSET
    retries: int | UnsetType | None = UNSET
    timeout: Text | UnsetType | None = UNSET
    grace: Text | UnsetType = UNSET
    expires_after: Text | UnsetType | None = UNSET


class ScheduleBody(OptionsBody, frozen=True, kw_only=True):
    """A schedule: what to run, when, and by which policies."""

    workflow: Text
    when: When
    start: datetime | None = None
    end: datetime | None = None
    paused: bool | UnsetType = UNSET


class NewScheduleBody(ScheduleBody, frozen=True, kw_only=True):
    """A new schedule with its name."""

    name: Text


def options_of(body: msgspec.Struct, *without: str) -> dict[str, Any]:
    """The options that a body names. Null is a value where a field may be unset."""
    return {
        field.name: value
        for field in msgspec.structs.fields(body)
        if field.name not in without and (value := getattr(body, field.name)) is not field.default
    }


@route(
    "POST", "/schedules", "operate", "schedules.create", status=HTTPStatus.CREATED,
    problems=NOT_FOUND, etag=True,
)  # fmt: skip
async def create_schedule(
    request: WebRequest, body: NewScheduleBody
) -> RouteReply[ScheduleDocument]:
    """Create a schedule."""
    options = options_of(body, "name", "workflow", "when")
    view = await request.client.schedules.create(body.name, body.workflow, body.when, **options)
    return answer(view, HTTPStatus.CREATED)


@route("GET", "/schedules/{name}", "read", "schedules.get", etag=True)
async def show_schedule(request: WebRequest, name: str) -> RouteReply[ScheduleDocument]:
    """Show a schedule."""
    return answer(await request.client.schedules.get(name))


@route(
    "PUT", "/schedules/{name}", "operate", "schedules.create", also=(HTTPStatus.CREATED,),
    problems=CHANGED, etag=True,
)  # fmt: skip
async def replace_schedule(
    request: WebRequest, name: str, body: ScheduleBody
) -> RouteReply[ScheduleDocument]:
    """Create a schedule (201), or replace the definition it has."""
    match = await match_of(request, name)
    is_new = match is None and not await _exists(request, name)
    view = await request.client.schedules.create(
        name, body.workflow, body.when, replace=True, if_match=match,
        **options_of(body, "workflow", "when"),
    )  # fmt: skip
    return answer(view, HTTPStatus.CREATED if is_new else HTTPStatus.OK)


async def _exists(request: WebRequest, name: str) -> bool:
    try:
        await request.client.schedules.get(name)
    except UnknownSchedule:
        return False
    return True


class EditBody(OptionsBody, frozen=True, kw_only=True):
    """The changes; the rest stays. Null clears a limit or a bound."""

    workflow: Text | UnsetType = UNSET
    when: When | UnsetType = UNSET
    start: datetime | UnsetType | None = UNSET
    end: datetime | UnsetType | None = UNSET
    confirm: bool | UnsetType = UNSET


@route(
    "PATCH", "/schedules/{name}", "operate", "schedules.update", etag=True,
    problems=(*CHANGED, HTTPStatus.PRECONDITION_REQUIRED),
)  # fmt: skip
async def update_schedule(
    request: WebRequest, name: str, body: EditBody
) -> RouteReply[ScheduleDocument]:
    """Change a schedule; fields that are not named stay. From a page it needs If-Match (428)."""
    options = options_of(body)
    match = await match_of(request, name)
    if match is None and request.is_from_page:
        raise precondition_required(name)
    changed = await request.client.schedules.update(name, if_match=match, **options)
    return answer(changed)


@route(
    "DELETE", "/schedules/{name}", "admin", "schedules.delete", status=HTTPStatus.NO_CONTENT,
    problems=CHANGED,
)  # fmt: skip
async def delete_schedule(request: WebRequest, name: str) -> None:
    """Delete a schedule. The runs it fired stay."""
    match = await match_of(request, name)
    await request.client.schedules.delete(name, if_match=match)


# -- looking ahead -----------------------------------------------------------------------------


class TimingBody(ZoneBody, frozen=True, kw_only=True):
    """An edit of the timing that is not stored yet."""

    when: When | None = None
    start: datetime | UnsetType | None = UNSET  # null removes the bound
    end: datetime | UnsetType | None = UNSET
    count: Limit | None = None


class CountQuery(RequestFields, frozen=True):
    """How many occurrences."""

    count: Limit = 5


@route("GET", "/schedules/{name}/preview", "read", "schedules.preview")
async def preview_schedule(
    request: WebRequest, name: str, query: CountQuery
) -> list[OccurrenceDocument]:
    """List the next occurrences of a schedule."""
    occurrences = await request.client.schedules.preview(name, query.count)
    return documents(OccurrenceDocument, occurrences)


class PreviewBody(ZoneBody, frozen=True, kw_only=True):
    """A timing that is not stored yet."""

    when: Text
    count: Limit = 5


@route("POST", "/schedules/preview", "read", "schedules.preview_of")
async def preview_timing(request: WebRequest, body: PreviewBody) -> PreviewDocument:
    """Explain a timing: its meaning and its next occurrences."""
    timing = await request.client.schedules.preview_of(body.when, **options_of(body, "when"))
    return PreviewDocument(
        timing.text, timing.zone, timing.forms, documents(OccurrenceDocument, timing.occurrences),
        [remark.text for remark in timing.remarks],
    )  # fmt: skip


class UpcomingQuery(RequestFields, frozen=True):
    """How far to look."""

    within: Text = "1d"
    limit: Limit = 50


@route("GET", "/upcoming", "read", "schedules.upcoming")
async def list_upcoming(request: WebRequest, query: UpcomingQuery) -> list[OccurrenceDocument]:
    """List the next occurrences of all schedules."""
    occurrences = await request.client.schedules.upcoming(within=query.within, limit=query.limit)
    return documents(OccurrenceDocument, occurrences)


class OccurrencesQuery(PageQuery, frozen=True, kw_only=True, rename={"from_": "from"}):
    """Which occurrences. `outcome` is `failed`, or with its reason `skipped:overlap`."""

    from_: datetime | None = None
    to: datetime | None = None
    outcome: Text = ""


@route("GET", "/schedules/{name}/occurrences", "read", "schedules.ledger")
async def list_occurrences(
    request: WebRequest, name: str, query: OccurrencesQuery
) -> LedgerDocument:
    """List the occurrences of a schedule with their outcomes, newest first."""
    ledger = await request.client.schedules.ledger(
        name, after=query.cursor or None, limit=query.limit, start=query.from_, end=query.to,
        outcome=query.outcome,
    )  # fmt: skip
    return document(LedgerDocument, ledger, occurrences=documents(ListedRun, ledger.runs))


class CalendarQuery(RequestFields, frozen=True, rename={"from_": "from"}):
    """Which days; without them, the last 30."""

    from_: datetime | None = None
    to: datetime | None = None
    by: Literal["day", "hour"] = "day"
    timezone: Text | None = None


@route("GET", "/schedules/{name}/calendar", "read", "schedules.calendar")
async def show_calendar(request: WebRequest, name: str, query: CalendarQuery) -> CalendarDocument:
    """Count the outcomes of a schedule by day or hour."""
    end = query.to or moment(request.client.clock.now())
    start = query.from_ or end - timedelta(days=30 if query.by == "day" else 2)
    calendar = await request.client.schedules.calendar(
        name, start, end, by=query.by, timezone=query.timezone
    )
    cells = [CellDocument(cell.day.isoformat(), cell.hour, cell.counts) for cell in calendar.cells]
    return CalendarDocument(calendar.zone, calendar.unit, calendar.is_whole, cells)


@route("POST", "/schedules/{name}/diff", "read", "schedules.diff", problems=CONFLICT)
async def diff_schedule(request: WebRequest, name: str, body: TimingBody) -> DiffDocument:
    """Show which occurrences an edit would add and remove. Nothing is changed."""
    difference = await request.client.schedules.diff(name, **options_of(body))
    return document(
        DiffDocument, difference, gained=[written(at) for at in difference.gained],
        lost=[written(at) for at in difference.lost],
    )  # fmt: skip


class WhyQuery(RequestFields, frozen=True):
    """The time to ask about."""

    at: datetime | None = None


@route("GET", "/schedules/{name}/why", "read", "why")
async def explain_schedule(request: WebRequest, name: str, query: WhyQuery) -> WhyDocument:
    """Explain why a schedule fires, or does not."""
    await request.client.schedules.get(name)
    return WhyDocument(*await why(request.client, name, at=query.at))


# -- commands ----------------------------------------------------------------------------------


class PauseBody(RequestFields, frozen=True):
    """Why, and until when."""

    note: Text = ""
    until: datetime | None = None


@route("POST", "/schedules/{name}/pause", "operate", "schedules.pause", etag=True)
async def pause_schedule(
    request: WebRequest, name: str, body: PauseBody
) -> RouteReply[ScheduleDocument]:
    """Pause a schedule."""
    return answer(await request.client.schedules.pause(name, note=body.note, until=body.until))


class ResumeBody(RequestFields, frozen=True):
    """Whether to run the occurrences that the pause skipped."""

    catch_up: bool = False


@route("POST", "/schedules/{name}/resume", "operate", "schedules.resume", etag=True)
async def resume_schedule(
    request: WebRequest, name: str, body: ResumeBody
) -> RouteReply[ScheduleDocument]:
    """Resume a schedule."""
    return answer(await request.client.schedules.resume(name, catch_up=body.catch_up))


class ResetBody(RequestFields, frozen=True):
    """Which fields; none means all."""

    fields: Annotated[list[Text], msgspec.Meta(max_length=50)] = msgspec.field(default_factory=list)
    confirm: bool = False


@route("POST", "/schedules/{name}/reset", "operate", "schedules.reset", etag=True)
async def reset_schedule(
    request: WebRequest, name: str, body: ResetBody
) -> RouteReply[ScheduleDocument]:
    """Restore the values that the code declares."""
    view = await request.client.schedules.reset(name, *body.fields, confirm=body.confirm)
    return answer(view)


class TriggerBody(RequestFields, frozen=True):
    """The input of this run; without one, that of the schedule."""

    input: dict[str, Any] | None = None


@route(
    "POST", "/schedules/{name}/trigger", "operate", "schedules.trigger_once",
    status=HTTPStatus.CREATED, also=(HTTPStatus.OK,), takes_key=True,
)  # fmt: skip
async def trigger_schedule(
    request: WebRequest, name: str, body: TriggerBody
) -> RouteReply[StartedRun]:
    """Run a schedule now; its occurrences stay. 200 when the key has started a run already."""
    key = request.headers.get(KEY)
    run = await request.client.schedules.trigger_once(name, key, input=body.input)
    if run.existed and body.input is not None:
        await same_input(request, run.id, body.input)
    return started(run.id, existed=run.existed)


class BackfillBody(RequestFields, frozen=True):
    """A past range."""

    start: datetime
    end: datetime
    parallel: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 1
    dry_run: bool = False


@route(
    "POST", "/schedules/{name}/backfill", "operate", "schedules.backfill",
    status=HTTPStatus.ACCEPTED, also=(HTTPStatus.OK,),
)  # fmt: skip
async def backfill_schedule(
    request: WebRequest, name: str, body: BackfillBody
) -> RouteReply[BackfillDocument]:
    """Run the occurrences of a past range that have no run yet. 200 for a dry run."""
    plan = await request.client.schedules.backfill(
        name, body.start, body.end, parallel=body.parallel, dry_run=body.dry_run
    )
    status = HTTPStatus.OK if body.dry_run else HTTPStatus.ACCEPTED
    return RouteReply(BackfillDocument(*plan, body.dry_run), status)
