"""The base of the part "schedules": fleets of schedules loaded in SQL, and the limit of firing.

A fleet is made of a few models, created by `app.schedules.create` and copied by one insert into as
many rows as are wanted: half cron expressions in several zones, half intervals, of which nearly
every one has a text of its own.

The limit is a loop by hand: it takes a batch that is due and computes each next time. An interval
is an addition; cron is Rota's own compiled recurrence, looked up by expression and zone. Then it
inserts the runs, moves the schedules on and commits. Same batch and durability; no policies, no
ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple, Protocol
from zoneinfo import ZoneInfo

import apsw

from bench import raw_postgres, raw_sqlite
from bench.ours import make_app
from rota.core.time.instants import instant
from rota.core.time.occurrences import times_of
from rota.core.time.spec import Timing

BATCH = 1000  # As many as Rota's scheduler takes.
SECOND = 1_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR
ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Asia/Tokyo", "Australia/Sydney",
    "America/Sao_Paulo", "Africa/Cairo",
)  # fmt: skip
EVERY_H = (1, 2, 3, 4, 6, 8, 12, 24)


class Model(NamedTuple):
    """A timing that falls on the chosen instant: cron in a zone, or an interval from it."""

    cron: str | None
    zone: str
    every_us: int | None


def models_at(due: int) -> list[Model]:
    """25 cron expressions and 24 intervals; 49 shares no factor with the strides used here."""
    now = datetime.fromtimestamp(due / SECOND, UTC)
    found = [Model(f"{now.second} {now.minute} * * * *", "UTC", None)]
    for zone in ZONES:
        wall = now.astimezone(ZoneInfo(zone))
        at = f"{wall.second} {wall.minute} {wall.hour}"
        for days in ("* * *", f"* * {wall:%a}".upper(), f"{wall.day} * *"):
            found.append(Model(f"{at} {days}", zone, None))
    return found + [Model(None, "UTC", hours * HOUR) for hours in EVERY_H] * 3


class Hand(Protocol):
    """Plain SQL on either database, outside of what is measured."""

    async def run(self, text: str) -> None:
        """Statements without an answer."""
        ...

    async def rows(self, text: str) -> list[Any]:
        """One query."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...


class _SqliteHand:
    def __init__(self, url: str) -> None:
        # By Rota's own SQLite: two SQLite libraries with one file in one process drop each
        # other's locks, and end in a bus error.
        self._connection = apsw.Connection(str(raw_sqlite.path_of(url)))
        self._connection.set_busy_timeout(30_000)
        self._connection.pragma("synchronous", "full")

    async def run(self, text: str) -> None:
        for statement in text.split(";"):
            self._connection.execute(statement).fetchall()

    async def rows(self, text: str) -> list[Any]:
        return list(self._connection.execute(text))

    async def close(self) -> None:
        self._connection.close()


class _PostgresHand:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def run(self, text: str) -> None:
        await self._connection.execute(text)

    async def rows(self, text: str) -> list[Any]:
        return [tuple(row) for row in await self._connection.fetch(text)]

    async def close(self) -> None:
        await self._connection.close()


async def hand(url: str) -> Hand:
    """A connection of our own to a database."""
    if url.startswith("sqlite"):
        return _SqliteHand(url)
    return _PostgresHand(await raw_postgres.connect(url))


async def settled(url: str) -> None:
    """What the database would do by itself a little later, so that no round pays for another's
    loading: statistics on PostgreSQL, the write-ahead log moved into the file on SQLite."""
    mine = await hand(url)
    sqlite = url.startswith("sqlite")
    await mine.run("pragma wal_checkpoint(truncate)" if sqlite else "vacuum analyze runs")
    await mine.close()


class Fleet(NamedTuple):
    """`size` schedules; every `stride`-th is due at `due_at`, the others in a month and later."""

    size: int
    due_at: int
    stride: int = 1


async def load(url: str, fleet: Fleet) -> None:
    """Make the tables of Rota and store a fleet."""
    app, workflows = make_app(url)
    async with app.connected():
        for number, model in enumerate(models_at(fleet.due_at)):
            when = model.cron or f"{(model.every_us or 0) // HOUR}h"
            start = datetime.fromtimestamp(fleet.due_at / SECOND, UTC)
            await app.schedules.create(
                f"model-{number}", workflows["noop"], when, args=(0,), timezone=model.zone,
                start=start if model.cron is None else None,
            )  # fmt: skip
    due, far = fleet.due_at, fleet.due_at + 30 * DAY
    await copy_models(
        url, fleet.size,
        due_at=f"case when n % {fleet.stride} = 0 then {due} else {far} + n * {SECOND} end",
        # Intervals count from another day each: the same occurrences by another text.
        spec=f"replace(spec, '{due}', cast({due} - (n % 10000) * {DAY} as {_text(url)}))",
    )  # fmt: skip


def _text(url: str) -> str:
    return "text" if url.startswith("sqlite") else "varchar"


async def copy_models(url: str, count: int, *, due_at: str, spec: str) -> None:
    """Put `count` copies in the place of the stored schedules; `n` numbers them."""
    mine = await hand(url)
    sqlite = url.startswith("sqlite")
    [(first, models)] = await mine.rows(
        "select min(id), count(*) from runs where kind = 'schedule'"
    )
    if sqlite:
        await mine.run("pragma synchronous = off; pragma cache_size = -400000")
        numbers = (
            f"with recursive numbers(n) as (select 0 union all select n + 1 from numbers"
            f" where n + 1 < {count})"
        )
        hex_, columns = "printf('%012x', n)", "select name from pragma_table_info('runs')"
    else:
        numbers = f"with numbers(n) as (select generate_series(0::bigint, {count - 1}))"
        hex_ = "lpad(to_hex(n), 12, '0')"
        columns = "select column_name from information_schema.columns where table_name = 'runs'"
        columns += " and table_schema = current_schema()"
    made = {
        "id": f"'{first[:20]}' || {hex_}",
        "root_id": f"'{first[:20]}' || {hex_}",
        "name": "'schedule-' || n",
        "spec": spec,
        "due_at": due_at,
        "available_at": due_at,
    }
    names = [name for (name,) in await mine.rows(columns)]
    await mine.run(
        "create temporary table model as"
        " select runs.*, row_number() over (order by id) - 1 as place from runs"
        " where kind = 'schedule'; delete from runs where kind = 'schedule'"
    )
    await mine.run(
        f"{numbers} insert into runs ({', '.join(names)})"
        f" select {', '.join(made.get(name, name) for name in names)}"
        f" from numbers join model on place = n % {models}"
    )
    await mine.close()
    await settled(url)


# -- the limit -------------------------------------------------------------------------------


@cache
def _after(cron: str, zone: str) -> Callable[[int], int | None]:
    return times_of(Timing(cron=cron, zone=zone)).after


def next_due(due: int, cron: str | None, zone: str, every_us: int | None) -> int | None:
    """The next time by the quickest code there is for it."""
    if cron is None:
        return due + (every_us or 0)
    return _after(cron, zone)(due)


_SCHEDULE = """
create table schedule (
    id bigint primary key, cron text, zone text not null, every_us bigint, payload bigint not null,
    due_at bigint
);
create index schedule_due on schedule (due_at);
"""
_DUE = "select id, payload, due_at, cron, zone, every_us from schedule where due_at <= {now}"


def raw_rows(fleet: Fleet) -> list[tuple[Any, ...]]:
    """The same fleet for the limit."""
    models = models_at(fleet.due_at)
    due, far = fleet.due_at, fleet.due_at + 30 * DAY
    return [
        (number, *models[number % len(models)], number,
            due if number % fleet.stride == 0 else far + number * SECOND)
        for number in range(fleet.size)
    ]  # fmt: skip


def _rewound(due_at: int) -> tuple[str, str]:
    return (
        f"update schedule set due_at = {due_at} where id in (select schedule from job)",
        "delete from job",
    )


class Limit(Protocol):
    """The loop by hand on one database."""

    async def load(self, fleet: Fleet) -> None:
        """Make the tables and fill them."""
        ...

    async def fire(self, now: int) -> int:
        """Fire all that is due; how many."""
        ...

    async def rewind(self, due_at: int) -> None:
        """As if nothing had been fired, over a fresh connection."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...


class LimitSqlite:
    """The standard library's driver, as for every other limit on SQLite."""

    def __init__(self, url: str) -> None:
        self._path = raw_sqlite.path_of(url)
        self._connection = raw_sqlite.connect(self._path)

    async def load(self, fleet: Fleet) -> None:
        """Make the tables and fill them."""
        self._connection.executescript(raw_sqlite.TABLES + _SCHEDULE.replace("bigint", "integer"))
        self._connection.execute("alter table job add column schedule integer")
        self._connection.execute("alter table job add column due_at integer")
        self._connection.execute("begin immediate")
        self._connection.executemany(
            "insert into schedule (id, cron, zone, every_us, payload, due_at)"
            " values (?, ?, ?, ?, ?, ?)", raw_rows(fleet),
        )  # fmt: skip
        self._connection.execute("commit")
        self._connection.execute("pragma wal_checkpoint(truncate)").fetchall()

    async def fire(self, now: int) -> int:
        """Fire all that is due; how many."""
        query = f"{_DUE.format(now='?')} order by due_at limit {BATCH}"
        total = 0
        while True:
            self._connection.execute("begin immediate")
            due: Any = self._connection.execute(query, (now,)).fetchall()
            self._connection.executemany(
                "insert into job (kind, payload, schedule, due_at) values ('noop', ?, ?, ?)",
                [(payload, number, at) for number, payload, at, *_ in due],
            )
            self._connection.executemany(
                "update schedule set due_at = ? where id = ?",
                [(next_due(at, *timing), number) for number, _, at, *timing in due],
            )
            self._connection.execute("commit")
            total += len(due)
            if len(due) < BATCH:
                return total

    async def rewind(self, due_at: int) -> None:
        """As if nothing had been fired, over a fresh connection."""
        for text in _rewound(due_at):
            self._connection.execute(text)
        self._connection.execute("pragma wal_checkpoint(truncate)").fetchall()
        self._connection.close()
        self._connection = raw_sqlite.connect(self._path)

    async def close(self) -> None:
        """Disconnect."""
        self._connection.close()


class LimitPostgres:
    """asyncpg, prepared statements over arrays, SKIP LOCKED."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Any = None

    async def load(self, fleet: Fleet) -> None:
        """Make the tables and fill them."""
        self._connection = await raw_postgres.connect(self._url)
        schema = self._connection.get_settings().search_path
        await self._connection.execute(f"create schema {schema}")
        await self._connection.execute(
            f"{raw_postgres.TABLES} {_SCHEDULE};"
            "alter table job add column schedule bigint, add column due_at bigint"
        )
        await self._connection.copy_records_to_table(
            "schedule", records=raw_rows(fleet),
            columns=["id", "cron", "zone", "every_us", "payload", "due_at"],
        )  # fmt: skip
        await self._connection.execute("vacuum analyze schedule")

    async def fire(self, now: int) -> int:
        """Fire all that is due; how many."""
        tail = f"order by due_at limit {BATCH} for update skip locked"
        query = await self._connection.prepare(f"{_DUE.format(now='$1')} {tail}")
        insert = await self._connection.prepare(
            "insert into job (kind, payload, schedule, due_at) select 'noop', payload, number, at"
            " from unnest($1::bigint[], $2::bigint[], $3::bigint[]) as item(payload, number, at)"
        )
        move = await self._connection.prepare(
            "update schedule set due_at = at from unnest($1::bigint[], $2::bigint[])"
            " as item(number, at) where id = number"
        )
        total = 0
        while True:
            async with self._connection.transaction():
                due = await query.fetch(now)
                numbers = [row[0] for row in due]
                await insert.fetch([row[1] for row in due], numbers, [row[2] for row in due])
                await move.fetch(numbers, [next_due(at, *timing) for _, _, at, *timing in due])
            total += len(due)
            if len(due) < BATCH:
                return total

    async def rewind(self, due_at: int) -> None:
        """As if nothing had been fired, over a fresh connection."""
        for text in (*_rewound(due_at), "vacuum analyze schedule"):
            await self._connection.execute(text)
        await self._connection.close()
        self._connection = await raw_postgres.connect(self._url)

    async def close(self) -> None:
        """Disconnect."""
        await self._connection.close()


def limit(url: str) -> Limit:
    """The loop by hand for a URL."""
    return LimitSqlite(url) if url.startswith("sqlite") else LimitPostgres(url)


def second_before(now: datetime, seconds: int) -> int:
    """A whole second in the past, in microseconds."""
    return instant(now.replace(microsecond=0)) - seconds * SECOND
