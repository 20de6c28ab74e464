"""The ledger has one outcome for every occurrence a schedule has passed: a run or a skipped row.

`uncovered` and `doubled` are the pure questions, `ledger_faults` asks them of stored schedules.
Tests and `rota doctor` share them. A definition answers for the occurrences from its creation (or
its last change) up to the one it waits for; occurrences that retention may have pruned are not
checked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rota.core.plurals import counted
from rota.core.runs.lifecycle import Status, Trigger
from rota.core.runs.model import Run, Schedule
from rota.core.schedules.intent import Intent, read_intent
from rota.core.time.instants import iso
from rota.core.time.recurrence import Spec, count_between, next_after, previous_before
from rota.store.backend.database import Tx
from rota.store.schedules import outcomes
from rota.store.schedules import templates as store

ROWS_MAX = 10_000  # In a long ledger only the newest rows are checked.
PAGE = 500


class Covered(NamedTuple):
    """The occurrences that one row of the ledger answers for: one, or a range of them."""

    first_at: int
    last_at: int
    occurrences: int = 1


class Hole(NamedTuple):
    """Occurrences in a row without an outcome."""

    first_at: int
    last_at: int
    occurrences: int


class LedgerFault(NamedTuple):
    """Occurrences of a schedule without an outcome, or with two."""

    schedule: str
    hole: Hole
    outcomes: tuple[str, ...] = ()

    def __str__(self) -> str:
        first_at, last_at, count = self.hole
        if self.outcomes:
            occurrences = f"{counted(count, 'occurrence')} from {iso(first_at)} on"
            outcomes_text = " and as ".join(self.outcomes)
            return f"{self.schedule}: {occurrences} are in the ledger as {outcomes_text}"
        if count == 1:
            return f"{self.schedule}: the ledger has no row for {iso(first_at)}"
        return (
            f"{self.schedule}: the ledger has no row for {count} occurrences from "
            f"{iso(first_at)} to {iso(last_at)}"
        )


def uncovered(spec: Spec, covered: Iterable[Covered], *, after: int, before: int) -> list[Hole]:
    """Occurrences with after < t < before that no row answers for; neighbours as one hole."""
    rows = sorted(covered)
    lasts = _running_last(rows)
    holes: list[Hole] = []
    at = next_after(spec, after)
    while at is not None and at < before:
        # The first row that reaches this far; all before it end earlier.
        index = bisect_left(lasts, at)
        row = rows[index] if index < len(rows) else None
        if row is not None and row.first_at <= at:
            at = next_after(spec, max(at, row.last_at))
            continue
        until = before - 1 if row is None else min(before, row.first_at) - 1
        count = count_between(spec, at - 1, until)
        holes.append(Hole(at, previous_before(spec, until + 1) or at, count))
        at = next_after(spec, until)
    return holes + _short(spec, rows, after, before)


def _running_last(rows: Sequence[Covered]) -> list[int]:
    """The latest end among the rows up to each one. It never falls, so it can be searched."""
    lasts: list[int] = []
    for row in rows:
        lasts.append(max(row.last_at, lasts[-1]) if lasts else row.last_at)
    return lasts


def _short(spec: Spec, rows: Sequence[Covered], after: int, before: int) -> list[Hole]:
    """Ranges that answer for fewer occurrences than lie in them."""
    found: list[Hole] = []
    for first_at, last_at, count in rows:
        if count > 1 and after < first_at and last_at < before:
            missing = count_between(spec, first_at - 1, last_at) - count
            if missing > 0:
                found.append(Hole(first_at, last_at, missing))
    return found


def doubled(rows: Iterable[Run]) -> list[tuple[Hole, tuple[str, ...]]]:
    """Occurrences with two outcomes; those that two rows share are one entry.

    A backfill replaces the outcome of what was skipped, so its runs do not count."""
    spans = [
        (one, row.label if row.status == Status.SKIPPED else "fired")
        for row in rows
        if row.trigger == Trigger.SCHEDULE and (one := covers(row)) is not None
    ]
    spans.sort(key=lambda span: (span[0].first_at, -span[0].last_at, span[1]))
    found: list[tuple[Hole, tuple[str, ...]]] = []
    reach: tuple[Covered, str] | None = None
    for one, label in spans:
        if reach is not None and one.first_at <= reach[0].last_at:
            labels = (reach[1], label)
            if found and found[-1][1] == labels and found[-1][0].last_at >= reach[0].first_at:
                first_at, _, count = found.pop()[0]
                found.append((Hole(first_at, one.last_at, count + one.occurrences), labels))
            else:
                found.append((Hole(*one), labels))
        if reach is None or one.last_at > reach[0].last_at:
            reach = one, label
    return found


def covers(run: Run) -> Covered | None:
    """The occurrences that a row of the ledger answers for; a run by hand answers for none."""
    if run.due_at is None:
        return None
    if run.status == Status.SKIPPED:
        return Covered(*outcomes.read_range(run))
    return Covered(run.due_at, run.due_at)


async def ledger_faults(
    tx: Tx,
    *,
    namespace: str,
    now: int,
    keep_from: int = 0,
    keeps_all: bool = True,
) -> list[LedgerFault]:
    """The faults in the ledgers of a namespace: holes, and occurrences with two outcomes.

    Rows from before `keep_from` may have been pruned. Without `keeps_all` retention goes by
    number, and only what lies behind a schedule's oldest row is looked at.
    """
    found: list[LedgerFault] = []
    page = await store.listing(tx, namespace=namespace, limit=PAGE)
    while page:
        for schedule in page:
            rows = await outcomes.ledger(tx, schedule.id, limit=ROWS_MAX)
            try:
                intent = read_intent(schedule.spec)
                holes = _holes(rows, schedule, intent, now, keep_from, keeps_all)
            except Exception:  # one that makes no sense (any more) is quarantined when it is due
                continue
            found += [LedgerFault(schedule.name, hole) for hole in holes]
            found += [LedgerFault(schedule.name, *one) for one in doubled(rows)]
        page = await store.listing(tx, namespace=namespace, after=page[-1].name, limit=PAGE)
    return found


def _holes(
    rows: Sequence[Run], schedule: Schedule, intent: Intent, now: int, keep_from: int,
    keeps_all: bool,
) -> list[Hole]:  # fmt: skip
    covered = [one for row in rows if (one := covers(row)) is not None]
    after = max(schedule.created_at, intent.since_at, keep_from)
    if len(rows) == ROWS_MAX or not keeps_all:
        own = [covers(row) for row in rows if row.trigger == Trigger.SCHEDULE]
        after = max(after, min((one.first_at for one in own if one is not None), default=now) - 1)
    return uncovered(
        intent.spec, covered, after=after, before=_passed(schedule, intent, covered, now)
    )


def _passed(schedule: Schedule, intent: Intent, covered: Sequence[Covered], now: int) -> int:
    """The first instant a schedule need not answer for yet: the occurrence it waits for."""
    if schedule.due_at is not None:
        return schedule.due_at
    # It waits for nothing: its spec has come to its end, or all its runs are done.
    if intent.policies.runs_max is None:
        return now
    return max((one.last_at for one in covered), default=0)
