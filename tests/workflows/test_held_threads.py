"""Sync steps that time out leave their threads behind: others replace them, and it is shown."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rota import Rota
from rota.client.doctor import examine
from rota.client.metrics import collect
from rota.testing import held, virtual
from tests.workflows.kit import eventually, result, trouble

THREADS = 2


@pytest.fixture
def may_end() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def hanging(may_end: threading.Event) -> tuple[Rota, Any, Any]:
    """A workflow of so many steps that hang in their threads, and one with a quick step."""
    app = Rota(threads=THREADS, lease_s=30)

    @app.step(timeout="10s")
    def hang() -> None:
        with held():
            may_end.wait(30)

    @app.step(timeout="10s")
    def quick() -> str:
        return "quick"

    @app.workflow
    async def hangs(count: int) -> None:
        await asyncio.gather(*[hang.aio() for _ in range(count)], return_exceptions=True)

    @app.workflow
    async def asks() -> str:
        return str(await quick.aio())

    return app, hangs, asks


async def threads_held(app: Rota) -> float:
    [found] = [one for one in await collect(app) if one.name == "rota_worker_threads_held"]
    return found.samples[0].value


async def test_other_threads_replace_those_that_hang(
    database_url: str, may_end: threading.Event
) -> None:
    app, hangs, asks = hanging(may_end)
    async with virtual(app, url=database_url) as world:
        await hangs.start(THREADS)
        await world.advance("10s")
        run = await asks.start()
        await world.settle()
        assert await result(run) == "quick"


async def test_a_step_without_a_thread_says_which_steps_hold_them_all(
    database_url: str, may_end: threading.Event
) -> None:
    app, hangs, asks = hanging(may_end)
    async with virtual(app, url=database_url) as world:
        for _ in range(2):
            await hangs.start(THREADS)
            await world.advance("10s")
        run = await asks.start()
        await world.advance("10s")
        error = await trouble(run)
        assert "step quick did not begin within 10 s" in error["message"]
        assert "all 4 threads are held by steps that timed out: hang (4)" in error["message"]
        may_end.set()
        assert app._executor is not None
        await eventually(lambda: not app._executor.held_threads())
        again = await asks.start()
        await world.settle()
        assert await result(again) == "quick", "threads that have ended are free again"


async def test_a_step_that_waits_for_busy_threads_says_so(
    database_url: str, may_end: threading.Event
) -> None:
    app, _, asks = hanging(may_end)

    @app.step
    def works() -> None:
        with held():
            may_end.wait(30)

    @app.workflow
    async def long() -> None:
        await works.aio()

    async with virtual(app, url=database_url) as world:
        for _ in range(THREADS):
            await long.start()
        await world.settle()
        run = await asks.start()
        await world.advance("10s")
        error = await trouble(run)
        assert "step quick did not begin within 10 s" in error["message"]
        assert "all 2 threads are executing other steps" in error["message"]


async def test_doctor_and_metrics_show_threads_that_are_held(
    database_url: str, may_end: threading.Event
) -> None:
    app, hangs, _ = hanging(may_end)
    async with virtual(app, url=database_url) as world:
        await world.beat()
        assert await threads_held(app) == 0
        await hangs.start(THREADS)
        await world.advance("10s")
        await world.beat()
        assert await threads_held(app) == 2
        report = str(await examine(database_url, app.settings))
        assert "are held by steps that timed out: hang (2)" in report
        may_end.set()
        assert app._executor is not None
        await eventually(lambda: not app._executor.held_threads())
        await world.beat()
        assert await threads_held(app) == 0
