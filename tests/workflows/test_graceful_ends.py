"""A graceful end, by a cancel with a grace or a timeout with cleanup: the code gets it where it
waits, cleans up durably, and the run ends for the reason of the request."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import rota
from rota import sleep, wait_for
from rota.errors import BadInput, RunCancelled, WrongState
from rota.explain.why import why
from rota.testing import virtual
from tests.workflows.kit import Cleanup, end, keys, sound, step_named, trouble

WARM = pytest.mark.parametrize("warm", [False, True], ids=["replayed", "warm"])


async def in_a_sleep(it: Cleanup) -> None:
    await sleep("1h")


async def in_a_step(it: Cleanup) -> None:
    await it.work()


async def for_a_signal(it: Cleanup) -> None:
    await wait_for("go")


async def for_a_child(it: Cleanup) -> None:
    await it.child()


async def in_gather(it: Cleanup) -> None:
    await rota.gather(sleep("1h"), it.child(), wait_for("go"))


async def in_the_gather_of_asyncio(it: Cleanup) -> None:
    await asyncio.gather(sleep("1h"), it.child())


async def in_a_task_group(it: Cleanup) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(sleep("1h"))
        group.create_task(it.child())


async def in_a_timeout(it: Cleanup) -> None:
    async with asyncio.timeout(7200):
        await sleep("1h")


async def in_a_plain_sleep(it: Cleanup) -> None:
    await asyncio.sleep(3600)


WAITS = [
    in_a_sleep, in_a_step, for_a_signal, for_a_child, in_gather, in_the_gather_of_asyncio,
    in_a_task_group, in_a_timeout, in_a_plain_sleep,
]  # fmt: skip
# Their innermost await is that of a durable call.
DURABLE = [
    in_a_sleep, in_a_step, for_a_signal, for_a_child, in_gather,
    in_the_gather_of_asyncio, in_a_timeout,
]  # fmt: skip


@WARM
@pytest.mark.parametrize("wait", WAITS)
async def test_the_code_cleans_up_durably_and_the_run_ends_as_cancelled(
    database_url: str, wait: Any, warm: bool
) -> None:
    it = Cleanup()
    errors: list[BaseException] = []

    @it.app.workflow
    async def flow() -> str:
        await it.note("begin")
        try:
            await wait(it)
        except asyncio.CancelledError as error:
            errors.append(error)
            raise
        finally:
            await it.note("first")
            await sleep("1m")
            await it.note("second")
        return "done"

    async with virtual(it.app, url=database_url, warm=warm) as world:
        run = await flow.start()
        await world.settle()
        await end(world, run)
        await world.settle()
        assert it.calls == ["begin", "first"]
        assert await run.status() == "sleeping:sleep"
        await world.advance("1m")
        assert await run.status() == "cancelled:no stock"
        assert it.calls == ["begin", "first", "second"]
        assert it.endless.interrupted == it.endless.begun
        ends = [error for error in errors if str(error)]  # others drop the code of a suspended run
        assert {str(error) for error in ends} <= {"no stock"}
        if wait in DURABLE:
            assert {type(error) for error in ends} == {rota.Cancelled}
        with pytest.raises(RunCancelled, match="no stock"):
            await run.result(timeout=0)
        await world.drain()
        assert [one.status for one in await it.app.runs.list(name="child")] in (
            [], ["cancelled"]
        )  # fmt: skip
        await sound(it.app)


async def test_the_end_has_its_place_in_the_order(database_url: str) -> None:
    """Each replay gets it between the same results: a result that came later stays later."""
    it = Cleanup()
    orders: list[list[str]] = []

    @it.app.workflow
    async def flow() -> None:
        order: list[str] = []
        orders.append(order)

        async def branch() -> None:
            await sleep("10m")
            order.append("early")
            await sleep("20m")
            order.append("late")

        task = asyncio.create_task(branch())
        try:
            await sleep("1h")
        except rota.Cancelled:
            order.append("end")
            await task
            await sleep("1h")
            order.append("last")

    async with virtual(it.app, url=database_url) as world:
        run = await flow.start()
        await world.advance("15m")
        await end(world, run, grace="1d")
        await world.drain()
        assert orders[-1] == ["early", "end", "late", "last"]
        assert all(order == orders[-1][: len(order)] for order in orders)
        assert await run.status() == "cancelled:no stock"


@WARM
async def test_code_that_swallows_the_end_is_ended_when_the_grace_is_over(
    database_url: str, warm: bool
) -> None:
    it = Cleanup()

    @it.app.workflow
    async def flow() -> None:
        while True:
            try:
                await sleep("1m")
                await it.note("still here")
            except asyncio.CancelledError:
                await it.note("swallowed")

    async with virtual(it.app, url=database_url, warm=warm) as world:
        run = await flow.start()
        await world.settle()
        await end(world, run, grace="150s")
        await world.drain()
        assert it.calls == ["swallowed", "still here", "still here"]
        assert await run.status() == "cancelled:no stock"
        last = await run.run()
        assert (last.finished_at or 0) - (last.created_at) == 150_000_000
        assert (await trouble(run))["type"] == "CleanupTimeout"
        await sound(it.app)


async def test_a_result_after_the_end_does_not_count(database_url: str) -> None:
    it = Cleanup()

    @it.app.workflow
    async def flow() -> str:
        try:
            await sleep("1h")
        except rota.Cancelled:
            await it.note("cleaned")
        return "done"

    async with virtual(it.app, url=database_url) as world:
        run = await flow.start()
        await world.settle()
        await end(world, run)
        await world.drain()
        assert await run.status() == "cancelled:no stock"
        assert (await run.run()).output is None
        assert it.calls == ["cleaned"]


async def test_an_error_of_the_cleanup_is_kept_beside_the_outcome(database_url: str) -> None:
    it = Cleanup()

    @it.app.workflow(retries=3)
    async def flow() -> None:
        try:
            await sleep("1h")
        finally:
            raise ValueError("no such order")

    async with virtual(it.app, url=database_url) as world:
        run = await flow.start()
        await world.settle()
        await end(world, run)
        await world.drain()
        assert await run.status() == "cancelled:no stock"
        assert len(await it.app.runs.chain(run.id)) == 1
        assert (await trouble(run))["message"] == "no such order"


@WARM
async def test_a_second_cancel_without_a_grace_ends_the_run_at_once(
    database_url: str, warm: bool
) -> None:
    it = Cleanup()

    @it.app.workflow
    async def flow() -> None:
        try:
            await sleep("1h")
        finally:
            await sleep("1m")
            await it.note("never")

    async with virtual(it.app, url=database_url, warm=warm) as world:
        run = await flow.start()
        await world.settle()
        await end(world, run)
        await world.settle()
        assert await it.app.runs.cancel(run.id, grace="1h") == [run.id]  # the first one counts
        await world.settle()
        assert await run.status() == "sleeping:sleep"
        await run.cancel(reason="enough")
        assert await run.status() == "cancelled:enough"
        await world.drain()
        assert it.calls == []
        with pytest.raises(WrongState, match="nothing to cancel"):
            await run.cancel(grace="5m")


async def test_a_run_that_has_never_begun_is_cancelled_at_once(database_url: str) -> None:
    it = Cleanup()
    async with virtual(it.app, url=database_url) as world:
        pending = await it.child.start()
        delayed = await it.child.options(delay="1h").start()
        for run in (pending, delayed):
            await run.cancel(grace="5m")
            assert await run.status() == "cancelled:by request"
        await world.drain()
        assert await keys(it.app, pending) == await keys(it.app, delayed) == []


async def test_a_run_that_waits_for_its_retry_only_cleans_up(database_url: str) -> None:
    """It is woken at once, and the failed step is not called again."""
    it = Cleanup()
    tries: list[int] = []

    @it.app.step
    async def charge() -> None:
        tries.append(1)
        raise ConnectionError("down")

    @it.app.workflow(retries=rota.RetryPolicy(attempts=3, delay_s=3600))
    async def flow() -> None:
        await it.note("reserved")
        try:
            await charge()
        except rota.Cancelled:
            await it.note("released")
            raise

    async with virtual(it.app, url=database_url) as world:
        run = await flow.start()
        await world.settle()
        assert await run.status() == "sleeping:retry"
        await end(world, run)
        await world.settle()
        assert await run.status() == "cancelled:no stock"
        assert it.calls == ["reserved", "released"]
        assert len(tries) == 1
        await sound(it.app)


async def test_a_run_that_waits_for_an_operator_cleans_up(database_url: str) -> None:
    it = Cleanup()

    @it.app.step
    async def charge() -> None:
        raise rota.NeedsLogin("expired", service="bank")

    @it.app.workflow
    async def flow() -> None:
        try:
            await charge()
        except rota.Cancelled:
            await it.note("released")
            raise

    async with virtual(it.app, url=database_url) as world:
        run = await flow.start()
        await world.settle()
        assert await run.status() == "waiting:auth"
        await end(world, run)
        await world.settle()
        assert await run.status() == "cancelled:no stock"
        assert it.calls == ["released"]
        await sound(it.app)


async def test_a_retry_continues_where_the_code_was_and_forgets_the_cleanup(
    database_url: str,
) -> None:
    it = Cleanup()

    @it.app.workflow
    async def flow() -> str:
        await it.note("begin")
        try:
            answer = await wait_for("go")
        except rota.Cancelled:
            await it.note("cleaned")
            await rota.now()
            raise
        await rota.now()
        return str(await it.note(answer))

    async with virtual(it.app, url=database_url) as world:
        run = await flow.start()
        await world.settle()
        for turn in (1, 2):
            await end(world, run)
            await world.settle()
            assert await run.status() == "cancelled:no stock"
            assert it.calls == ["begin", *["cleaned"] * turn]
            await it.app.runs.retry(run.id)
            await world.settle()
            assert await run.status() == "sleeping:signal"
        await run.signal("go", "gone")
        await world.drain()
        assert await run.result(timeout=0) == "gone"
        assert it.calls == ["begin", "cleaned", "cleaned", "gone"]
        await sound(it.app)


async def test_a_request_outlives_the_worker(database_url: str) -> None:
    it = Cleanup()

    @it.app.workflow
    async def flow() -> None:
        try:
            await it.work()
        finally:
            await it.note("cleaned")

    async with virtual(it.app, url=database_url) as world:
        run = await flow.start()
        await world.settle()
        await run.cancel(grace="5m")  # no renewal: this worker stops before it learns of it
        now = world.clock.now()
    assert it.calls == []
    async with virtual(it.app, url=database_url, start=now) as world:
        await world.settle()
        assert await run.status() == "cancelled:by request"
        assert it.calls == ["cleaned"]
        assert it.endless.begun == 1


async def test_a_request_to_a_run_that_suspends_at_that_moment_is_not_missed(
    database_url: str,
) -> None:
    """The code stays in memory, but another record exists: the next claim replays it."""
    it = Cleanup()
    reached, go = asyncio.Event(), asyncio.Event()

    @it.app.step
    async def slow() -> None:
        reached.set()
        await go.wait()

    @it.app.workflow
    async def flow() -> None:
        try:
            await slow()
            await sleep("1h")
        finally:
            await it.note("cleaned")

    async with virtual(it.app, url=database_url, warm=True) as world:
        run = await flow.start()
        settling = asyncio.ensure_future(world.settle())
        await reached.wait()
        await run.cancel(grace="5m")
        go.set()
        await settling
        await world.settle()
        assert await run.status() == "cancelled:by request"
        assert it.calls == ["cleaned"]


async def test_many_runs_are_asked_at_once(database_url: str) -> None:
    it = Cleanup()

    @it.app.workflow
    async def flow(n: int) -> None:
        try:
            await sleep("1h")
        finally:
            await it.note(n)

    async with virtual(it.app, url=database_url) as world:
        for n in range(3):
            await flow.start(n)
        await world.settle()
        await it.app.runs.apply("cancel", name="flow", grace="5m")
        await world.settle()
        assert sorted(it.calls) == [0, 1, 2]
        assert {run.label for run in await it.app.runs.list()} == {"cancelled:by request"}


async def test_why_names_the_request(database_url: str) -> None:
    it = Cleanup()

    @it.app.workflow
    async def flow() -> None:
        try:
            await wait_for("go")
        finally:
            await sleep("1m")

    async with virtual(it.app, url=database_url) as world:
        run = await flow.start()
        await world.settle()
        await run.cancel(reason="no stock", grace="5m")
        assert "it is asked to end (no stock)" in str(await why(it.app, run.id))
        await world.settle()
        found = str(await why(it.app, run.id))
        assert "sleeps until" in found
        assert "it cleans up, at most until" in found


async def test_a_grace_has_to_leave_time(database_url: str) -> None:
    it = Cleanup()
    async with virtual(it.app, url=database_url) as world:
        run = await it.child.start()
        await world.settle()
        with pytest.raises(BadInput, match="grace=0 leaves no time"):
            await run.cancel(grace=0)


async def test_the_record_of_the_end_is_no_step_of_a_fork(database_url: str) -> None:
    it = Cleanup()

    @it.app.workflow
    async def flow() -> str:
        await it.note("one")
        await wait_for("go")
        return "done"

    async with virtual(it.app, url=database_url) as world:
        run = await flow.start()
        await world.settle()
        await end(world, run)
        await world.settle()
        assert (await step_named(it.app, run, "cancel")).status == "completed"
        fork = await it.app.runs.fork(run.id, from_step="wait go#0")
        await fork.signal("go", 1)
        await world.drain()
        assert await fork.result(timeout=0) == "done"
