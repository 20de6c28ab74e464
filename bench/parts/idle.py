"""The cost of an idle worker: CPU, and questions to the database.

CPU comes from procfs. Questions: on SQLite a trace inside the worker counts statements
(`bench.counting`); on PostgreSQL the server logs every statement of a database made for this, and
`pg_stat_database` counts transactions. A backend may hold its counters back for 10 s, and a worker
reads the heartbeats of others in its first lease of 30 s. So the worker has been idle for longer
before the count begins.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bench import counting, hits, raw_postgres
from bench.children import Child, until, workers
from bench.measure import Sample, Sizes, Target
from bench.ours import Ours
from bench.places import Place, PostgresPlace, opened

SETTLE_S = 32.0
CONTROL = (" begin", " commit", " rollback")


class Counts(NamedTuple):
    """The sum of all time so far."""

    cpu_s: float
    queries: int
    transactions: int


class Idle:
    """A worker with nothing to do."""

    name = "idle"
    about = "CPU and queries of an idle worker"
    once = True

    async def round(self, places: Sequence[Place], sizes: Sizes) -> list[Sample]:
        """All databases at the same time: none is in the other's way."""
        found = await asyncio.gather(*(_idle(place, sizes.idle_s) for place in places))
        return [sample for samples in found for sample in samples]


async def _idle(place: Place, idle_s: float) -> list[Sample]:
    url = place.url()
    if isinstance(place, PostgresPlace):
        url = f"{place.server.create_database('idle')}?schema=idle"
        await log_statements(url, "idle")
    side = Ours(url)
    path = place.scratch / f"idle-{place.name}.hits"
    statements = path.with_suffix(".statements")
    async with opened(place, side):
        await side.start(0)
        with workers(side, "noop", path, environment={"BENCH_STATEMENTS": str(statements)}) as all_:
            await until(lambda: hits.count(path) == 1, "the first run")
            await side.app.close()  # So that the worker alone is counted.
            count = _counter(place, all_[0], statements)
            await asyncio.sleep(SETTLE_S)
            return await _measure(place.name, count, idle_s)


async def _measure(
    database: str, count: Callable[[], Awaitable[Counts]], idle_s: float
) -> list[Sample]:
    began, before = time.monotonic(), await count()
    await asyncio.sleep(idle_s)
    after, seconds = await count(), time.monotonic() - began
    rates = [(late - early) / seconds for early, late in zip(before, after, strict=True)]
    return [
        Sample("CPU", database, "%", 100 * rates[0], target=Target("<=", 1)),
        Sample("queries", database, "per s", rates[1], target=Target("<=", 2)),
        Sample("transactions", database, "per s", rates[2]),
    ]


def _counter(place: Place, child: Child, statements: Path) -> Callable[[], Awaitable[Counts]]:
    async def of_sqlite() -> Counts:
        seen = counting.read(statements)
        return Counts(_cpu_s(child.pid), seen.queries, seen.control // 2)

    async def of_postgres() -> Counts:
        assert isinstance(place, PostgresPlace)
        # Another database asks: our own question must not be counted.
        connection = await raw_postgres.connect(place.url())
        transactions = await connection.fetchval(
            "select xact_commit + xact_rollback from pg_stat_database where datname = 'idle'"
        )
        await connection.close()
        return Counts(_cpu_s(child.pid), _logged(place.server.log()), transactions)

    return of_postgres if isinstance(place, PostgresPlace) else of_sqlite


async def log_statements(url: str, database: str) -> None:
    """Have the server log every statement of connections to come."""
    connection = await raw_postgres.connect(url)
    await connection.execute(f"alter database {database} set log_statement = 'all'")
    await connection.close()


def _logged(log: str) -> int:
    """Statements in a server's log that do more than begin and end a transaction."""
    said = (line.partition("LOG:  ")[2] for line in log.splitlines())
    texts = (line.partition(":")[2] for line in said if line.startswith(("statement", "execute")))
    return sum(not text.lower().startswith(CONTROL) for text in texts)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
