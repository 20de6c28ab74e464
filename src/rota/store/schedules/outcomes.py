"""The ledger: outcomes of occurrences, in pages, counted for a calendar, the last of schedules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from rota.core.runs.lifecycle import Status
from rota.core.runs.model import Run
from rota.store.backend.database import Tx

LATEST = 1 << 62
RANGES_MAX = 1_000
RECORDED_PAGE = 500
# Fields of the newest attempt that a row of the ledger shows.
_OUTCOME = ("status", "reason", "available_at", "attempt", "recoveries", "lease_owner",
    "lease_until", "output", "error", "finished_at")  # fmt: skip


class LedgerPosition(NamedTuple):
    """The position at which a page of the ledger begins: instant and id of the row before it."""

    at: int = LATEST
    id: str = ""


async def ledger(
    tx: Tx,
    schedule_id: str,
    *,
    from_at: int = 0,
    to_at: int = 0,
    limit: int = 50,
    before: LedgerPosition = LedgerPosition(),  # noqa: B008
) -> list[Run]:
    """Occurrences and their outcomes, newest first; runs by hand are placed at their start."""
    bounds: dict[str, Any] = {
        "id": schedule_id, "from_at": from_at, "to_at": to_at or LATEST, "limit": limit,
        "before_at": before.at, "before_id": before.id,
    }  # fmt: skip
    rows = [*await tx.rows("ledger_due", **bounds), *await tx.rows("ledger_by_hand", **bounds)]
    runs = sorted((Run(*row) for row in rows), key=position_of, reverse=True)
    return runs[:limit]


def position_of(run: Run) -> LedgerPosition:
    """The position of a row in the ledger."""
    return LedgerPosition(run.created_at if run.due_at is None else run.due_at, run.id)


async def history(
    tx: Tx,
    schedule_id: str,
    *,
    from_at: int = 0,
    to_at: int = 0,
    limit: int = 50,
    before: LedgerPosition = LedgerPosition(),  # noqa: B008
) -> list[Run]:
    """The ledger with the outcome of each chain: a row keeps the identity of the first attempt
    and shows the state of the newest one."""
    rows = await ledger(tx, schedule_id, from_at=from_at, to_at=to_at, limit=limit, before=before)
    return await with_outcomes(tx, rows)


async def with_outcomes(tx: Tx, rows: Sequence[Run]) -> list[Run]:
    """First attempts with the state of the newest attempt of each chain."""
    roots = [row.id for row in rows if row.status != Status.SKIPPED]
    lasts = [Run(*row) for row in await tx.rows("last_attempts", roots=roots)] if roots else []
    states = {last.root_id: {field: getattr(last, field) for field in _OUTCOME} for last in lasts}
    return [msgspec.structs.replace(row, **states.get(row.id, {})) for row in rows]


async def range_over(tx: Tx, schedule_id: str, *, at: int) -> Run | None:
    """The collapsed range of the ledger that holds an instant."""
    rows = await tx.rows("ledger_range", id=schedule_id, from_at=at, limit=1)
    found = Run(*rows[0]) if rows else None
    return found if found and read_range(found)[0] <= at else None


def read_range(run: Run) -> tuple[int, int, int]:
    """From, to and count of a skipped row; a single occurrence is a range of one."""
    return _read_range(run.due_at or 0, run.output)


def _read_range(due_at: int, output: str | None) -> tuple[int, int, int]:
    fields = msgspec.json.decode(output) if output else {}
    return fields.get("from_at", due_at), fields.get("to_at", due_at), fields.get("count", 1)


class Recorded(NamedTuple):
    """The occurrences that have an outcome by one row."""

    first_at: int
    last_at: int


async def recorded_from(
    tx: Tx, schedule_id: str, *, at: int, limit: int = RECORDED_PAGE
) -> list[Recorded]:
    """The outcomes at an instant and after it, oldest first. A backfill is beside the schedule: it
    may run what was skipped, so it does not count."""
    rows = await tx.rows("recorded_from", id=schedule_id, at=at, limit=limit)
    return [Recorded(*_read_range(due_at, output)[:2]) for due_at, output in rows]


async def last_recorded_at(tx: Tx, schedule_id: str) -> int:
    """The last occurrence that has an outcome; 0 without one."""
    rows = await tx.rows("last_recorded", id=schedule_id)
    return int(rows[0][0]) if rows else 0


class SchedulePause(NamedTuple):
    """Why and since when a schedule was paused that skipped this occurrence."""

    paused_at: int
    note: str


def read_pause(run: Run) -> SchedulePause | None:
    """The pause that a skipped row reports."""
    fields = msgspec.json.decode(run.output) if run.output else {}
    if not fields.get("paused_at"):
        return None
    return SchedulePause(fields["paused_at"], fields.get("note") or "")


class OutcomeCount(NamedTuple):
    """Occurrences of one quarter of an hour that have the same outcome."""

    quarter_at: int
    status: str
    reason: str | None
    run_count: int


class SkippedRange(NamedTuple):
    """Occurrences in a row that did not run for one reason."""

    from_at: int
    to_at: int
    occurrence_count: int
    reason: str | None


class OutcomesFound(NamedTuple):
    """Counts of a range; `is_whole` is False when it holds more runs than were counted."""

    counts: list[OutcomeCount]
    ranges: list[SkippedRange]
    is_whole: bool


async def counts(
    tx: Tx, schedule_id: str, *, from_at: int, to_at: int, limit: int
) -> OutcomesFound:
    """Outcomes between two instants, of at most `limit` occurrences, the newest ones."""
    rows = await tx.rows(
        "outcome_counts", id=schedule_id, from_at=from_at, to_at=to_at, limit=limit
    )
    found = [OutcomeCount(*row) for row in rows]
    collapsed = await tx.rows(
        "collapsed_between", id=schedule_id, from_at=from_at, limit=RANGES_MAX
    )
    ranges = [
        SkippedRange(*_read_range(due_at, output), reason) for due_at, reason, output in collapsed
    ]
    return OutcomesFound(
        found,
        [one for one in ranges if one.from_at < to_at],
        sum(one.run_count for one in found) < limit and len(collapsed) < RANGES_MAX,
    )


class OccurrenceOutcome(NamedTuple):
    """How one occurrence ended, or how far it is."""

    run_id: str
    schedule_id: str
    due_at: int
    status: str
    reason: str | None
    started_at: int | None
    finished_at: int | None


async def last_of(
    tx: Tx, schedule_ids: Sequence[str], *, last: int
) -> dict[str, list[OccurrenceOutcome]]:
    """The newest `last` outcomes of each schedule, oldest first."""
    found = await tx.many("last_outcome_ids", [(one,) for one in schedule_ids], last=last)
    ids = [run_id for row in found for run_id in (row[1] or "").split()]
    outcomes: dict[str, list[OccurrenceOutcome]] = {one: [] for one in schedule_ids}
    if ids:
        for row in await tx.rows("outcomes_by_id", ids=ids):
            outcomes[row[1]].append(OccurrenceOutcome(*row))
    for listed in outcomes.values():
        listed.sort(key=lambda one: (one.due_at, one.run_id))
    return outcomes


async def last_named(
    tx: Tx, *, namespace: str, names: Sequence[str], last: int
) -> dict[str, list[OccurrenceOutcome]]:
    """The same by name."""
    rows = await tx.rows("schedules_named", namespace=namespace, names=list(names))
    listed = await last_of(tx, [row[1] for row in rows], last=last)
    return {name: listed[schedule_id] for name, schedule_id in rows}
