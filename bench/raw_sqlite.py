"""The limit on SQLite: hand-written, standard library, WAL, `synchronous=FULL`, batches of 500.

The code one would write without looking for another driver. apsw, which Rota uses, would raise it:
by about 15 % one by one, 55 % in bulk, 30 % in a drain. No features: an integer as payload, no
tasks, no fence.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, Never, cast

from bench.hits import Pen
from bench.sides import BULK, STEPS, Work

BATCH = 500
GROUP = 100  # Workflows that advance together where commits are grouped.
LOOK_EVERY_S = 0.002
LEASE_S = 30.0

TABLES = """
create table job (
    id integer primary key, queue text not null default 'default', kind text not null,
    payload integer not null, state integer not null default 0,
    attempt integer not null default 0, run_at real not null default 0, lease real, done_at real
);
create index job_ready on job (queue, run_at, id) where state = 0;
create table step (
    flow integer, seq integer, result blob, at real, primary key (flow, seq)
) without rowid;
"""
INSERT = "insert into job (kind, payload) values (?, ?)"
DONE = "update job set state = 2, done_at = ? where id = ?"
CLAIM = """
update job set state = 1, attempt = attempt + 1, lease = ?
where id in (select id from job where queue = 'default' and state = 0 and run_at <= ?
    order by run_at, id limit ?)
returning id, payload
"""
RECORD = "insert into step values (?, ?, ?, ?)"

Rest = Callable[[sqlite3.Connection], None]


def connect(path: Path) -> sqlite3.Connection:
    """A connection as durable as Rota's own."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=30, cached_statements=256)
    connection.execute("pragma journal_mode = wal").fetchall()
    connection.execute("pragma synchronous = full")
    return connection


def path_of(url: str) -> Path:
    """The file behind `sqlite:///…`."""
    return Path(url.removeprefix("sqlite:///"))


class RawSqlite:
    """The starting side of the limit."""

    kind: Literal["raw", "ours"] = "raw"

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Make the tables and connect."""
        self._connection = connect(path_of(self.url))
        self._connection.executescript(TABLES)

    async def close(self) -> None:
        """Disconnect; the folder goes with the place."""
        if self._connection is not None:
            self._connection.close()

    async def start(self, number: int) -> None:
        """Insert and commit; another process sees it by `data_version`."""
        self._execute(INSERT, ("noop", number))

    async def start_one_by_one(self, count: int) -> None:
        """A commit each."""
        for number in range(count):
            self._execute(INSERT, ("noop", number))

    async def start_bulk(self, count: int, work: Work = "noop") -> None:
        """One transaction per `BULK` rows."""
        for begin in range(0, count, BULK):
            rows = [(work, number) for number in range(begin, min(begin + BULK, count))]
            self._execute("begin immediate")
            self._many(INSERT, rows)
            self._execute("commit")

    async def unfinished(self) -> int:
        """Rows not yet done."""
        assert self._connection is not None
        found = self._connection.execute("select count(*) from job where state < 2").fetchone()
        return int(found[0])

    def _execute(self, text: str, values: tuple[Any, ...] = ()) -> None:
        assert self._connection is not None
        self._connection.execute(text, values)

    def _many(self, text: str, rows: Iterable[tuple[Any, ...]]) -> None:
        assert self._connection is not None
        self._connection.executemany(text, rows)


def complete_and_claim(
    connection: sqlite3.Connection, done: list[int], limit: int
) -> list[tuple[int, int]]:
    """Complete the last batch and claim the next, in one commit."""
    now = time.time()
    connection.execute("begin immediate")
    if done:
        connection.executemany(DONE, [(now, number) for number in done])
    rows: Any = connection.execute(CLAIM, (now + LEASE_S, now, limit)).fetchall()
    connection.execute("commit")
    return cast(list[tuple[int, int]], rows)


def work_noop(connection: sqlite3.Connection, pen: Pen, rest: Rest) -> Never:
    """Execute no-op jobs for ever."""
    done: list[int] = []
    while True:
        rows = complete_and_claim(connection, done, BATCH)
        done = []
        for number, payload in rows:
            pen(payload, 0)
            done.append(number)
        if not rows:
            rest(connection)


def work_steps(connection: sqlite3.Connection, pen: Pen, rest: Rest, group: int) -> Never:
    """Execute workflows: `group` of them advance together, one commit per round of steps."""
    done: list[int] = []
    while True:
        rows = complete_and_claim(connection, done, group)
        now = time.time()
        for step in range(STEPS if rows else 0):
            for _, payload in rows:
                pen(payload, step)
            connection.execute("begin immediate")
            connection.executemany(RECORD, [(number, step, b"ok", now) for number, _ in rows])
            connection.execute("commit")
        done = [number for number, _ in rows]
        if not rows:
            rest(connection)


class Watch:
    """Rests until another process has written: a cheap look every 2 ms that takes no lock."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._seen = self._version(connection)

    def __call__(self, connection: sqlite3.Connection) -> None:
        """Return when another client has committed since the last time, or after 5 s."""
        until = time.monotonic() + 5
        while time.monotonic() < until:
            version = self._version(connection)
            if version != self._seen:
                self._seen = version
                return
            time.sleep(LOOK_EVERY_S)

    @staticmethod
    def _version(connection: sqlite3.Connection) -> Any:
        return connection.execute("pragma data_version").fetchall()


async def work(url: str, work: Work, pen: Pen, ready: Callable[[], None]) -> None:
    """The worker process of this limit."""
    connection = connect(path_of(url))
    ready()
    if work == "noop":
        work_noop(connection, pen, Watch(connection))
    work_steps(connection, pen, Watch(connection), 1 if work == "steps" else GROUP)


class Embedded(RawSqlite):
    """Starter and worker in one process: the worker is a thread, woken by an event."""

    def __init__(self, url: str, pen: Pen) -> None:
        super().__init__(url)
        self._pen = pen
        self._called = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._open = True

    async def open(self) -> None:
        """Make the tables and start the thread."""
        await super().open()
        self._thread.start()

    async def close(self) -> None:
        """Stop the thread, then disconnect."""
        self._open = False
        self._called.set()
        await asyncio.to_thread(self._thread.join)
        await super().close()

    async def start(self, number: int) -> None:
        """Insert, commit, wake."""
        await super().start(number)
        self._called.set()

    def _work(self) -> None:
        connection = connect(path_of(self.url))
        with contextlib.suppress(_Stopped):
            work_noop(connection, self._pen, self._rest)
        connection.close()

    def _rest(self, _: sqlite3.Connection) -> None:
        self._called.wait()
        self._called.clear()
        if not self._open:
            raise _Stopped


class _Stopped(Exception):
    """The thread has to end."""
