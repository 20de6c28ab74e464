"""Queries of dashboard pages, with many runs stored and with few.

The rows are inserted by SQL: one run a second, most of them completed; some failed, tagged, of
pipelines or of schedules. `raw` is the same question with 1,000 runs stored.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import apsw
from httpx2 import AsyncClient

from bench import raw_postgres, raw_sqlite
from bench.measure import Sample, Sizes, Target
from bench.ours import Ours
from bench.places import Place, PostgresPlace, opened
from rota import Client
from rota.core.time.instants import SECOND, moment
from tests.http.kit import browsing
from tests.kit.postgres import USER

FEW = 1_000
CHUNK = 100_000
LOOKS = 25
SCHEDULES = 20
RARE = 997  # every so many runs have the rare name, and fail

FILL = """
insert into runs (id, namespace, kind, name, queue, priority, status, available_at, due_at,
    schedule_id, root_id, attempt, recoveries, trigger, external_id, tags, input, output, error,
    claim_count, created_at, started_at, finished_at)
with recursive numbers (n) as (
    select {first} + 0 * {begin} union all select n + 1 from numbers where n < {last}
), made as (
    select n, {begin} + n * 1000000 as at, {id} as id from numbers
)
select id, 'default', case when n % 100 = 1 then 'pipeline' else 'workflow' end,
    case when n % 100 = 1 then 'pipeline:x' when n % {rare} = 0 then 'rare' else 'work' end,
    'default', 0,
    case when n % {rare} = 0 then 'failed' when n = {count} then 'pending' else 'completed' end, at,
    case when n % 10 = 3 then at end, case when n % 10 = 3 then {schedule} end,
    id, 1, 0, 'manual', case when n % 2 = 0 then 'order-' || n end,
    case when n % 50 = 7 then '{{"to":"me"}}' end, '{{"n":' || n || '}}', '"done"',
    case when n % {rare} = 0 then '{{"type": "ValueError", "message": "x"}}' end, 1, at, at,
    case when n = {count} then null else at + 1000 end
from made
"""
ID = {
    "sqlite": "printf('%012x7%019x', ({begin} + n * 1000000) / 1000, n)",
    "postgres": "lpad(to_hex(({begin}::bigint + n * 1000000) / 1000), 12, '0') || '7'"
    " || lpad(to_hex(n), 19, '0')",
}
# It is not a list: its calendar counts 14 days, which hold 4,800 occurrences or 5.
DETAIL = "/schedules/s00"
# Pages of the dashboard, as a browser fetches them: every list, with filters, and the overview.
PATHS = (
    "/", "/runs", "/runs?status=failed", "/runs?status=completed", "/runs?status=cancelled",
    "/runs?q=rar", "/runs?q=nothing", "/runs?q=order-500", "/runs?name=nothing",
    "/runs?schedule=s00", "/runs?queue=slow", "/runs?tag=to%3Dme", "/runs?error=ValueError",
    "/runs?since=1h", "/runs?kind=pipeline", "/schedules", "/schedules?q=s0", DETAIL,
    "/automations", "/pipelines", "/pipelines?name=x", "/workers",
)  # fmt: skip
Question = Callable[[Client], Awaitable[Any]]
Pair = tuple[Callable[[], Awaitable[Any]], Callable[[], Awaitable[Any]]]
T = TypeVar("T")


class Surfaces:
    """CPU milliseconds of a page, and of what it asks; `raw`: with 1,000 runs."""

    name = "surfaces"
    about = "pages and their questions with 1,000,000 runs (--stored N) against 1,000"
    once = True

    async def round(self, places: Sequence[Place], sizes: Sizes) -> list[Sample]:
        """Fill both, then ask them interleaved."""
        found: list[Sample] = []
        for place in places:
            found += await _measure(place, sizes.stored)
        return found


async def _measure(place: Place, stored: int) -> list[Sample]:
    few, many = Ours(place.url()), Ours(place.url())
    found = []
    async with (
        opened(place, few),
        opened(place, many),
        Client(few.url) as small,
        Client(many.url) as large,
    ):
        await _fill(place, small, FEW)
        await _fill(place, large, stored)
        async with browsing(small) as small_site, browsing(large) as large_site:
            asked = {what: _both(one, small, large) for what, one in _questions().items()}
            for path in PATHS:
                asked[f"page {path}"] = _both(_page(path), small_site, large_site)
            for what, pair in asked.items():
                raw_ms, ours_ms = await _ask(_clock(place), pair)
                line = f"{what}, {stored:,} stored; raw: {FEW:,}"
                target = None if what == f"page {DETAIL}" else Target("<=", 3)
                found.append(Sample(line, place.name, "ms", ours_ms, raw_ms, target))
    return found


def _both(question: Callable[[T], Awaitable[Any]], small: T, large: T) -> Pair:
    """The same question to both stores."""
    return (lambda: question(small)), (lambda: question(large))


def _page(path: str) -> Callable[[AsyncClient], Awaitable[None]]:
    async def fetch(site: AsyncClient) -> None:
        answer = await site.get(path)
        assert answer.status_code == 200, answer.text

    return fetch


async def _fill(place: Place, client: Client, count: int) -> None:
    for number in range(SCHEDULES):
        await client.schedules.create(f"s{number:02d}", "work", "1h")
    ids = [shown.schedule.id for shown in await client.schedules.list()]
    cases = " ".join(f"when {number} then '{one}'" for number, one in enumerate(ids))
    begin = client.clock.now() - count * SECOND
    for first in range(1, count + 1, CHUNK):
        text = FILL.format(
            first=first, last=min(first + CHUNK - 1, count), begin=begin, count=count, rare=RARE,
            id=ID[place.name].format(begin=begin),
            schedule=f"case (n / 10) % {SCHEDULES} {cases} end",
        )  # fmt: skip
        await _execute(place, client.url, text)
    await _execute(place, client.url, "analyze runs")


async def _execute(place: Place, url: str, text: str) -> None:
    if place.name == "sqlite":
        connection = apsw.Connection(str(raw_sqlite.path_of(url)))
        connection.set_busy_timeout(10_000)
        connection.execute(text)
        connection.close()
        return
    server = await raw_postgres.connect(url)
    try:
        await server.execute(text)
    finally:
        await server.close()


def _clock(place: Place) -> Callable[[], float]:
    """CPU time in seconds, which other programs do not disturb: of this process, where SQLite
    answers, and of the server's connections."""
    if not isinstance(place, PostgresPlace):
        return time.process_time
    postmaster = (place.server.home / "data" / "postmaster.pid").read_text().split()[0]
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children")

    def spent() -> float:
        backends = [
            Path("/proc") / pid
            for pid in children.read_text().split()
            if USER in (Path("/proc") / pid / "cmdline").read_text()
        ]
        ran_ns = [int((one / "schedstat").read_text().split()[0]) for one in backends]
        return time.process_time() + sum(ran_ns) / 1e9

    return spent


async def _ask(clock: Callable[[], float], pair: Pair) -> tuple[float, float]:
    """The quickest answers of both, in milliseconds of CPU. They are interleaved."""
    took: dict[int, list[float]] = {0: [], 1: []}
    for _ in range(LOOKS):
        for side, question in enumerate(pair):
            began = clock()
            await question()
            took[side].append(1000 * (clock() - began))
    return min(took[0]), min(took[1])


def _questions() -> dict[str, Question]:
    names = [f"s{number:02d}" for number in range(SCHEDULES)]

    def lately(client: Client) -> dict[str, Any]:
        end = moment(client.clock.now())
        return {"since": end - timedelta(minutes=15), "until": end - timedelta(minutes=5)}

    def calendar(client: Client) -> Awaitable[Any]:
        bounds = lately(client)
        return client.schedules.calendar("s00", bounds["since"], bounds["until"], by="hour")

    return {
        "newest runs": lambda client: client.runs.page(),
        "failed runs": lambda client: client.runs.page(status="failed", limit=1),
        "cancelled runs, none": lambda client: client.runs.page(status="cancelled"),
        "pending runs": lambda client: client.runs.page(status="pending"),
        "runs of a rare name": lambda client: client.runs.page(name="rare"),
        "runs of a name that is not there": lambda client: client.runs.page(name="nothing"),
        "runs of a pipeline": lambda client: client.runs.page(name="pipeline:x", limit=10),
        "runs by external id": lambda client: client.runs.page(external_id="order-500"),
        "runs of a queue, none": lambda client: client.runs.page(queue="slow"),
        "runs of a schedule": lambda client: client.runs.page(schedule="s00", limit=5),
        "runs of a schedule, a whole page": lambda client: client.runs.page(schedule="s00"),
        "runs by a part of a name": lambda client: client.runs.page(search="rar"),
        "runs by a part of a name, none": lambda client: client.runs.page(search="nothing"),
        "runs by the beginning of an external id": lambda client: client.runs.page(
            search="order-5", limit=20
        ),
        "runs by the end of an id, none": lambda client: client.runs.page(search="abcdef12"),
        "runs of a kind": lambda client: client.runs.page(kind="pipeline", limit=5),
        "runs of ten minutes": lambda client: client.runs.page(**lately(client)),
        "runs of a tag": lambda client: client.runs.page(tag="to=me", limit=20),
        "runs of an error": lambda client: client.runs.page(error="ValueError", limit=1),
        "counts": lambda client: client.overview.counts(),
        "activity": lambda client: client.overview.activity(),
        "queues": lambda client: client.overview.queues(),
        "workers": lambda client: client.overview.workers(),
        "attention": lambda client: client.overview.attention(),
        "ledger": lambda client: client.schedules.ledger("s00", limit=5),
        "calendar": calendar,
        "last outcomes": lambda client: client.schedules.last_outcomes(names, last=5),
        "upcoming": lambda client: client.schedules.upcoming(),
    }
