"""The steps of a pipeline's chain in pages, and one more attempt for a chain that has ended."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from rota.core.lifecycle import FINAL, Trigger
from rota.core.model import Run, Step
from rota.store import runs
from rota.store.database import Tx


class StepKey(NamedTuple):
    """As much of a step as tells whether it is done."""

    key: str
    position: int
    status: str
    run_attempt: int


async def step(tx: Tx, *, root_id: str, key: str) -> Step | None:
    """One step of a chain."""
    rows = await tx.rows("step_of", root_id=root_id, key=key, alone=True)
    return Step(*rows[0]) if rows else None


async def page(tx: Tx, *, root_id: str, after: str, until: str, limit: int) -> list[Step]:
    """Steps whose keys lie between two texts, in the order of their keys."""
    rows = await tx.rows(
        "steps_page", root_id=root_id, after=after, until=until, limit=limit, alone=True
    )
    return [Step(*row) for row in rows]


async def keys(tx: Tx, *, root_id: str, after: str, until: str, limit: int) -> list[StepKey]:
    """The same without what the steps hold."""
    rows = await tx.rows(
        "keys_page", root_id=root_id, after=after, until=until, limit=limit, alone=True
    )
    return [StepKey(*row) for row in rows]


async def again(
    tx: Tx, root_id: str, new_id: str, *, queue: str | None = None, now: int
) -> Run | None:
    """Give a chain that has ended, however it did, one more attempt; None when it has not."""
    await tx.rows("lock_roots", roots=[root_id])
    last = Run(*(await tx.rows("chain_of", root_id=root_id))[-1])
    if last.status not in FINAL:
        return None
    heir = runs.successor(
        last, new_id, trigger=Trigger.RETRY, available_at=now, attempt=last.attempt + 1,
        recoveries=0,
    )  # fmt: skip
    if queue is not None:
        heir = msgspec.structs.replace(heir, queue=queue)
    await runs.start(tx, [heir], now=now, alone=False)
    return last


async def move(tx: Tx, root_id: str, *, queue: str) -> None:
    """Put the open run of a chain into another queue; one that is performed stays where it is."""
    await tx.rows("move_to_queue", root_id=root_id, queue=queue)
