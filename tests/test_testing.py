"""Virtual time for users' tests."""

from __future__ import annotations

import asyncio
import functools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota import Rota, blocking, now, sleep, testing
from rota.core.time.instants import SECOND
from rota.errors import UsageError
from rota.testing import VirtualClock, virtual


def sleepy() -> tuple[Rota, Any, list[float]]:
    app = Rota()
    woke: list[float] = []

    @app.workflow
    async def flow(seconds: float, times: int = 1) -> None:
        for _ in range(times):
            await sleep(seconds)
            woke.append((await now()).timestamp())

    return app, flow, woke


async def test_a_month_passes_in_no_time_and_in_memory() -> None:
    app, flow, woke = sleepy()
    async with virtual(app) as world:
        began = world.clock.moment()
        run = await app.start(flow, 86_400, 30)
        await world.advance("30d")
        assert await run.status() == "completed"
        assert len(set(woke)) == 30
        assert world.clock.moment() - began == timedelta(days=30)


async def test_everything_on_the_way_happens_at_its_own_instant(database_url: str) -> None:
    app, flow, woke = sleepy()
    async with virtual(app, url=database_url) as world:
        began = world.clock.moment().timestamp()
        for seconds in (30, 10, 20.5):
            await app.start(flow, seconds)
        await world.advance("1h")
        assert [at - began for at in woke] == [10, 20.5, 30]


async def test_nothing_happens_before_its_time(database_url: str) -> None:
    app, flow, woke = sleepy()
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow, 10)
        await world.advance("9.999999s")
        assert woke == []
        await world.advance_to(world.clock.moment() + timedelta(microseconds=1))
        assert len(woke) == 1
        assert await run.status() == "completed"


async def test_draining_ends_when_time_alone_can_move_nothing(database_url: str) -> None:
    app, flow, _ = sleepy()
    async with virtual(app, url=database_url) as world:
        began = world.clock.now()
        await app.start(flow, 3600, 3)
        await world.drain()
        assert world.clock.now() == began + 3 * 3600 * SECOND
        await world.drain()
        assert world.clock.now() == began + 3 * 3600 * SECOND


async def test_draining_stops_at_its_limit(database_url: str) -> None:
    app, flow, woke = sleepy()
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow, 3600, 1000)
        await world.drain(within="10h")
        assert len(set(woke)) == 10
        assert (await run.run()).status == "sleeping"


async def test_a_world_may_begin_at_any_instant() -> None:
    app, flow, _ = sleepy()
    start = datetime(2024, 2, 29, 12, tzinfo=UTC)
    async with virtual(app, start=start) as world:
        assert world.clock.moment() == start
        row = await (await app.start(flow, 1)).run()
        assert row.created_at == world.clock.now()


async def test_the_app_is_as_it_was_afterwards() -> None:
    app, _, _ = sleepy()
    before = (app.url, app.clock, app.migrates)
    async with virtual(app):
        assert app.url != before[0]
    assert (app.url, app.clock, app.migrates) == before
    with pytest.raises(ZeroDivisionError):
        async with virtual(app):
            raise ZeroDivisionError
    assert (app.url, app.clock, app.migrates) == before


async def test_two_worlds_in_memory_share_nothing() -> None:
    app, flow, _ = sleepy()
    async with virtual(app):
        await app.start(flow, 1)
    async with virtual(app):
        assert await app.runs.list() == []


async def test_a_timer_of_the_past_is_called_soon() -> None:
    clock = VirtualClock()
    called: list[str] = []
    clock.call_at(clock.now() - 1, lambda: called.append("past"))
    clock.call_at(clock.now(), lambda: called.append("now"))
    clock.call_at(clock.now() + 1, lambda: called.append("later"))
    for _ in range(3):
        await asyncio.sleep(0)
    assert called == ["past", "now"]
    clock.move_to(clock.now() + 1)
    assert called == ["past", "now", "later"]


async def test_timers_are_called_in_order_and_not_after_they_were_called_off() -> None:
    clock = VirtualClock(0)
    called: list[int] = []
    timers = [clock.call_at(at, functools.partial(called.append, at)) for at in (30, 10, 20, 10)]
    timers[2].cancel()
    clock.move_to(15)
    assert called == [10, 10]
    assert clock.next_timer_at() == 30
    clock.move_to(100)
    assert called == [10, 10, 30]
    assert clock.next_timer_at() is None


async def test_a_jump_is_not_time_that_passed() -> None:
    clock = VirtualClock(1_000_000)
    assert clock.steady_for() > 10**15
    clock.jump("1h")
    assert clock.now() == 1_000_000 + 3600 * SECOND
    assert clock.steady_for() == 0
    clock.move_to(clock.now() + 5)
    assert clock.steady_for() == 5
    clock.jump(-3600)
    assert clock.now() == 1_000_005


async def test_waiting_for_a_result_without_passing_time_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(testing, "STILL_S", 0.05)
    app, flow, _ = sleepy()
    async with virtual(app) as world:
        run = await app.start(flow, 1)
        with pytest.raises(UsageError, match="virtual time does not pass by itself"):
            await run.result()
        waiting = asyncio.create_task(run.result())
        await world.advance("1s")
        assert await waiting is None


@pytest.mark.parametrize("is_async", [True, False])
async def test_the_time_in_a_step_is_that_of_the_virtual_clock(
    database_url: str, is_async: bool
) -> None:
    app = Rota()

    @app.step
    async def read() -> datetime:
        return await now()

    @app.step
    def read_blocking() -> datetime:
        return blocking.now()

    @app.workflow
    async def flow() -> list[datetime]:
        step = read.aio if is_async else read_blocking.aio
        first = await step()
        await sleep("30d")
        return [first, await step()]

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        began = world.clock.moment()
        await world.drain()
        assert await run.result() == [began, began + timedelta(days=30)]
        assert abs(await now() - datetime.now(UTC)) < timedelta(minutes=5)  # outside of any run
