"""Schedules: template rows, how they change, and the rows of the ledger that a change writes.

Two columns of a run mean something of their own in a template: `started_at` is the last
occurrence it fired, `parent_id` the program that declares it. `fire` fires them, `outcomes` reads
the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import asdict

from rota.core.runs.lifecycle import Status, Trigger
from rota.core.runs.model import Schedule
from rota.core.runs.names import folded
from rota.core.runs.options import StoredRunOptions
from rota.core.schedules.firing_plan import Skip, jitter_us
from rota.core.schedules.intent import (
    NO_FURTHER,
    RUNS_DONE,
    Intent,
    Overlap,
    read_intent,
    understand,
)
from rota.core.time.occurrence_range import OccurrenceRange
from rota.core.time.recurrence import next_after
from rota.core.typed import json_text
from rota.store.backend.database import Row, Tx
from rota.store.schedules.outcome_gaps import outcome_gaps, place

PAGE = 1000


def stored(intent: Intent) -> str:
    """An intent in its stored form."""
    return json_text(intent)


def with_previous(options: str | None, previous_at: int | None) -> str | None:
    """A run's options: those of the template, and the occurrence fired before it."""
    return StoredRunOptions.read(options).fired_after(previous_at).text()


def skip_row(
    new_id: str, schedule_id: str, intent: Intent, skip: Skip, now: int, **more: Any
) -> Row:
    """A row of the ledger for occurrences that do not run, for `fire_runs`."""
    output = None
    if skip.occurrences > 1 or more:
        fields = {"from_at": skip.first_at, "to_at": skip.due_at, "count": skip.occurrences, **more}
        output = json_text(fields)
    return (new_id, schedule_id, intent.kind, intent.workflow, Status.SKIPPED, skip.reason, None,
            skip.due_at, Trigger.SCHEDULE, None, output, now)  # fmt: skip


async def put(tx: Tx, schedule: Schedule, *, trigger: str, now: int) -> bool:
    """Create a template; False when the name is taken."""
    rows = await tx.rows(
        "put_schedule", **asdict(schedule), trigger=trigger, version=None, tags=None, now=now
    )
    return bool(rows)


async def change(tx: Tx, schedule: Schedule) -> bool:
    """Rewrite every part of a template."""
    return bool(await tx.rows("change_schedule", **asdict(schedule)))


async def find(tx: Tx, *, namespace: str, name: str, lock: bool = False) -> Schedule | None:
    """A schedule by its name."""
    if lock:
        rows = await tx.rows("get_schedule_locked", namespace=namespace, name=name)
    else:
        rows = await tx.rows("get_schedule", namespace=namespace, name=name)
    return Schedule(*rows[0]) if rows else None


async def listing(
    tx: Tx,
    *,
    namespace: str,
    after: str = "",
    limit: int = 1000,
    search: str = "",
    status: str = "",
) -> list[Schedule]:
    """Schedules by name, after one, with a text in their names."""
    rows = await tx.rows(
        "list_schedules", namespace=namespace, after=after, limit=limit, search=folded(search),
        status=status,
    )  # fmt: skip
    return [Schedule(*row) for row in rows]


async def count(tx: Tx, *, namespace: str, search: str, limit: int) -> tuple[int, int]:
    """How many schedules have a text in their names, up to a limit, and how many are paused."""
    [(total, paused)] = await tx.rows(
        "count_listed_schedules", namespace=namespace, search=folded(search), limit=limit
    )
    return total, paused


async def declared_by(tx: Tx, *, namespace: str, origins: Sequence[str]) -> list[Schedule]:
    """The schedules that these programs declare, or have declared."""
    rows = await tx.rows("schedules_of", namespace=namespace, origins=list(origins))
    return [Schedule(*row) for row in rows]


async def origins_in(tx: Tx, *, namespace: str, package: str) -> list[str]:
    """The modules of a package that declare schedules, or have declared."""
    rows = await tx.rows(
        "origins_between", namespace=namespace, after=f"{package}.", before=f"{package}/"
    )
    return [str(row[0]) for row in rows]


async def ailing(tx: Tx, *, namespace: str, limit: int) -> list[Schedule]:
    """Schedules that need an operator."""
    rows = await tx.rows("ailing_schedules", namespace=namespace, limit=limit)
    return [Schedule(*row) for row in rows]


async def soonest(tx: Tx, *, namespace: str, now: int, until: int, limit: int) -> list[Schedule]:
    """The schedules that may have one of the next `limit` occurrences after now.

    All overdue ones are included: their next time is not stored."""
    rows = await tx.rows(
        "soonest_schedules", namespace=namespace, now=now, until=until, limit=limit
    )
    at, last_id = -1, ""
    while page := await tx.rows(
        "overdue_schedules", namespace=namespace, now=now, at=at, id=last_id, limit=PAGE
    ):
        rows = [*rows, *page]
        last = Schedule(*page[-1])
        at, last_id = last.available_at or 0, last.id
    return [Schedule(*row) for row in rows]


async def delete(tx: Tx, schedule_id: str, *, now: int = 0) -> bool:
    """Remove a template. The runs it fired stay; their `schedule_id` becomes null.

    Queued occurrences go now: nothing would release them any more. The lock keeps a firing from
    adding another one in between."""
    await tx.rows("lock_templates", ids=[schedule_id])
    await tx.rows("free_waiting", id=schedule_id, reasons=["turn", "backfill"], now=now)
    rows = await tx.rows("delete_schedule", id=schedule_id)
    for namespace, name, spec, fired_at in rows:
        intent = _readable(spec)
        await tx.rows(
            "put_deleted_schedule", namespace=namespace, name=name, fired_at=fired_at, now=now,
            workflow=intent.workflow if intent else "?", written=intent.text if intent else "?",
        )  # fmt: skip
    return bool(rows)


class DeletedSchedule(NamedTuple):
    """The record of a deleted schedule."""

    workflow: str
    written: str
    fired_at: int | None  # the last occurrence it fired (nominal)
    deleted_at: int


async def deleted(tx: Tx, *, namespace: str, name: str) -> DeletedSchedule | None:
    """The schedule of that name that was deleted last."""
    rows = await tx.rows("get_deleted_schedule", namespace=namespace, name=name)
    return DeletedSchedule(*rows[0]) if rows else None


async def forget_deleted(tx: Tx, *, namespace: str, before: int) -> None:
    """Prune the records of schedules that were deleted before an instant."""
    await tx.rows("forget_deleted_schedules", namespace=namespace, before=before, alone=True)


async def namespaces_with(tx: Tx, *, namespace: str, name: str) -> list[str]:
    """Other namespaces that have a schedule of this name; a few of them."""
    rows = await tx.rows("namespaces_with_schedule", namespace=namespace, name=name)
    return [str(row[0]) for row in rows]


async def add_runs(tx: Tx, rows: Sequence[Row], *, now: int) -> list[str]:
    """Insert runs of one template (trigger, backfill); existing runs stay unchanged."""
    return [row[0] for row in await tx.many("fire_runs", rows, now=now)]


async def backfill(tx: Tx, rows: Sequence[Row], *, parallel: int, now: int) -> list[str]:
    """Insert the runs of a backfill, all asleep, and release the first `parallel` of them.

    Which are first is known only now: an occurrence that has a run already gets no second one."""
    added = set(await add_runs(tx, rows, now=now))
    ids = [row[0] for row in rows if row[0] in added]
    await tx.rows("release_runs", ids=ids[:parallel], now=now)
    return ids


async def replace(
    tx: Tx, old: Schedule, fresh: Schedule, *, now: int, new_ids: Iterator[str]
) -> Schedule:
    """Write a changed template; occurrences that it no longer owes go into the ledger."""
    before, after = _readable(old.spec), _readable(fresh.spec)
    if after is None:  # poison as before: only its state changes
        await change(tx, fresh)
        return fresh
    another = before is None or before.spec != after.spec or old.due_at is None
    fresh, after = await place(tx, old, before, fresh, after)
    if another and fresh.due_at is not None:
        # Occurrences before this one belonged to the timing that was, or came after its end.
        since_at = max(fresh.due_at - 1, after.outcomes_until)
        after = msgspec.structs.replace(after, since_at=since_at, changed_at=now)
        fresh = msgspec.structs.replace(fresh, spec=stored(after))
    await change(tx, fresh)
    if after.policies.overlap is Overlap.ALLOW:
        # Runs may overlap from now on, so a queued run could wait forever: release all of them.
        await tx.rows("free_waiting", id=fresh.id, reasons=["turn"], now=now)
    await tx.many("fire_runs", await left_out(tx, old, before, fresh, now, new_ids), now=now)
    return fresh


async def end_pause(tx: Tx, old: Schedule, *, now: int, new_ids: Iterator[str]) -> Schedule:
    """The schedule after its timed pause, if that is over and was not ended yet.

    A change of a schedule does this first: occurrences within the pause are skipped, those after
    its end are owed, and none is both."""
    if old.status != Status.PAUSED or old.available_at is None or old.available_at > now:
        return old
    intent = _readable(old.spec)
    if intent is None:
        return old
    return await replace(
        tx, old, after_pause(old, intent, old.available_at), now=now, new_ids=new_ids
    )


def after_pause(old: Schedule, intent: Intent, until_at: int) -> Schedule:
    """The schedule awake after a timed pause; an occurrence at its very end is not in it."""
    return resumed(old, intent, now=until_at - 1)


def _readable(text: str) -> Intent | None:
    try:
        return understand(text)
    except Exception:
        return None


async def left_out(
    tx: Tx, old: Schedule, before: Intent | None, fresh: Schedule, now: int,
    new_ids: Iterator[str],
) -> list[Row]:  # fmt: skip
    """The rows that report what a template owed before a change and does not owe after it: one,
    or several around occurrences that have an outcome already."""
    if old.due_at is None:
        return []
    until = now if fresh.due_at is None else min(now, fresh.due_at - 1)
    if until < old.due_at:
        return []
    if before is None:  # an unreadable schedule owed this occurrence; others are unknown
        skip = Skip(old.due_at, "quarantined", old.due_at, 1)
        return [skip_row(next(new_ids), old.id, read_intent(fresh.spec), skip, now)]
    if old.due_at <= before.outcomes_until:
        parts = await outcome_gaps(tx, old.id, before.spec, old.due_at - 1, until)
    else:
        parts = [OccurrenceRange.of(before.spec, old.due_at - 1, until)]
    rested = old.status == Status.PAUSED
    pause = {"paused_at": before.paused_at, "note": old.reason} if rested else {}
    reason = "paused" if rested else "edited"
    skips = [Skip(part.last, reason, part.first, part.size) for part in parts if part.size]
    return [skip_row(next(new_ids), old.id, before, skip, now, **pause) for skip in skips]


def resumed(schedule: Schedule, intent: Intent, *, now: int, catch_up: bool = False) -> Schedule:
    """The schedule awake again: from its next occurrence, or from the first one missed."""
    due_at = schedule.due_at if catch_up and schedule.due_at else next_after(intent.spec, now)
    if due_at is None or not intent.runs_left:
        reason = NO_FURTHER if due_at is None else RUNS_DONE
        return msgspec.structs.replace(
            schedule, status=Status.PAUSED, reason=reason, available_at=None, due_at=None
        )
    forgiven = msgspec.structs.replace(intent, forgiven_at=due_at, paused_at=0)
    return msgspec.structs.replace(
        schedule, status=Status.SCHEDULED, reason=None, due_at=due_at, spec=stored(forgiven),
        available_at=due_at + jitter_us(schedule.name, intent.policies),
    )  # fmt: skip


async def fired_between(tx: Tx, schedule_id: str, *, from_at: int, to_at: int) -> set[int]:
    """The occurrences of a range that have a run."""
    rows = await tx.rows("fired_between", id=schedule_id, from_at=from_at, to_at=to_at)
    return {row[0] for row in rows}


async def open_roots(tx: Tx, schedule_ids: Sequence[str]) -> list[str]:
    """The chains of schedules that have not ended."""
    return [row[0] for row in await tx.rows("open_roots_of", ids=list(schedule_ids))]


def extra_row(
    schedule: Schedule, intent: Intent, *, previous_at: int | None = None, **fields: Any
) -> Row:
    """A row for `add_runs`."""
    return (
        fields["id"], schedule.id, intent.kind, intent.workflow,
        fields.get("status", Status.PENDING),
        fields.get("reason"), fields.get("available_at"), fields.get("due_at"), fields["trigger"],
        with_previous(schedule.options, previous_at), None, None,
    )  # fmt: skip
