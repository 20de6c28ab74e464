"""Millions of finished runs: what the others pay for them, and how fast they leave.

PostgreSQL only. The rows are inserted by SQL: runs of twelve months with one step each, every
second one with an external id.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Sequence
from typing import Any

from bench import hits, raw_postgres
from bench.children import until, workers
from bench.measure import Sample, Sizes, Target
from bench.ours import Ours
from bench.places import Place, PostgresPlace, opened
from rota import Client
from rota.client.doctor import examine
from rota.client.metrics import collect
from rota.settings import Settings

CHUNK = 250_000
MONTHS = 12
MONTH_US = 30 * 86_400_000_000
FILL = """with made as (
    select n, $3::bigint + n * $4::bigint as at,
        lpad(to_hex(($3::bigint + n * $4::bigint) / 1000), 12, '0') || '7'
            || lpad(to_hex(n), 19, '0') as id
    from generate_series($1::bigint, $2::bigint) as n
), placed as (
    insert into runs (id, namespace, kind, name, queue, priority, status, root_id, attempt,
        recoveries, trigger, external_id, claim_count, input, output, created_at, started_at,
        finished_at)
    select id, 'default', 'workflow', 'kept', 'default', 0, 'completed', id, 1, 0, 'api',
        case when n % 2 = 0 then 'order-' || n end, 1, '{"order":' || n || '}', '"done"', at, at,
        at + 1000000
    from made
)
insert into steps (root_id, key, position, kind, status, attempt, run_attempt, output, started_at,
    finished_at)
select id, 'work#0', 1, 'step', 'completed', 1, 1, '{"total":' || n || '}', at, at + 900000
from made"""


class History:
    """Rota beside many finished runs."""

    name = "history"
    about = "drain, lists, doctor and archive beside 5,000,000 finished runs (--history N)"
    once = True

    async def round(self, places: Sequence[Place], sizes: Sizes) -> list[Sample]:
        """Fill once, then measure."""
        found: list[Sample] = []
        for place in places:
            if isinstance(place, PostgresPlace):
                found += await _measure(place, sizes.history, sizes.drain)
        return found


async def _measure(place: PostgresPlace, stored: int, drain: int) -> list[Sample]:
    side = Ours(place.url())
    async with opened(place, side):
        empty = await _drain(place, side, drain)
    side = Ours(place.url())
    async with opened(place, side):
        fill_s = await _took(_fill(side.url, stored))
        many, size = f"{stored:,} stored", await _size(side.url)
        beside = await _drain(place, side, drain)
        found = [
            Sample(f"{many}: fill", place.name, "runs/s", stored / fill_s),
            Sample(f"{many}: a run with a step", place.name, "bytes", size / stored),
            Sample(f"{many}: drain; raw: none stored", place.name, "runs/s", beside, empty,
                Target(">=", 0.67)),
        ]  # fmt: skip
        async with Client(side.url) as client:
            looks: list[tuple[str, Awaitable[Any]]] = [
                ("list", client.runs.list()),
                ("list of failed ones", client.runs.list(status="failed")),
                ("metrics", collect(client)),
                ("doctor", examine(side.url, Settings())),
                ("doctor --full", examine(side.url, Settings(), full=True)),
            ]
            for what, look in looks:
                found.append(Sample(f"{many}: {what}", place.name, "ms", 1000 * await _took(look)))
            found += await _archive(client, place, many)
    return found


async def _drain(place: PostgresPlace, side: Ours, count: int) -> float:
    """Runs per second from the first line of user code to the last. Counting what is unfinished,
    as other drains do, would read the history."""
    path = place.scratch / "history.hits"
    path.unlink(missing_ok=True)
    await side.start_bulk(count, "noop")
    with workers(side, "noop", path, count=1):
        await until(lambda: hits.count(path) >= count, "all runs performed")
    times = [hit.at for hit in hits.read(path)]
    return count / (max(times) - min(times))


async def _archive(client: Client, place: PostgresPlace, many: str) -> list[Sample]:
    """Archive the oldest month, and drop it."""
    [[oldest]] = await _ask(client.url, "select to_char(to_timestamp(min(finished_at) / 1000000)"
        " at time zone 'UTC' + interval '1 month', 'YYYY-MM') from runs")  # fmt: skip
    began = time.perf_counter()
    moved = await client.operations.archive(oldest)
    rate = moved / (time.perf_counter() - began)
    [month] = await client.operations.archive_months()
    [[size]] = await _ask(
        client.url, f"select pg_total_relation_size('archive_{month.month.replace('-', '_')}')"
    )
    drop_s = await _took(client.operations.drop_archive(month.month))
    return [
        Sample(f"{many}: archive a month", place.name, "runs/s", rate),
        Sample(f"{many}: archived run", place.name, "bytes", size / max(moved, 1)),
        Sample(f"{many}: drop that month ({moved:,})", place.name, "ms", 1000 * drop_s),
    ]


async def _fill(url: str, count: int) -> None:
    connection = await raw_postgres.connect(url)
    gap_us = MONTHS * MONTH_US // count
    begin_us = time.time_ns() // 1000 - MONTHS * MONTH_US
    try:
        for first in range(0, count, CHUNK):
            last = min(first + CHUNK, count) - 1
            await connection.execute(FILL, first, last, begin_us, gap_us)
        await connection.execute("vacuum analyze")
        await connection.execute("checkpoint")
    finally:
        await connection.close()


async def _size(url: str) -> int:
    [[size]] = await _ask(
        url, "select pg_total_relation_size('runs') + pg_total_relation_size('steps')"
    )
    return int(size)


async def _ask(url: str, query: str) -> list[Any]:
    connection = await raw_postgres.connect(url)
    try:
        return list(await connection.fetch(query))
    finally:
        await connection.close()


async def _took(work: Awaitable[Any]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began
