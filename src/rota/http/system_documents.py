"""The bodies of answers about workers, queues, tokens, the audit list and the process."""

from __future__ import annotations

from typing import Any

from rota.http.document import ApiDocument, Instant


class WorkerDocument(ApiDocument, frozen=True):
    """A worker. `state` comes from its heartbeat: alive, draining, silent, gone or stopped."""

    id: str
    host: str
    pid: int
    state: str
    heartbeat_age_s: float
    queues: Any
    slots: int
    busy: int
    version: str
    started_at: Instant
    heartbeat_at: Instant
    stopped_at: Instant | None


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


class AttentionDocument(ApiDocument, frozen=True):
    """Something that waits for a person; `expected` goes with the answer."""

    kind: str
    name: str
    sentence: str
    since: Instant
    action: str
    url: str
    run_id: str | None
    expected: str | None


class RecentDocument(ApiDocument, frozen=True):
    """Open runs by status, exactly; ended ones among those created since `since`."""

    open: dict[str, int]
    ended: dict[str, int]
    since: Instant
    is_whole: bool


class Reason(ApiDocument, frozen=True):
    """One thing that is not as it should be."""

    check: str
    detail: str


class Readiness(ApiDocument, frozen=True):
    """Whether this process can do its work, and if not, why."""

    is_ready: bool
    reasons: list[Reason]


class NotificationDocument(ApiDocument, frozen=True):
    """A recorded notification. `rules` that wanted it; null until it is dispatched."""

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


class FindingDocument(ApiDocument, frozen=True):
    """A finding of the doctor."""

    check: str
    level: str
    message: str
    hint: str | None = None


class Me(ApiDocument, frozen=True):
    """Who asks."""

    name: str
    role: str
    namespace: str
    token_id: str | None


class TokenDocument(ApiDocument, frozen=True):
    """A token without its secret."""

    id: str
    name: str
    role: str
    created_at: Instant
    expires_at: Instant | None
    last_used_at: Instant | None
    revoked_at: Instant | None


class NewTokenDocument(ApiDocument, frozen=True):
    """A token that was just made. Its text is shown once."""

    token: TokenDocument
    text: str


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
