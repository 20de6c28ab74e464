"""Retention: finished chains go in small batches; nothing unresolved ever does."""

from __future__ import annotations

from rota.store.database import Tx


async def prune(
    tx: Tx, *, namespace: str, before_id: str, limit: int, before_at: int = 1 << 62
) -> int:
    """Delete chains born before an id and finished before an instant, with their steps."""
    roots = [
        row[0]
        for row in await tx.rows(
            "prunable_chains",
            namespace=namespace,
            before_id=before_id,
            before_at=before_at,
            limit=limit,
        )
    ]
    if roots:
        await tx.rows("delete_steps", roots=roots)
        await tx.rows("delete_chains", roots=roots)
    return len(roots)


async def oldest_to_keep(tx: Tx, *, namespace: str, keep: int) -> str | None:
    """The id below which finished runs exceed `keep`, if any."""
    rows = await tx.rows("nth_newest_id", namespace=namespace, keep=keep)
    return rows[0][0] if rows else None
