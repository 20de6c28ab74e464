"""Counts of the current state. The cost of these queries does not grow with the history."""

from __future__ import annotations

from typing import Any, NamedTuple

from rota.core.automations.model import serial_key
from rota.core.runs.ids import created_at_of, first_id
from rota.core.runs.lifecycle import Status
from rota.core.runs.model import Run, Schedule, WorkerRecord
from rota.store.backend.database import Tx
from rota.store.runs import lists, workers


class OpenRuns(NamedTuple):
    """A group of open runs with equal fields. `queue` is set for pending and running runs, `reason`
    for waiting ones. `oldest_at` belongs to pending runs, `lapsed_count` to running ones."""

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
    """Schedules that have the same state. `first_at` is when the first of them is to fire."""

    status: str
    reason: str | None
    schedule_count: int
    overdue_count: int
    first_at: int | None


class AutomationCounts(NamedTuple):
    """Automations that have the same state, with the state of their open runs."""

    status: str
    run_status: str | None
    run_reason: str | None
    automation_count: int


class Execution(NamedTuple):
    """The status of a pipeline execution, and its stored result."""

    schedule: str
    status: str
    output: str | None


class ScheduleTime(NamedTuple):
    """When a schedule was last fired (nominal), and when it is due next."""

    name: str
    fired_at: int | None
    due_at: int


class Counted(NamedTuple):
    """All of it, as of one instant."""

    open_runs: list[OpenRuns]
    newest: list[NewestRuns]
    schedules: list[ScheduleCounts]
    automations: list[AutomationCounts]
    executions: list[Execution]
    workers: list[WorkerRecord]
    times: list[ScheduleTime]


class Bounds(NamedTuple):
    """How far back a query reads, and how many rows at most."""

    newest_since: int
    newest_max: int
    executions_since: int
    executions_max: int
    schedules_max: int


async def count(tx: Tx, *, namespace: str, now: int, bounds: Bounds) -> Counted:
    """Count everything in one transaction, so that the numbers fit together."""
    newest = await tx.rows(
        "count_newest", namespace=namespace, since_id=first_id(bounds.newest_since),
        limit=bounds.newest_max,
    )  # fmt: skip
    schedules = await tx.rows("count_schedules", namespace=namespace, now=now)
    automations = await tx.rows("count_automations", namespace=namespace, key_prefix=serial_key(""))
    executions = await tx.rows(
        "recent_executions", namespace=namespace, since=bounds.executions_since,
        limit=bounds.executions_max,
    )  # fmt: skip
    times = await tx.rows("schedule_times", namespace=namespace, limit=bounds.schedules_max)
    return Counted(
        await open_runs(tx, namespace=namespace, now=now),
        [NewestRuns(*row) for row in newest],
        [ScheduleCounts(*row) for row in schedules],
        [AutomationCounts(*row) for row in automations],
        [Execution(*row) for row in executions],
        await workers.listing(tx, namespace=namespace),
        [ScheduleTime(*row) for row in times],
    )


class NewestRun(NamedTuple):
    """The fields of a run that the charts of an overview need."""

    namespace: str
    kind: str
    status: str
    created_at: int
    started_at: int | None
    finished_at: int | None
    available_at: int | None
    due_at: int | None
    trigger: str


class RecentRuns(NamedTuple):
    """The newest runs of all namespaces since an instant, and when those that did not succeed
    were created; each list is bounded."""

    runs: list[NewestRun]
    unsuccessful_ids: list[str]


async def recent(tx: Tx, *, namespace: str, since: int, limit: int) -> RecentRuns:
    """Runs that were created since an instant, at most `limit` of each list, newest first."""
    bounds: dict[str, Any] = {"since_id": first_id(since), "limit": limit, "namespace": namespace}
    rows = await tx.rows("newest_runs", **bounds)
    failed = await tx.rows("unsuccessful_since", status="failed", **bounds)
    failed += await tx.rows("unsuccessful_since", status="crashed", **bounds)
    return RecentRuns([NewestRun(*row) for row in rows], [row[0] for row in failed])


async def busy_slots(tx: Tx, *, namespace: str) -> dict[str, int]:
    """Runs in progress by worker id."""
    return {row[0]: row[1] for row in await tx.rows("busy_slots", namespace=namespace)}


async def open_runs(tx: Tx, *, namespace: str, now: int) -> list[OpenRuns]:
    """Open runs by queue, kind and status."""
    return [OpenRuns(*row) for row in await tx.rows("count_open", namespace=namespace, now=now)]


class FailuresFound(NamedTuple):
    """Runs that failed or crashed for good, newest first. `searched_to` is set if the search ended
    at its bound before it had found as many as were asked for."""

    runs: list[Run]
    searched_to: int | None


async def last_failures(
    tx: Tx, status: Status, *, namespace: str, since: int, limit: int, top_level: bool = False
) -> FailuresFound:
    """Runs that failed or crashed for good. It reads a bounded number (0067)."""
    given: dict[str, Any] = {
        "namespace": namespace, "status": status, "since_id": first_id(since),
    }  # fmt: skip
    found = await tx.rows(
        "last_failures", **given, limit=limit, top_level=int(top_level), window=lists.WINDOW
    )
    end = []
    if len(found) < limit:
        end = await tx.rows("end_of_failures", **given, window=lists.WINDOW - 1)
    searched_to = created_at_of(end[0][0]) if len(end) > 1 else None
    return FailuresFound([Run(*row) for row in found], searched_to)


async def stopped_schedules(tx: Tx, *, namespace: str, limit: int) -> list[Schedule]:
    """Schedules that were quarantined."""
    rows = await tx.rows("stopped_schedules", namespace=namespace, limit=limit)
    return [Schedule(*row) for row in rows]
