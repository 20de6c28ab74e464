"""Manual retries, and the end of a wait for an operator."""

from __future__ import annotations

import msgspec

from rota.core.runs.lifecycle import FINAL, Status, Trigger
from rota.core.runs.model import Run, StoredStep
from rota.errors import WrongState
from rota.store.backend.database import Tx
from rota.store.notifications import record
from rota.store.runs import history
from rota.store.runs.start import start_runs, successor

INT_MAX = 2**63 - 1
WITHOUT_RESULT = frozenset((Status.FAILED, Status.CANCELLED, Status.CRASHED))


async def retry_chain(
    tx: Tx,
    root_id: str,
    new_id: str,
    *,
    now: int,
    queue: str | None = None,
    even_completed: bool = False,
) -> Run | None:
    """Give a chain that ended without a result another attempt; None when it has not ended so.

    `queue` moves the new attempt. `even_completed` also retries a chain that completed in part.
    """
    await tx.rows("lock_roots", roots=[root_id])
    attempts = await history.chain(tx, root_id=root_id)
    last = attempts[-1] if attempts else None  # None: pruned or archived
    if last is None or last.status not in (FINAL if even_completed else WITHOUT_RESULT):
        return None
    following = successor(
        last, new_id, trigger=Trigger.RETRY, available_at=now, attempt=last.attempt + 1,
        recoveries=0,
    )  # fmt: skip
    following = msgspec.structs.replace(
        following,
        options=await record.retry_options(tx, last, following.options),
        queue=queue or last.queue,
        pinned_version=None,  # by hand: to the version that claims it
    )
    await _forget_end(tx, last.segment)
    [started] = await start_runs(tx, [following], now=now, alone=False)
    if started.existed:
        raise WrongState(
            f"run {last.id} cannot be retried: the open run {started.id} has its unique key",
            hint="Wait for that run to end, or cancel it.",
        )
    return last


async def _forget_end(tx: Tx, root_id: str) -> None:
    """The next attempt continues where the code was when it was asked to end."""
    for row in await tx.rows("ends_of", root_id=root_id):
        end = StoredStep(*row)
        is_over = end.finished_at is not None  # otherwise the code never learned of it
        await tx.rows(
            "forget_end", root_id=root_id, key=end.key,
            position=end.position if is_over else INT_MAX, ended_at=end.finished_at or INT_MAX,
        )  # fmt: skip


async def resolve_run(tx: Tx, run_id: str, *, now: int) -> bool:
    """Let a waiting run continue; its reason and error are cleared."""
    rows = await tx.rows("resolve_run", id=run_id, now=now)
    for row in rows:
        await record.resumed(tx, *row)
    return bool(rows)
