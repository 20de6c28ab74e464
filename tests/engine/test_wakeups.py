"""Wake-ups within a process and between processes. They only save time."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rota import Client, Fatal, Rota, Start, wait_for
from rota.client.handle import RunHandle
from rota.client.start import RunOptions
from rota.engine.wakeups import READY, Wakeups
from rota.settings import Settings
from rota.store.backend.database import open_url
from rota.store.runs.start import start_runs
from rota.testing import VirtualClock
from tests.engine.kit import Gate, beside, eventually, live, pass_time
from tests.workflows.kit import result


def plain() -> tuple[Rota, Any]:
    app = Rota()

    @app.workflow
    async def flow(n: int) -> int:
        return n

    return app, flow


async def test_everyone_in_this_process_receives_a_notification(database_url: str) -> None:
    app, _ = plain()
    notified: list[str] = []
    async with live(app, database_url):
        app.connection.wakeups.subscribe(notified.append)
        app.connection.wakeups.notify_soon("word")
        assert notified == ["word"]
        app.connection.wakeups.unsubscribe(notified.append)
        app.connection.wakeups.notify_soon("another")
        assert notified == ["word"]


async def test_other_processes_receive_a_notification_and_the_sender_not_twice(
    database_url: str,
) -> None:
    one, other = open_url(database_url, Settings()), open_url(database_url, Settings())
    await one.open()
    await other.open()
    try:
        here, there = Wakeups(one), Wakeups(other)
        received_here: list[str] = []
        received_there: list[str] = []
        await here.listen()
        await there.listen()
        here.subscribe(received_here.append)
        there.subscribe(received_there.append)
        here.notify_soon("word")
        await eventually(lambda: "word" in received_there)
        assert received_here.count("word") <= 2  # a database may echo; that does no harm
    finally:
        await one.close()
        await other.close()


async def test_a_start_by_another_process_wakes_the_worker(database_url: str) -> None:
    app, _ = plain()
    async with live(app, database_url) as clock:
        client = Client(database_url, clock=clock)
        async with client:
            run = await client.start("flow", n=3)
            assert await run.result(timeout=60) == 3


async def test_a_delayed_start_by_another_process_is_timed_exactly(database_url: str) -> None:
    app, _ = plain()
    other, flow = plain()
    async with live(app, database_url) as clock, beside(other, database_url, clock):
        await eventually(lambda: app.runtime is not None and app.runtime.worker.due_at is None)
        run = await other.options(delay="1s").start(flow, 1)
        await eventually(
            lambda: app.runtime is not None and app.runtime.worker.due_at == clock.now() + 1_000_000
        )
        clock.move_to(clock.now() + 1_000_000)
        assert await result(run) == 1
        row = await run.run()
        assert row.started_at == row.created_at + 1_000_000


async def silently(other: Rota, flow: Any) -> list[RunHandle[Any]]:
    """One run for now and one for later, written without a notification."""
    runs = [
        other.starter.new_run(flow, (n,), {}, RunOptions(delay=delay))
        for n, delay in ((1, 0), (2, "7s"))
    ]
    await other.connection.database.write(start_runs, runs, now=other.clock.now())
    return [other.runs.handle(run.id, flow) for run in runs]


@pytest.mark.wall_clock("nothing may happen in a moment of real time")
async def test_work_without_a_notification_is_found_by_the_poll(database_url: str) -> None:
    app, flow = plain()
    other, _ = plain()
    async with live(app, database_url) as clock, beside(other, database_url, clock):
        run, later = await silently(other, flow)
        await asyncio.sleep(0.05)
        assert await run.status() == "pending"
        await pass_time(clock, "6s")
        assert await app.runs.handle(run.id).result(timeout=60) == 1
        await pass_time(clock, "6s")
        assert await app.runs.handle(later.id).result(timeout=60) == 2


async def test_a_word_nobody_knows_does_no_harm(database_url: str) -> None:
    app, flow = plain()
    async with live(app, database_url):
        app.connection.wakeups.notified("nonsense")
        app.connection.wakeups.notified("*")
        app.connection.wakeups.notified(READY)
        assert await result(await app.start(flow, 1)) == 1


class StoppedLoop:
    """A client with an event loop that runs only during a call, as in a script with
    `asyncio.run`.
    """

    def __init__(self, url: str, clock: VirtualClock) -> None:
        self._runner = asyncio.Runner()
        self._client = Client(url, clock=clock, migrate=False)
        self._runner.run(self._client.connect())

    def call(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        """One verb; afterwards the loop stops."""

        async def call() -> Any:
            if verb == "start later":
                return await self._client.options(delay="1s").start(*args, **kwargs)
            owner = self._client if hasattr(self._client, verb) else self._client.runs
            return await getattr(owner, verb)(*args, **kwargs)

        return self._runner.run(call())

    def close(self) -> None:
        """Let the loop turn again, to disconnect."""
        self._runner.run(self._client.close())
        self._runner.close()


@contextlib.asynccontextmanager
async def stopped_loop(url: str, clock: VirtualClock) -> AsyncIterator[Any]:
    """Call verbs of a client in another thread, with a loop that stops after each."""
    with ThreadPoolExecutor(1) as thread:
        loop = asyncio.get_running_loop()
        other = await loop.run_in_executor(thread, StoppedLoop, url, clock)

        async def call(verb: str, *args: Any, **kwargs: Any) -> Any:
            work = functools.partial(other.call, verb, *args, **kwargs)
            return await loop.run_in_executor(thread, work)

        try:
            yield call
        finally:
            await loop.run_in_executor(thread, other.close)


async def completed(app: Rota, count: int) -> bool:
    return (await app.runs.counts()).get("completed", 0) == count


async def test_a_burst_of_starts_needs_no_event_loop_afterwards(database_url: str) -> None:
    app, _ = plain()
    async with live(app, database_url) as clock, stopped_loop(database_url, clock) as call:
        for burst in range(1, 11):
            for n in range(4):
                await call("start", "flow", n=n)
            await eventually(lambda burst=burst: completed(app, 4 * burst))


async def test_many_starts_in_one_commit_need_no_event_loop_afterwards(database_url: str) -> None:
    app, _ = plain()
    async with live(app, database_url) as clock, stopped_loop(database_url, clock) as call:
        await call("start", "flow", n=0)
        await call("start_many", "flow", [Start(kwargs={"n": n}) for n in range(1000)])
        await eventually(lambda: completed(app, 1001))


def verbs(gate: Gate) -> tuple[Rota, dict[str, Any]]:
    app = Rota()

    @app.workflow
    async def waits() -> Any:
        return await wait_for("go")

    @app.workflow
    async def holds() -> None:
        await gate()

    @app.step
    async def reject() -> None:
        raise Fatal("no")

    @app.workflow
    async def rejected() -> None:
        await reject()

    return app, {flow.name: flow for flow in (waits, holds, rejected)}


async def test_a_signal_needs_no_event_loop_afterwards(database_url: str) -> None:
    app, flows = verbs(Gate())
    async with live(app, database_url) as clock, stopped_loop(database_url, clock) as call:
        for n in range(3):
            run = await app.start(flows["waits"])
            await eventually(lambda run=run: is_labelled(run, "sleeping:signal"))
            await call("signal", run.id, "go", n)
            assert await result(run) == n


async def is_labelled(run: RunHandle, label: str) -> bool:
    return await run.status() == label


async def test_a_cancel_needs_no_event_loop_afterwards(database_url: str) -> None:
    gate = Gate()
    app, flows = verbs(gate)
    async with live(app, database_url) as clock, stopped_loop(database_url, clock) as call:
        run = await app.start(flows["holds"])
        await eventually(lambda: gate.under_way == 1)
        await call("cancel", run.id)
        await eventually(lambda: gate.under_way == 0)


@pytest.mark.parametrize("verb", ["retry", "fork"])
async def test_a_retry_or_fork_needs_no_event_loop_afterwards(database_url: str, verb: str) -> None:
    app, flows = verbs(Gate())
    words = {"from_step": "reject#0"} if verb == "fork" else {}
    async with live(app, database_url) as clock, stopped_loop(database_url, clock) as call:
        run = await app.start(flows["rejected"])
        await eventually(lambda: has_failed(app, 1))
        await call(verb, run.id, **words)
        await eventually(lambda: has_failed(app, 2))


async def has_failed(app: Rota, count: int) -> bool:
    return (await app.runs.counts()).get("failed") == count


async def test_a_delayed_start_needs_no_event_loop_afterwards(database_url: str) -> None:
    app, _ = plain()
    async with live(app, database_url) as clock, stopped_loop(database_url, clock) as call:
        await eventually(lambda: app.runtime is not None and app.runtime.worker.due_at is None)
        await call("start later", "flow", n=1)
        await eventually(
            lambda: app.runtime is not None and app.runtime.worker.due_at == clock.now() + 1_000_000
        )
