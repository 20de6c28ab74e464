"""Runs that end without a worker: cancelled, with all below them, or expired. And requests that
the code of a run cleans up and ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rota.core.runs.end_request import EndRequest
from rota.core.runs.lifecycle import PARENT_ENDED, Status
from rota.store.backend.database import Row, Tx
from rota.store.notifications import record
from rota.store.runs.chain_ends import EndedChain, after_ends
from rota.store.runs.manual_retry import resolve_run


async def cancel_chains(tx: Tx, root_ids: Sequence[str], *, reason: str, now: int) -> list[str]:
    """Cancel the open runs of these chains and of all chains below them."""
    cancelled: list[Row] = []
    # Repeat until none is left: during the wait for a row lock, a child or successor may be added.
    while found := await tx.rows("open_of_chains", roots=await _family(tx, root_ids)):
        ids = sorted(row[0] for row in found)
        cancelled += await tx.rows("cancel_runs", ids=ids, reason=reason, now=now)
    await after_ends(tx, [EndedChain(row[1], row[2], row[3]) for row in cancelled], now)
    return [row[0] for row in cancelled]


async def cancel_gracefully(
    tx: Tx, root_ids: Sequence[str], *, request: EndRequest, now: int
) -> list[str]:
    """Ask the code of these chains to clean up and end; wake those that rest. Chains without code
    to clean up are cancelled at once. Returns the ids of the runs that were cancelled or asked."""
    roots = sorted(set(root_ids))
    await tx.rows("lock_roots", roots=roots)
    idle = sorted({row[0] for row in await tx.rows("without_cleanup", roots=roots)})
    over = await cancel_chains(tx, idle, reason=request.reason, now=now) if idle else []
    roots = sorted(set(roots) - set(idle))
    asked: dict[str, str] = {}
    while left := sorted(set(roots) - set(asked.values())):
        await tx.rows("request_ends", roots=left, request=request.text(), now=now)
        for run_id, status in await tx.rows("statuses_of_chains", roots=left):
            if status == Status.WAITING:
                await resolve_run(tx, run_id, now=now)
        found = await tx.rows("wake_to_end", roots=left, now=now)
        asked |= {row[0]: row[1] for row in found}
        # While we waited for a row, its attempt may have ended and another one begun.
        if not found and not await tx.rows("open_of_chains", roots=left):
            break
    return [*over, *asked]


async def cancel_children(tx: Tx, parents: Sequence[str], now: int) -> list[str]:
    """Cancel the open children of chains that ended without a result, except detached ones."""
    below = await tx.rows("chains_below", parents=sorted(parents)) if parents else []
    children = [row[0] for row in below]
    return await cancel_chains(tx, children, reason=PARENT_ENDED, now=now) if children else []


class ExpiredRun(NamedTuple):
    """A run that waited too long before it began."""

    schedule_id: str | None
    due_at: int | None
    options: str | None


async def expire_runs(tx: Tx, ids: Sequence[str], *, now: int) -> list[ExpiredRun]:
    """End runs that waited too long before they began; claimed runs continue."""
    rows = await tx.rows("expire_runs", ids=sorted(ids), now=now)
    await after_ends(tx, [EndedChain(row[1], row[2], row[3]) for row in rows], now)
    await record.skipped(tx, [(row[0], row[2] or row[3], row[4]) for row in rows], now=now)
    return [ExpiredRun(row[2], row[4], row[5]) for row in rows]


async def _family(tx: Tx, root_ids: Sequence[str]) -> list[str]:
    """These chains and all chains below them."""
    family = parents = set(root_ids)
    while parents:
        below = await tx.rows("chains_below", parents=sorted(parents))
        parents = {row[0] for row in below} - family
        family = family | parents
    return sorted(family)
