"""Undo steps: called in reverse order when a run fails for good or is ended gracefully, and only
then."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import rota
from rota import RetryPolicy, Rota, StepFailed, blocking, compensate, sleep
from rota.errors import UsageError
from rota.testing import virtual
from tests.workflows.kit import keys, sound, trouble

WARM = pytest.mark.parametrize("warm", [False, True], ids=["replayed", "warm"])
UNDONE = ["flight", "hotel", "-hotel", "-flight"]


class Trip:
    """Books, and notes it; `fails` are the errors of the calls of `pay`."""

    def __init__(self, *fails: Exception) -> None:
        self.app = Rota()
        self.calls: list[str] = []
        self.fails = list(fails)
        self.undo_fails: list[str] = []

        @self.app.step
        async def book(what: str) -> str:
            self.calls.append(what)
            return what

        @self.app.step
        async def undo(what: str, *, sign: str = "-") -> None:
            if what in self.undo_fails:
                raise OSError(f"no answer about {what}")
            self.calls.append(sign + what)

        @self.app.step
        async def pay() -> str:
            if self.fails:
                raise self.fails.pop(0)
            self.calls.append("paid")
            return "paid"

        self.book, self.undo, self.pay = book, undo, pay

    def flow(self, **options: Any) -> Any:
        @self.app.workflow(**options)
        async def trip(wait: bool = False) -> str:
            for what in ("flight", "hotel"):
                await self.book(what)
                compensate(self.undo, what)
                await sleep("1m")
            if wait:
                await sleep("1d")
            return await self.pay()

        return trip


@WARM
async def test_undo_steps_run_in_reverse_order_when_the_run_fails(
    database_url: str, warm: bool
) -> None:
    trip = Trip(ValueError("no money"))
    flow = trip.flow()
    async with virtual(trip.app, url=database_url, warm=warm) as world:
        run = await flow.start()
        await world.drain()
        assert await run.status() == "failed:logic"
        assert trip.calls == UNDONE
        assert (await trouble(run))["type"] == "StepFailed"
        undone = (await keys(trip.app, run))[-2:]  # forgotten: a retry calls them again
        assert undone == ["undo undo#0 (attempt 1)", "undo undo#1 (attempt 1)"]
        await sound(trip.app)


@WARM
async def test_undo_steps_run_when_the_run_is_cancelled_with_a_grace(
    database_url: str, warm: bool
) -> None:
    trip = Trip()
    flow = trip.flow()
    async with virtual(trip.app, url=database_url, warm=warm) as world:
        run = await flow.start(wait=True)
        await world.advance("1h")
        await run.cancel(reason="the customer withdrew", grace="5m")
        await world.drain()
        assert await run.status() == "cancelled:the customer withdrew"
        assert trip.calls == UNDONE
        await sound(trip.app)


@WARM
async def test_undo_steps_run_when_the_time_of_the_run_is_over(
    database_url: str, warm: bool
) -> None:
    trip = Trip()
    flow = trip.flow(timeout="1h", cleanup="5m")
    async with virtual(trip.app, url=database_url, warm=warm) as world:
        run = await flow.start(wait=True)
        await world.drain()
        assert await run.status() == "failed:timeout"
        assert trip.calls == UNDONE


async def test_no_undo_step_runs_for_a_run_that_completes(database_url: str) -> None:
    trip = Trip()
    flow = trip.flow()
    async with virtual(trip.app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert await run.result(timeout=0) == "paid"
        assert trip.calls == ["flight", "hotel", "paid"]


async def test_no_undo_step_runs_for_a_run_that_ends_at_once(database_url: str) -> None:
    trip = Trip()
    flow = trip.flow(timeout="1h")
    async with virtual(trip.app, url=database_url) as world:
        cancelled, late = await flow.start(wait=True), await flow.start(wait=True)
        await world.advance("10m")
        await cancelled.cancel()
        await world.drain()
        assert await cancelled.status() == "cancelled:by request"
        assert await late.status() == "failed:timeout"
        assert trip.calls == ["flight", "flight", "hotel", "hotel"]


@WARM
async def test_only_the_last_attempt_undoes(database_url: str, warm: bool) -> None:
    trip = Trip(ConnectionError("1"), ConnectionError("2"), ConnectionError("3"))
    flow = trip.flow(retries=RetryPolicy(attempts=3, delay_s=60, jitter=1))
    async with virtual(trip.app, url=database_url, warm=warm) as world:
        run = await flow.start()
        await world.drain()
        assert [one.label for one in await trip.app.runs.chain(run.id)] == ["failed:transient"] * 3
        assert trip.calls == UNDONE
        await sound(trip.app)


async def test_a_retry_that_succeeds_undoes_nothing(database_url: str) -> None:
    trip = Trip(ConnectionError("1"))
    flow = trip.flow(retries=2)
    async with virtual(trip.app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert await run.result(timeout=0) == "paid"
        assert trip.calls == ["flight", "hotel", "paid"]


async def test_a_run_that_waits_for_an_operator_undoes_nothing(database_url: str) -> None:
    trip = Trip(rota.NeedsLogin("expired", service="bank"))
    flow = trip.flow()
    async with virtual(trip.app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert await run.status() == "waiting:auth"
        assert trip.calls == ["flight", "hotel"]
        await trip.app.runs.retry(run.id)
        await world.drain()
        assert await run.result(timeout=0) == "paid"


async def test_an_undo_step_that_fails_is_noted_and_the_others_run(database_url: str) -> None:
    trip = Trip(ValueError("no money"))
    trip.undo_fails = ["hotel"]
    flow = trip.flow()
    async with virtual(trip.app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert await run.status() == "failed:logic"
        assert trip.calls == ["flight", "hotel", "-flight"]
        error = await trouble(run)
        assert "no money" in error["message"]
        assert "Compensation failed: step undo failed" in error["notes"]
        assert "no answer about hotel" in error["notes"]


async def test_an_undo_step_that_fails_is_the_error_of_a_cancelled_run(database_url: str) -> None:
    trip = Trip()
    trip.undo_fails = ["hotel"]
    flow = trip.flow()
    async with virtual(trip.app, url=database_url) as world:
        run = await flow.start(wait=True)
        await world.advance("1h")
        await run.cancel(grace="5m")
        await world.drain()
        assert await run.status() == "cancelled:by request"
        assert trip.calls == ["flight", "hotel", "-flight"]
        assert "no answer about hotel" in (await trouble(run))["message"]


async def test_a_retry_by_hand_calls_the_undo_steps_again(database_url: str) -> None:
    trip = Trip(ValueError("no money"), ValueError("still none"))
    flow = trip.flow()
    async with virtual(trip.app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        await trip.app.runs.retry(run.id)
        await world.drain()
        assert await run.status() == "failed:logic"
        assert trip.calls == [*UNDONE, "-hotel", "-flight"]
        await trip.app.runs.retry(run.id)
        await world.drain()
        assert await run.result(timeout=0) == "paid"
        await sound(trip.app)


async def test_code_that_is_left_ends_before_the_undo_steps(database_url: str) -> None:
    trip = Trip()

    @trip.app.workflow
    async def flow() -> None:
        async def beside() -> None:
            while True:
                await sleep("1s")
                await trip.book("more")

        compensate(trip.undo, "all")
        task = asyncio.create_task(beside())
        await sleep("2500ms")
        assert not task.done()
        compensate(trip.undo, "this", sign="+")
        raise ValueError("enough")

    async with virtual(trip.app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert await run.status() == "failed:logic"
        assert trip.calls == ["more", "more", "+this", "-all"]


async def test_a_result_that_cannot_be_stored_is_a_failure(database_url: str) -> None:
    trip = Trip()

    @trip.app.workflow
    async def flow() -> Any:
        compensate(trip.undo, "all")
        return object()

    async with virtual(trip.app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert (await run.status()).startswith("failed:")
        assert trip.calls == ["-all"]


async def test_a_cancel_does_not_disturb_the_undo_steps_of_a_failure(database_url: str) -> None:
    trip = Trip()

    @trip.app.step(retries=RetryPolicy(attempts=2, delay_s=60))
    async def shaky() -> None:
        trip.calls.append("try")
        if trip.calls.count("try") == 1:
            raise ConnectionError("down")

    @trip.app.workflow
    async def flow() -> None:
        compensate(trip.undo, "last")
        compensate(shaky)
        raise ValueError("no")

    async with virtual(trip.app, url=database_url) as world:
        run = await flow.start()
        await world.settle()
        assert await run.status() == "sleeping:retry"
        await run.cancel(grace="5m")
        await world.drain()
        assert await run.status() == "failed:logic"
        assert trip.calls == ["try", "try", "-last"]


@pytest.mark.parametrize("end", ["fail", "cancel"])
async def test_undo_steps_of_a_sync_workflow(database_url: str, end: str) -> None:
    app = Rota()
    calls: list[str] = []

    @app.step
    def book(what: str) -> None:
        calls.append(what)

    @app.step
    def undo(what: str) -> None:
        calls.append("-" + what)

    @app.workflow
    def flow() -> None:
        for what in ("flight", "hotel"):
            book(what)
            compensate(undo, what)
        blocking.sleep("1h")
        raise ValueError("no money")

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.settle()
        if end == "cancel":
            await run.cancel(grace="5m")
        await world.drain()
        status = {"fail": "failed:logic", "cancel": "cancelled:by request"}
        assert await run.status() == status[end]
        assert calls == UNDONE


async def test_only_a_workflow_can_register_and_only_steps(database_url: str) -> None:
    trip = Trip()

    @trip.app.step
    async def inner() -> None:
        compensate(trip.undo, "x")

    @trip.app.workflow
    async def flow() -> list[str]:
        found = []
        with pytest.raises(UsageError) as not_a_step:
            compensate(print, "x")
        with pytest.raises(TypeError) as no_argument:
            compensate(trip.undo)  # type: ignore[call-arg]
        found += [str(not_a_step.value), str(no_argument.value)]
        with pytest.raises(StepFailed, match="outside of a workflow"):
            await inner()
        return found

    with pytest.raises(UsageError, match="outside of a workflow"):
        compensate(trip.undo, "x")
    async with virtual(trip.app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        first, second = await run.result(timeout=0)
        assert "not a step" in first
        assert "missing a required argument" in second


async def test_a_run_that_has_begun_to_undo_is_not_retried_by_a_new_policy(
    database_url: str,
) -> None:
    calls: list[str] = []

    def made(retries: int) -> tuple[Rota, Any]:
        app = Rota()

        @app.step(retries=RetryPolicy(attempts=2, delay_s=60))
        async def undo() -> None:
            calls.append("undo")
            if len(calls) == 1:
                raise ConnectionError("down")

        @app.workflow(retries=retries)
        async def flow() -> None:
            compensate(undo)
            raise ConnectionError("down too")

        return app, flow

    app, flow = made(retries=0)
    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.settle()
        now = world.clock.now()
    app, flow = made(retries=5)
    async with virtual(app, url=database_url, start=now) as world:
        await world.drain()
        assert [one.label for one in await app.runs.chain(run.id)] == ["failed:transient"]
        assert calls == ["undo", "undo"]
