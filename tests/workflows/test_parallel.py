"""Parallel branches: gather, loops, and when a run with several branches gives its slot back."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from rota import Rota, RunFailed, StepFailed, gather, now, sleep, uuid, wait_for
from rota.errors import UsageError
from rota.testing import held, virtual
from tests.workflows.kit import Cleanup, keys, result, sound, trouble


async def test_gather_returns_results_in_the_order_of_its_arguments(database_url: str) -> None:
    app = Rota()
    calls: list[int] = []

    @app.step
    async def square(n: int) -> int:
        calls.append(n)
        return n * n

    @app.workflow
    async def flow() -> list[int]:
        found = await gather(*[square(n) for n in range(20)])
        await sleep("1h")
        return found

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == [n * n for n in range(20)]
        assert sorted(calls) == list(range(20))


async def test_gather_keeps_to_its_limit(database_url: str) -> None:
    app = Rota()
    under_way = most = 0

    @app.step
    async def work(n: int) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return n

    @app.workflow
    async def flow() -> list[int]:
        return await gather(*[work(n) for n in range(12)], limit=3)

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == list(range(12))
        assert most == 3


async def test_gather_of_nothing_is_an_empty_list() -> None:
    assert await gather() == []
    with pytest.raises(UsageError):
        await gather(limit=0)


async def test_gather_returns_the_result_of_a_future_that_is_given_twice() -> None:
    shared = asyncio.ensure_future(asyncio.sleep(0, "answer"))
    assert await gather(shared, shared) == ["answer", "answer"]


async def test_gather_listens_once_to_each_of_its_calls() -> None:
    loop = asyncio.get_running_loop()
    futures = [_CountedFuture(loop=loop) for _ in range(20)]
    waiting = asyncio.ensure_future(gather(*futures))
    for number, future in enumerate(futures):
        await asyncio.sleep(0)
        future.set_result(number)
    assert await waiting == list(range(20))
    assert {future.listeners for future in futures} == {1}


class _CountedFuture(asyncio.Future[int]):
    """Counts the callbacks that are added to it."""

    listeners = 0

    def add_done_callback(self, *args: Any, **options: Any) -> None:
        self.listeners += 1
        super().add_done_callback(*args, **options)


async def test_the_first_error_of_a_gather_is_raised_and_the_rest_is_cancelled(
    database_url: str,
) -> None:
    app = Rota()
    cancelled: list[int] = []

    @app.step
    async def bad() -> None:
        raise ValueError("bad")

    @app.step
    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(1)
            raise

    @app.workflow
    async def flow() -> str:
        try:
            await gather(endless(), bad(), endless())
        except StepFailed as error:
            return str(error)
        return "no error"

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert "ValueError: bad" in await result(run)
        assert cancelled == [1, 1]


async def test_a_branch_that_steps_and_one_that_sleeps(database_url: str) -> None:
    app = Rota()
    calls: list[str] = []

    @app.step
    async def note(word: str) -> str:
        calls.append(word)
        return word

    async def sleeper() -> str:
        await sleep("1h")
        return await note("slept")

    async def stepper() -> str:
        await note("one")
        return await note("two")

    @app.workflow
    async def flow() -> list[str]:
        return await gather(sleeper(), stepper())

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        assert calls == ["one", "two"]
        assert await run.status() == "sleeping:sleep"
        await world.advance("1h")
        assert await result(run) == ["slept", "two"]
        assert calls == ["one", "two", "slept"]


async def test_a_run_keeps_its_slot_while_one_branch_is_at_work(database_url: str) -> None:
    app = Rota()
    done = asyncio.Event()

    @app.step
    async def work() -> str:
        with held():
            await done.wait()
        return "worked"

    @app.workflow
    async def flow() -> str:
        worked, _ = await gather(work(), sleep("1h"))
        return str(worked)

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        assert await run.status() == "running"
        done.set()
        await world.settle()
        assert await run.status() == "sleeping:sleep"
        await world.advance("1h")
        assert await result(run) == "worked"


async def test_a_sleep_ends_at_its_instant_while_another_branch_is_at_work(
    database_url: str,
) -> None:
    app = Rota()
    done = asyncio.Event()
    calls: list[str] = []

    @app.step
    async def work() -> None:
        with held():
            await done.wait()
        calls.append("worked")

    @app.step
    async def after_nap() -> None:
        calls.append("nap over")

    async def nap() -> None:
        await sleep("10s")
        await after_nap()

    @app.workflow
    async def flow() -> None:
        await gather(work(), nap())

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.advance("10s")
        assert calls == ["nap over"]
        done.set()
        await world.drain()
        assert await run.status() == "completed"
        assert calls == ["nap over", "worked"]


async def test_a_step_is_tried_again_at_its_instant_while_another_branch_is_at_work(
    database_url: str,
) -> None:
    app = Rota()
    done = asyncio.Event()
    at: list[int] = []

    @app.step
    async def work() -> None:
        with held():
            await done.wait()

    @app.step(retries=2)
    async def shaky() -> None:
        at.append(world.clock.now())
        if len(at) < 3:
            raise ValueError("no")

    @app.workflow
    async def flow() -> None:
        await gather(work(), shaky())

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.advance("3s")
        assert [b - a for a, b in itertools.pairwise(at)] == [1_000_000, 2_000_000]
        done.set()
        await world.drain()
        assert await run.status() == "completed"


async def test_a_future_of_the_outside_is_refused_with_its_line(database_url: str) -> None:
    app = Rota()
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @app.workflow
    async def flow() -> str:
        return await answer

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        assert await run.status() == "failed:logic"
        found = await trouble(run)
        assert "return await answer" in found["trace"]
        assert "Let a step return the value" in found["trace"]


async def test_an_event_that_the_outside_sets_is_refused_where_it_is_set(database_url: str) -> None:
    app = Rota()
    gate = asyncio.Event()

    @app.step
    async def opens() -> None:
        gate.set()

    @app.workflow
    async def flow() -> None:
        await gather(opens(), gate.wait())

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        assert await run.status() == "failed:logic"
        assert "outside of workflow flow" in (await trouble(run))["message"]


async def test_branches_that_never_wait_for_anything_durable_are_named(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def flow() -> None:
        await asyncio.Event().wait()

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        assert await run.status() == "failed:logic"
        message = (await trouble(run))["message"]
        assert "waits for something that no step, timer, signal or child will complete" in message
        assert "test_parallel.py:" in message


async def test_a_failure_in_a_task_group_fails_the_run_with_its_cause(database_url: str) -> None:
    app = Rota()

    @app.step
    async def bad() -> None:
        raise ValueError("inner trouble")

    @app.workflow
    async def flow() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(bad())
            group.create_task(sleep("1h"))

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await run.status() == "failed:logic"
        assert "inner trouble" in (await trouble(run))["trace"]
        with pytest.raises(RunFailed):
            await result(run)


async def test_loops_with_steps_and_sleeps_replay(database_url: str) -> None:
    app = Rota()
    calls: list[int] = []

    @app.step
    async def poll(n: int) -> bool:
        calls.append(n)
        return n == 9

    @app.workflow
    async def flow() -> int:
        n = 0
        while not await poll(n):
            n += 1
            await sleep("10m")
        return n

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == 9
        assert calls == list(range(10))
        row = await run.run()
        assert row.finished_at is not None
        assert row.finished_at - row.created_at == 90 * 60 * 1_000_000


async def test_a_race_between_a_signal_and_a_sleep(database_url: str) -> None:
    app = Rota()

    async def either() -> str:
        tasks = [asyncio.create_task(wait_for("go")), asyncio.create_task(sleep("1h"))]
        done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
        return "signal" if tasks[0] in done else "timeout"

    @app.workflow
    async def flow() -> str:
        return await either()

    async with virtual(app, url=database_url) as world:
        seen = await app.start(flow)
        left = await app.start(flow)
        await world.advance("10m")
        assert await seen.status() == "sleeping:several"
        await seen.signal("go")
        await world.settle()
        assert await result(seen) == "signal"
        await world.advance("50m")
        assert await result(left) == "timeout"


async def test_values_drawn_in_branches_are_the_same_on_replay(database_url: str) -> None:
    app = Rota()
    second_drew = asyncio.Event()
    seen: list[list[str]] = []

    @app.step
    async def fetch(n: int) -> None:
        if n == 0:
            await second_drew.wait()

    async def branch(n: int) -> str:
        await fetch(n)
        drawn = f"{uuid()} {await now()}"
        if n == 1:
            second_drew.set()
        return drawn

    @app.workflow
    async def flow() -> None:
        seen.append(await gather(branch(0), branch(1)))
        await sleep("1h")

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await run.status() == "completed"
        assert seen[0] == seen[1]
        assert seen[0][0] != seen[0][1]


@pytest.mark.parametrize("ends", ["returns", "raises"])
async def test_tasks_that_a_workflow_leaves_behind_are_cancelled_at_its_end(
    database_url: str, ends: str
) -> None:
    app = Rota()
    events: list[str] = []

    @app.step
    async def endless() -> None:
        try:
            with held():
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            events.append("cancelled")
            raise

    @app.step
    async def never() -> None:
        events.append("went on")

    async def branch() -> None:
        try:
            await endless()
        finally:
            await never()

    left: list[asyncio.Task[None]] = []

    @app.workflow
    async def flow() -> int:
        left.append(asyncio.create_task(branch()))
        await asyncio.sleep(1)
        if ends == "raises":
            raise ValueError("no")
        return 1

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert events == ["cancelled"]
        assert left[0].done()
        assert await run.status() == ("completed" if ends == "returns" else "failed:logic")
        assert await keys(app, run) == ["timer 1s#0"]


async def test_an_earlier_wait_wakes_a_run_that_keeps_its_slot(database_url: str) -> None:
    it = Cleanup()

    @it.app.workflow
    async def flow() -> None:
        working = asyncio.create_task(it.work())
        late = asyncio.create_task(sleep("1h"))
        await it.note("begun")
        await sleep("10m")
        await it.note("10 minutes later")
        working.cancel()
        late.cancel()

    async with virtual(it.app, url=database_url) as world:
        run = await flow.start()
        await world.advance("9m")
        assert it.calls == ["begun"]
        await world.advance("2m")
        assert it.calls == ["begun", "10 minutes later"]
        assert await run.status() == "completed"
        await sound(it.app)
