"""Graceful stop: claim no more, keep renewing, drain, then hand over what is left."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota import Rota, sleep
from rota.core.time.instants import SECOND
from tests.engine.kit import Gate, eventually, live, pass_time, timer_set
from tests.workflows.kit import result, sound


def gated(gate: Gate, **settings: Any) -> tuple[Rota, Any]:
    app = Rota(**settings)

    @app.step
    async def work(n: int) -> int:
        return int(await gate(n))

    @app.workflow
    async def flow(n: int) -> int:
        return await work(n)

    return app, flow


async def test_a_stop_waits_for_runs_to_end(database_url: str) -> None:
    gate = Gate()
    app, flow = gated(gate)
    async with live(app, database_url) as clock:
        run = await app.start(flow, 1)
        await eventually(lambda: gate.under_way == 1)
        stopping = asyncio.ensure_future(app.stop_worker(60))
        await timer_set(clock, "60s")
        await pass_time(clock, "59s")
        assert not stopping.done()
        gate.open.set()
        await asyncio.wait_for(stopping, 5)
        assert await run.status() == "completed"
        assert gate.interrupted == []


async def test_a_stopping_worker_claims_nothing_new(database_url: str) -> None:
    gate = Gate()
    app, flow = gated(gate)
    async with live(app, database_url):
        await app.start(flow, 1)
        await eventually(lambda: gate.under_way == 1)
        assert app.runtime is not None
        worker = app.runtime.worker
        # A claim in progress could find the late run.
        await eventually(lambda: worker._idle)
        stopping = asyncio.ensure_future(app.stop_worker(60))
        await eventually(lambda: not worker.claiming)
        late = await app.start(flow, 2)
        gate.open.set()
        await asyncio.wait_for(stopping, 5)
        assert await late.status() == "pending"
        assert gate.entered == [1]


async def test_leases_are_renewed_while_draining(database_url: str) -> None:
    gate = Gate()
    app, flow = gated(gate, lease_s=30)
    async with live(app, database_url) as clock:
        run = await app.start(flow, 1)
        await eventually(lambda: gate.under_way == 1)
        stopping = asyncio.ensure_future(app.stop_worker(600))
        await timer_set(clock, "600s")
        for _ in range(6):
            await pass_time(clock, "10s")
            await eventually(lambda: is_leased_for(run, clock, 20 * SECOND))
        [row] = await app.workers()
        assert row.status == "draining"
        gate.open.set()
        await asyncio.wait_for(stopping, 5)
        assert await run.status() == "completed"
        assert [row.status for row in await app.workers(everyone=True)] == ["offline"]


async def is_leased_for(run: Any, clock: Any, span_us: int) -> bool:
    return ((await run.run()).lease_until or 0) >= clock.now() + span_us


async def test_what_does_not_end_in_time_is_handed_over(database_url: str) -> None:
    gate = Gate()
    app, flow = gated(gate)
    async with live(app, database_url) as clock:
        run = await app.start(flow, 1)
        await eventually(lambda: gate.under_way == 1)
        stopping = asyncio.ensure_future(app.stop_worker(20))
        await timer_set(clock, "20s")
        await pass_time(clock, "19.9s")
        assert not stopping.done()
        await pass_time(clock, "0.1s")
        await asyncio.wait_for(stopping, 5)
        assert gate.interrupted == [1]
        [row] = await app.runs.chain(run.id)
        assert (row.status, row.lease_owner, row.claim_count) == ("pending", None, 1)
        assert await app.runs.steps(run.id) == []
        await sound(app)
    gate.open.set()
    again, _ = gated(gate)
    async with live(again, database_url):
        assert await again.runs.handle(run.id).result(timeout=60) == 1
        [row] = await again.runs.chain(run.id)
        assert (row.status, row.recoveries, row.attempt) == ("completed", 0, 1)


async def test_a_handed_over_run_is_taken_by_another_worker_at_once(database_url: str) -> None:
    gate, other_gate = Gate(), Gate()
    other_gate.open.set()
    app, flow = gated(gate)
    other, _ = gated(other_gate)
    async with live(app, database_url) as clock:
        run = await app.start(flow, 1)
        await eventually(lambda: gate.under_way == 1)
        async with live(other, database_url, clock):
            await app.stop_worker(0)
            assert await other.runs.handle(run.id).result(timeout=60) == 1


@pytest.mark.parametrize("swallows", ["workflow", "step"])
async def test_a_run_that_swallows_the_hand_over_is_handed_over_all_the_same(
    database_url: str, swallows: str
) -> None:
    app = Rota()
    gate = Gate()

    async def careless() -> str:
        try:
            await gate()
        except BaseException:
            return "swallowed"
        return "good"

    @app.step
    async def work() -> str:
        return await careless()

    @app.workflow
    async def flow() -> str:
        return await (careless() if swallows == "workflow" else work())

    async with live(app, database_url):
        run = await app.start(flow)
        await eventually(lambda: gate.under_way == 1)
        await app.stop_worker(0)
        row = await run.run()
        assert (row.status, row.output) == ("pending", None)
        assert await app.runs.steps(run.id) == []
    gate.open.set()
    async with live(app, database_url):
        assert await app.runs.handle(run.id).result(timeout=60) == "good"


async def test_an_error_raised_at_the_hand_over_does_not_fail_the_run(database_url: str) -> None:
    app = Rota()
    gate = Gate()

    @app.step
    async def work() -> str:
        try:
            await gate()
        except asyncio.CancelledError:
            raise ConnectionError("closed by the stop") from None
        return "good"

    @app.workflow
    async def flow() -> str:
        return await work()

    async with live(app, database_url):
        run = await app.start(flow)
        await eventually(lambda: gate.under_way == 1)
        await app.stop_worker(0)
        assert await run.status() == "pending"
    gate.open.set()
    async with live(app, database_url):
        assert await app.runs.handle(run.id).result(timeout=60) == "good"


async def test_a_sleeping_run_is_no_reason_to_wait(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def flow() -> None:
        await sleep("1h")

    async with live(app, database_url):
        run = await app.start(flow)
        await eventually(lambda: sleeps(run))
        await asyncio.wait_for(app.stop_worker(), 5)
        assert (await run.run()).status == "sleeping"


async def sleeps(run: Any) -> bool:
    return bool((await run.run()).status == "sleeping")


async def test_stopping_twice_or_without_a_worker_is_harmless(database_url: str) -> None:
    app = Rota()
    async with live(app, database_url):
        await app.stop_worker()
        await app.stop_worker()
    await app.close()


async def test_a_daemon_drains_when_it_is_asked_to_stop(database_url: str) -> None:
    gate = Gate()
    gate.open.set()
    app, flow = gated(gate)
    app.url, app.migrates = database_url, True
    stop = asyncio.Event()
    daemon = asyncio.ensure_future(app.run_forever(stop))
    await eventually(lambda: app.runtime is not None)
    run = await app.start(flow, 1)
    assert await result(run) == 1
    stop.set()
    await asyncio.wait_for(daemon, 5)
    assert app.runtime is None
