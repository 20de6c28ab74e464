"""Counting what there is, in a handful of questions whose cost does not grow with what is over."""

from __future__ import annotations

from typing import NamedTuple

from rota.core.automations.model import serial_key
from rota.core.runs.model import WorkerRecord
from rota.store.backend.database import Tx
from rota.store.runs import workers


class OpenRuns(NamedTuple):
    """Open runs that have all this in common. A queue is told of pending and running ones, a reason
    of those that wait, the oldest instant of pending ones, lapsed leases of running ones."""

    queue: str
    kind: str
    status: str
    reason: str
    run_count: int
    oldest_at: int
    lapsed_count: int


class NewestRuns(NamedTuple):
    """Runs among the newest of the store; `own` ones are of the namespace that is looked at."""

    own: int
    kind: str
    status: str
    run_count: int
    oldest_at: int


class ScheduleCounts(NamedTuple):
    """Schedules that stand alike. `first_at` is when the first of them is to fire."""

    status: str
    reason: str | None
    schedule_count: int
    overdue_count: int
    first_at: int | None


class AutomationCounts(NamedTuple):
    """Automations that stand alike, with how their open runs stand."""

    status: str
    turn_status: str | None
    turn_reason: str | None
    automation_count: int


class Execution(NamedTuple):
    """How an execution of a pipeline stands, and its result as it is stored."""

    schedule: str
    status: str
    output: str | None


class Counted(NamedTuple):
    """All of it, as of one instant."""

    open_runs: list[OpenRuns]
    newest: list[NewestRuns]
    schedules: list[ScheduleCounts]
    automations: list[AutomationCounts]
    executions: list[Execution]
    workers: list[WorkerRecord]


class Bounds(NamedTuple):
    """How far back to look, and at how many rows at most."""

    newest_since: int
    newest_max: int
    executions_since: int
    executions_max: int


async def count(tx: Tx, *, namespace: str, now: int, bounds: Bounds) -> Counted:
    """Count everything in one transaction, so that the numbers fit together."""
    open_runs = await tx.rows("count_open", namespace=namespace, now=now)
    # Ids begin with the millisecond of their birth.
    newest = await tx.rows(
        "count_newest", namespace=namespace, since_id=f"{bounds.newest_since // 1000:012x}",
        limit=bounds.newest_max,
    )  # fmt: skip
    schedules = await tx.rows("count_schedules", namespace=namespace, now=now)
    automations = await tx.rows("count_automations", namespace=namespace, key_prefix=serial_key(""))
    executions = await tx.rows(
        "recent_executions", namespace=namespace, since=bounds.executions_since,
        limit=bounds.executions_max,
    )  # fmt: skip
    return Counted(
        [OpenRuns(*row) for row in open_runs],
        [NewestRuns(*row) for row in newest],
        [ScheduleCounts(*row) for row in schedules],
        [AutomationCounts(*row) for row in automations],
        [Execution(*row) for row in executions],
        await workers.listing(tx, namespace=namespace),
    )
