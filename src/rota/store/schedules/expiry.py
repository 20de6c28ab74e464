"""Expiry: a fired run that has not begun in time ends as `skipped:expired`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.core.runs.options import StoredRunOptions
from rota.core.schedules.windows import before_expired
from rota.store.backend.database import Tx
from rota.store.runs.cancel import ExpiredRun, expire_runs

BATCH = 500


async def expire(tx: Tx, *, namespace: str, now: int) -> tuple[int, bool]:
    """End the expired runs that have not begun; returns how many, and whether there may be more."""
    rows = await tx.rows("due_expiries", namespace=namespace, now=now, limit=BATCH)
    ids = [row[0] for row in rows]
    if not ids:
        return 0, False
    ended = await expire_runs(tx, ids, now=now)
    await _join_windows(tx, ended)
    await tx.rows("delete_expiries", ids=ids)
    return len(ended), len(ids) == BATCH


async def _join_windows(tx: Tx, ended: Sequence[ExpiredRun]) -> None:
    """Let the next occurrence follow the one before the expired one (`previous_due_at`), so that
    its window has no gap."""
    before = before_expired(
        {
            (run.schedule_id, run.due_at): StoredRunOptions.read(run.options).previous_due_at
            for run in ended
            if run.schedule_id is not None and run.due_at is not None
        }
    )
    later = []
    for run_id, schedule_id, text in await tx.many("next_not_begun", list(before)):
        options = StoredRunOptions.read(text)
        key = (schedule_id, options.previous_due_at)
        if key in before:
            joined = msgspec.structs.replace(options, previous_due_at=before[key])
            later.append((run_id, joined.text()))
    await tx.change("put_options", later)
    await tx.change("move_back_fired", [(*key, at) for key, at in before.items()])


async def next_at(tx: Tx, *, namespace: str) -> int | None:
    """When the next run expires, unless it begins before."""
    found: int | None = (await tx.rows("next_expiry", namespace=namespace))[0][0]
    return found
