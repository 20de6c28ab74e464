"""Rows of the audit, and the pruning of everything about access."""

from __future__ import annotations

from msgspec.structs import asdict

from rota.core.access.model import AuditEntry
from rota.core.runs.ids import id_bound
from rota.store.backend.database import Tx


async def put(tx: Tx, entry: AuditEntry) -> None:
    """Add an entry."""
    await tx.rows("put_audit", **asdict(entry))


async def listing(tx: Tx, *, namespace: str, before: str, limit: int) -> list[AuditEntry]:
    """Entries, newest first."""
    rows = await tx.rows("list_audit", namespace=namespace, before=before, limit=limit)
    return [AuditEntry(*row) for row in rows]


async def prune(tx: Tx, *, namespace: str, now: int, before: int, limit: int) -> None:
    """Delete ended sessions and links. Delete tokens that ended before `before`, and at most
    `limit` audit entries older than that."""
    await tx.rows("forget_sessions", namespace=namespace, now=now)
    await tx.rows("forget_login_links", namespace=namespace, now=now)
    await tx.rows("forget_tokens", namespace=namespace, before=before)
    await tx.rows("forget_audit", namespace=namespace, before_id=id_bound(before), limit=limit)
