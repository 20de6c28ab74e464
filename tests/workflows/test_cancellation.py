"""Cancelling runs: at work, at rest, in sync code, and code that swallows it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from rota import Rota, RunCancelled, sleep, this_run
from rota.testing import virtual
from tests.workflows.kit import (
    Endless,
    attempts,
    eventually,
    result,
    sound,
)


def cancellable(endless: Endless) -> tuple[Rota, Any, list[str]]:
    app = Rota()
    calls: list[str] = []

    @app.step
    async def work() -> None:
        calls.append("work")
        await endless()

    @app.step
    async def after() -> None:
        calls.append("after")

    @app.workflow(retries=3)
    async def flow() -> None:
        await work()
        await after()

    return app, flow, calls


async def test_cancelling_interrupts_work_in_flight(database_url: str) -> None:
    endless = Endless()
    app, flow, calls = cancellable(endless)
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        assert endless.begun == 1
        await run.cancel(reason="enough")
        await world.beat()
        await world.settle()
        assert endless.interrupted == 1
        assert await attempts(app, run) == [(1, "manual", "cancelled:enough")]
        assert calls == ["work"]
        assert (await app.runs.steps(run.id)) == []
        with pytest.raises(RunCancelled, match="enough"):
            await result(run)
        await sound(app)


@pytest.mark.parametrize("state", ["pending", "delayed", "sleeping", "waiting"])
async def test_a_run_can_be_cancelled_wherever_it_rests(database_url: str, state: str) -> None:
    from rota import NeedsLogin

    app = Rota()
    calls: list[int] = []

    @app.workflow
    async def flow() -> None:
        calls.append(1)
        if state == "waiting":
            raise NeedsLogin("log in")
        await sleep("1h")

    async with virtual(app, url=database_url) as world:
        run = await app.options(delay="1h" if state == "delayed" else None).start(flow)
        if state in ("sleeping", "waiting"):
            await world.settle()
        await run.cancel()
        await world.drain()
        assert await run.status() == "cancelled:by request"
        assert len(calls) == (1 if state in ("sleeping", "waiting") else 0)
        await sound(app)


async def test_a_run_that_swallows_its_cancellation_executes_nothing_more(
    database_url: str,
) -> None:
    app = Rota()
    endless = app.step(name="endless")(Endless().__call__)
    calls: list[str] = []

    @app.step
    async def after() -> None:
        calls.append("after")

    @app.workflow
    async def flow() -> str:
        try:
            await endless()
        except BaseException:
            await after()
        return "swallowed"

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        await run.cancel()
        await world.beat()
        await world.settle()
        assert await run.status() == "cancelled:by request"
        assert (await run.run()).output is None
        assert calls == []


async def test_a_cancelled_run_whose_worker_has_not_received_it_yet_records_nothing(
    database_url: str,
) -> None:
    app = Rota()
    release = asyncio.Event()
    calls: list[str] = []

    @app.step
    async def work() -> None:
        calls.append("work")
        await release.wait()

    @app.step
    async def after() -> None:
        calls.append("after")

    @app.workflow
    async def flow() -> None:
        await work()
        await after()

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        await run.cancel()
        release.set()
        await world.settle()
        assert calls == ["work"]
        assert await app.runs.steps(run.id) == []
        assert await run.status() == "cancelled:by request"


@pytest.mark.usefixtures("hanging_threads")
async def test_cancelling_reaches_sync_code_through_its_token(database_url: str) -> None:
    app = Rota()
    begun, seen = threading.Event(), threading.Event()
    calls: list[str] = []

    @app.step
    def after() -> None:
        calls.append("after")

    @app.workflow
    def flow() -> None:
        begun.set()
        pause = threading.Event()
        for _ in range(2000):
            if this_run().is_cancelled:
                seen.set()
                break
            pause.wait(0.005)
        after()

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        await eventually(begun.is_set)
        await run.cancel()
        await world.beat()
        await world.settle()
        await eventually(seen.is_set)
        assert await run.status() == "cancelled:by request"
    assert calls == []
