"""Expiry: a fired run that has not begun in time ends as `skipped:expired`."""

from __future__ import annotations

from collections.abc import Sequence

from rota.store.backend.database import Row, Tx
from rota.store.runs.cancel import expire_runs

BATCH = 500


async def put(tx: Tx, rows: Sequence[Row]) -> None:
    """Note when runs expire: id and instant. A run that was not inserted is skipped."""
    await tx.change("put_expiries", rows)


async def expire(tx: Tx, *, namespace: str, now: int) -> tuple[int, bool]:
    """End the expired runs that have not begun; returns how many, and whether there may be more."""
    rows = await tx.rows("due_expiries", namespace=namespace, now=now, limit=BATCH)
    ids = [row[0] for row in rows]
    if not ids:
        return 0, False
    ended = await expire_runs(tx, ids, now=now)
    await tx.rows("delete_expiries", ids=ids)
    return len(ended), len(ids) == BATCH


async def next_at(tx: Tx, *, namespace: str) -> int | None:
    """When the next run expires, unless it begins before."""
    found: int | None = (await tx.rows("next_expiry", namespace=namespace))[0][0]
    return found
