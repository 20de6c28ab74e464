"""Code sees the same at its first execution and at every later one.

Each program learns something, waits, and acts on what it has learned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rota import Rota, StepFailed, gather, patched, sleep, wait_for
from rota.core.time.instants import SECOND
from rota.testing import held, virtual
from tests.workflows.kit import keys, result, trouble

Body = Callable[["Program"], Awaitable[list[str]]]


class Program:
    """An app with a workflow; what its code learned is kept for each execution."""

    def __init__(self, body: Body) -> None:
        self.app = app = Rota()
        self.learned: list[list[str]] = []
        self.paid: list[list[str]] = []

        @app.step
        async def work(seconds: float, close_s: float = 0) -> str:
            try:
                await self.nap(seconds)
            finally:
                await self.nap(close_s)
            return f"{seconds}"

        @app.step
        async def decline() -> None:
            raise ValueError("declined")

        @app.step
        async def pay(what: list[str]) -> None:
            self.paid.append(what)

        self.work, self.decline = work, decline

        @app.workflow
        async def flow() -> list[str]:
            learned = await body(self)
            self.learned.append(learned)
            await sleep("1h")
            await pay(learned)
            return learned

        self.flow = flow

    async def nap(self, seconds: float) -> None:
        """Take virtual time, in a step."""
        clock = self.app.clock
        if seconds:
            with held():
                await clock.wait(asyncio.Event(), clock.now() + round(seconds * SECOND))

    async def append(self, order: list[str], what: str, call: Awaitable[object]) -> None:
        """Note that a branch continues after a call."""
        await call
        order.append(what)


async def patched_branch(it: Program) -> list[str]:
    order: list[str] = []

    async def changed() -> None:
        if await patched("new way"):
            order.append("patched")

    await gather(it.append(order, "step", it.work(1)), changed())
    return order


async def timeout_around_a_step(it: Program) -> list[str]:
    order: list[str] = []

    async def hurried() -> None:
        try:
            async with asyncio.timeout(0.1):
                await it.work(5)
        except TimeoutError:
            order.append("timeout")

    await gather(hurried(), it.append(order, "step", it.work(0.4)))
    return order


async def loser_that_closes_slowly(it: Program) -> list[str]:
    order: list[str] = []

    async def hedged() -> None:
        tasks = [asyncio.create_task(it.work(0.1)), asyncio.create_task(it.work(9, 0.3))]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        tasks[1].cancel()
        await asyncio.wait(tasks)
        order.append("hedge")

    await gather(hedged(), it.append(order, "other", it.work(0.2)))
    return order


async def cause_of_a_failure(it: Program) -> list[str]:
    try:
        await it.decline()
    except StepFailed as error:
        return [type(error.__cause__).__name__, str(error.__cause__)]
    return []


async def finally_that_waits_for_a_branch(it: Program) -> list[str]:
    stop, flushed = asyncio.Event(), asyncio.Event()

    async def flush() -> None:
        await stop.wait()
        await it.work(1)
        flushed.set()

    task = asyncio.create_task(flush())
    try:
        await wait_for("go", timeout=60)
    except TimeoutError:
        return ["late"]
    finally:
        stop.set()
        await flushed.wait()
        await task
    return []


async def one_after_the_other(it: Program) -> list[str]:
    guard, order = asyncio.Semaphore(1), []

    async def branch(n: int) -> None:
        async with guard:
            await sleep(n)
            order.append(f"{n}")

    await gather(*map(branch, (3, 1, 2)))
    return order


@pytest.mark.parametrize(
    ("body", "learned"),
    [
        (patched_branch, ["patched", "step"]),
        (timeout_around_a_step, ["timeout", "step"]),
        (loser_that_closes_slowly, ["hedge", "other"]),
        (cause_of_a_failure, ["RecordedError", "ValueError: declined"]),
        (finally_that_waits_for_a_branch, ["late"]),
        (one_after_the_other, ["3", "1", "2"]),
    ],
)
async def test_code_acts_on_what_it_has_learned(
    database_url: str, body: Body, learned: list[str]
) -> None:
    it = Program(body)
    async with virtual(it.app, url=database_url) as world:
        run = await it.flow.start()
        await world.drain()
        assert await run.status() == "completed"
        assert await result(run) == learned
    assert it.learned == [learned] * len(it.learned)
    assert len(it.learned) > 1
    assert it.paid == [learned]


async def test_a_run_whose_branches_share_a_lock_leaves_its_slot(database_url: str) -> None:
    """A branch that waits for another one is not at work."""
    it = Program(one_after_the_other)
    async with virtual(it.app, url=database_url) as world:
        run = await it.flow.start()
        await world.settle()
        assert await run.status() == "sleeping:sleep"
        assert await keys(it.app, run) == ["sleep#0"]


async def test_a_step_that_changes_its_argument_fails_the_run(database_url: str) -> None:
    app = Rota()

    @app.step
    async def fill(items: list[str]) -> None:
        items.append("tea")

    @app.workflow
    async def flow() -> Any:
        items = ["bread"]
        await fill(items)
        return items

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.settle()
        assert await run.status() == "failed:logic"
        assert "argument of step fill changed" in (await trouble(run))["message"]
