"""The limit on PostgreSQL: hand-written asyncpg, FOR UPDATE SKIP LOCKED, batches of 500.

Completion of a batch and claim of the next are one statement, so one commit. No features: an
integer as payload, no tasks, no fence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Literal, Never
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import asyncpg

from bench.hits import Pen
from bench.sides import BULK, STEPS, Work

BATCH = 500
GROUP = 200  # Workflows in progress at once where commits are grouped.
FLUSHERS = 2
CONNECTIONS = 16  # The variant with a commit for every step.

TABLES = """
create table job (
    id bigint generated always as identity primary key,
    queue text not null default 'default', kind text not null, payload bigint not null,
    state smallint not null default 0, attempt int not null default 0,
    run_at timestamptz not null default now(), lease timestamptz, done_at timestamptz
);
create index job_ready on job (queue, run_at, id) where state = 0;
create table step (
    flow bigint, seq int, result bytea, at timestamptz default now(), primary key (flow, seq)
);
"""
INSERT = "insert into job (kind, payload) values ($1, $2)"
INSERT_AND_NOTIFY = f"with inserted as ({INSERT}) select pg_notify('job', '')"
INSERT_MANY = "insert into job (kind, payload) select $1, unnest($2::bigint[])"
COMPLETE_AND_CLAIM = """
with done as (update job set state = 2, done_at = now() where id = any($2)),
picked as (
    select id from job where queue = 'default' and state = 0 and run_at <= now()
    order by run_at, id limit $1 for update skip locked
)
update job set state = 1, attempt = attempt + 1, lease = now() + interval '30s'
from picked where job.id = picked.id returning job.id, job.payload
"""
RECORD = "insert into step (flow, seq, result) values ($1, $2, $3)"
RECORD_MANY = """
insert into step (flow, seq, result) select * from unnest($1::bigint[], $2::int[], $3::bytea[])
"""


def schema_of(url: str) -> str:
    """The schema that the URL names."""
    return dict(parse_qsl(urlsplit(url).query))["schema"]


async def connect(url: str) -> Any:
    """A connection to the schema that the URL names."""
    plain = urlunsplit(urlsplit(url)._replace(query=""))
    return await asyncpg.connect(plain, server_settings={"search_path": schema_of(url)})


class RawPostgres:
    """The starting side of the limit."""

    kind: Literal["raw", "ours"] = "raw"

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection: Any = None
        self._insert: Any = None
        self._insert_many: Any = None

    async def open(self) -> None:
        """Make the tables and connect."""
        self._connection = await connect(self.url)
        await self._connection.execute(f"create schema {schema_of(self.url)}")
        await self._connection.execute(TABLES)
        self._insert = await self._connection.prepare(INSERT)
        self._insert_many = await self._connection.prepare(INSERT_MANY)

    async def close(self) -> None:
        """Disconnect; the schema goes with the place."""
        await self._connection.close()

    async def start(self, number: int) -> None:
        """Insert and notify in one statement."""
        await self._connection.fetchval(INSERT_AND_NOTIFY, "noop", number)

    async def start_one_by_one(self, count: int) -> None:
        """A prepared insert and a commit each."""
        for number in range(count):
            await self._insert.fetchval("noop", number)

    async def start_bulk(self, count: int, work: Work = "noop") -> None:
        """One insert per `BULK` rows."""
        for begin in range(0, count, BULK):
            numbers = list(range(begin, min(begin + BULK, count)))
            await self._insert_many.fetch(work, numbers)

    async def unfinished(self) -> int:
        """Rows not yet done."""
        return int(await self._connection.fetchval("select count(*) from job where state < 2"))


async def work(url: str, work: Work, pen: Pen, ready: Callable[[], None]) -> None:
    """The worker process of this limit."""
    connection, listener = await connect(url), await connect(url)
    called = asyncio.Event()
    await listener.add_listener("job", lambda *_: called.set())
    complete_and_claim = await connection.prepare(COMPLETE_AND_CLAIM)
    if work == "noop":
        ready()
        await _work_noop(complete_and_claim, called, pen)
    elif work == "steps":
        pool = await asyncpg.create_pool(
            connect=lambda *_, **__: connect(url), min_size=CONNECTIONS, max_size=CONNECTIONS
        )
        ready()
        await _work_steps(complete_and_claim, called, pen, _CommitEach(pool).record)
    else:
        grouped = _CommitTogether([await connect(url) for _ in range(FLUSHERS)])
        ready()
        await _work_steps(complete_and_claim, called, pen, grouped.record)


async def _wait_for_jobs(called: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(called.wait(), 5)
    except TimeoutError:
        return


async def _work_noop(complete_and_claim: Any, called: asyncio.Event, pen: Pen) -> Never:
    done: list[int] = []
    while True:
        called.clear()
        rows = await complete_and_claim.fetch(BATCH, done)
        done = []
        for number, payload in rows:
            pen(payload, 0)
            done.append(number)
        if not rows:
            await _wait_for_jobs(called)


async def _work_steps(
    complete_and_claim: Any, called: asyncio.Event, pen: Pen, record: Any
) -> Never:
    async def perform(row: Any) -> int:
        number: int = row[0]
        for step in range(STEPS):
            pen(row[1], step)
            await record(number, step)
        return number

    done: Sequence[int] = []
    while True:
        called.clear()
        rows = await complete_and_claim.fetch(GROUP, done)
        done = await asyncio.gather(*(perform(row) for row in rows))
        if not rows:
            await _wait_for_jobs(called)


class _CommitEach:
    """A commit per step, on as many connections as help."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def record(self, flow: int, step: int) -> None:
        async with self._pool.acquire() as connection:
            await connection.fetch(RECORD, flow, step, b"ok")


class _CommitTogether:
    """Steps that wait at the same moment share a commit; each returns after its own."""

    def __init__(self, connections: list[Any]) -> None:
        self._line: asyncio.Queue[tuple[int, int, asyncio.Future[None]]] = asyncio.Queue()
        self._flushers = [asyncio.create_task(self._flush(each)) for each in connections]

    async def record(self, flow: int, step: int) -> None:
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.put_nowait((flow, step, written))
        await written

    async def _flush(self, connection: Any) -> Never:
        record = await connection.prepare(RECORD_MANY)
        while True:
            group = [await self._line.get()]
            while not self._line.empty() and len(group) < BATCH * 2:
                group.append(self._line.get_nowait())
            flows, steps, waiting = zip(*group, strict=True)
            await record.fetch(flows, steps, [b"ok"] * len(group))
            for written in waiting:
                written.set_result(None)
