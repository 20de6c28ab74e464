"""Roles, and the records of tokens, sessions and the audit. Field order is the column order."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from rota.core.time.instants import DAY, HOUR, MINUTE

SESSION_IDLE_US = 12 * HOUR
SESSION_US = 7 * DAY
LOGIN_LINK_US = MINUTE
# Uses are written down at most this often: a read must not become a write.
USE_NOTED_US = MINUTE


class Role(StrEnum):
    """The rights of a caller; each role includes the one before it."""

    READ = "read"
    OPERATE = "operate"  # verbs on what exists
    ADMIN = "admin"  # tokens, deploys, deletions, limits of queues


class ApiToken(msgspec.Struct, frozen=True):
    """A token without its secret."""

    id: str
    namespace: str
    name: str
    role: str
    created_at: int
    expires_at: int | None
    last_used_at: int | None
    revoked_at: int | None

    def problem(self, now: int) -> str | None:
        """Why it is not valid, as the end of a sentence."""
        if self.revoked_at is not None:
            return "was revoked"
        return "has expired" if self.expires_at is not None and self.expires_at <= now else None


class Session(msgspec.Struct, frozen=True):
    """A login of a browser. Without `token_id` it began with a login link."""

    namespace: str
    token_id: str | None
    name: str
    role: str
    created_at: int
    seen_at: int
    expires_at: int


class AuditEntry(msgspec.Struct, frozen=True):
    """Who did what, to what, when. `detail` is JSON."""

    id: str
    namespace: str
    at: int
    who: str
    verb: str
    target: str
    request_id: str
    detail: str | None
