"""Limits of queues: running at once, per key, by rate, paused; across all workers."""

from __future__ import annotations

from typing import Any

import pytest

from rota import Rota, sleep
from rota.core.time.instants import SECOND, Duration
from rota.errors import BadInput
from rota.testing import virtual
from tests.engine.kit import Gate, beside, eventually, live
from tests.workflows.kit import result


def limited(gate: Gate, **limits: Any) -> tuple[Rota, Any]:
    app = Rota()
    app.queue("q", **limits)

    @app.workflow(queue="q")
    async def flow(n: int) -> int:
        return int(await gate(n))

    return app, flow


async def test_a_limit_on_running_holds_across_workers(database_url: str) -> None:
    gate = Gate()
    one, flow = limited(gate, running=3)
    other, _ = limited(gate, running=3)
    async with live(one, database_url) as clock, live(other, database_url, clock):
        started = await one.start_many(flow, [(n,) for n in range(12)])
        await eventually(lambda: gate.under_way == 3)
        assert (await one.counts())["running"] == 3
        gate.open.set()
        assert [await result(run) for run in started] == list(range(12))
        assert gate.most == 3


async def test_a_sleeping_run_gives_its_place_to_another(database_url: str) -> None:
    app = Rota()
    app.queue("q", running=1)
    order: list[str] = []

    @app.workflow(queue="q")
    async def flow(name: str) -> None:
        order.append(f"{name} begins")
        await sleep("1h")
        order.append(f"{name} ends")

    async with virtual(app, url=database_url) as world:
        await app.start(flow, "a")
        await app.start(flow, "b")
        await world.settle()
        assert order == ["a begins", "b begins"]
        await world.drain()
        assert len(await app.list(status="completed")) == 2


async def test_a_limit_per_key_delays_no_other_key(database_url: str) -> None:
    gate = Gate()
    app, flow = limited(gate, running_per_key=2)
    async with live(app, database_url):
        for n in range(5):
            await app.options(key="busy").start(flow, n)
        other = await app.options(key="quiet").start(flow, 10)
        plain = await app.start(flow, 20)
        await eventually(lambda: gate.under_way == 4)
        assert sorted(gate.entered) == [0, 1, 10, 20]
        gate.open.set()
        assert await result(other) == 10
        assert await result(plain) == 20
        await eventually(lambda: len(gate.entered) == 7)


async def test_a_limit_per_key_keeps_to_priority_within_the_key(database_url: str) -> None:
    app = Rota()
    app.queue("q", running_per_key=1)
    order: list[int] = []

    @app.workflow(queue="q")
    async def flow(n: int) -> None:
        order.append(n)

    async with virtual(app, url=database_url) as world:
        for n, priority in enumerate((0, 5, 1)):
            await app.options(key="k", priority=priority).start(flow, n)
        await world.settle()
        assert order == [1, 2, 0]


async def starts(url: str, rate: tuple[int, Duration], count: int) -> list[float]:
    """The seconds at which runs of a queue with this rate begin."""
    app = Rota()
    app.queue("q", rate=rate)

    @app.workflow(queue="q")
    async def flow(n: int) -> int:
        return n

    async with virtual(app, url=url) as world:
        began = world.clock.now()
        started = await app.start_many(flow, [(n,) for n in range(count)])
        await world.drain()
        rows = [await run.run() for run in started]
        assert {row.status for row in rows} == {"completed"}
        return sorted(((row.started_at or 0) - began) / SECOND for row in rows)


@pytest.mark.parametrize("limits", [{"running": 1}, {"running_per_key": 1}], ids=str)
@pytest.mark.parametrize("seats", [None, 1], ids=["many slots", "one slot"])
async def test_cancelling_the_holder_of_a_limited_slot_frees_it_at_once(
    database_url: str, limits: dict[str, int], seats: int | None
) -> None:
    gate = Gate()
    app, flow = limited(gate, seats=seats, **limits)
    client, _ = limited(gate, seats=seats, **limits)
    async with live(app, database_url) as clock, beside(client, database_url, clock):
        holder = await client.start(flow, 1, key="k")
        await eventually(lambda: gate.entered == [1])
        await client.start(flow, 2, key="k")
        await eventually(lambda: is_at_rest_with(app, 1))
        await client.cancel(holder.id)
        await eventually(lambda: gate.entered == [1, 2])  # no time passes: no poll comes
        assert gate.interrupted == [1]
        gate.open.set()


def is_at_rest_with(app: Rota, run_count: int) -> bool:
    assert app.runtime is not None
    return len(app.runtime.worker.held) == run_count and not app.runtime.worker.wake.is_set()


async def test_a_rate_of_one_spaces_starts_evenly(database_url: str) -> None:
    assert await starts(database_url, (1, "10s"), 5) == [0, 10, 20, 30, 40]


@pytest.mark.parametrize("count", [2, 5])
async def test_a_burst_and_the_rate_after_it_are_all_a_window_holds(
    database_url: str, count: int
) -> None:
    at = await starts(database_url, (count, "10s"), 4 * count)
    for begin in at:
        assert sum(begin <= other < begin + 10 for other in at) <= 2 * count - 1, at
    assert at[count - 1] == 0  # after a rest as many may come at once
    assert at[-1] <= 40  # and the rate is used


async def test_a_rate_holds_across_workers(database_url: str) -> None:
    gate = Gate()
    gate.open.set()
    one, flow = limited(gate, rate=(2, "1h"))
    other, _ = limited(gate, rate=(2, "1h"))
    async with live(one, database_url) as clock, live(other, database_url, clock):
        await one.start_many(flow, [(n,) for n in range(8)])
        await eventually(lambda: len(gate.entered) == 2)
        for app in (one, other):
            assert app.runtime is not None
            app.runtime.worker.look()
        await eventually(lambda: is_at_rest(one) and is_at_rest(other))
        assert len(gate.entered) == 2


def is_at_rest(app: Rota) -> bool:
    assert app.runtime is not None
    return app.runtime.worker.idle and not app.runtime.worker.wake.is_set()


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(database_url: str) -> None:
    gate = Gate()
    gate.open.set()
    app, flow = limited(gate, running=5)
    async with live(app, database_url):
        await app.pause_queue("q")
        held = await app.start(flow, 1)
        await eventually(lambda: is_at_rest(app))
        assert await held.status() == "pending"
        assert [queue.paused for queue in await app.queues()] == [1]
        await app.pause_queue("q", paused=False)
        assert await result(held) == 1


async def test_any_declared_queue_can_be_paused(database_url: str) -> None:
    gate = Gate()
    gate.open.set()
    app, flow = limited(gate, seats=3)
    async with live(app, database_url):
        await app.pause_queue("q")
        held = await app.start(flow, 1)
        await eventually(lambda: is_at_rest(app))
        assert await held.status() == "pending"
        await app.pause_queue("q", paused=False)
        assert await result(held) == 1


async def test_a_restart_does_not_resume_a_paused_queue(database_url: str) -> None:
    gate = Gate()
    gate.open.set()
    app, flow = limited(gate, running=5)
    async with virtual(app, url=database_url) as world:
        await app.pause_queue("q")
        run = await app.start(flow, 1)
    async with virtual(app, url=database_url) as world:
        await world.settle()
        assert (await app.get(run.id)).status == "pending"


async def test_pausing_a_queue_nobody_declared_says_so(database_url: str) -> None:
    app = Rota()
    async with virtual(app, url=database_url):
        with pytest.raises(BadInput, match="'nowhere'"):
            await app.pause_queue("nowhere")


async def test_new_limits_take_the_place_of_old_ones(database_url: str) -> None:
    gate = Gate()
    old, _ = limited(gate, running=1)
    async with virtual(old, url=database_url):
        pass
    new, flow = limited(gate, running=4)
    async with live(new, database_url):
        await new.start_many(flow, [(n,) for n in range(9)])
        await eventually(lambda: gate.under_way == 4)
        gate.open.set()


async def test_limits_that_are_no_longer_declared_are_lifted(database_url: str) -> None:
    gate = Gate()
    old, _ = limited(gate, running=1)
    async with virtual(old, url=database_url):
        pass
    new, flow = limited(gate)
    async with live(new, database_url):
        await new.start_many(flow, [(n,) for n in range(3)])
        await eventually(lambda: gate.under_way == 3)
        gate.open.set()
