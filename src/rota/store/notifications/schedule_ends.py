"""Whom a schedule tells about its executions, and the runs that do the telling.

Such a run is created in the transaction in which an execution ends or is skipped, so nothing that
happens afterwards can lose it; its external id is the id of what it reports, so it is created once.
`rota.notifications` knows the meaning of `body`, and how to send it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from rota.core.notifications.model import NOTIFY
from rota.core.runs.ids import IdMaker
from rota.core.runs.model import Outcome, Run
from rota.store.backend.database import Tx


class ScheduleEnd(NamedTuple):
    """Something to report: the run of a schedule, and what happened to it."""

    schedule_id: str
    run_id: str
    what: str  # "began", "waits" (for a person), "ended" or "skipped"


async def put(tx: Tx, schedule_id: str, body: str | None) -> None:
    """Set the receivers of a schedule; None: no one."""
    if body is None:
        await tx.rows("delete_notice", schedule_id=schedule_id)
    else:
        await tx.rows("put_notice", schedule_id=schedule_id, body=body)


async def of(tx: Tx, schedule_ids: Iterable[str]) -> dict[str, str]:
    """The receivers of these schedules; those without receivers are not in it."""
    rows = await tx.rows("notices_of", ids=sorted(set(schedule_ids)))
    return {row[0]: row[1] for row in rows}


async def report_all(tx: Tx, things: Sequence[ScheduleEnd], *, now: int) -> int:
    """Insert the runs that report these; returns how many there are to execute."""
    bodies = await of(tx, [thing.schedule_id for thing in things])
    rows = [_row(thing, bodies[thing.schedule_id], now) for thing in things
            if thing.schedule_id in bodies]  # fmt: skip
    return len(await tx.many("start_notices", rows, name=NOTIFY, now=now)) if rows else 0


async def report_ends(tx: Tx, roots: Mapping[str, str], *, now: int) -> int:
    """Report chains that are over; `roots` maps them to their schedules."""
    rows = await tx.rows("ends_of_chains", roots=list(roots))
    return await report_all(
        tx, [ScheduleEnd(roots[root], run_id, "ended") for run_id, root in rows], now=now
    )


async def report_waits(tx: Tx, outcomes: Sequence[Outcome], *, now: int) -> bool:
    """Report executions that wait for a person."""
    asks = [
        ScheduleEnd(o.claim.schedule_id, o.claim.id, "waits")
        for o in outcomes
        if o.verb == "ask" and o.claim.schedule_id is not None
    ]
    return bool(asks and await report_all(tx, asks, now=now))


async def notified_before(tx: Tx, run_ids: Sequence[str], *, namespace: str) -> set[str]:
    """Which of these runs have been reported."""
    rows = await tx.rows("notified_of", ids=list(run_ids), namespace=namespace, name=NOTIFY)
    return {row[0] for row in rows}


async def end_before(tx: Tx, run: Run) -> tuple[str, str | None] | None:
    """Status and reason of the execution of the same schedule that ended before this one."""
    rows = await tx.rows(
        "execution_before", schedule_id=run.schedule_id, root_id=run.root_id,
        due_at=run.created_at if run.due_at is None else run.due_at,
        ended_at=run.created_at if run.finished_at is None else run.finished_at,
    )  # fmt: skip
    return (rows[0][0], rows[0][1]) if rows else None


def _row(thing: ScheduleEnd, body: str, now: int) -> tuple[str, str, str, str]:
    lasts = thing.what in ("began", "waits")  # the end of the run is not reported yet
    key = f"{thing.run_id}:{thing.what}" if lasts else thing.run_id
    fields = {"run_id": thing.run_id, "what": thing.what, "tells": msgspec.Raw(body.encode())}
    text = msgspec.json.encode(fields).decode()
    return id_from(key, now), thing.schedule_id, key, text


def id_from(key: str, now: int) -> str:
    """An id derived from the event: it needs no random number to be unique."""
    chance = int.from_bytes(hashlib.sha256(key.encode()).digest())
    return IdMaker(lambda bits: chance % (1 << bits)).make(now)
