"""Routes of automations."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

import msgspec

from rota.client.automation_views import AutomationView
from rota.client.automations import BULK
from rota.core.automations.model import Resolution, SeenInput, SeenRun
from rota.errors import BadInput, UnknownAutomation
from rota.explain.why import why
from rota.http.fields import (
    Id,
    Limit,
    NamesQuery,
    NoteBody,
    PageQuery,
    RequestFields,
    Text,
    cursor,
    position,
)
from rota.http.problems import RequestRefused
from rota.http.request import WebRequest
from rota.http.response_bodies import (
    ActivityDocument,
    ApiDocument,
    AutomationDocument,
    ChangeDocument,
    Count,
    EventDocument,
    EventKey,
    EventNames,
    InputDocument,
    InputPlain,
    Names,
    OutcomeDocument,
    PublishedEvent,
    VersionDocument,
    WhyDocument,
    document,
    documents,
)
from rota.http.route import KEY, RouteReply, route


def automation_document(view: AutomationView) -> AutomationDocument:
    """An automation for a program."""
    row = view.automation
    change = None if view.mutation is None else document(ChangeDocument, view.mutation)
    return document(
        AutomationDocument, row, status=view.status, sentence=view.sentence,
        actions=list(view.said.actions), state=row.status, schedule=view.schedule,
        next_at=view.next_at, run_id=view.open_run.id if view.open_run else None, change=change,
        pending=dict(view.pending), error=view.error, etag=f'"{row.digest[:16]}-{row.version}"',
    )  # fmt: skip


async def _shown(request: WebRequest, name: str) -> AutomationDocument:
    return automation_document(await request.client.automations.show(name))


def input_document(seen: SeenInput) -> InputDocument:
    """An input for a program."""
    return document(InputDocument, seen.input, status=seen.status, **seen._asdict())


class AutomationsQuery(NamesQuery, frozen=True):
    """A page of automations."""

    archived: bool = False


@route("GET", "/automations", "read", "automations.list")
async def list_automations(
    request: WebRequest, query: AutomationsQuery
) -> list[AutomationDocument]:
    """List automations by name; `after` is the last name of the page before."""
    views = await request.client.automations.list(
        archived=query.archived, after=query.after, limit=query.limit, search=query.search
    )
    return [automation_document(view) for view in views]


@route("GET", "/automations/{name}", "read", "automations.show", etag=True)
async def show_automation(request: WebRequest, name: str) -> RouteReply[AutomationDocument]:
    """Show an automation."""
    shown = await _shown(request, name)
    return RouteReply(shown, headers={"etag": shown.etag})


class LimitQuery(RequestFields, frozen=True):
    """How many rows at most."""

    limit: Limit = 50


@route("GET", "/automations/{name}/versions", "read", "automations.versions")
async def list_versions(request: WebRequest, name: str, query: LimitQuery) -> list[VersionDocument]:
    """List the versions of an automation, newest first."""
    versions = await request.client.automations.versions(name, limit=query.limit)
    return documents(VersionDocument, versions)


class EventsQuery(PageQuery, frozen=True, kw_only=True):
    """Which events."""

    topic: Text = ""
    status: Text = ""


class EventPage(ApiDocument, frozen=True):
    """Events, newest first."""

    events: list[EventDocument]
    next: str | None = None


@route("GET", "/automations/{name}/events", "read", "automations.events")
async def list_events(request: WebRequest, name: str, query: EventsQuery) -> EventPage:
    """List the events of an automation, newest first."""
    events = await request.client.automations.events(
        name, topic=query.topic, status=query.status, before=position(query),
        limit=query.limit,
    )  # fmt: skip
    return EventPage(documents(EventDocument, events), cursor(events, query))


class InputPage(ApiDocument, frozen=True):
    """Inputs, newest first."""

    inputs: list[InputDocument]
    next: str | None = None


@route("GET", "/automations/{name}/inputs", "read", "automations.inputs")
async def list_inputs(request: WebRequest, name: str, query: PageQuery) -> InputPage:
    """List inputs and how far they got, newest first."""
    inputs = await request.client.automations.inputs(
        name, before=position(query), limit=query.limit
    )
    rows = [input_document(seen) for seen in inputs]
    return InputPage(rows, cursor(inputs, query, lambda seen: seen.input.id))


@route("GET", "/automations/{name}/inputs/{input_id}", "read", "automations.outcome")
async def show_input(request: WebRequest, name: str, input_id: str) -> OutcomeDocument:
    """Show an input and the changes it led to."""
    seen, changes = await request.client.automations.outcome(name, input_id)
    return OutcomeDocument(input_document(seen), documents(ChangeDocument, changes))


class OutputsQuery(PageQuery, frozen=True, kw_only=True):
    """Which side effects."""

    status: Text = ""


class ChangePage(ApiDocument, frozen=True):
    """Side effects, newest first."""

    changes: list[ChangeDocument]
    next: str | None = None


@route("GET", "/automations/{name}/outputs", "read", "automations.outputs")
async def list_outputs(request: WebRequest, name: str, query: OutputsQuery) -> ChangePage:
    """List the side effects of an automation, newest first."""
    changes = await request.client.automations.outputs(
        name, status=query.status, before=position(query), limit=query.limit
    )
    return ChangePage(documents(ChangeDocument, changes), cursor(changes, query))


@route("GET", "/automations/{name}/outputs/{change_id}/inputs", "read", "automations.inputs_of")
async def list_sources(request: WebRequest, name: str, change_id: str) -> list[InputPlain]:
    """List the inputs that led to a side effect."""
    nearest = await request.client.automations.outputs(name, before=f"{change_id} ", limit=1)
    if not nearest or nearest[0].id != change_id:
        raise RequestRefused(
            HTTPStatus.NOT_FOUND, "unknown_change",
            f"automation {name} has made no change {change_id!r}",
            hint="List its outputs for the ids.",
        )  # fmt: skip
    return documents(InputPlain, await request.client.automations.inputs_of(change_id))


class ActivityPage(ApiDocument, frozen=True):
    """Handler runs, newest first."""

    activity: list[ActivityDocument]
    next: str | None = None


@route("GET", "/automations/{name}/activity", "read", "automations.activity")
async def list_activity(request: WebRequest, name: str, query: PageQuery) -> ActivityPage:
    """List handler runs, newest first."""
    handler_runs = await request.client.automations.activity(
        name, before=position(query), limit=query.limit
    )
    rows = [_activity(seen) for seen in handler_runs]
    return ActivityPage(rows, cursor(handler_runs, query, lambda seen: seen.run.run_id))


def _activity(seen: SeenRun) -> ActivityDocument:
    change = None if seen.change is None else document(ChangeDocument, seen.change)
    return document(
        ActivityDocument, seen.run, status=seen.shown, attempt=seen.attempt, error=seen.error,
        change=change,
    )  # fmt: skip


@route("GET", "/automations/{name}/pending", "read", "automations.pending")
async def list_pending(request: WebRequest, name: str, query: LimitQuery) -> list[InputDocument]:
    """List inputs that are not done, oldest first."""
    inputs = await request.client.automations.pending(name, limit=query.limit)
    return [input_document(seen) for seen in inputs]


@route("GET", "/automations/{name}/stale", "read", "automations.stale")
async def list_stale(request: WebRequest, name: str, query: LimitQuery) -> list[InputDocument]:
    """List inputs that are overdue: they came in long ago and are not done."""
    inputs = await request.client.automations.stale(name, limit=query.limit)
    return [input_document(seen) for seen in inputs]


@route("GET", "/automations/{name}/why", "read", "why")
async def explain_automation(request: WebRequest, name: str) -> WhyDocument:
    """Explain why an automation runs, waits or rests."""
    await request.client.automations.show(name)
    return WhyDocument(*await why(request.client, name))


# -- commands ----------------------------------------------------------------------------------


@route("POST", "/automations/{name}/pause", "operate", "automations.pause")
async def pause_automation(request: WebRequest, name: str) -> AutomationDocument:
    """Pause an automation."""
    await request.client.automations.pause(name)
    return await _shown(request, name)


@route("POST", "/automations/{name}/resume", "operate", "automations.resume")
async def resume_automation(request: WebRequest, name: str) -> AutomationDocument:
    """Resume an automation."""
    await request.client.automations.resume(name)
    return await _shown(request, name)


@route("POST", "/automations/{name}/archive", "admin", "automations.archive")
async def archive_automation(request: WebRequest, name: str) -> AutomationDocument:
    """Archive an automation."""
    await request.client.automations.archive(name)
    return await _shown(request, name)


@route(
    "POST", "/automations/{name}/deploy", "admin", "automations.deploy",
    status=HTTPStatus.CREATED, also=(HTTPStatus.OK,),
)  # fmt: skip
async def deploy_automation(request: WebRequest, name: str) -> RouteReply[AutomationDocument]:
    """Deploy the version that the code of this server declares. 200 if it was in force already."""
    deploy = getattr(request.client.automations, "deploy", None)
    if deploy is None:  # a server without code
        raise UnknownAutomation(f"this server has no code, so it cannot deploy automation {name!r}")
    done = await deploy(name)
    shown = await _shown(request, name)
    return RouteReply(shown, HTTPStatus.OK if done.version == done.before else HTTPStatus.CREATED)


@route("POST", "/automations/{name}/run", "operate", "automations.run_now")
async def run_automation(request: WebRequest, name: str) -> Names:
    """Queue every producer now."""
    return Names(list(await request.client.automations.run_now(name)))


class EventBody(RequestFields, frozen=True):
    """An event. The message id may come as Idempotency-Key instead."""

    payload: Any = None
    message_id: Id | None = None
    title: Text | None = None


@route(
    "POST", "/automations/{name}/topics/{topic}/events", "operate", "automations.publish",
    status=HTTPStatus.CREATED, also=(HTTPStatus.OK,), takes_key=True,
)  # fmt: skip
async def publish_event(
    request: WebRequest, name: str, topic: str, body: EventBody
) -> RouteReply[PublishedEvent]:
    """Publish an event. 200 when the same event was there already."""
    key = request.headers.get(KEY)
    if key is not None and body.message_id not in (None, key):
        raise BadInput("message_id and Idempotency-Key differ", hint="Give one of them.")
    message_id = body.message_id or key or request.request_id
    changed = await request.client.automations.publish(
        name, topic, message_id, body.payload, title=body.title
    )
    return RouteReply(PublishedEvent(changed), HTTPStatus.CREATED if changed else HTTPStatus.OK)


class BatchEvent(RequestFields, frozen=True, kw_only=True):
    """An event of a batch."""

    message_id: Id
    payload: Any = None


class EventsBody(RequestFields, frozen=True):
    """Events of one topic."""

    events: Annotated[list[BatchEvent], msgspec.Meta(min_length=1, max_length=BULK)]


class PublishedEvents(msgspec.Struct, frozen=True):
    """How many events of a batch are new or have changed."""

    published: int


@route(
    "POST", "/automations/{name}/topics/{topic}/events/batch", "operate",
    "automations.publish_many", status=HTTPStatus.CREATED,
)  # fmt: skip
async def publish_events(
    request: WebRequest, name: str, topic: str, body: EventsBody
) -> PublishedEvents:
    """Publish up to 1,000 events."""
    events = [(one.message_id, one.payload) for one in body.events]
    return PublishedEvents(await request.client.automations.publish_many(name, topic, events))


class AnswerBody(NoteBody, frozen=True, kw_only=True):
    """`expected` is the id of the change to answer. If another one waits, the answer is 409."""

    expected: Id


@route("POST", "/automations/{name}/approve", "operate", "automations.approve")
async def approve_change(request: WebRequest, name: str, body: AnswerBody) -> ChangeDocument:
    """Approve the change that waits, with exactly the parameters it shows."""
    row = await request.client.automations.approve(
        name, expected=body.expected, by=request.identity.name, note=body.note
    )
    return document(ChangeDocument, row)


@route("POST", "/automations/{name}/reject", "operate", "automations.reject")
async def reject_change(request: WebRequest, name: str, body: AnswerBody) -> ChangeDocument:
    """Reject the change that waits; its events are skipped."""
    row = await request.client.automations.reject(
        name, expected=body.expected, by=request.identity.name, note=body.note
    )
    return document(ChangeDocument, row)


class ResolveBody(AnswerBody, frozen=True, kw_only=True):
    """How the wait is resolved; `result` only with `happened`."""

    how: Resolution
    result: Any = None


@route("POST", "/automations/{name}/resolve", "operate", "automations.resolve")
async def resolve_wait(request: WebRequest, name: str, body: ResolveBody) -> EventNames:
    """Resolve what the automation waits for. Returns the skipped events."""
    skipped = await request.client.automations.resolve(
        name, body.how, expected=body.expected, result=body.result, by=request.identity.name,
        note=body.note,
    )  # fmt: skip
    return EventNames(documents(EventKey, skipped))


class SkipEventBody(NoteBody, frozen=True, kw_only=True):
    """Which event, and why."""

    topic: Id
    message_id: Id


@route(
    "POST", "/automations/{name}/events/skip", "operate", "automations.skip_event",
    status=HTTPStatus.NO_CONTENT,
)  # fmt: skip
async def skip_event(request: WebRequest, name: str, body: SkipEventBody) -> None:
    """Skip a pending event."""
    await request.client.automations.skip_event(
        name, body.topic, body.message_id, by=request.identity.name, note=body.note
    )


@route("POST", "/automations/{name}/inputs/{input_id}/skip", "operate", "automations.skip_input")
async def skip_input(request: WebRequest, name: str, input_id: str, body: NoteBody) -> Count:
    """Skip an input and what it leads to."""
    count = await request.client.automations.skip_input(
        name, input_id, by=request.identity.name, note=body.note
    )
    return Count(count)


class RequeueBody(NoteBody, frozen=True, kw_only=True):
    """Which events; without a message id, all of the topic."""

    topic: Id
    message_id: Id | None = None


@route("POST", "/automations/{name}/events/requeue", "operate", "automations.requeue")
async def requeue_events(request: WebRequest, name: str, body: RequeueBody) -> EventNames:
    """Requeue skipped events, or those behind dead letters, for their consumer."""
    requeued = await request.client.automations.requeue(
        name, body.topic, body.message_id, by=request.identity.name, note=body.note
    )
    return EventNames(documents(EventKey, requeued))


class RollbackBody(RequestFields, frozen=True):
    """Which version."""

    version: Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)]


@route("POST", "/automations/{name}/rollback", "admin", "automations.rollback")
async def rollback_automation(
    request: WebRequest, name: str, body: RollbackBody
) -> AutomationDocument:
    """Put an earlier version in force again."""
    await request.client.automations.rollback(name, body.version)
    return await _shown(request, name)
