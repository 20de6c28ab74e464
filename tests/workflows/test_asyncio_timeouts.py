"""Timeouts of steps and runs, and cancelling: work in flight is really interrupted."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from rota import RetryPolicy, Rota, StepFailed, sleep
from rota.core.time.instants import SECOND
from rota.errors import BadInput
from rota.testing import virtual
from tests.engine.kit import ghost_claim
from tests.workflows.kit import (
    GUARD_S,
    Endless,
    attempts,
    eventually,
    result,
    step_named,
    trouble,
)


async def test_a_step_past_its_timeout_is_interrupted_at_that_instant(database_url: str) -> None:
    app = Rota()
    endless = Endless()

    @app.step(timeout="30s")
    async def slow() -> None:
        await endless()

    @app.workflow
    async def flow() -> str:
        try:
            await slow()
        except StepFailed as error:
            return str(error)
        return "no timeout"

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.advance("29.999999s")
        assert (await run.run()).status == "running"
        assert endless.interrupted == 0
        await world.advance("1us")
        assert "StepTimeout" in await result(run)
        assert endless.interrupted == 1
        row = await run.run()
        assert row.finished_at == row.created_at + 30 * SECOND


async def test_a_timed_out_step_is_tried_again_by_its_policy(database_url: str) -> None:
    app = Rota()
    endless = Endless()

    @app.step(timeout="30s", retries=RetryPolicy(attempts=3, delay_s=10, factor=1))
    async def slow() -> str:
        if endless.begun == 2:
            return "at last"
        await endless()
        return "never"

    @app.workflow
    async def flow() -> str:
        return await slow()

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == "at last"
        row = await run.run()
        assert row.finished_at == row.created_at + 80 * SECOND
        assert (await step_named(app, run, "slow#0")).attempt == 3


async def test_a_step_within_its_timeout_is_left_alone(database_url: str) -> None:
    app = Rota()

    @app.step(timeout="30s")
    async def quick() -> str:
        await asyncio.sleep(0)
        return "quick"

    @app.workflow
    async def flow() -> str:
        found = await quick()
        await sleep("1h")
        return found

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == "quick"


@pytest.mark.usefixtures("hanging_threads")
async def test_a_sync_step_past_its_timeout_is_left_behind(database_url: str) -> None:
    app = Rota()
    begun, release = threading.Event(), threading.Event()

    @app.step(timeout="30s")
    def stuck() -> None:
        begun.set()
        release.wait(20)

    @app.workflow
    async def flow() -> None:
        await stuck.aio()

    try:
        async with virtual(app, url=database_url) as world:
            run = await app.start(flow)
            await world.settle()
            await eventually(begun.is_set)
            await world.advance("30s")
            assert await run.status() == "failed:timeout"
            assert "took longer than 30 s" in (await trouble(run))["message"]
    finally:
        release.set()


async def test_a_timeout_error_of_the_step_itself_is_not_its_timeout(database_url: str) -> None:
    app = Rota()

    @app.step(timeout="30s")
    async def slow() -> None:
        raise TimeoutError("the other side")

    @app.workflow
    async def flow() -> None:
        await slow()

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        assert await run.status() == "failed:timeout"
        assert "TimeoutError: the other side" in (await trouble(run))["message"]


async def test_a_run_past_its_timeout_is_interrupted_at_that_instant(database_url: str) -> None:
    app = Rota()
    endless = Endless()

    @app.step
    async def slow() -> None:
        await endless()

    @app.workflow(timeout="1m")
    async def flow() -> None:
        await slow()

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await run.status() == "failed:timeout"
        assert endless.interrupted == 1
        assert "took longer than 60 s" in (await trouble(run))["message"]
        row = await run.run()
        assert row.finished_at == row.created_at + 60 * SECOND


async def test_sleeps_count_for_the_timeout_of_a_run(database_url: str) -> None:
    app = Rota()

    @app.workflow(timeout="1h")
    async def flow() -> str:
        await sleep("59m")
        await sleep("59m")
        return "too late"

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await asyncio.wait_for(world.drain(), GUARD_S)
        assert await run.status() == "failed:timeout"
        row = await run.run()
        assert row.finished_at == row.created_at + 3600 * SECOND


async def test_time_in_a_queue_does_not_count_for_the_timeout_of_a_run(database_url: str) -> None:
    app = Rota()

    @app.workflow(timeout="1m")
    async def flow() -> str:
        await sleep("50s")
        return "in time"

    async with virtual(app, url=database_url) as world:
        run = await app.options(delay="1h").start(flow)
        await world.drain()
        assert await result(run) == "in time"


async def test_a_timeout_is_one_deadline_across_retries(database_url: str) -> None:
    app = Rota()
    tries: list[int] = []

    @app.workflow(timeout="45s", retries=RetryPolicy(attempts=4, delay_s=10, factor=1))
    async def flow() -> None:
        await sleep("20s")
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("down")
        await asyncio.Event().wait()

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        rows = await app.runs.chain(run.id)
        assert [row.label for row in rows] == ["failed:transient", "failed:timeout"]
        assert rows[-1].finished_at == rows[0].created_at + 45 * SECOND


async def test_no_retry_waits_beyond_the_deadline(database_url: str) -> None:
    app = Rota()

    @app.workflow(timeout="1m", retries=RetryPolicy(attempts=4, delay_s=600))
    async def flow() -> None:
        raise ConnectionError("down")

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        assert await attempts(app, run) == [(1, "manual", "failed:transient")]


async def test_a_timeout_is_one_deadline_across_recoveries(database_url: str) -> None:
    app = Rota()

    @app.workflow(timeout="3m")
    async def flow() -> None:
        await sleep("1d")

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        began = world.clock.now()
        for _ in range(2):  # two workers die, each after a minute
            await ghost_claim(app, "ghost")
            world.clock.move_to(world.clock.now() + 60 * SECOND)
            await world.beat()
        await world.drain()
        rows = await app.runs.chain(run.id)
        assert [row.status for row in rows] == ["crashed", "crashed", "failed"]
        assert (rows[-1].reason, rows[-1].finished_at) == ("timeout", began + 180 * SECOND)


async def test_a_run_that_comes_up_after_its_deadline_executes_nothing(database_url: str) -> None:
    app = Rota()
    calls: list[int] = []

    @app.workflow(timeout="1m")
    async def flow() -> None:
        calls.append(1)

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await ghost_claim(app, "ghost")
        world.clock.move_to(world.clock.now() + 300 * SECOND)
        await world.beat()
        await world.settle()
        assert await run.status() == "failed:timeout"
        assert calls == []


async def test_a_retry_by_hand_gets_the_whole_timeout_again(database_url: str) -> None:
    app = Rota()
    naps = iter(["2m", "50s"])

    @app.workflow(timeout="1m")
    async def flow() -> str:
        await sleep(next(naps))
        return "in time"

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await run.status() == "failed:timeout"
        await world.advance("1h")
        await app.runs.retry(run.id)
        await world.drain()
        assert await run.status() == "completed"


@pytest.mark.parametrize("timeout", [0, -1, "0s", timedelta(seconds=-5)], ids=str)
async def test_a_timeout_that_leaves_no_time_is_refused(database_url: str, timeout: Any) -> None:
    app = Rota()

    async def flow() -> None:
        return None

    for declare in (app.step, app.workflow):
        with pytest.raises(BadInput, match="leaves no time"):
            declare(timeout=timeout)(flow)
    good = app.workflow(flow)
    async with virtual(app, url=database_url):
        with pytest.raises(BadInput, match="leaves no time"):
            await good.options(timeout=timeout).start()
        assert await app.runs.list() == []


async def test_a_start_may_set_its_own_timeout(database_url: str) -> None:
    app = Rota()

    @app.workflow(timeout="10h")
    async def flow() -> None:
        await sleep("1h")

    async with virtual(app, url=database_url) as world:
        run = await app.options(timeout="1m").start(flow)
        await asyncio.wait_for(world.drain(), GUARD_S)
        assert await run.status() == "failed:timeout"


async def test_a_run_that_swallows_its_timeout_fails_all_the_same(database_url: str) -> None:
    app = Rota()
    calls: list[str] = []

    @app.step
    async def after() -> None:
        calls.append("after")

    @app.workflow(timeout="1m")
    async def flow() -> str:
        try:
            await asyncio.Event().wait()
        except BaseException:
            await after()
        return "swallowed"

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await asyncio.wait_for(world.drain(), GUARD_S)
        assert await run.status() == "failed:timeout"
        assert calls == []
