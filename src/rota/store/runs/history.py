"""Reading runs back: one, a chain, a list, the ended ones among many. Never writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rota.core.runs.model import Run
from rota.errors import UnknownRun
from rota.store.backend.database import Tx


class ChainResult(NamedTuple):
    """How a chain ended."""

    root_id: str
    status: str
    reason: str | None
    output: str | None
    error: str | None


async def get(tx: Tx, *, namespace: str, run_id: str) -> Run:
    """One run by its id or by a prefix that fits only one."""
    rows = await tx.rows("get_run", namespace=namespace, id=run_id)
    if not rows and run_id:
        beyond = run_id[:-1] + chr(ord(run_id[-1]) + 1)
        like = await tx.rows("runs_like", namespace=namespace, prefix=run_id, beyond=beyond)
        if len(like) > 1:
            raise UnknownRun(f"{run_id!r} fits several runs", hint="Give more of the id.")
        if like:
            rows = await tx.rows("get_run", namespace=namespace, id=like[0][0])
    if not rows:
        raise UnknownRun(f"there is no run {run_id!r} in namespace {namespace!r}", run_id=run_id)
    return Run(*rows[0])


async def chain(tx: Tx, *, root_id: str) -> list[Run]:
    """All attempts of a chain, first to last."""
    return [Run(*row) for row in await tx.rows("chain_of", root_id=root_id)]


async def ended(tx: Tx, roots: Sequence[str], *, alone: bool = True) -> list[ChainResult]:
    """Those of the chains that have ended."""
    return [
        ChainResult(*row) for row in await tx.rows("ended_chains", roots=list(roots), alone=alone)
    ]


async def page(
    tx: Tx,
    *,
    namespace: str,
    name: str = "",
    status: str = "",
    queue: str = "",
    external_id: str = "",
    root_id: str = "",
    before: str = "",
    limit: int = 50,
) -> list[Run]:
    """Newest first; `before` is the last id of the page before."""
    rows = await tx.rows(
        "list_runs", namespace=namespace, name=name, status=status, queue=queue,
        external_id=external_id, root_id=root_id, before=before, limit=limit,
    )  # fmt: skip
    return [Run(*row) for row in rows]


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
    """What could be claimed now, by queue and name."""
    return [Ready(*row) for row in await tx.rows("count_ready", namespace=namespace)]
