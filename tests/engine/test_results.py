"""Waiting for results: one question for all, none for what ends here, and no lost answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota import Rota
from rota.errors import RunCancelled, StoreUnreachable
from rota.store.runs.cancel import cancel_chains
from tests.engine.kit import Gate, StoreTap, beside, eventually, live, pass_time
from tests.workflows.kit import result


def gated(gate: Gate) -> tuple[Rota, Any]:
    app = Rota()

    @app.workflow
    async def flow(n: int) -> int:
        return int(await gate(n))

    return app, flow


async def test_many_waiters_ask_one_question(database_url: str) -> None:
    gate = Gate()
    app, flow = gated(gate)
    other, _ = gated(gate)
    async with live(app, database_url) as clock, beside(other, database_url, clock):
        started = await other.start_many(flow.name, [(n,) for n in range(50)])
        await eventually(lambda: gate.under_way == 50)
        tap = StoreTap(other)
        waiters = [asyncio.ensure_future(run.result(timeout=60)) for run in started]
        await eventually(lambda: tap.count("ended") > 0)
        gate.open.set()
        assert await asyncio.gather(*waiters) == list(range(50))
        assert tap.count("ended") <= 10  # one for each group that was settled, not one each


async def test_a_run_that_ends_here_is_answered_without_a_question(database_url: str) -> None:
    gate = Gate()
    app, flow = gated(gate)
    async with live(app, database_url) as clock:
        tap = StoreTap(app)
        for _ in range(2):  # the second time after a poller has ended
            gate.open.clear()
            run = await app.start(flow, 1)
            await eventually(lambda: gate.under_way == 1)
            waiter = asyncio.ensure_future(run.result(timeout=60))
            await eventually(lambda: bool(app.connection.results.awaited))
            gate.open.set()
            assert await waiter == 1
            await pass_time(clock, "1s")
        assert tap.count("ended") == 0


async def test_the_end_of_a_run_that_this_worker_lost_is_found_by_the_poll(
    database_url: str,
) -> None:
    gate = Gate()
    app, flow = gated(gate)
    async with live(app, database_url) as clock:
        run = await app.start(flow, 1)
        await eventually(lambda: gate.under_way == 1)
        waiter = asyncio.ensure_future(run.result(timeout=60))
        await eventually(lambda: run.id in app.connection.results.awaited)
        await app.connection.database.write(
            cancel_chains, [run.id], reason="elsewhere", now=clock.now()
        )
        assert not waiter.done()
        await pass_time(clock, "1s")
        with pytest.raises(RunCancelled, match="elsewhere"):
            await waiter


async def test_two_may_wait_for_one_run(database_url: str) -> None:
    gate = Gate()
    app, flow = gated(gate)
    async with live(app, database_url):
        run = await app.start(flow, 1)
        waiters = [asyncio.ensure_future(result(run)) for _ in range(3)]
        await eventually(lambda: gate.under_way == 1)
        gate.open.set()
        assert await asyncio.gather(*waiters) == [1, 1, 1]


async def test_a_result_is_known_long_after_the_end(database_url: str) -> None:
    gate = Gate()
    gate.open.set()
    app, flow = gated(gate)
    async with live(app, database_url):
        run = await app.start(flow, 1)
        assert await result(run) == 1
        assert await result(run) == 1
        assert await result(app.runs.handle(run.id)) == 1


async def test_a_run_that_ends_elsewhere_is_noticed_at_once(database_url: str) -> None:
    gate = Gate()
    app, flow = gated(gate)
    other, _ = gated(gate)
    async with live(app, database_url) as clock, beside(other, database_url, clock):
        run = await other.start(flow.name, 1)
        waiter = asyncio.ensure_future(result(run))
        await eventually(lambda: gate.under_way == 1)
        gate.open.set()
        assert await waiter == 1


async def test_a_run_that_ends_elsewhere_unheard_is_found_by_the_poll(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    app, flow = gated(gate)
    other, _ = gated(gate)
    async with live(app, database_url) as clock:
        monkeypatch.setattr(app.connection.database, "notify_soon", lambda topic: None)
        run = await app.start(flow, 1)
        await eventually(lambda: gate.under_way == 1)
        # Only now: otherwise it might be the worker that executes the run.
        async with beside(other, database_url, clock):
            looked: list[str] = []

            async def note(name: str) -> None:
                looked.append(name)

            StoreTap(other).after = note
            waiter = asyncio.ensure_future(other.runs.handle(run.id).result(timeout=60))
            await eventually(lambda: "ended" in looked)  # its first poll finds nothing
            gate.open.set()
            assert await result(run) == 1
            assert not waiter.done()
            for _ in range(5):
                await pass_time(clock, "1s")
            assert await waiter == 1


async def test_the_poll_slows_down_while_nothing_happens(database_url: str) -> None:
    gate = Gate()
    app, flow = gated(gate)
    other, _ = gated(gate)
    async with live(app, database_url) as clock, beside(other, database_url, clock):
        run = await app.start(flow, 1)
        await eventually(lambda: gate.under_way == 1)
        tap = StoreTap(other)
        waiter = asyncio.ensure_future(other.runs.handle(run.id).result(timeout=60))
        await eventually(lambda: tap.count("ended") >= 1)
        await pass_time(clock, "60s")
        assert tap.count("ended") <= 70
        gate.open.set()
        assert await waiter == 1


async def test_waiting_goes_on_through_a_bad_time_of_the_database(database_url: str) -> None:
    gate = Gate()
    app, flow = gated(gate)
    other, _ = gated(gate)
    async with live(app, database_url) as clock, beside(other, database_url, clock):
        run = await app.start(flow, 1)
        await eventually(lambda: gate.under_way == 1)
        tap = StoreTap(other)
        bad = True

        async def refuse(name: str) -> None:
            if bad and name == "ended":
                raise StoreUnreachable("away")

        tap.before = refuse
        waiter = asyncio.ensure_future(other.runs.handle(run.id).result(timeout=60))
        await eventually(lambda: tap.count("ended") >= 1)
        gate.open.set()
        await eventually(lambda: gate.under_way == 0)
        bad = False
        for _ in range(3):
            await pass_time(clock, "1s")
        assert await waiter == 1


async def test_a_waiter_that_gives_up_is_forgotten(database_url: str) -> None:
    gate = Gate()
    app, flow = gated(gate)
    async with live(app, database_url):
        run = await app.start(flow, 1)
        with pytest.raises(TimeoutError):
            await run.result(timeout=0.02)
        assert run.id not in app.connection.results.awaited
        gate.open.set()
        assert await result(run) == 1


async def test_a_result_is_awaited_through_retries(database_url: str) -> None:
    app = Rota()
    calls: list[int] = []

    @app.workflow(retries=1)
    async def flow() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("down")
        return "up"

    async with live(app, database_url) as clock:
        run = await app.start(flow)
        waiter = asyncio.ensure_future(result(run))
        await eventually(lambda: len(calls) == 1)
        await eventually(lambda: retry_is_due(app, run))
        assert not waiter.done()
        await pass_time(clock, "2s")
        assert await waiter == "up"


async def retry_is_due(app: Rota, run: Any) -> bool:
    return len(await app.runs.chain(run.id)) == 2
