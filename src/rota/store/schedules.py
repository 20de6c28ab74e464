"""Schedules: template rows that make runs, and the ledger of their occurrences.

Firing is one transaction for a batch: lock what is due, decide in pure code, insert the runs and
the skipped rows, advance. Any number of schedulers may do it at once; the unique key of an
occurrence makes it safe.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from rota.core.lifecycle import Status, Trigger
from rota.core.model import Run, Schedule
from rota.core.recurrence import count_between, latest_between, next_after
from rota.core.schedule import Before, Intent, Overlap, Plan, Skip, decide, jitter_us
from rota.store import runs
from rota.store.database import Row, Tx

PAUSES = 100
LATEST = 1 << 62
_INTENT = msgspec.json.Decoder(Intent)


class Due(NamedTuple):
    """A locked template that is due."""

    id: str
    name: str
    queue: str
    due_at: int
    spec: str


class Fired(NamedTuple):
    """What a round of firing did."""

    due_count: int
    run_count: int
    put_aside: list[tuple[str, str]]  # name and reason
    next_at: int | None
    cancelled: bool = False  # runs were called off to make room


def read_intent(text: str) -> Intent:
    """The stored intent of a schedule."""
    return _INTENT.decode(text)


async def fire(tx: Tx, *, namespace: str, now: int, limit: int, new_ids: Iterator[str]) -> Fired:
    """Fire up to `limit` due schedules."""
    rows = await tx.rows("due_schedules", namespace=namespace, now=now, limit=limit)
    due = [Due(*row) for row in rows]
    put_aside: list[tuple[str, str]] = []
    born: list[Row] = []
    moved: list[Row] = []
    cancelled = False
    intents = {one.id: _understood(one) for one in due}
    before = await _before(tx, intents)
    for one in due:
        intent = intents[one.id]
        try:
            if isinstance(intent, Exception):
                raise intent
            # Lateness counts from the instant it was meant to fire at, jitter included.
            at = now - jitter_us(one.name, intent.policies)
            plan = decide(intent, due_at=one.due_at, now=at, before=before.get(one.id, Before()))
        except Exception as error:  # a poison schedule is put aside and never blocks the batch
            reason = f"put aside: {error}"
            put_aside.append((one.name, reason))
            moved.append((one.id, one.due_at, Status.PAUSED, reason, None, one.due_at, None))
            continue
        if plan.cancels:
            cancelled = True
            await _cancel_open(tx, one.id, now)
        born += _rows(one, intent, plan, now, new_ids)
        moved.append(_moved(one, intent, plan))
    if born:
        await tx.many("fire_runs", born, now=now)
    if moved:
        await tx.many("advance_schedules", moved)
    upcoming = await tx.rows("next_schedule", namespace=namespace)
    run_count = sum(row[3] != Status.SKIPPED for row in born)
    return Fired(len(due), run_count, put_aside, upcoming[0][0], cancelled)


def _understood(one: Due) -> Intent | Exception:
    try:
        return _intent_of(one.spec)
    except Exception as error:
        return error


_intents: dict[str, Intent] = {}


def _intent_of(text: str) -> Intent:
    """Decoding costs more than deciding; schedules due every minute come again and again."""
    intent = _intents.get(text)
    if intent is None:
        if len(_intents) > 10_000:
            _intents.clear()
        intent = _intents[text] = read_intent(text)
    return intent


async def _before(tx: Tx, intents: dict[str, Intent | Exception]) -> dict[str, Before]:
    """What is open of those whose policies ask for it, in one question."""
    known = {key: value for key, value in intents.items() if isinstance(value, Intent)}
    asking = [key for key, it in known.items() if it.policies.overlap is not Overlap.ALLOW]
    found: dict[str, Before] = {}
    if asking:
        for schedule_id, running, waiting in await tx.rows("open_of_schedules", ids=asking):
            found[schedule_id] = Before(int(running), int(waiting))
    for key, intent in known.items():
        limit = intent.policies.failures_max
        if limit is not None:
            ends = await tx.rows("last_ends_of", id=key, limit=limit, since_at=intent.forgiven_at)
            failures = next(
                (n for n, row in enumerate(ends) if row[0] == Status.COMPLETED), len(ends)
            )
            found[key] = found.get(key, Before())._replace(failures=failures)
    return found


async def _cancel_open(tx: Tx, schedule_id: str, now: int) -> None:
    roots = await open_roots(tx, schedule_id)
    if roots:
        await runs.cancel(tx, roots, reason="overtaken by the next occurrence", now=now)


def _rows(one: Due, intent: Intent, plan: Plan, now: int, new_ids: Iterator[str]) -> list[Row]:
    spread = jitter_us(one.name, intent.policies)
    rows: list[Row] = []
    for fire_ in plan.fires:
        status = Status.SLEEPING if fire_.waits else Status.PENDING
        rows.append(
            (next(new_ids), one.id, intent.workflow, status, "turn" if fire_.waits else None,
             None if fire_.waits else fire_.due_at + spread, fire_.due_at, Trigger.SCHEDULE, None,
             None)
        )  # fmt: skip
    for skip in plan.skips:
        rows.append(
            (next(new_ids), one.id, intent.workflow, Status.SKIPPED, skip.reason, None,
             skip.due_at, Trigger.SCHEDULE, _range(skip), now)
        )  # fmt: skip
    return rows


def _range(skip: Skip) -> str | None:
    if skip.occurrences == 1:
        return None
    fields = {"from_at": skip.first_at, "to_at": skip.due_at, "count": skip.occurrences}
    return msgspec.json.encode(fields).decode()


def _moved(one: Due, intent: Intent, plan: Plan) -> Row:
    spec = None
    if intent.policies.runs_max is not None and plan.fires:
        count = intent.fired_count + len(plan.fires)
        fresh = msgspec.structs.replace(intent, fired_count=count)
        spec = msgspec.json.encode(fresh).decode()
    if plan.pause is not None or plan.next_due_at is None:
        return (one.id, one.due_at, Status.PAUSED, plan.pause, None, plan.next_due_at, spec)
    spread = jitter_us(one.name, intent.policies)
    return (
        one.id, one.due_at, Status.SCHEDULED, None, plan.next_due_at + spread, plan.next_due_at,
        spec,
    )  # fmt: skip


async def put(tx: Tx, schedule: Schedule, *, trigger: str, now: int) -> bool:
    """Create a template; False when the name is taken."""
    rows = await tx.rows(
        "put_schedule", id=schedule.id, namespace=schedule.namespace, name=schedule.name,
        queue=schedule.queue, priority=schedule.priority, status=schedule.status,
        reason=schedule.reason, available_at=schedule.available_at, due_at=schedule.due_at,
        cron_expr=schedule.cron_expr, spec=schedule.spec, trigger=trigger, version=None,
        tags=None, options=schedule.options, input=schedule.input, now=now,
    )  # fmt: skip
    return bool(rows)


async def change(tx: Tx, schedule: Schedule) -> bool:
    """Write every part of a template anew."""
    rows = await tx.rows(
        "change_schedule", id=schedule.id, queue=schedule.queue, priority=schedule.priority,
        status=schedule.status, reason=schedule.reason, available_at=schedule.available_at,
        due_at=schedule.due_at, cron_expr=schedule.cron_expr, spec=schedule.spec,
        options=schedule.options, input=schedule.input,
    )  # fmt: skip
    return bool(rows)


async def find(tx: Tx, *, namespace: str, name: str, lock: bool = False) -> Schedule | None:
    """A schedule by its name."""
    if lock:
        rows = await tx.rows("get_schedule_locked", namespace=namespace, name=name)
    else:
        rows = await tx.rows("get_schedule", namespace=namespace, name=name)
    return Schedule(*rows[0]) if rows else None


async def listing(tx: Tx, *, namespace: str, after: str = "", limit: int = 1000) -> list[Schedule]:
    """Schedules by name."""
    rows = await tx.rows("list_schedules", namespace=namespace, after=after, limit=limit)
    return [Schedule(*row) for row in rows]


async def soonest(tx: Tx, *, namespace: str, until: int, limit: int) -> list[Schedule]:
    """The schedules that fire next."""
    rows = await tx.rows("soonest_schedules", namespace=namespace, until=until, limit=limit)
    return [Schedule(*row) for row in rows]


async def delete(tx: Tx, schedule_id: str, *, now: int = 0) -> bool:
    """Remove a template. The runs it fired stay; their `schedule_id` becomes null.

    Runs that wait for their turn go now: nobody would give it to them any more."""
    await tx.rows("free_waiting", id=schedule_id, now=now)
    return bool(await tx.rows("delete_schedule", id=schedule_id))


async def add_runs(tx: Tx, rows: Sequence[Row], *, now: int) -> list[str]:
    """Insert runs of one template (trigger, backfill); ones that exist are left alone."""
    return [row[0] for row in await tx.many("fire_runs", rows, now=now)]


async def end_pauses(tx: Tx, *, namespace: str, now: int, new_ids: Iterator[str]) -> int:
    """Resume schedules whose timed pause is over; what was missed meanwhile is skipped."""
    rows = await tx.rows("due_pauses", namespace=namespace, now=now, limit=PAUSES)
    for row in rows:
        old = Schedule(*row)
        try:
            fresh = resumed(old, read_intent(old.spec), now=now)
        except Exception as error:  # poison: it stays paused, and says why
            reason = f"put aside: {error}"
            await change(tx, msgspec.structs.replace(old, reason=reason, available_at=None))
            continue
        await replace(tx, old, fresh, now=now, new_id=next(new_ids))
    return len(rows)


async def replace(tx: Tx, old: Schedule, fresh: Schedule, *, now: int, new_id: str) -> Schedule:
    """Write a changed template. What it owed and will not run any more goes into the ledger."""
    after = read_intent(fresh.spec)
    try:
        before = read_intent(old.spec)
        count_between(before.spec, 0, 0)
    except Exception:  # what cannot be read owes nothing that could be named
        await change(tx, fresh)
        return fresh
    if before.spec != after.spec and fresh.due_at is not None:
        # Occurrences before this one belonged to the timing that was.
        after = msgspec.structs.replace(after, since_at=fresh.due_at - 1)
        fresh = msgspec.structs.replace(fresh, spec=msgspec.json.encode(after).decode())
    await change(tx, fresh)
    if old.due_at is None or fresh.due_at is None or fresh.due_at <= old.due_at:
        return fresh
    until = min(now, fresh.due_at - 1)
    count = count_between(before.spec, old.due_at - 1, until)
    if count:
        last = latest_between(before.spec, old.due_at - 1, until, 1)[-1]
        reason = "paused" if old.status == Status.PAUSED else "edited"
        skip = Skip(last, reason, old.due_at, count)
        row = (new_id, old.id, before.workflow, Status.SKIPPED, reason, None, last,
               Trigger.SCHEDULE, _range(skip), now)  # fmt: skip
        await tx.many("fire_runs", [row], now=now)
    return fresh


def resumed(schedule: Schedule, intent: Intent, *, now: int, catch_up: bool = False) -> Schedule:
    """The schedule awake again: from its next occurrence, or from the first one missed."""
    due_at = schedule.due_at if catch_up and schedule.due_at else next_after(intent.spec, now)
    forgiven = msgspec.structs.replace(intent, forgiven_at=now)
    schedule = msgspec.structs.replace(schedule, spec=msgspec.json.encode(forgiven).decode())
    if due_at is None:
        return msgspec.structs.replace(
            schedule, status=Status.PAUSED, reason="no further occurrence", available_at=None
        )
    at = due_at + jitter_us(schedule.name, intent.policies)
    return msgspec.structs.replace(
        schedule, status=Status.SCHEDULED, reason=None, available_at=at, due_at=due_at
    )


async def next_pause_end(tx: Tx, *, namespace: str) -> int | None:
    """When the next timed pause is over."""
    found: int | None = (await tx.rows("next_pause", namespace=namespace))[0][0]
    return found


async def ledger(
    tx: Tx, schedule_id: str, *, from_at: int = 0, to_at: int = 0, limit: int = 50
) -> list[Run]:
    """Occurrences and their outcomes, newest first; runs by hand stand where they were started."""
    rows = await tx.rows(
        "ledger", id=schedule_id, from_at=from_at, to_at=to_at or LATEST, limit=limit
    )
    return [Run(*row) for row in rows]


async def occurrence(tx: Tx, schedule_id: str, *, due_at: int) -> Run | None:
    """The outcome of one occurrence."""
    rows = await tx.rows("ledger_at", id=schedule_id, due_at=due_at)
    return Run(*rows[0]) if rows else None


async def range_over(tx: Tx, schedule_id: str, *, at: int) -> Run | None:
    """The collapsed range of the ledger that holds an instant."""
    rows = await tx.rows("ledger_range", id=schedule_id, at=at)
    found = Run(*rows[0]) if rows else None
    return found if found and read_range(found)[0] <= at else None


def read_range(run: Run) -> tuple[int, int, int]:
    """From, to and count of a skipped row; a single occurrence is a range of one."""
    fields = msgspec.json.decode(run.output) if run.output else {}
    due_at = run.due_at or 0
    return fields.get("from_at", due_at), fields.get("to_at", due_at), fields.get("count", 1)


async def open_roots(tx: Tx, schedule_id: str) -> list[str]:
    """The chains of a schedule that have not ended."""
    return [row[0] for row in await tx.rows("open_roots_of", id=schedule_id)]


def extra_row(schedule: Schedule, intent: Intent, **fields: Any) -> Row:
    """A row for `add_runs`."""
    return (
        fields["id"], schedule.id, intent.workflow, fields.get("status", Status.PENDING),
        fields.get("reason"), fields.get("available_at"), fields.get("due_at"), fields["trigger"],
        None, None,
    )  # fmt: skip
