"""Reading executions of schedules back: which are open, which are new, how each try went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from rota.core.runs.lifecycle import FINAL
from rota.core.runs.model import Schedule
from rota.store.backend.database import Tx


class Attempt(NamedTuple):
    """One try of an execution."""

    root_id: str
    id: str
    status: str
    reason: str | None
    trigger: str
    due_at: int | None
    attempt: int
    recoveries: int
    started_at: int | None
    finished_at: int | None
    output: str | None
    error: str | None

    @property
    def is_final(self) -> bool:
        """Whether it will never change again."""
        return self.status in FINAL


class CreatedExecution(NamedTuple):
    """An occurrence that has its outcome row: a run, or that it was skipped."""

    schedule_id: str
    root_id: str
    status: str
    reason: str | None
    due_at: int


async def current_rows(tx: Tx, rows: Sequence[Schedule]) -> dict[str, Schedule]:
    """The same schedules as they are now, by id; those that are gone are skipped."""
    known = {row.id: row for row in rows}
    found: dict[str, Schedule] = {}
    for row_id, *values in await tx.rows("current_rows_of", ids=list(known)):
        fresh = dict(zip(_CHANGING, values, strict=True))
        found[row_id] = msgspec.structs.replace(known[row_id], **fresh)
    return found


# The columns of a template that change, in the order of the query.
_CHANGING = ("status", "reason", "available_at", "due_at", "cron_expr", "spec", "started_at")


async def open_chains(tx: Tx, schedule_ids: Sequence[str]) -> list[tuple[str, str]]:
    """Schedule and root of every chain that has not ended."""
    rows = await tx.rows("open_executions", ids=list(schedule_ids))
    return [(row[0], row[1]) for row in rows]


async def triggered_by_hand(
    tx: Tx, schedule_ids: Sequence[str], since: int
) -> list[tuple[str, str]]:
    """Schedule and root of every execution that was started by hand since an instant."""
    rows = await tx.rows("started_by_hand", ids=list(schedule_ids), since=since)
    return [(row[0], row[1]) for row in rows]


async def created_since(tx: Tx, schedule_id: str, since: int) -> list[CreatedExecution]:
    """Occurrences of a schedule after an instant, oldest first."""
    return [
        CreatedExecution(*row)
        for row in await tx.rows("occurrences_since", id=schedule_id, since=since)
    ]


async def chains(tx: Tx, roots: Sequence[str]) -> dict[str, list[Attempt]]:
    """The tries of each chain, first to last."""
    found: dict[str, list[Attempt]] = {}
    for row in await tx.rows("attempts_of", roots=list(roots)):
        found.setdefault(row[0], []).append(Attempt(*row))
    for attempts in found.values():
        attempts.sort(key=lambda one: (one.attempt, one.recoveries))
    return found


async def latest(tx: Tx, schedule_id: str, *, limit: int) -> list[list[Attempt]]:
    """The newest chains of a schedule, newest first."""
    rows = await tx.rows("latest_executions", id=schedule_id, limit=limit)
    roots = [row[0] for row in rows]
    found = await chains(tx, roots) if roots else {}
    return [found[root] for root in roots if root in found]
