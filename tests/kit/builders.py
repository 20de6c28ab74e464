"""Shared builders for tests of the core and the store: runs, claims, steps, and raw SQL.

Time stops at `NOW` unless a test moves it; ids count up, so that order is plain to see.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from rota.core.runs.claim_positions import QueuePosition
from rota.core.runs.model import (
    Claim,
    NewRun,
    Outcome,
    Queue,
    Run,
    Started,
    StepRecord,
    StoredStep,
    WorkerRecord,
)
from rota.core.time.instants import HOUR, SECOND
from rota.errors import LeaseLost
from rota.settings import Settings
from rota.store import invariants
from rota.store.backend import migrate
from rota.store.backend.database import Database, Row, Tx, open_url
from rota.store.backend.postgres import PostgresTx
from rota.store.backend.sqlite_threads import SqliteTx
from rota.store.runs import claim as claiming
from rota.store.runs import history, signals, steps, workers
from rota.store.runs.payloads import INLINE_BYTES_MAX
from rota.store.runs.recover import reap_runs
from rota.store.runs.settle import settle_runs
from rota.store.runs.start import start_runs

NOW = 1_700_000_000_000_000
LEASE = 30 * SECOND
SPACE = "default"
BIG = "x" * (2 * INLINE_BYTES_MAX)

_counter = itertools.count(1)


def fresh_id(now: int = NOW) -> str:
    """An id that sorts after all made before it at the same instant."""
    return f"{now // 1000:012x}7{next(_counter):019x}"


def new_run(name: str = "work", **fields: Any) -> NewRun:
    """A run that may be claimed at once, unless the fields say otherwise."""
    defaults: dict[str, Any] = {"id": fresh_id(), "namespace": SPACE, "available_at": NOW}
    return NewRun(name=name, **defaults | fields)


def worker_row(worker_id: str, **fields: Any) -> WorkerRecord:
    """A worker as it reports itself at its start."""
    blank = WorkerRecord(
        worker_id, SPACE, "host", 7, "then", '["default"]', "[]", 10, "online", "1", NOW, NOW, None
    )
    return msgspec.structs.replace(blank, **fields)


def step_of(claim: Claim, key: str, **fields: Any) -> StepRecord:
    """A completed step of the claim's chain."""
    blank = StoredStep(claim.root_id, key, 1, "step", "completed", 1, claim.attempt, '"done"', None,
        None, None, NOW, NOW)  # fmt: skip
    return StepRecord(claim, msgspec.structs.replace(blank, **fields))


def waiting_step(claim: Claim, key: str, **fields: Any) -> StoredStep:
    """A step that waits for a signal."""
    return step_of(claim, key, kind="signal", status="waiting", output=None, finished_at=None,
        **fields).step  # fmt: skip


@asynccontextmanager
async def opened(url: str, *, migrated: bool = True, **settings: Any) -> AsyncIterator[Database]:
    """The database behind a URL, with its schema unless `migrated` is false."""
    database = open_url(url, Settings(**settings))
    await database.open()
    try:
        if migrated:
            await migrate.prepare(database, migrate=True, now=NOW)
        yield database
    finally:
        await database.close()


async def raw(tx: Tx, text: str) -> list[Row]:
    """Plain SQL, past the named queries: what a careless hand at the console might do."""
    if isinstance(tx, SqliteTx):
        return list(tx._cursor.execute(text).fetchall())
    assert isinstance(tx, PostgresTx)
    await tx.begin()
    await tx.connection.execute(f"set local search_path to {tx.schema}")
    return list(await tx.connection.fetch(text))


async def sql(db: Database, text: str) -> list[Row]:
    """One plain statement in a transaction of its own."""
    return [tuple(row) for row in await db.write(raw, text)]


async def start(db: Database, *fresh: NewRun, now: int = NOW) -> list[Started]:
    """Insert runs."""
    return await db.write(start_runs, fresh, now=now)


def request(
    worker: str = "w1",
    *,
    slots: int = 100,
    now: int = NOW,
    queues: Sequence[tuple[str, int]] | None = None,
    runs_max: int = 100,
    names: Iterable[str] = ("work",),
    limited: Iterable[str] = (),
    namespace: str = SPACE,
    alone: bool = False,
    after: Mapping[str, QueuePosition] | None = None,
) -> claiming.ClaimRequest:
    """Who claims what."""
    return claiming.ClaimRequest(
        namespace, worker, list(names), queues or [("default", slots)], runs_max,
        frozenset(limited), now, now + LEASE, alone, after or {},
    )  # fmt: skip


async def claim(db: Database, worker: str = "w1", **fields: Any) -> list[Claim]:
    """Claim and return what was got, in its order."""
    return (await db.write(claiming.claim, request(worker, **fields))).claims


async def begin(db: Database, *, worker: str = "w1", now: int = NOW, **fields: Any) -> Claim:
    """Start one run and claim it."""
    fresh = new_run(**{"available_at": now} | fields)
    await start(db, fresh, now=now)
    got = await claim(db, worker, now=now, names=[fresh.name], queues=[(fresh.queue, 100)])
    return next(one for one in got if one.id == fresh.id)


async def settle(
    db: Database, held: Claim, verb: str = "complete", *, now: int = NOW, **fields: Any
) -> bool:
    """Settle one claim; whether the worker still held it."""
    done = await db.write(settle_runs, [Outcome(held, verb, **fields)], now=now)
    return held.id in done.ids


async def reap(
    db: Database, *, now: int, gone: Iterable[str] = (), recoveries_max: int = 5, batch: int = 10
) -> list[tuple[Run, bool]]:
    """One round of the reaper."""
    successors = [fresh_id(now) for _ in range(batch)]
    return await db.write(
        reap_runs, namespace=SPACE, now=now, gone=list(gone), recoveries_max=recoveries_max,
        new_ids=successors,
    )  # fmt: skip


async def get(db: Database, run_id: str) -> Run:
    """One run."""
    return await db.read(history.get, namespace=SPACE, run_id=run_id)


async def chain(db: Database, root_id: str) -> list[Run]:
    """All attempts of a chain."""
    return await db.read(history.chain, root_id=root_id)


async def status(db: Database, run_id: str) -> str:
    """Status and reason of one run."""
    return (await get(db, run_id)).label


async def signal(db: Database, root_id: str, name: str = "go", body: str | None = "1") -> None:
    """Leave a signal."""
    await db.write(
        signals.send_signal, signal_id=fresh_id(), root_id=root_id, name=name, body=body, now=NOW
    )


async def declare(db: Database, name: str = "default", **limits: Any) -> None:
    """Declare a queue with limits."""
    await db.write(workers.put_queues, [Queue(SPACE, name, **limits)])


async def sound(db: Database) -> bool:
    """Whether every invariant holds; says which does not."""
    broken = await db.read(invariants.broken)
    assert broken == []
    return True


def later(hours: float) -> int:
    """An instant that many hours after `NOW`."""
    return NOW + round(hours * HOUR)


async def record_child(tx: Tx, record: StepRecord, child: NewRun, *, now: int) -> Started:
    """Start one child; LeaseLost when its parent is no longer held."""
    [started] = await steps.record_children(tx, [steps.ChildStart(record, child)], now=now)
    if started is None:
        raise LeaseLost(f"run {record.claim.id} is no longer held", run_id=record.claim.id)
    return started
