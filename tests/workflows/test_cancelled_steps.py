"""A step that the workflow itself cancels is recorded: no replay executes it again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota import RetryPolicy, Rota, RunHandle, sleep
from rota.core.runs.stored_errors import read_error
from rota.testing import World, held, virtual
from tests.workflows.kit import attempts, keys, result, sound, trouble


class Slow:
    """A step that continues until it is cancelled, and counts how often it began."""

    def __init__(self, app: Rota, **policies: Any) -> None:
        self.begun = 0
        self.step = app.step(name="slow", **policies)(self._perform)

    async def _perform(self) -> str:
        self.begun += 1
        with held():
            await asyncio.Event().wait()
        raise AssertionError("nobody lets it go")


async def until(run: RunHandle[Any], world: World, status: str) -> None:
    """Let the run come to a status that it reaches within seconds."""
    await world.advance("2s")
    assert await run.status() == status


async def cancels(slow: Slow) -> str:
    """Begin the step beside this branch, and cancel it once it is at work."""
    task = asyncio.create_task(slow.step())
    await asyncio.sleep(1)
    task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        return "cancelled"


async def test_a_step_cancelled_by_its_task_is_begun_once(database_url: str) -> None:
    app = Rota()
    slow = Slow(app)

    @app.workflow
    async def flow() -> str:
        found = await cancels(slow)
        for _ in range(3):
            await sleep("1h")
        return found

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await until(run, world, "sleeping:sleep")
        assert "slow#0" in await keys(app, run), "the record is there while the run sleeps"
        await world.drain()
        assert await result(run) == "cancelled"
        assert slow.begun == 1
        [step] = [one for one in await app.runs.steps(run.id) if one.key.startswith("slow")]
        assert (step.status, read_error(step.error)["type"]) == ("failed", "CancelledError")
        await sound(app)


async def test_a_step_that_a_replay_cancels_before_it_begins_strands_nothing(
    database_url: str,
) -> None:
    app = Rota()
    slow = Slow(app)

    @app.workflow
    async def flow() -> str:
        task = asyncio.create_task(slow.step())
        await sleep("1m")  # over at once when the code is replayed: the task has not begun then
        task.cancel()
        await asyncio.wait([task])
        await sleep("1h")
        return "cancelled" if task.cancelled() else "not cancelled"

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == "cancelled"
        assert slow.begun == 1
        await sound(app)


@pytest.mark.parametrize("how", ["wait_for", "timeout"])
async def test_a_plain_timeout_of_a_step_says_the_same_at_every_replay(
    database_url: str, how: str
) -> None:
    app = Rota()
    slow = Slow(app)
    said: list[str] = []

    async def bounded() -> None:
        if how == "wait_for":
            await asyncio.wait_for(slow.step(), 0.02)
        async with asyncio.timeout(0.02):
            await slow.step()

    @app.workflow
    async def flow() -> None:
        try:
            await bounded()
        except TimeoutError:
            said.append("timed out")
        await sleep("1h")
        await sleep("1h")

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) is None
        assert (said, slow.begun) == (["timed out"] * 3, 1)
        await sound(app)


async def test_the_record_is_there_before_the_next_step_begins(database_url: str) -> None:
    app = Rota()
    slow = Slow(app)
    seen: list[list[str]] = []

    @app.step
    async def look() -> None:
        seen.append(await keys(app, run))

    @app.workflow
    async def flow() -> None:
        await cancels(slow)
        await look()

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) is None
        assert seen == [["timer 1s#0", "slow#0"]]


async def test_a_retry_of_the_run_tries_a_cancelled_step_again_that_nothing_caught(
    database_url: str,
) -> None:
    app = Rota()
    slow = Slow(app)

    @app.workflow(retries=RetryPolicy(attempts=2, delay_s=1))
    async def flow() -> None:
        async with asyncio.timeout(0.02):
            await slow.step()

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert [row[0] for row in await attempts(app, run)] == [1, 2]
        assert slow.begun == 2
        await sound(app)


async def test_a_step_cancelled_between_its_tries_is_not_tried_again(database_url: str) -> None:
    app = Rota()
    tries: list[int] = []

    @app.step(retries=RetryPolicy(attempts=3, delay_s=7200))
    async def flaky() -> None:
        tries.append(1)
        raise ConnectionError("down")

    @app.workflow
    async def flow() -> str:
        task = asyncio.create_task(flaky())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        await sleep("3h")
        return "cancelled" if task.cancelled() else "not cancelled"

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == "cancelled"
        assert len(tries) == 1
        await sound(app)


async def test_a_step_that_the_worker_interrupts_leaves_no_record(database_url: str) -> None:
    app = Rota()
    slow = Slow(app)

    @app.workflow
    async def flow() -> None:
        await asyncio.gather(slow.step(), slow.step())

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
    async with virtual(app, url=database_url) as world:
        assert await keys(app, run) == [], "a worker that stops hands its runs over"
        await world.settle()
        assert slow.begun == 4
        await app.runs.cancel(run.id)
        await world.beat()
        await world.settle()
        assert await keys(app, run) == []


async def test_code_that_no_longer_cancels_the_step_strands_the_run(database_url: str) -> None:
    app = Rota()
    slow = Slow(app)
    deployed: list[int] = []

    @app.workflow
    async def branched() -> None:
        if deployed:
            task = asyncio.create_task(slow.step())
            await asyncio.sleep(1)
            await task
        else:
            await cancels(slow)
        await sleep("1h")

    async with virtual(app, url=database_url) as world:
        run = await app.start(branched)
        await until(run, world, "sleeping:sleep")
        deployed.append(1)
        await world.drain()
        assert await run.status() == "failed:stranded"
        assert "the code cancelled slow#0" in (await trouble(run))["message"]
        assert slow.begun == 1


async def test_a_step_that_raises_cancelled_error_by_itself_fails(database_url: str) -> None:
    app = Rota()

    @app.step(retries=1)
    async def odd() -> None:
        raise asyncio.CancelledError

    @app.workflow
    async def flow() -> None:
        await odd()

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert (
            "raised CancelledError, although nothing cancelled it"
            in (await trouble(run))["message"]
        )


async def test_code_that_no_longer_cancels_the_step_makes_no_new_call(database_url: str) -> None:
    app = Rota()
    slow = Slow(app)
    deployed: list[int] = []
    waits: list[str] = []

    @app.step
    async def note() -> None:
        waits.append("note")

    @app.workflow
    async def flow() -> None:
        task = asyncio.create_task(slow.step())
        await asyncio.sleep(1)
        if not deployed:
            task.cancel()
        await sleep("1h")
        await note()

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await until(run, world, "sleeping:sleep")
        deployed.append(1)
        await world.drain()
        assert await run.status() == "failed:stranded"
        assert "the code cancelled slow#0" in (await trouble(run))["message"]
        assert (slow.begun, waits) == (1, [])


@pytest.mark.parametrize("end", ["returns", "fails"])
async def test_a_step_that_swallows_its_cancellation_counts_as_cancelled(
    database_url: str, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it does then, live and at every replay, and nothing is tried again."""
    app = Rota()
    begun: list[int] = []

    @app.step(retries=3)
    async def stubborn() -> str:
        begun.append(1)
        try:
            with held():
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            if end == "fails":
                raise ConnectionError("while it closed") from None
        return "a result"

    @app.workflow
    async def flow() -> str:
        task = asyncio.create_task(stubborn())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        for _ in range(2):
            await sleep("1h")
        return "cancelled" if task.cancelled() else "not cancelled"

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == "cancelled"
        [step] = [one for one in await app.runs.steps(run.id) if one.key == "stubborn#0"]
        assert (step.status, read_error(step.error)["type"]) == ("failed", "CancelledError")
        assert len(begun) == 1
        assert "while it closed" not in caplog.text
        await sound(app)
