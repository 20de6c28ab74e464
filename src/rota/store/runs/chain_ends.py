"""Consequences of ended chains: their parents wake, the next run in the overlap queue of a schedule
is released, and completions that receivers want are recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from rota.core.runs.lifecycle import Trigger
from rota.core.runs.model import Claim, Outcome
from rota.store.backend.database import Tx
from rota.store.notifications import record
from rota.store.runs.wake import poke

# The kinds that a schedule starts; naming them lets the query about stuck runs use its index.
KINDS = ["workflow", "pipeline"]


class EndedChain(NamedTuple):
    """A chain that is over: its parent, its schedule, and its first run."""

    parent_id: str | None
    schedule_id: str | None
    root_id: str
    completed: Claim | None = None  # the run that ended it, if it ended well

    @classmethod
    def of(cls, outcome: Outcome) -> EndedChain:
        """The chain that an outcome ends."""
        claim = outcome.claim
        well = outcome.verb == "complete" and outcome.reason is None
        return cls(claim.parent_id, claim.schedule_id, claim.root_id, claim if well else None)


async def after_ends(tx: Tx, ended: Sequence[EndedChain], now: int) -> bool:
    """The consequences of ended chains: parents wake, the next of a schedule is released. Returns
    whether there is something to do."""
    parents = [end.parent_id for end in ended if end.parent_id]
    if parents:
        await poke(tx, parents, now=now)
    scheduled = [end for end in ended if end.schedule_id]
    released = await _release_next(tx, scheduled, now) if scheduled else False
    return bool(parents) or released


async def _release_next(tx: Tx, ended: Sequence[EndedChain], now: int) -> bool:
    """Release runs that waited behind these chains, and record completions that need a
    notification. Returns whether there is something to do."""
    ids = sorted({end.schedule_id for end in ended if end.schedule_id})
    # Firing holds this lock too: the open runs that it sees decide which runs wait.
    locked = await tx.rows("lock_templates", ids=ids)
    reported = await record.completed(
        tx, [end.completed for end in ended if end.completed],
        with_receivers={row[0] for row in locked if row[1]},
        troubled={row[0] for row in locked if row[2]}, now=now,
    )  # fmt: skip
    if not await tx.rows("with_queued", ids=ids):
        return reported
    backfilled = await _release_backfills(tx, ended, now)
    return bool(backfilled + await _release_queued(tx, ids, now)) or reported


async def _release_queued(tx: Tx, schedule_ids: Sequence[str], now: int) -> int:
    """For each schedule without a run in progress, release the first queued occurrence.

    The trigger of the chain that ended does not matter: a firing waits behind every open run but
    a backfill's, so the end of any of them may be the one that it waited for."""
    rows = await tx.rows("open_of_schedules", ids=list(schedule_ids))
    free = [(row[0],) for row in rows if row[2] and not row[1]]
    return await tx.change("release_queued", free, now=now)


async def _release_backfills(tx: Tx, ended: Sequence[EndedChain], now: int) -> int:
    """For each chain of a backfill that ended, release the next one of its schedule.

    A chain that was cancelled before it began took no place, so it makes none free."""
    rows = await tx.rows("root_triggers", ids=[end.root_id for end in ended])
    places = {row[0] for row in rows if row[1] == Trigger.BACKFILL and row[2] is not None}
    freed = Counter(end.schedule_id for end in ended if end.root_id in places)
    return sum([await _release_backfill(tx, key, count, now) for key, count in freed.items()])


async def _release_backfill(tx: Tx, schedule_id: str | None, count: int, now: int) -> int:
    rows = await tx.rows("next_of_backfill", id=schedule_id, limit=count)
    await tx.rows("release_runs", ids=[row[0] for row in rows], now=now)
    return len(rows)


async def release_stuck(tx: Tx, *, namespace: str, now: int) -> int:
    """Release runs that wait behind no run; returns how many.

    The end of a run always releases the next. A run that an earlier version or a manual repair left
    in the queue would wait forever, and every later occurrence would merge into it."""
    found = [*await _stuck(tx, namespace, "turn"), *await _stuck(tx, namespace, "backfill")]
    await tx.rows("lock_templates", ids=sorted(set(found)))
    # Again: no process can end or fire one now.
    count = await _release_queued(tx, await _stuck(tx, namespace, "turn"), now)
    for schedule_id in await _stuck(tx, namespace, "backfill"):
        count += await _release_backfill(tx, schedule_id, 1, now)
    return count + len(await tx.rows("free_orphans", namespace=namespace, kinds=KINDS, now=now))


async def _stuck(tx: Tx, namespace: str, reason: str) -> list[str]:
    """Schedules with a queued run that has no run before it. `reason` selects the overlap queue or
    a backfill."""
    rows = await tx.rows("stuck_queued", namespace=namespace, kinds=KINDS, reason=reason)
    return [str(row[0]) for row in rows]
