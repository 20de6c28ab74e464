"""The parts of "automations": lines of work with one consumer each, and their limit.

Ours: an external topic, `prepare` that takes a number of events, `mutate` that calls an idempotent
tool which does nothing, `next`. Every phase has its checkpoint, the call its entry in the ledger.

The limit is a loop by hand that keeps the same promise, an effect per handler run, known before it
is made. It takes events, notes the call and commits. It calls, notes the outcome, uses the events
and commits. Many lines share its two commits. No phases, no history, no state, no inputs, no fence.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from bench import raw_postgres, raw_sqlite
from bench.hits import Pen
from bench.ours import SLOTS
from rota import Rota
from rota.automations import Automation, Change, Context, MutationResult, Prepared
from rota.tools import tool

TOPIC = "mail"

Seen = Callable[[int, float], None]  # an event, and when the consumer that took it had begun


def _unseen(*_: object) -> None:
    return None


@tool(safety="idempotent")
async def touch(numbers: list[int]) -> int:
    """An effect that costs nothing."""
    return len(numbers)


def line_name(line: int) -> str:
    """The name of one automation."""
    return f"line-{line:05}"


def make_app(url: str, lines: int, take: int = 1, seen: Seen = _unseen) -> Rota:
    """An app with so many automations, with consumers that take up to `take` events a run."""
    app = Rota(url, migrate=True, slots=SLOTS)
    for line in range(lines):
        _declare(app.automation(line_name(line), timezone="UTC"), take, seen)
    return app


def make_idle_app(url: str, lines: int, seen: Seen = _unseen) -> Rota:
    """The same with a producer each, which has nothing to tell and looks once a day."""
    app = Rota(url, migrate=True, slots=SLOTS)
    for line in range(lines):
        automation = app.automation(line_name(line), timezone="UTC")
        _declare(automation, 1, seen)

        @automation.producer(every="1d", publishes=[TOPIC])
        async def look(_: Context, _state: Any) -> None:
            return None

    return app


def _declare(automation: Automation, take: int, seen: Seen) -> None:
    automation.topic(TOPIC, int, external=True)

    async def prepare(ctx: Context, _: Any) -> Prepared:
        began = time.monotonic()
        events = await ctx.peek(TOPIC, limit=take)
        for event in events:
            seen(event.payload, began)
        return Prepared(events, [event.payload for event in events])

    async def mutate(_: Context, prepared: Prepared) -> Change:
        return touch.change(numbers=prepared.data)

    async def following(_: Context, _prepared: Prepared, _mutation: MutationResult) -> None:
        return None

    automation.consumer(
        "forward", subscribes=[TOPIC], prepare=prepare, mutate=mutate, next=following
    )


async def publish(app: Rota, line: int, number: int) -> None:
    """One event, durable on return."""
    await app.automations.publish(line_name(line), TOPIC, str(number), number)


async def publish_together(app: Rota, lines: int, count: int, callers: int) -> None:
    """Events dealt out to the lines interleaved, by concurrent callers."""
    numbers = iter(range(count))

    async def caller() -> None:
        for number in numbers:
            await publish(app, number % lines, number)

    await asyncio.gather(*(caller() for _ in range(callers)))


# -- the limit -------------------------------------------------------------------------------


class Limit(Protocol):
    """Events and a ledger, by hand."""

    async def open(self) -> None:
        """Make the tables and connect."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...

    async def publish(self, count: int) -> None:
        """A commit each."""
        ...

    async def drain(self, lines: int, take: int) -> int:
        """Use up all events: `take` of them a handler run, as many together as there are lines."""
        ...


def limit(url: str) -> Limit:
    """The limit on an empty database."""
    return _SqliteLimit(url) if url.startswith("sqlite") else _PostgresLimit(url)


def touch_by_hand(numbers: Sequence[int]) -> int:
    """The effect, called directly."""
    return len(numbers)


SQLITE_TABLES = """
create table event (
    id integer primary key, message_id text not null unique, payload integer not null,
    state integer not null default 0
);
create index event_pending on event (id) where state = 0;
create table ledger (id integer primary key, state integer not null);
"""


class _SqliteLimit:
    def __init__(self, url: str) -> None:
        self._connection = raw_sqlite.connect(raw_sqlite.path_of(url))

    async def open(self) -> None:
        self._connection.executescript(SQLITE_TABLES)

    async def close(self) -> None:
        self._connection.close()

    async def publish(self, count: int) -> None:
        for number in range(count):
            self._connection.execute(
                "insert into event (message_id, payload) values (?, ?)", (str(number), number)
            )

    async def drain(self, lines: int, take: int) -> int:
        used = 0
        while rows := self._take(lines, take):
            touch_by_hand([payload for _, payload in rows])
            self._use([number for number, _ in rows], take)
            used += len(rows)
        return used

    def _take(self, lines: int, take: int) -> list[Any]:
        run = self._connection.execute
        run("begin immediate")
        rows = run(
            "update event set state = 1 where id in (select id from event where state = 0"
            " order by id limit ?) returning id, payload", (lines * take,)
        ).fetchall()  # fmt: skip
        for number, _ in rows[::take]:
            run("insert into ledger values (?, 1)", (number,))
        run("commit")
        return rows

    def _use(self, numbers: list[int], take: int) -> None:
        run = self._connection.execute
        run("begin immediate")
        for number in numbers[::take]:
            run("update ledger set state = 2 where id = ?", (number,))
        for number in numbers:
            run("update event set state = 2 where id = ?", (number,))
        run("commit")


POSTGRES_TABLES = """
create table event (
    id bigint generated always as identity primary key, message_id text not null unique,
    payload bigint not null, state smallint not null default 0
);
create index event_pending on event (id) where state = 0;
create table ledger (id bigint primary key, state smallint not null);
"""
TAKE = """
with picked as (
    select id, row_number() over (order by id) as place from (select id from event where state = 0
        order by id limit $1 for update skip locked) as due
),
noted as (insert into ledger select id, 1 from picked where (place - 1) % $2 = 0)
update event set state = 1 from picked where event.id = picked.id
returning event.id, event.payload
"""
USE = """
with noted as (update ledger set state = 2 where id = any($1))
update event set state = 2 where id = any($1)
"""


class _PostgresLimit:
    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Any = None

    async def open(self) -> None:
        self._connection = await raw_postgres.connect(self._url)
        schema = raw_postgres.schema_of(self._url)
        await self._connection.execute(f"create schema {schema}")
        await self._connection.execute(POSTGRES_TABLES)

    async def close(self) -> None:
        await self._connection.close()

    async def publish(self, count: int) -> None:
        insert = await self._connection.prepare(
            "insert into event (message_id, payload) values ($1, $2)"
        )
        for number in range(count):
            await insert.fetchval(str(number), number)

    async def drain(self, lines: int, take: int) -> int:
        taking = await self._connection.prepare(TAKE)
        using = await self._connection.prepare(USE)
        used = 0
        while rows := await taking.fetch(lines * take, take):
            touch_by_hand([row[1] for row in rows])
            await using.fetch([row[0] for row in rows])
            used += len(rows)
        return used


# -- the limit of latency --------------------------------------------------------------------


class Waker(Protocol):
    """Publisher and worker in one process."""

    url: str

    async def open(self) -> None:
        """Begin to wait for work."""
        ...

    async def close(self) -> None:
        """Stop."""
        ...

    async def start(self, number: int) -> None:
        """Something to do, durable on return."""
        ...


class OurWaker:
    """One automation, worked by the process that publishes to it."""

    def __init__(self, url: str, seen: Seen) -> None:
        self.url = url
        self._app = make_app(url, 1, seen=seen)

    async def open(self) -> None:
        """Deploy and work."""
        await self._app.start_worker()

    async def close(self) -> None:
        """Drain and disconnect."""
        await self._app.close()

    async def start(self, number: int) -> None:
        """Publish."""
        await publish(self._app, 0, number)


class PostgresWaker(raw_postgres.RawPostgres):
    """Insert and commit, wake a task on another connection, which claims."""

    def __init__(self, url: str, pen: Pen) -> None:
        super().__init__(url)
        self._pen = pen
        self._called = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Make the tables, connect twice and wait for work."""
        await super().open()
        ready = asyncio.Event()
        self._worker = asyncio.create_task(self._work(ready.set))
        await ready.wait()

    async def close(self) -> None:
        """Stop the task, then disconnect."""
        if self._worker is not None:
            self._worker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._worker
        await super().close()

    async def start(self, number: int) -> None:
        """Insert, commit, wake."""
        await self._connection.fetchval(raw_postgres.INSERT, "noop", number)
        self._called.set()

    async def _work(self, ready: Callable[[], None]) -> None:
        connection = await raw_postgres.connect(self.url)
        complete_and_claim = await connection.prepare(raw_postgres.COMPLETE_AND_CLAIM)
        ready()
        done: list[int] = []
        try:
            while True:
                self._called.clear()
                rows = await complete_and_claim.fetch(raw_postgres.BATCH, done)
                done = [number for number, _ in rows]
                for _, payload in rows:
                    self._pen(payload, 0)
                if not rows:
                    await self._called.wait()
        finally:
            connection.terminate()


def raw_waker(url: str, seen: Seen) -> Waker:
    """The limit on either database."""

    def pen(number: int, _: int) -> None:
        seen(number, time.monotonic())

    if url.startswith("sqlite"):
        return raw_sqlite.Embedded(url, pen)
    return PostgresWaker(url, pen)
