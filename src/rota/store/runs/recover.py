"""Recovery: leases are renewed, lapsed runs get a successor, stray claims are returned."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from rota.core.runs.model import Claim, NewRun, Run
from rota.core.runs.options import StoredRunOptions
from rota.core.runs.recovery import is_recovered
from rota.store.backend.database import Tx
from rota.store.notifications import record
from rota.store.runs.cancel import cancel_children
from rota.store.runs.chain_ends import EndedChain, after_ends
from rota.store.runs.start import start_runs, successor


async def renew_leases(tx: Tx, held: Sequence[Claim], *, lease_until: int) -> dict[str, bool]:
    """Renew the leases of exactly these claims; runs that are missing from the answer are lost. For
    the others: whether something was recorded for them from outside since they were claimed."""
    items = sorted((claim.id, claim.claim_count, claim.lease_owner) for claim in held)
    rows = await tx.many("renew_leases", items, lease_until=lease_until, alone=True)
    return {row[0]: row[1] == 2 for row in rows}


async def reap_runs(
    tx: Tx,
    *,
    namespace: str,
    now: int,
    gone: list[str],
    held: Sequence[str] = (),
    lapsed_before: int | None = None,
    recoveries_max: int,
    new_ids: Sequence[str],
    kept_kinds: Collection[str] = (),
) -> list[tuple[Run, bool]]:
    """Mark lapsed runs crashed and give each a successor, while it may have one.

    `gone` are workers known to be dead; leases that ended before `lapsed_before` (now, if not
    given) have lapsed. `held` are runs the caller itself executes: a late renewal must not take
    them from itself. `new_ids` bounds the batch and names the successors.
    """
    rows = await tx.rows(
        "lapsed_runs", namespace=namespace, now=now if lapsed_before is None else lapsed_before,
        gone=gone, held=list(held), limit=len(new_ids),
    )  # fmt: skip
    lapsed = [Run(*row) for row in rows]
    if not lapsed:
        return []
    crashed = [
        (run.id, run.claim_count, "lapsed" if run.lease_owner not in gone else "worker gone", None)
        for run in lapsed
    ]
    await tx.many("crash_runs", crashed, now=now)
    follows = {run.id for run in lapsed if is_recovered(run, recoveries_max, kept_kinds)}
    pairs = zip(lapsed, new_ids, strict=False)
    successors = [_recovery(run, new_id, now) for run, new_id in pairs if run.id in follows]
    await start_runs(tx, successors, now=now, alone=False)
    over = [run for run in lapsed if run.id not in follows]
    await after_ends(tx, [EndedChain(r.parent_id, r.schedule_id, r.root_id) for r in over], now)
    await cancel_children(tx, [run.root_id for run in over], now)
    await record.crashed(tx, over, now=now)
    return [(run, run.id in follows) for run in lapsed]


def _recovery(run: Run, new_id: str, now: int) -> NewRun:
    # The successor takes the place in the queue of the one it follows, and inherits its deadline.
    began_at = run.started_at or now
    following = successor(
        run, new_id, trigger="recovery", available_at=min(run.available_at or now, now),
        recoveries=run.recoveries + 1,
    )  # fmt: skip
    options = StoredRunOptions.read(following.options).begun(began_at)
    return msgspec.structs.replace(following, options=options.text())


async def return_strays(tx: Tx, *, namespace: str, worker_id: str, held: Sequence[Claim]) -> int:
    """Release runs of a claim that was never answered (a connection broke)."""
    rows = await tx.rows(
        "stray_runs", namespace=namespace, worker_id=worker_id,
        held=[f"{claim.id}:{claim.claim_count}" for claim in held], alone=True,
    )  # fmt: skip
    return len(rows)
