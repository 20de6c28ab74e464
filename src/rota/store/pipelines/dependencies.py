"""Reads the dependencies that an execution waits for. Never writes."""

from __future__ import annotations

from rota.core.runs.model import Schedule
from rota.core.schedules.intent import read_intent
from rota.store.backend.database import Tx
from rota.store.schedules.templates import declared_by


async def has_begun(tx: Tx, root_id: str) -> bool:
    """Whether a chain has recorded anything."""
    return bool((await tx.rows("has_begun", root_id=root_id))[0][0])


async def schedule(tx: Tx, schedule_id: str) -> Schedule | None:
    """A schedule by its id."""
    rows = await tx.rows("schedule_by_id", id=schedule_id)
    return Schedule(*rows[0]) if rows else None


async def beside(tx: Tx, own: Schedule, workflow: str) -> Schedule | None:
    """The schedule of another pipeline of the same folder."""
    if own.parent_id is None:
        return None
    listed = await declared_by(tx, namespace=own.namespace, origins=[own.parent_id])
    return next((one for one in listed if read_intent(one.spec).workflow == workflow), None)


async def ends_since(tx: Tx, schedule_id: str, *, since: int) -> list[tuple[str, str | None]]:
    """Status and reason of every execution of a schedule from an instant on."""
    rows = await tx.rows("ends_since", id=schedule_id, since=since)
    return [(row[0], row[1]) for row in rows]
