"""Sync workflows: ordinary functions in threads, with steps, children and suspension."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rota import NeedsLogin, Rota, RunFailed, StepFailed, blocking, sleep, this_run, uuid
from rota.testing import virtual
from tests.workflows.kit import (
    GUARD_S,
    Receipt,
    attempts,
    children,
    eventually,
    keys,
    result,
    sound,
    trouble,
)


def sync_family() -> tuple[Rota, Any, list[str]]:
    """A sync parent with steps around an async child that sleeps for an hour."""
    app = Rota()
    calls: list[str] = []

    @app.step
    def before(n: int) -> Receipt:
        calls.append("before")
        return Receipt("before", n)

    @app.step
    def after(n: int) -> int:
        calls.append("after")
        return n * 2

    @app.workflow
    def nap(n: int) -> int:
        calls.append("nap")
        return n + 1

    @app.workflow
    def parent(n: int) -> int:
        receipt = before(n)
        return after(nap(receipt.total))

    return app, parent, calls


async def test_a_sync_workflow_suspends_while_its_child_runs(database_url: str) -> None:
    app, parent, calls = sync_family()
    async with virtual(app, url=database_url) as world:
        run = await app.start(parent, 3)
        await world.drain()
        assert await result(run) == 8
        assert calls == ["before", "nap", "after"]
        assert (await run.run()).claim_count == 2
        assert (await keys(app, run))[:2] == ["before#0", "start nap#0"]
        assert len(await children(app, run)) == 1
        await sound(app)


async def test_a_sync_workflow_runs_off_the_event_loop(database_url: str) -> None:
    app = Rota()
    threads: list[str] = []

    @app.step
    def inside() -> None:
        threads.append(threading.current_thread().name)

    @app.workflow
    def flow() -> None:
        threads.append(threading.current_thread().name)
        inside()

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await run.status() == "completed"
        assert threading.current_thread().name not in threads
        assert len(set(threads)) == 2


async def test_more_sync_runs_than_threads_for_steps_end_all_the_same(database_url: str) -> None:
    app = Rota(threads=1, slots=8)

    @app.step
    def work(n: int) -> int:
        return n

    @app.workflow
    def flow(n: int) -> int:
        return work(n) + work(n)

    async with virtual(app, url=database_url) as world:
        runs = await app.start_many(flow, [(n,) for n in range(20)])
        await world.drain()
        assert [await result(run) for run in runs] == [2 * n for n in range(20)]


async def test_a_sync_step_out_of_attempts_raises_step_failed(database_url: str) -> None:
    app = Rota()
    calls: list[int] = []

    @app.step(retries=1)
    def shaky() -> None:
        calls.append(1)
        raise ValueError("no")

    @app.workflow
    def flow() -> str:
        try:
            shaky()
        except StepFailed as error:
            return str(error)
        return "good"

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert "ValueError: no" in await result(run)
        assert len(calls) == 2


async def test_a_sync_workflow_fails_retries_and_asks_like_any_other(database_url: str) -> None:
    app = Rota()
    calls: list[int] = []

    @app.workflow(retries=1)
    def flow() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("down")
        if len(calls) == 2:
            raise NeedsLogin("log in")
        return "in"

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await attempts(app, run) == [
            (1, "manual", "failed:transient"),
            (2, "retry", "waiting:auth"),
        ]
        await app.runs.retry(run.id)
        await world.drain()
        assert await result(run) == "in"


async def test_a_sync_workflow_that_catches_everything_is_suspended_all_the_same(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = Rota()
    calls: list[str] = []

    @app.workflow
    async def slow() -> int:
        await sleep("1h")
        return 1

    @app.workflow
    def middle() -> int:
        return 1

    @app.step
    def after() -> None:
        calls.append("after")

    @app.workflow
    def flow() -> Any:
        try:
            found: Any = middle()
        except BaseException:
            found = "swallowed"
        after()
        return found

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == 1
        assert calls == ["after"]


async def test_an_async_step_in_a_sync_workflow_is_answered_plainly(database_url: str) -> None:
    """Either it works or it says what to write: never a coroutine that is not awaited."""
    app = Rota()

    @app.step
    async def fetch() -> int:
        return 1

    @app.workflow
    def flow() -> int:
        fetch()  # type: ignore[unused-coroutine]  # wrong on purpose
        return 1

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await run.status() == "failed:logic"
        assert "step fetch is async" in (await trouble(run))["message"]


async def test_an_async_child_in_a_sync_workflow_is_answered_plainly(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def child() -> int:
        return 1

    @app.workflow
    def flow() -> int:
        child()  # type: ignore[unused-coroutine]  # wrong on purpose
        return 1

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await run.status() == "failed:logic"
        assert "child" in (await trouble(run))["message"]


def test_a_sync_child_in_an_async_workflow_does_not_block_the_loop(database_url: str) -> None:
    app = Rota()
    found: list[str] = []

    @app.workflow
    def child() -> int:
        return 1

    @app.workflow
    async def flow() -> int:
        return child()

    async def trace() -> None:
        async with virtual(app, url=database_url) as world:
            run = await app.start(flow)
            await world.drain()
            found.extend([await run.status(), (await trouble(run))["message"]])

    # A blocked loop cannot be rescued from within, so it is left behind.
    loop = threading.Thread(target=asyncio.run, args=[trace()], daemon=True)
    loop.start()
    loop.join(GUARD_S)
    assert found, "the loop is blocked"
    assert found[0] == "failed:logic"
    assert "child" in found[1]


async def test_a_sync_child_can_be_started_and_awaited_in_an_async_workflow(
    database_url: str,
) -> None:
    app = Rota()

    @app.workflow
    def child() -> int:
        return 1

    @app.workflow
    async def flow() -> int:
        return int(await (await app.start(child)).result())

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == 1


async def test_the_failure_of_a_child_reaches_a_sync_parent(database_url: str) -> None:
    app = Rota()

    @app.workflow
    def child() -> int:
        raise ValueError("spilt milk")

    @app.workflow
    def flow() -> str:
        try:
            return str(child())
        except RunFailed as error:
            return str(error)

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert "spilt milk" in await result(run)


async def test_a_sync_run_knows_itself_and_draws_the_same_values(database_url: str) -> None:
    app = Rota()
    seen: list[str] = []

    @app.workflow
    def child() -> None:
        blocking.sleep("1h")  # the parent suspends, and is replayed

    @app.workflow
    def flow() -> str:
        seen.append(f"{this_run().id} {uuid()}")
        child()
        return this_run().id

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == run.id
        assert len(seen) == 2
        assert len(set(seen)) == 1


@pytest.mark.usefixtures("hanging_threads")
async def test_a_sync_run_past_its_timeout_executes_no_further_step(database_url: str) -> None:
    app = Rota()
    begun, release, over = threading.Event(), threading.Event(), threading.Event()
    calls: list[str] = []

    @app.step
    def after() -> None:
        calls.append("after")

    @app.workflow(timeout="1m")
    def flow() -> None:
        begun.set()
        release.wait(20)
        try:
            after()
        finally:
            over.set()

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        await eventually(begun.is_set)
        await world.advance("1m")
        assert await run.status() == "failed:timeout"
        release.set()
        await eventually(over.is_set)
        assert calls == []


@pytest.mark.usefixtures("hanging_threads")
async def test_sync_code_that_is_stuck_does_not_keep_the_program_from_leaving(
    database_url: str,
) -> None:
    app = Rota()
    begun, release = threading.Event(), threading.Event()

    @app.workflow
    def flow() -> None:
        begun.set()
        release.wait(20)

    try:
        async with virtual(app, url=database_url) as world:
            run = await app.start(flow)
            await world.settle()
            await eventually(begun.is_set)
        async with virtual(app, url=database_url):
            assert (await app.runs.get(run.id)).status == "pending"
    finally:
        release.set()
        await asyncio.sleep(0)


async def test_an_async_workflow_may_call_sync_steps_in_threads(database_url: str) -> None:
    app = Rota()
    calls: list[int] = []
    both = threading.Barrier(2)

    @app.step
    def work(n: int) -> int:
        calls.append(n)
        both.wait(20)
        return n

    @app.workflow
    async def flow() -> list[int]:
        found = await asyncio.gather(*[work.aio(n) for n in range(2)])
        await sleep("1h")
        return found

    async with virtual(app, url=database_url) as world:
        for _ in range(5):
            run = await flow.start()
            await world.drain()
            assert await result(run) == [0, 1]
        assert sorted(calls) == [0] * 5 + [1] * 5


async def test_a_step_in_a_thread_of_the_user_is_warned_of_once(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = Rota()
    calls: list[int] = []

    @app.step
    def work(n: int) -> int:
        calls.append(n)
        return n

    @app.workflow
    def flow() -> list[int]:
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(work, range(3)))

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert await result(run) == [0, 1, 2]
        assert await keys(app, run) == []
    assert work(3) == 3  # outside of a worker, a plain call needs no warning
    assert [line[:37] for line in caplog.messages] == ["step work was called in thread Thread"]
