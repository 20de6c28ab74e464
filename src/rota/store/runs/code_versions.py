"""Runs that only some versions of the code may execute: refused, released, pinned."""

from __future__ import annotations

from collections.abc import Sequence

from rota.core.runs.code_versions import WAITED, RefusedRun, WaitsOver
from rota.core.runs.model import Claim, Outcome
from rota.store.backend.database import Tx

# Runs that one heartbeat looks at.
LOOK_MAX = 1_000


async def refuse(tx: Tx, outcomes: Sequence[Outcome], *, now: int) -> None:
    """Note the versions that cannot execute the runs that were just handed back."""
    items = [(o.claim.id, o.claim.claim_count, o.refused) for o in outcomes if o.refused]
    if items:
        await tx.change("refuse_versions", items, now=now)


async def refused_runs(tx: Tx, *, namespace: str) -> list[RefusedRun]:
    """The runs that wait for another version."""
    rows = await tx.rows("refused_runs", namespace=namespace, limit=LOOK_MAX, alone=True)
    return [RefusedRun(*row) for row in rows]


async def release(tx: Tx, over: WaitsOver) -> None:
    """Let any version claim these runs."""
    await tx.rows("release_refused", ids=over.late, refused=WAITED)
    await tx.rows("release_refused", ids=over.without_taker, refused=None)


async def pin(tx: Tx, claim: Claim, version: str) -> bool:
    """Let only one version claim this run from now on. False if the claim is lost."""
    rows = await tx.rows(
        "pin_run", id=claim.id, claim_count=claim.claim_count, worker_id=claim.lease_owner,
        version=version, alone=True,
    )  # fmt: skip
    return bool(rows)


async def pinned_counts(tx: Tx, *, namespace: str) -> dict[str, int]:
    """The number of open runs pinned to each version."""
    rows = await tx.rows("count_pinned", namespace=namespace, alone=True)
    return {version: int(count) for version, count in rows}
