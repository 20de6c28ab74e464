"""Reads runs: one run, a chain, a list, or the ended runs among many. Never writes."""

from __future__ import annotations

from collections.abc import Sequence
from string import hexdigits
from typing import NamedTuple

from rota.core.runs.filters import beyond
from rota.core.runs.ids import SHORT
from rota.core.runs.model import Run
from rota.core.runs.names import checked_search
from rota.errors import UnknownRun
from rota.store.backend.database import Tx

CANDIDATES_MAX = 5


class ChainResult(NamedTuple):
    """How a chain ended."""

    root_id: str
    status: str
    reason: str | None
    output: str | None
    error: str | None


async def get(tx: Tx, *, namespace: str, run_id: str) -> Run:
    """One run by its id, a beginning or a short end of it; or the newest run of the chain with this
    external id. One must fit."""
    checked_search(run_id, "run id")
    rows = await tx.rows("get_run", namespace=namespace, id=run_id)
    if rows:
        return Run(*rows[0])
    found = await _like(tx, namespace, run_id) if run_id else []
    if len(found) > 1:
        raise UnknownRun(
            f"{run_id!r} fits several runs:\n{_candidates(found)}",
            hint="Give more of the id, or one of the ids above.",
        )
    if not found:
        raise await _unknown(tx, namespace, run_id)
    if found[0].external_id == run_id:  # it names the chain
        return await newest(tx, root_id=found[0].root_id) or found[0]
    return found[0]


async def _unknown(tx: Tx, namespace: str, run_id: str) -> UnknownRun:
    """The error for a run that is not in the tables in use; the archive may have it."""
    rows = await tx.rows("archived_month", namespace=namespace, root_id=run_id)
    if not rows:
        return UnknownRun(f"there is no run {run_id!r} in namespace {namespace!r}", run_id=run_id)
    return UnknownRun(
        f"run {run_id} is in the archive of {rows[0][0]}, where it can only be read",
        hint=f"`rota run show {run_id}` shows it.", run_id=run_id,
    )  # fmt: skip


async def _like(tx: Tx, namespace: str, given: str) -> list[Run]:
    """The newest runs that an incomplete id may mean."""
    limit = CANDIDATES_MAX + 1
    rows = await tx.rows(
        "runs_beginning", namespace=namespace, prefix=given, beyond=beyond(given), limit=limit
    )
    rows += await tx.rows("runs_called", namespace=namespace, external_id=given, limit=limit)
    if len(given) >= SHORT and set(given) <= set(hexdigits):
        rows += await tx.rows("runs_ending", ending=f"%{given.lower()}", limit=limit)
    found = []
    for run_id in sorted({str(row[0]) for row in rows}, reverse=True)[:limit]:
        found += [Run(*row) for row in await tx.rows("get_run", namespace=namespace, id=run_id)]
    return found


def _candidates(found: Sequence[Run]) -> str:
    lines = [f"  {run.id}  {run.name}  {run.label}" for run in found[:CANDIDATES_MAX]]
    return "\n".join([*lines, "  …"] if len(found) > CANDIDATES_MAX else lines)


async def newest(tx: Tx, *, root_id: str) -> Run | None:
    """The last run of a chain; None if the chain was pruned or archived."""
    rows = await tx.rows("last_attempts", roots=[root_id])
    return Run(*rows[0]) if rows else None


async def chain(tx: Tx, *, root_id: str) -> list[Run]:
    """All attempts of a chain, first to last."""
    return [Run(*row) for row in await tx.rows("chain_of", root_id=root_id)]


async def children(tx: Tx, *, root_id: str, after: str, limit: int) -> list[Run]:
    """First attempts of the children of a chain, in the order of their creation."""
    rows = await tx.rows("children_of", parent_id=root_id, after=after, limit=limit)
    return [Run(*row) for row in rows]


async def last_ids(tx: Tx, roots: Sequence[str]) -> set[str]:
    """The ids of the last attempts of these chains."""
    rows = await tx.rows("last_attempt_ids", roots=list(roots)) if roots else []
    return {row[0] for row in rows}


async def ended(tx: Tx, roots: Sequence[str], *, alone: bool = True) -> list[ChainResult]:
    """Those of the chains that have ended."""
    return [
        ChainResult(*row) for row in await tx.rows("ended_chains", roots=list(roots), alone=alone)
    ]


async def counts(tx: Tx, *, namespace: str) -> dict[str, int]:
    """Runs by status."""
    return {row[0]: row[1] for row in await tx.rows("count_by_status", namespace=namespace)}


class Ready(NamedTuple):
    """Pending runs of one name in one queue."""

    queue: str
    name: str
    run_count: int
    oldest_at: int


async def ready(tx: Tx, *, namespace: str) -> list[Ready]:
    """The claimable runs, by queue and name."""
    return [Ready(*row) for row in await tx.rows("count_ready", namespace=namespace)]
