"""Idle workers on one PostgreSQL server: one start does not make all of them claim."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from rota import Client, Rota, Start
from rota.testing import VirtualClock
from tests.engine.kit import Gate, StoreTap, eventually, live

pytestmark = [
    pytest.mark.pg,
    pytest.mark.wall_clock("counts claims in a moment of real time"),
    pytest.mark.parametrize("database_url", ["postgres"], indirect=True),
]
WORKERS = 6


def worker(gate: Gate | None = None, slots: int = 10) -> Rota:
    app = Rota(slots=slots)

    @app.workflow
    async def flow(n: int) -> int:
        if gate is not None:
            await gate(n)
        return n

    return app


@contextlib.asynccontextmanager
async def fleet(apps: list[Rota], url: str) -> AsyncIterator[list[StoreTap]]:
    """The apps work, each knows of all others, and none has anything to do. Time stops, so
    no worker finds anything by polling."""
    clock = VirtualClock()
    async with contextlib.AsyncExitStack() as stack:
        for app in apps:
            await stack.enter_async_context(live(app, url, clock))
        for app in apps:
            assert app.runtime is not None
            await app.runtime.maintenance.beat()
        yield [StoreTap(app) for app in apps]


async def test_one_start_makes_few_of_many_idle_workers_claim(database_url: str) -> None:
    async with fleet([worker() for _ in range(WORKERS)], database_url) as taps:
        async with Client(database_url) as client:
            run = await client.start("flow", n=1)
            assert await run.result(timeout=60) == 1
            await asyncio.sleep(0.1)  # workers that were asked look again after 25 ms
        claims = [sum(tap.count(name) for name in ("claim", "settle_and_claim")) for tap in taps]
        assert sum(1 for count in claims if count) <= 2
        assert sum(claims) <= 5


async def test_workers_that_are_full_pass_a_notification_on(database_url: str) -> None:
    gate = Gate()
    apps = [worker(gate, slots=1) for _ in range(WORKERS)]
    async with fleet(apps, database_url), Client(database_url) as client:
        runs = [await client.start("flow", n=n) for n in range(WORKERS)]
        await eventually(lambda: gate.under_way == WORKERS)
        gate.open.set()
        assert [await run.result(timeout=60) for run in runs] == list(range(WORKERS))


async def test_a_bulk_start_reaches_every_worker(database_url: str) -> None:
    gate = Gate()
    apps = [worker(gate, slots=2) for _ in range(WORKERS)]
    async with fleet(apps, database_url), Client(database_url) as client:
        runs = await client.start_many("flow", [Start(kwargs={"n": n}) for n in range(2 * WORKERS)])
        await eventually(lambda: gate.under_way == 2 * WORKERS)
        gate.open.set()
        for run in runs:
            await run.result(timeout=60)


async def test_a_worker_that_has_other_workflows_does_not_count(database_url: str) -> None:
    strangers = [Rota() for _ in range(4)]
    for stranger in strangers:

        @stranger.workflow
        async def other() -> None: ...

    async with fleet([worker(), *strangers], database_url), Client(database_url) as client:
        for n in range(5):
            run = await client.start("flow", n=n)
            assert await run.result(timeout=60) == n
