"""Consequences of an ended chain: its parent wakes, the next of its schedule is released."""

from __future__ import annotations

from collections.abc import Sequence

from rota.store.backend.database import Tx
from rota.store.runs.wake import poke
from rota.store.schedules.overlap import EndedChain, release_next


async def after_ends(tx: Tx, ended: Sequence[EndedChain], now: int) -> bool:
    """The consequences of ended chains: parents wake, the next of a schedule is released."""
    parents = [end.parent_id for end in ended if end.parent_id]
    if parents:
        await poke(tx, parents, now=now)
    scheduled = [end for end in ended if end.schedule_id]
    released = await release_next(tx, scheduled, now) if scheduled else False
    return bool(parents) or released
