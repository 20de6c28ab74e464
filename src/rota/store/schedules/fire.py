"""Firing: one transaction for a batch of due schedules.

Lock what is due, decide in pure code, insert the runs and the skipped rows, advance. Any number of
schedulers may do it at once; the unique key of an occurrence makes it safe.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from rota.core.runs.lifecycle import Status, Trigger
from rota.core.runs.model import Schedule
from rota.core.schedules.firing_plan import (
    Before,
    FiringPlan,
    decide,
    jitter_us,
)
from rota.core.schedules.intent import (
    QUARANTINED_REASON,
    Intent,
    Overlap,
    understand,
)
from rota.core.schedules.outcome_gaps import OutcomeGap, decide_within
from rota.errors import StoreError
from rota.store.backend.database import Row, Tx
from rota.store.notifications import record
from rota.store.notifications.record import Cause
from rota.store.runs.cancel import cancel_chains
from rota.store.schedules.outcome_gaps import outcome_gap, place
from rota.store.schedules.templates import (
    after_pause,
    left_out,
    open_roots,
    skip_row,
    stored,
    with_previous,
)

PAUSES = 1000
# A transaction stays bounded, however many occurrences are caught up on.
RUNS_MAX = 5000
# These skips are not failures: another run did the work, or none was wanted.
NO_NEWS = frozenset({"merged", "max runs"})


class DueSchedule(NamedTuple):
    """A locked template that is due."""

    id: str
    name: str
    due_at: int
    spec: str
    options: str | None
    fired_at: int | None


class Fired(NamedTuple):
    """The result of a round of firing."""

    due_count: int
    run_count: int
    quarantined: list[tuple[str, str]]  # name and reason
    next_at: int | None
    cancelled: bool = False  # runs were cancelled to make room
    more: bool = False  # another round has to follow at once
    lateness: Sequence[tuple[str, int]] = ()  # of each fired occurrence, by schedule
    skips: Sequence[tuple[str, str, int]] = ()  # schedule, reason, how many


async def fire(tx: Tx, *, namespace: str, now: int, limit: int, new_ids: Iterator[str]) -> Fired:
    """Fire up to `limit` due schedules."""
    rows = await tx.rows("due_schedules", namespace=namespace, now=now, limit=limit)
    due = [DueSchedule(*row) for row in rows]
    intents = {one.id: _understood(one.spec) for one in due}
    before = await _before(tx, intents)
    stuck = [key for key, found in before.items() if found.waiting and not found.running]
    # A queued occurrence without a run before it is released now; the next occurrence queues behind
    # it.
    if stuck:
        await tx.change("release_queued", [(key,) for key in stuck], now=now)
        before |= {key: before[key].released for key in stuck}
    ranges = await _outcome_gaps(tx, due, intents)
    made = _Round(now, new_ids)
    for one in due:
        if made.run_count >= RUNS_MAX:
            break
        made.decide(one, intents[one.id], before.get(one.id, _IDLE), ranges.get(one.id))
    if made.cancels:
        roots = await open_roots(tx, made.cancels)
        await cancel_chains(tx, roots, reason="overtaken by the next occurrence", now=now)
    await made.write(tx)
    reported = await record.record(tx, made.news, now=now)
    more = len(due) == limit or made.run_count >= RUNS_MAX or made.owes_more
    upcoming = None if more else (await tx.rows("next_schedule", namespace=namespace))[0][0]
    created = made.run_count + reported + len(stuck)
    return Fired(
        len(due), created, made.quarantined, upcoming, bool(made.cancels), more, made.lateness,
        made.skips,
    )  # fmt: skip


_IDLE = Before()


class _Round:
    """The rows that one round of firing writes."""

    def __init__(self, now: int, new_ids: Iterator[str]) -> None:
        self._now = now
        self._ids = new_ids
        self.run_count = 0
        self.owes_more = (
            False  # a schedule has more due occurrences, after some that already have an outcome
        )
        self.lateness: list[tuple[str, int]] = []
        self.skips: list[tuple[str, str, int]] = []
        self.plain: list[Row] = []  # one row per schedule: its new run and its next occurrence
        self.created: list[Row] = []
        self.moved: list[Row] = []
        self.expiries: list[Row] = []
        self.cancels: list[str] = []
        self.quarantined: list[tuple[str, str]] = []
        self.news: list[Cause] = []

    def decide(
        self,
        one: DueSchedule,
        intent: Intent | Exception,
        before: Before,
        free: OutcomeGap | None = None,
    ) -> None:
        """Plan one schedule; a poison one is quarantined and never blocks the others."""
        try:
            if isinstance(intent, Exception):
                raise intent
            spread = jitter_us(one.name, intent.policies)
            now, most = self._now - spread, RUNS_MAX - self.run_count
            if free is None:
                plan = decide(intent, due_at=one.due_at, now=now, before=before, most=most)
            else:
                plan = decide_within(intent, free, now=now, before=before, most=most)
                upcoming = plan.next_due_at
                self.owes_more |= plan.pause is None and upcoming is not None and upcoming <= now
        except Exception as error:
            self.quarantine(one, error)
            return
        if plan.cancels:
            self.cancels.append(one.id)
        for due_at, _ in plan.fires:
            self.lateness.append((one.name, self._now - due_at - spread))
        for skip in plan.skips:
            self.skips.append((one.name, skip.reason, skip.occurrences))
        if _is_plain(one, intent, plan):
            self._go_on(one, intent, plan, spread)
            return
        self._fire(one, intent, plan, spread)
        for skip in plan.skips:
            row = skip_row(next(self._ids), one.id, intent, skip, self._now)
            self.created.append(row)
            if skip.reason not in NO_NEWS:
                self.news.append(record.missed(row[0], one.id, skip))
        self.moved.append(self._moved(one, intent, plan, spread))

    def quarantine(self, one: DueSchedule | Schedule, error: Exception) -> None:
        """Quarantine a schedule that cannot be evaluated, with the reason."""
        reason = f"{QUARANTINED_REASON}{error}"
        self.quarantined.append((one.name, reason))
        self.news.append(record.unreadable(one.id, str(error), one.due_at))
        self.moved.append((one.id, one.due_at, Status.PAUSED, reason, None, one.due_at, None, None))

    async def write(self, tx: Tx, was: Status = Status.SCHEDULED) -> None:
        """Insert the new rows and advance the schedules from this status."""
        await tx.change("fire_plain", self.plain, now=self._now)
        await tx.change("advance_plain", self.plain)
        await tx.many("fire_runs", self.created, now=self._now)
        await tx.many("advance_schedules", self.moved, was=was)
        await tx.change("put_expiries", self.expiries)

    def _go_on(self, one: DueSchedule, intent: Intent, plan: FiringPlan, spread: int) -> None:
        upcoming = plan.next_due_at
        assert upcoming is not None
        self.plain.append(
            (next(self._ids), one.id, intent.kind, intent.workflow, one.due_at + spread, one.due_at,
             with_previous(one.options, one.fired_at), upcoming + spread, upcoming)
        )  # fmt: skip
        self.run_count += 1

    def _fire(self, one: DueSchedule, intent: Intent, plan: FiringPlan, spread: int) -> None:
        previous_at = one.fired_at
        for due_at, waits in plan.fires:
            # Lateness counts from the instant it was meant to fire at, jitter included.
            state = (
                (Status.SLEEPING, "turn", None)
                if waits
                else (Status.PENDING, None, due_at + spread)
            )
            run_id = next(self._ids)
            self.created.append(
                (run_id, one.id, intent.kind, intent.workflow, *state, due_at, Trigger.SCHEDULE,
                 with_previous(one.options, previous_at), None, None)
            )  # fmt: skip
            previous_at = due_at
            if intent.policies.expires_us is not None:
                self.expiries.append((run_id, self._now + intent.policies.expires_us))
        self.run_count += len(plan.fires)

    def _moved(self, one: DueSchedule, intent: Intent, plan: FiringPlan, spread: int) -> Row:
        rests = plan.pause is not None or plan.next_due_at is None
        changes: dict[str, int] = {}
        if intent.policies.runs_max is not None and plan.fires:
            changes["fired_count"] = intent.fired_count + len(plan.fires)
        if rests:
            changes["paused_at"] = self._now
        spec = stored(msgspec.structs.replace(intent, **changes)) if changes else None
        fired_at = plan.fires[-1].due_at if plan.fires else None
        at = None if rests or plan.next_due_at is None else plan.next_due_at + spread
        status = Status.PAUSED if rests else Status.SCHEDULED
        return (one.id, one.due_at, status, plan.pause, at, plan.next_due_at, spec, fired_at)


def _is_plain(one: DueSchedule, intent: Intent, plan: FiringPlan) -> bool:
    """Whether it fires one run, ready at once, and continues to its next time; nothing else."""
    return (
        len(plan.fires) == 1
        and not plan.skips
        and plan.pause is None
        and plan.next_due_at is not None
        and plan.fires[0] == (one.due_at, False)
        and intent.policies.runs_max is None
        and intent.policies.expires_us is None
    )


_intents: dict[str, Intent] = {}


def _understood(text: str) -> Intent | Exception:
    """Cached, because decoding costs more than deciding and frequent schedules repeat."""
    intent = _intents.get(text)
    if intent is None:
        if len(_intents) > 10_000:
            _intents.clear()
        try:
            intent = _intents[text] = understand(text)
        except Exception as error:
            return error
    return intent


async def _before(tx: Tx, intents: dict[str, Intent | Exception]) -> dict[str, Before]:
    """Open and failed runs of schedules with policies that need them, in two queries."""
    known = {key: value for key, value in intents.items() if isinstance(value, Intent)}
    asking = [key for key, it in known.items() if it.policies.overlap is not Overlap.ALLOW]
    found: dict[str, Before] = {}
    if asking:
        for schedule_id, running, waiting in await tx.rows("open_of_schedules", ids=asking):
            found[schedule_id] = Before(int(running), int(waiting))
    counting = [(k, it) for k, it in known.items() if it.policies.failures_max is not None]
    if counting:
        items = [(key, it.forgiven_at) for key, it in counting]
        limit = max(it.policies.failures_max or 0 for _, it in counting)
        for schedule_id, failures in await tx.many("failures_in_a_row", items, limit=limit):
            found[schedule_id] = found.get(schedule_id, _IDLE)._replace(failures=int(failures))
    return found


async def _outcome_gaps(
    tx: Tx, due: Sequence[DueSchedule], intents: dict[str, Intent | Exception]
) -> dict[str, OutcomeGap]:
    """For schedules with outcomes after the due occurrence: how far they may fire in this round."""
    found: dict[str, OutcomeGap] = {}
    for one in due:
        intent = intents[one.id]
        if isinstance(intent, Intent) and one.due_at <= intent.outcomes_until:
            free = await outcome_gap(tx, one.id, intent.spec, one.due_at)
            if free is not None:
                found[one.id] = free
    return found


async def end_pauses(
    tx: Tx, *, namespace: str, now: int, new_ids: Iterator[str]
) -> tuple[int, list[tuple[str, str]]]:
    """Resume schedules after their timed pause; returns how many, and which were quarantined.

    Occurrences within the pause are skipped. Occurrences after its end, when perhaps no scheduler
    was there, count as missed."""
    made = _Round(now, new_ids)
    rows = await tx.rows("due_pauses", namespace=namespace, now=now, limit=PAUSES)
    for row in rows:
        old = Schedule(*row)
        try:
            intent = understand(old.spec)
            fresh = after_pause(old, intent, old.available_at or now)
            fresh, _ = await place(tx, old, intent, fresh, understand(fresh.spec))
            made.created += await left_out(tx, old, intent, fresh, now, new_ids)
        except StoreError:
            raise
        except Exception as error:
            made.quarantine(old, error)
            continue
        made.moved.append(
            (old.id, old.due_at, fresh.status, fresh.reason, fresh.available_at, fresh.due_at,
             fresh.spec, None)
        )  # fmt: skip
    await made.write(tx, Status.PAUSED)
    await record.record(tx, made.news, now=now)
    return len(rows), made.quarantined


async def next_pause_end(tx: Tx, *, namespace: str) -> int | None:
    """When the next timed pause is over."""
    found: int | None = (await tx.rows("next_pause", namespace=namespace))[0][0]
    return found
