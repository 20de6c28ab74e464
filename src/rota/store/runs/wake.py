"""Makes sleeping runs pending: those that are due, and chains that are woken early."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rota.core.runs.recovery import runs_alone
from rota.store.backend.database import Tx

WAKE_BATCH = 500


async def poke(tx: Tx, root_ids: Sequence[str], *, now: int) -> int:
    """Wake the open run of each chain, at the latest when it next suspends."""
    roots = sorted(set(root_ids))
    await tx.rows("lock_roots", roots=roots)
    poked = len(await tx.rows("poke_runs", roots=roots, now=now))
    if poked < len(roots):
        # While we waited for a row, its attempt may have ended and another one begun.
        poked += len(await tx.rows("poke_runs", roots=roots, now=now))
    return poked


async def waiting(tx: Tx, run_ids: Sequence[str]) -> dict[str, int]:
    """How often each of these runs was claimed, if it has not ended."""
    rows = await tx.rows("waiting_claims", ids=sorted(run_ids))
    return {row[0]: row[1] for row in rows}


class Woken(NamedTuple):
    """How many sleepers became pending, when the next one is due, and whether one of those that
    became pending is executed alone."""

    total: int
    next_at: int | None
    one_alone: bool = False


async def wake_due(tx: Tx, *, namespace: str, now: int) -> Woken:
    """Make due sleeping runs pending."""
    rows = await tx.rows("wake_due", namespace=namespace, now=now, limit=WAKE_BATCH)
    upcoming = await tx.rows("next_due", namespace=namespace)
    return Woken(len(rows), upcoming[0][0], any(runs_alone(row[0]) for row in rows))
