"""Routes of workers, queues, tokens, the audit list and the state of the process."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, cast
from urllib.parse import quote

import msgspec

from rota.client.doctor import examine
from rota.client.overview import AttentionItem, QueueState
from rota.core import prometheus_text
from rota.core.notifications.model import KindName
from rota.core.prometheus_text import Metric
from rota.core.runs.model import Queue
from rota.core.runs.queue_options import QueueLimits
from rota.core.time.instants import SECOND
from rota.errors import RotaError
from rota.http.address import HEADER
from rota.http.fields import NOT_FOUND, NamesQuery, PageQuery, RequestFields, Text, cursor, position
from rota.http.request import Text as TextAnswer
from rota.http.request import WebRequest
from rota.http.response_bodies import ApiDocument, Instant, document, documents
from rota.http.route import RouteReply, route

SECRET_SETTINGS = ("listen_url",)
RoleName = Annotated[str, msgspec.Meta(pattern="^(read|operate|admin)$")]


# -- the process -------------------------------------------------------------------------------


@route("GET", "/health/live", "open", "", prefix="", media="text/plain")
async def live(request: WebRequest) -> TextAnswer:
    """Answer while the process runs."""
    return TextAnswer("ok\n", headers={HEADER: request.site.store_key})


class Reason(ApiDocument, frozen=True):
    """A check that failed, and why."""

    check: str
    detail: str


class Readiness(ApiDocument, frozen=True):
    """Whether this process can do its work, and if not, why."""

    is_ready: bool
    reasons: list[Reason]


@route("GET", "/health/ready", "read", "workers", prefix="", also=(HTTPStatus.SERVICE_UNAVAILABLE,))
async def ready(request: WebRequest) -> RouteReply[Readiness]:
    """Report whether this process can do its work, and if not, why."""
    reasons: list[Reason] = []
    try:
        await request.client.workers()
    except RotaError as error:
        reasons.append(Reason("database", error.code))
    healthy = getattr(request.client, "healthy", None)
    if healthy is not None and not healthy():
        reasons.append(Reason("worker", "the event loop of the worker is blocked"))
    if getattr(request.client, "is_draining", False):
        reasons.append(Reason("worker", "the worker drains and takes no more runs"))
    status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
    return RouteReply(Readiness(not reasons, reasons), status)


@route(
    "GET", "/metrics", "read", "metrics", prefix="", media="text/plain",
    also_media=("application/openmetrics-text",),
)  # fmt: skip
async def metrics(request: WebRequest) -> TextAnswer:
    """Show metrics in the text format of Prometheus, or as OpenMetrics if `Accept` prefers it."""
    samples: list[Metric] = await request.site.metrics.metrics()
    vary = {"vary": "accept"}
    if prometheus_text.wants_openmetrics(request.headers.get("accept", "")):
        text = prometheus_text.openmetrics(samples) + prometheus_text.OPEN_END
        return TextAnswer(text, prometheus_text.OPEN_MEDIA, headers=vary)
    return TextAnswer(prometheus_text.text(samples), prometheus_text.MEDIA, headers=vary)


class FindingDocument(ApiDocument, frozen=True):
    """A finding of the doctor."""

    check: str
    level: str
    message: str
    hint: str | None = None


@route("GET", "/doctor", "read", "doctor", limit_s=35.0)
async def examine_store(request: WebRequest) -> list[FindingDocument]:
    """Examine the store, as `rota doctor` does."""
    report = await examine(request.client.url, request.client.settings)
    return [
        FindingDocument(finding.what, finding.level, finding.says, finding.hint)
        for finding in report.findings
    ]


class WithinQuery(RequestFields, frozen=True):
    """How far to look back."""

    within: Text = "1d"


class RecentDocument(ApiDocument, frozen=True):
    """Open runs by status, exactly; ended ones among those created since `since`."""

    open: dict[str, int]
    ended: dict[str, int]
    since: Instant
    is_whole: bool


@route("GET", "/counts", "read", "overview.counts")
async def count_runs(request: WebRequest, query: WithinQuery) -> RecentDocument:
    """Count runs by status: open ones exactly, ended ones among the newest."""
    return document(RecentDocument, await request.client.overview.counts(within=query.within))


class AttentionDocument(ApiDocument, frozen=True):
    """Something that waits for an operator; `expected` goes with the answer."""

    kind: str
    name: str
    sentence: str
    since: Instant
    action: str
    url: str
    run_id: str | None
    expected: str | None


@route("GET", "/attention", "read", "overview.attention")
async def list_attention(request: WebRequest) -> list[AttentionDocument]:
    """List everything that waits for an operator, with the action that continues it."""
    return [
        document(AttentionDocument, item, url=_page_of(item), expected=item.mutation_id)
        for item in await request.client.overview.attention()
    ]


def _page_of(item: AttentionItem) -> str:
    """The page where a person decides."""
    if item.kind in ("automation", "schedule"):
        return f"/{item.kind}s/{quote(item.name, safe='')}"
    return f"/runs/{item.run_id}"


class NotificationsQuery(PageQuery, frozen=True, kw_only=True):
    """Notifications of one kind, or of all."""

    kind: KindName | None = None


class NotificationDocument(ApiDocument, frozen=True):
    """A recorded notification. `rules` are those that matched; null until it is dispatched."""

    id: str
    kind: str
    source: str
    name: str
    run_id: str
    at: Instant
    queue: str
    schedule: str | None
    error: str | None
    rules: list[str] | None


class NotificationPage(ApiDocument, frozen=True):
    """Notifications, newest first."""

    notifications: list[NotificationDocument]
    next: str | None = None


@route("GET", "/notifications", "read", "notifications.list")
async def list_notifications(request: WebRequest, query: NotificationsQuery) -> NotificationPage:
    """List notifications, newest first, with the rules that matched."""
    recorded = await request.client.notifications.list(
        kinds=() if query.kind is None else (query.kind,),
        before_id=position(query) or None, limit=query.limit,
    )  # fmt: skip
    rows = [
        document(NotificationDocument, entry.notification, rules=entry.rules) for entry in recorded
    ]
    return NotificationPage(rows, cursor(recorded, query, lambda entry: entry.notification.id))


@route("GET", "/settings", "read", "settings")
async def show_settings(request: WebRequest) -> dict[str, Any]:
    """Show the settings of this server; addresses with passwords are omitted."""
    settings: dict[str, Any] = msgspec.to_builtins(request.client.settings)
    return {name: value for name, value in settings.items() if name not in SECRET_SETTINGS}


class Me(ApiDocument, frozen=True):
    """The caller."""

    name: str
    role: str
    namespace: str
    token_id: str | None


@route("GET", "/me", "read", "")
async def who_am_i(request: WebRequest) -> Me:
    """Show the name and the role of the caller."""
    who = request.identity
    return Me(who.name, str(who.role), request.client.settings.namespace, who.token_id)


# -- workers and queues ------------------------------------------------------------------------


class WorkersQuery(NamesQuery, frozen=True):
    """A page of workers; `search` is a part of the name of their machine, `after` the last id of
    the page before. `everyone` includes those that have stopped."""

    everyone: bool = False


class WorkerDocument(ApiDocument, frozen=True):
    """A worker. `state` comes from its heartbeat: alive, draining, silent, gone or stopped.
    `pinned_runs` are open runs that only its version of the code may continue. It is drained when
    there are none, and a worker of another version is alive."""

    id: str
    host: str
    pid: int
    state: str
    heartbeat_age_s: float
    queues: Any
    slots: int
    busy: int
    version: str
    pinned_runs: int
    is_drained: bool
    started_at: Instant
    heartbeat_at: Instant
    stopped_at: Instant | None


@route("GET", "/workers", "read", "overview.workers")
async def list_workers(request: WebRequest, query: WorkersQuery) -> list[WorkerDocument]:
    """List workers; their state comes from the age of their heartbeat."""
    states = await request.client.overview.workers(
        everyone=query.everyone, search=query.search, after=query.after, limit=query.limit
    )
    return [document(WorkerDocument, state.worker, **state._asdict()) for state in states]


class QueueDocument(ApiDocument, frozen=True):
    """A queue: what waits, what runs, and its limits across all workers."""

    name: str
    is_paused: bool
    pending: int
    running: int
    oldest_at: Instant | None
    worker_count: int
    concurrency: int | None
    concurrency_per_key: int | None
    rate_count: int | None
    rate_per_s: float | None
    open_per_key: int | None
    age_s: float | None
    round_robin: bool


@route("GET", "/queues", "read", "overview.queues")
async def list_queues(request: WebRequest) -> list[QueueDocument]:
    """List every queue that is declared, served or waited in."""
    return [queue_document(state) for state in await request.client.overview.queues()]


def queue_document(state: QueueState) -> QueueDocument:
    """A queue for a program."""
    row = state.limits or Queue("", state.name)
    return document(
        QueueDocument, state, concurrency=row.running_max,
        concurrency_per_key=row.key_running_max, rate_count=row.rate_count,
        rate_per_s=None if row.rate_per_us is None else row.rate_per_us / SECOND,
        open_per_key=row.key_open_max,
        age_s=None if row.age_us is None else row.age_us / SECOND,
        round_robin=bool(row.round_robin),
    )  # fmt: skip


class LimitsBody(RequestFields, frozen=True):
    """All limits of a queue; one that is not named is removed. `rate` is `[100, "1m"]`."""

    concurrency: int | None = None
    concurrency_per_key: int | None = None
    rate: tuple[int, Text] | None = None
    open_per_key: int | None = None
    age: Text | None = None
    round_robin: bool = False


@route("PUT", "/queues/{name}", "admin", "limit_queue", problems=NOT_FOUND)
async def limit_queue(request: WebRequest, name: str, body: LimitsBody) -> QueueDocument:
    """Set the limits of a queue across all workers."""
    await request.client.limit_queue(name, **cast(QueueLimits, msgspec.structs.asdict(body)))
    states = await request.client.overview.queues()
    return next(queue_document(state) for state in states if state.name == name)


@route(
    "POST", "/queues/{name}/pause", "operate", "pause_queue", status=HTTPStatus.NO_CONTENT,
    problems=NOT_FOUND,
)  # fmt: skip
async def pause_queue(request: WebRequest, name: str) -> None:
    """Stop claiming from a queue, on all workers."""
    await request.client.pause_queue(name)


@route(
    "POST", "/queues/{name}/resume", "operate", "pause_queue", status=HTTPStatus.NO_CONTENT,
    problems=NOT_FOUND,
)  # fmt: skip
async def resume_queue(request: WebRequest, name: str) -> None:
    """Claim from a queue again."""
    await request.client.pause_queue(name, paused=False)


# -- tokens and the audit list -----------------------------------------------------------------


class TokenDocument(ApiDocument, frozen=True):
    """A token without its secret."""

    id: str
    name: str
    role: str
    created_at: Instant
    expires_at: Instant | None
    last_used_at: Instant | None
    revoked_at: Instant | None


@route("GET", "/tokens", "admin", "tokens.list")
async def list_tokens(request: WebRequest) -> list[TokenDocument]:
    """List the tokens of the namespace."""
    return documents(TokenDocument, await request.client.tokens.list())


class TokenBody(RequestFields, frozen=True):
    """A new token."""

    name: Text
    role: RoleName = "read"
    expires_in: Text | None = None


class NewTokenDocument(ApiDocument, frozen=True):
    """A token that was just made. Its text is shown once."""

    token: TokenDocument
    text: str


@route("POST", "/tokens", "admin", "tokens.create", status=HTTPStatus.CREATED)
async def create_token(request: WebRequest, body: TokenBody) -> NewTokenDocument:
    """Make a token. Its text is shown once."""
    made = await request.client.tokens.create(body.name, role=body.role, expires_in=body.expires_in)
    return NewTokenDocument(document(TokenDocument, made.token), made.text)


@route(
    "DELETE", "/tokens/{name}", "admin", "tokens.revoke", status=HTTPStatus.NO_CONTENT,
    problems=NOT_FOUND,
)  # fmt: skip
async def revoke_token(request: WebRequest, name: str) -> None:
    """Revoke a token by its name or id, and every session that began with it."""
    await request.client.tokens.revoke(name)


class AuditDocument(ApiDocument, frozen=True):
    """Who did what, to what, when."""

    id: str
    at: Instant
    who: str
    verb: str
    target: str
    request_id: str
    detail: Any


class AuditPage(ApiDocument, frozen=True):
    """Audit entries, newest first."""

    entries: list[AuditDocument]
    next: str | None = None


@route("GET", "/audit", "admin", "audit.list")
async def list_audit(request: WebRequest, query: PageQuery) -> AuditPage:
    """List who did what, newest first."""
    before = position(query) or None
    entries = await request.client.audit.list(before=before, limit=query.limit)
    return AuditPage(documents(AuditDocument, entries), cursor(entries, query))
