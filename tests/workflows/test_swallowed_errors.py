"""User code that catches too much, or raises what it should not: the run stays in order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from rota import NeedsLogin, Rota, RunFailed, gather, sleep, wait_for
from rota.testing import virtual
from tests.workflows.kit import GUARD_S, attempts, result, sound, trouble

T = TypeVar("T")

CATCHES: dict[str, tuple[type[BaseException], ...]] = {
    "Exception": (Exception,),
    "CancelledError": (asyncio.CancelledError,),
    "BaseException": (BaseException,),
}


async def quietly(work: Awaitable[Any], catch: tuple[type[BaseException], ...]) -> Any:
    """Examples of careless code."""
    try:
        return await work
    except catch:
        return "swallowed"


@pytest.mark.parametrize("catch", CATCHES)
@pytest.mark.parametrize("wait", ["sleep", "signal", "child", "retry"])
async def test_a_suspension_cannot_be_swallowed(
    database_url: str, catch: str, wait: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = Rota()
    calls: list[str] = []
    tries: list[int] = []

    @app.step
    async def after() -> None:
        calls.append("after")

    @app.step(retries=1)
    async def shaky() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("once")

    @app.workflow
    async def child() -> None:
        await sleep("1h")

    waits: dict[str, Callable[[], Awaitable[Any]]] = {
        "sleep": lambda: sleep("1h"),
        "signal": lambda: wait_for("go"),
        "child": child,
        "retry": shaky,
    }

    @app.workflow
    async def flow() -> Any:
        found = await quietly(waits[wait](), CATCHES[catch])
        await after()
        return found

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        assert (await run.run()).status == "sleeping"
        assert calls == []
        if wait == "signal":
            await run.signal("go")
        await world.drain()
        assert await result(run) is None
        assert calls == ["after"]
        await sound(app)


async def test_code_that_swallows_everything_sees_no_suspension(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def flow() -> Any:
        return await quietly(sleep("1h"), (BaseException,))

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) is None


async def test_a_suspension_swallowed_in_a_branch_still_suspends(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def flow() -> list[Any]:
        return await gather(
            quietly(sleep("1h"), (BaseException,)), quietly(sleep("2h"), (BaseException,))
        )

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        assert (await run.run()).status == "sleeping"
        await world.drain()
        assert await result(run) == [None, None]


async def test_an_error_raised_in_place_of_a_suspension_does_not_fail_the_run(
    database_url: str,
) -> None:
    app = Rota()

    @app.workflow
    async def flow() -> str:
        try:
            await sleep("1h")
        except BaseException as error:
            raise RuntimeError("cleaning up went wrong") from error
        return "slept"

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == "slept"
        assert await attempts(app, run) == [(1, "manual", "completed")]


async def test_clean_up_code_runs_when_a_run_is_suspended(database_url: str) -> None:
    app = Rota()
    closed: list[int] = []

    @app.workflow
    async def flow() -> None:
        try:
            await sleep("1h")
        finally:
            closed.append(1)

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        assert closed == [1]
        await world.drain()
        assert await run.status() == "completed"


def alone(trace: Coroutine[Any, Any, T]) -> T:
    """Run a story on a loop in a thread of its own: it may take the loop down with it."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, asyncio.wait_for(trace, 4 * GUARD_S)).result()


def leaving() -> tuple[Rota, Any]:
    """An app with a workflow that calls for the end of the program, from several places."""
    app = Rota()

    @app.step
    async def leave() -> None:
        raise SystemExit(3)

    @app.step(timeout="1m")
    async def leave_timed() -> None:
        raise SystemExit(3)

    @app.step
    def leave_sync() -> None:
        raise SystemExit(3)

    @app.workflow(retries=3)
    async def flow(where: str) -> None:
        if where == "workflow":
            raise SystemExit(3)
        if where == "step":
            await leave()
        if where == "branch":
            await gather(sleep("1h"), leave())
        if where == "timed step":
            await leave_timed()
        await leave_sync.aio()

    return app, flow


@pytest.mark.parametrize("where", ["workflow", "step", "branch", "timed step", "sync step"])
def test_an_exit_in_user_code_fails_the_run_and_not_the_worker(
    database_url: str, where: str
) -> None:
    app, flow = leaving()

    @app.workflow
    async def other() -> str:
        return "fine"

    async def trace() -> tuple[str, bool, str]:
        async with virtual(app, url=database_url) as world:
            run = await app.start(flow, where)
            await world.drain()
            fine = await app.start(other)
            await world.drain()
            named = "SystemExit" in (await trouble(run))["trace"]
            return await run.status(), named, await result(fine)

    # The same class of failure wherever it happens, and none that is tried again.
    assert alone(trace()) == ("failed:internal", True, "fine")


def test_a_keyboard_interrupt_stops_the_program_and_the_run_goes_on_later(
    database_url: str,
) -> None:
    if database_url.startswith("postgres"):
        # In one process the interrupted loop's connections may outlive it and keep their locks
        # until they are collected; a program that ends takes its connections along.
        pytest.skip("needs a process of its own")
    app = Rota()
    calls: list[int] = []
    later = 0

    @app.workflow
    async def flow() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return "went on"

    async def first() -> None:
        nonlocal later
        async with virtual(app, url=database_url) as world:
            await app.start(flow)
            later = world.clock.now() + 120_000_000
            await world.drain()

    async def second() -> list[str]:
        async with virtual(app, url=database_url, start=later) as world:
            await world.beat()
            await world.drain()
            return [row.status for row in await app.runs.list()]

    with pytest.raises(KeyboardInterrupt):
        alone(first())
    assert alone(second()) == ["completed", "crashed"]


async def test_a_step_whose_inner_task_was_cancelled_fails_like_any_other(
    database_url: str,
) -> None:
    """The run was not cancelled: a stray CancelledError must not send it round for ever."""
    app = Rota()
    calls: list[int] = []

    @app.step
    async def awaits_cancelled() -> str:
        calls.append(1)
        if len(calls) > 5:
            return "went round in circles"
        task = asyncio.ensure_future(asyncio.sleep(60))
        task.cancel()
        await task
        return "no"

    @app.workflow
    async def flow() -> str:
        return await awaits_cancelled()

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert len(calls) == 1
        assert (await run.run()).status == "failed"
        with pytest.raises(RunFailed, match="CancelledError"):
            await result(run)


async def test_a_workflow_that_raises_cancelled_error_by_itself_fails(database_url: str) -> None:
    app = Rota()
    calls: list[int] = []

    @app.workflow
    async def flow() -> str:
        calls.append(1)
        if len(calls) > 5:
            return "went round in circles"
        raise asyncio.CancelledError

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert len(calls) == 1
        assert (await run.run()).status == "failed"


async def test_an_exception_group_fails_the_run_with_all_its_members(database_url: str) -> None:
    app = Rota()

    @app.workflow(retries=1)
    async def flow() -> None:
        raise ExceptionGroup("two things", [ValueError("first"), KeyError("second")])

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert [label for _, _, label in await attempts(app, run)] == ["failed:logic"] * 2
        detail = await trouble(run)
        assert detail["type"] == "ExceptionGroup"
        assert "first" in detail["trace"]
        assert "second" in detail["trace"]


async def test_a_base_exception_of_the_user_fails_the_run(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def flow() -> None:
        raise Odd("not an Exception")

    @app.workflow
    async def grouped() -> None:
        raise BaseExceptionGroup("odd ones", [Odd("one")])

    async with virtual(app, url=database_url) as world:
        runs = [await app.start(flow), await app.start(grouped)]
        await world.drain()
        assert [await run.status() for run in runs] == ["failed:internal", "failed:internal"]


class Odd(BaseException):
    """They derive from BaseException without need."""


@pytest.mark.parametrize(
    "text", ["caf\udce9", "nul \x00", "x" * 100_000], ids=["lone", "nul", "long"]
)
@pytest.mark.parametrize("where", ["workflow", "step"])
async def test_any_error_message_can_be_stored(
    database_url: str, text: str, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    app = Rota()

    @app.step
    async def step() -> None:
        raise FileNotFoundError(text)

    @app.workflow
    async def flow() -> None:
        if where == "step":
            await step()
        raise FileNotFoundError(text)

    label = "the worker cannot settle it"
    # The text must not get into a report: not every reader of reports can bear it.
    with contextlib.suppress(UnicodeError):
        async with virtual(app, url=database_url) as world:
            run = await app.start(flow)
            await world.drain()
            label = await run.status()
    assert label == "failed:transient"


async def test_an_error_that_cannot_be_printed_fails_the_run(database_url: str) -> None:
    app = Rota()

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    @app.workflow
    async def flow() -> None:
        raise Mute

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert (await run.run()).status == "failed"


async def test_a_person_is_asked_when_one_branch_of_several_needs_one(database_url: str) -> None:
    app = Rota()
    allowed = False

    @app.step
    async def guarded() -> str:
        if not allowed:
            raise NeedsLogin("log in")
        return "in"

    @app.workflow
    async def flow() -> str:
        _, found = await gather(sleep("1h"), guarded())
        return str(found)

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        assert await run.status() == "waiting:auth"
        allowed = True
        await app.runs.retry(run.id)
        await world.drain()
        assert await result(run) == "in"
