"""Whether a database may act. The state is a row: every worker that opens a copy sees it."""

from __future__ import annotations

from typing import NamedTuple

from rota.store.backend.database import Tx


class Disarmed(NamedTuple):
    """Since when a database does not act, and why."""

    at: int
    reason: str


async def disarm(tx: Tx, *, reason: str, now: int) -> None:
    """Keep all workers of all namespaces from acting; a database that is disarmed stays so."""
    await tx.rows("disarm", reason=reason, now=now)


async def arm(tx: Tx) -> Disarmed | None:
    """Arm the database; returns the state that ended, None if it was armed already."""
    rows = await tx.rows("arm")
    return Disarmed(*rows[0]) if rows else None


async def state(tx: Tx) -> Disarmed | None:
    """None while the database is armed."""
    rows = await tx.rows("disarm_state", alone=True)
    return Disarmed(*rows[0]) if rows else None
