"""The line of a schedule: when one of its chains is over, the next that waits behind it goes, and
those who want to be told of it will be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from rota.core.runs.lifecycle import Trigger
from rota.store import notifications
from rota.store.backend.database import Tx


class EndedChain(NamedTuple):
    """A chain that is over: whose child it was, which schedule's, and its first run."""

    parent_id: str | None
    schedule_id: str | None
    root_id: str


async def release_next(tx: Tx, ended: Sequence[EndedChain], now: int) -> bool:
    """Let the next waiting run of a schedule go, one for each of its kind that ended; and let
    others be told of the end, where they want to be. Returns whether there is something to do."""
    ids = sorted({end.schedule_id for end in ended if end.schedule_id})
    # Firing holds this lock too: it decides who has to wait by what it sees open.
    locked = await tx.rows("lock_templates", ids=ids)
    told = await _tell(tx, ended, {row[0] for row in locked if row[1]}, now)
    if not await tx.rows("with_turns", ids=ids):
        return told
    return await _take_turns(tx, ended, ids, now) or told


async def _tell(tx: Tx, ended: Sequence[EndedChain], tells: set[str], now: int) -> bool:
    """Begin to tell of the ends of schedules that want it; in this very transaction."""
    roots = {end.root_id: end.schedule_id for end in ended if end.schedule_id in tells}
    chosen = {root: schedule_id for root, schedule_id in roots.items() if schedule_id}
    return bool(chosen and await notifications.tell_ends(tx, chosen, now=now))


async def _take_turns(tx: Tx, ended: Sequence[EndedChain], ids: Sequence[str], now: int) -> bool:
    roots = [end.root_id for end in ended]
    triggers = {row[0]: row[1] for row in await tx.rows("root_triggers", ids=roots)}
    backfilled = Counter(
        end.schedule_id for end in ended if triggers.get(end.root_id) == Trigger.BACKFILL
    )
    for schedule_id, count in backfilled.items():
        rows = await tx.rows("next_in_turn", id=schedule_id, reason="backfill", limit=count)
        await tx.rows("take_turn", ids=[row[0] for row in rows], now=now)
    # A run by hand stands beside the line; of the others one goes when the last has ended.
    regular = {e.schedule_id for e in ended if triggers.get(e.root_id) == Trigger.SCHEDULE}
    busy = {row[0] for row in await tx.rows("open_of_schedules", ids=ids) if row[1]}
    free = sorted(filter(None, regular - busy))
    if free:
        await tx.change("take_turns", [(schedule_id,) for schedule_id in free], now=now)
    return bool(backfilled or free)
