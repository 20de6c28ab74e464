"""Routes of live events (SSE)."""

from __future__ import annotations

from rota.errors import BadInput
from rota.http.events import TOPICS, run_events
from rota.http.fields import NOT_FOUND, RequestFields, Text
from rota.http.request import EventStream, WebRequest
from rota.http.route import route

MEDIA = "text/event-stream"
TOO_MANY = 429


class HintQuery(RequestFields, frozen=True):
    """Topics, separated by commas: run, schedule, automation, pipeline, worker."""

    topics: Text = ",".join(TOPICS)


@route("GET", "/events", "read", "", media=MEDIA, problems=(TOO_MANY,))
async def stream_hints(request: WebRequest, query: HintQuery) -> EventStream:
    """Stream hints about what has changed. They say what to fetch again."""
    topics = frozenset(query.topics.split(","))
    if not topics <= set(TOPICS):
        raise BadInput(f"{query.topics!r}: unknown topic", hint=f"Use: {', '.join(TOPICS)}.")
    hub = request.site.events
    return EventStream(hub.stream(topics, _last_id(request), hub.reserve(_reader(request))))


@route("GET", "/runs/{run_id}/events", "read", "runs.wait", media=MEDIA,
    problems=(*NOT_FOUND, TOO_MANY))  # fmt: skip
async def stream_run(request: WebRequest, run_id: str) -> EventStream:
    """Stream the steps and the end of a run."""
    run = await request.client.runs.get(run_id)
    hub = request.site.events
    slot = hub.reserve(_reader(request))
    return EventStream(run_events(request.client, hub, run.id, _last_id(request), slot))


def _last_id(request: WebRequest) -> str:
    return request.headers.get("last-event-id", "")


def _reader(request: WebRequest) -> str:
    who = request.identity
    return who.session_id or who.token_id or request.peer
