"""Code that a run cannot execute: the error says what to write, the trace has the line, the run
ends, and its neighbours complete."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rota import Rota, sleep
from rota.errors import UsageError
from rota.testing import virtual
from rota.workflows import run_loop
from tests.workflows.kit import result, sound, trouble

Code = Callable[[], Awaitable[Any]]


async def error_of(url: str, code: Code) -> dict[str, str]:
    """The error of a run of this code. Another run, which began before, completes after it."""
    app = Rota()

    @app.step
    async def note(n: int) -> int:
        return n

    @app.workflow
    async def neighbour() -> int:
        await sleep("1h")
        return await note(1)

    @app.workflow
    async def bad() -> None:
        await code()

    async with virtual(app, url=url) as world:
        beside = await app.start(neighbour)
        run = await app.start(bad)
        await world.settle()
        assert await run.status() == "failed:logic"
        await world.drain()
        assert await result(beside) == 1
        await sound(app)
        return await trouble(run)


async def reads_a_socket() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        await asyncio.get_running_loop().sock_recv(ours, 1)  # bad


async def opens_a_connection() -> None:
    await asyncio.open_connection("localhost", 1)  # bad


async def calls_a_thread() -> None:
    await asyncio.to_thread(print)  # bad


async def begins_a_subprocess() -> None:
    await asyncio.create_subprocess_exec(sys.executable, "-V", stdout=subprocess.DEVNULL)  # bad


async def runs_a_loop() -> None:
    work = asyncio.sleep(0)
    try:
        asyncio.run(work)  # bad
    finally:
        work.close()


async def runs_its_own_loop() -> None:
    work = asyncio.sleep(0)
    try:
        asyncio.get_running_loop().run_until_complete(work)  # bad
    finally:
        work.close()


async def closes_its_loop() -> None:
    asyncio.get_running_loop().close()  # bad


async def sets_a_future_from_a_thread() -> None:
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def answers() -> None:
        with contextlib.suppress(UsageError):
            loop.call_soon_threadsafe(future.set_result, 1)  # bad

    thread = threading.Thread(target=answers)
    thread.start()
    thread.join()
    await future


class Policy(asyncio.DefaultEventLoopPolicy):
    """A policy that a library may install."""


async def yields_for_ever() -> None:
    while True:
        await asyncio.sleep(0)  # bad


@pytest.mark.parametrize(
    ("code", "says", "write"),
    [
        (reads_a_socket, "used a socket (sock_recv)", "Call it in a step"),
        (opens_a_connection, "used a connection (create_connection)", "Call it in a step"),
        (calls_a_thread, "used a thread (run_in_executor)", "step.aio(…)"),
        (begins_a_subprocess, "used a subprocess (subprocess_exec)", "Call it in a step"),
        (runs_a_loop, "asyncio.run() cannot be called from a running event loop", ""),
        (runs_its_own_loop, "used control of its event loop (run_until_complete)", "in a step"),
        (closes_its_loop, "used control of its event loop (close)", "Call it in a step"),
        (sets_a_future_from_a_thread, "outside of workflow bad completed", "send the run"),
        (yields_for_ever, "it yields in a loop, and waits for nothing", "Wait for a step"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)  # fmt: skip
async def test_the_error_says_what_to_write_and_neighbours_complete(
    database_url: str, monkeypatch: pytest.MonkeyPatch, code: Any, says: str, write: str
) -> None:
    monkeypatch.setattr(run_loop, "CALLBACKS_MAX", 50_000)
    error = await error_of(database_url, code)
    text = error["message"] + error["trace"]
    assert says in error["message"]
    assert write in text
    if code is yields_for_ever:
        assert "test_bad_code.py:" in error["message"], "nothing raises at the line"
    else:
        assert "# bad" in text, "the trace has the line"


async def test_a_policy_and_a_factory_of_a_library_serve_only_who_asked(
    database_url: str,
) -> None:
    """The loop of a run is neither made by a policy nor changed by the host's factory."""
    app = Rota()
    made: list[str] = []

    def factory(loop: Any, work: Any, **options: Any) -> asyncio.Task[Any]:
        made.append(type(loop).__name__)
        return asyncio.Task(work, loop=loop, **options)

    @app.step
    async def note(n: int) -> int:
        return n

    @app.workflow
    async def plain() -> list[int]:
        found = await asyncio.gather(note(1), note(2))
        await sleep("1h")
        return [*found, *await asyncio.gather(note(3), note(4))]

    @app.workflow
    async def with_a_factory() -> list[int]:
        asyncio.get_running_loop().set_task_factory(factory)
        return await plain.function()

    host = asyncio.get_running_loop()
    policy = asyncio.get_event_loop_policy()
    async with virtual(app, url=database_url) as world:
        asyncio.set_event_loop_policy(Policy())
        host.set_task_factory(factory)
        try:
            first, second = await app.start(plain), await app.start(with_a_factory)
            await world.drain()
        finally:
            host.set_task_factory(None)
            asyncio.set_event_loop_policy(policy)
        assert await result(first) == await result(second) == [1, 2, 3, 4]
        assert set(made) >= {"RunLoop"}, "a run may set a factory of its own"
        await sound(app)


async def test_tasks_that_outlive_the_code_are_cancelled_with_the_run(database_url: str) -> None:
    app = Rota()
    ends: list[str] = []

    async def left(name: str) -> None:
        try:
            await sleep("1d")
        except asyncio.CancelledError:
            ends.append(name)
            raise

    @app.workflow
    async def leaves() -> str:
        tasks = [asyncio.create_task(left(name)) for name in "ab"]
        await sleep("1m")
        return f"{len(tasks)} left"

    async with virtual(app, url=database_url) as world:
        run = await app.start(leaves)
        await world.drain()
        assert await result(run) == "2 left"
        assert ends[-2:] == ["a", "b"]
        await sound(app)


@pytest.mark.slow
async def test_a_run_may_have_100_000_tasks() -> None:
    app = Rota()

    @app.step
    async def note(n: int) -> int:
        return n

    @app.workflow
    async def neighbour() -> int:
        return await note(1)

    @app.workflow
    async def wide() -> int:
        queue: asyncio.Queue[int] = asyncio.Queue()
        tasks = [asyncio.create_task(queue.put(n)) for n in range(100_000)]
        await asyncio.wait(tasks)
        found = sum([await queue.get() for _ in tasks])
        await sleep("1h")
        return found

    async with virtual(app) as world:
        run = await app.start(wide)
        beside = await app.start(neighbour)
        await world.drain()
        assert await result(run) == sum(range(100_000))
        assert await result(beside) == 1
        await sound(app)
