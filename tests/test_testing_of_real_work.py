"""Virtual time and real work: time does not pass while threads, processes and steps are at work."""

from __future__ import annotations

import asyncio
import inspect
import re
import shlex
import sys
import threading
from typing import Any

import pytest

from rota import Rota, gather, sleep, testing
from rota.automations import Context, Prepared
from rota.errors import UsageError
from rota.testing import held, virtual


async def once_passed(app: Rota, flow: Any) -> str:
    """How a run ends that has a minute of virtual time, while an hour of it passes."""
    async with virtual(app) as world:
        run = await app.start(flow)
        await world.advance("1h")
        return (await run.run()).label


async def test_time_does_not_advance_while_a_thread_works() -> None:
    app = Rota()
    begun, may_end = threading.Event(), threading.Event()

    @app.step(timeout="1m")
    def work() -> None:
        begun.set()
        assert may_end.wait(20)

    @app.workflow
    async def flow() -> None:
        await work.aio()

    asyncio.get_running_loop().call_later(3 * testing.GRACE_S, may_end.set)
    assert await once_passed(app, flow) == "completed"
    assert begun.is_set()


async def test_time_does_not_advance_while_a_sync_handler_works() -> None:
    app = Rota(keep_days=0, phase_s=60)
    line = app.automation("line", timezone="UTC")
    work = line.topic("work", external=True)
    may_end = threading.Event()
    done: list[str] = []

    def prepare(ctx: Context, state: Any) -> Prepared:
        events = ctx.peek(work)
        if events:
            assert may_end.wait(20)
        done.extend(event.id for event in events)
        return Prepared(events)

    line.consumer("worker", subscribes=[work], prepare=prepare)
    async with virtual(app) as world:
        await world.settle()
        await app.automations.publish("line", "work", "e1")
        asyncio.get_running_loop().call_later(3 * testing.GRACE_S, may_end.set)
        await world.advance("1h")
        assert done == ["e1"]


@pytest.mark.parametrize("shell", [False, True])
async def test_time_does_not_advance_while_a_child_process_works(
    shell: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(testing, "GRACE_S", 0.001)  # shorter than any process takes
    app = Rota()

    @app.step(timeout="1m")
    async def work() -> int:
        command = [sys.executable, "-c", "pass"]
        made = asyncio.create_subprocess_shell(shlex.join(command)) if shell else (
            asyncio.create_subprocess_exec(*command)
        )  # fmt: skip
        return await (await made).wait()

    @app.workflow
    async def flow() -> None:
        await work()

    assert await once_passed(app, flow) == "completed"


async def test_time_does_not_advance_while_a_server_of_the_same_process_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(testing, "GRACE_S", 0.0)
    app = Rota()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)

    @app.step(timeout="1m")
    async def work() -> str:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"hello\n")
        said = await reader.read()
        writer.close()
        return said.decode()

    @app.workflow
    async def flow() -> None:
        assert await work() == "hello\n"

    async with server:
        assert await once_passed(app, flow) == "completed"


def fetching(seconds: float, **options: Any) -> tuple[Rota, Any, list[int]]:
    """A workflow with a step that awaits something real; the attempts of the step."""
    app = Rota()
    attempts: list[int] = []

    @app.step(**options)
    async def fetch() -> str:
        attempts.append(1)
        await asyncio.sleep(seconds)
        return "fetched"

    @app.workflow
    async def flow() -> str:
        return await fetch()

    return app, flow, attempts


async def test_time_waits_for_a_step_that_awaits_something_real(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(testing, "GRACE_S", 0.01)
    app, flow, attempts = fetching(0.3, timeout="10s", retries=2)
    async with virtual(app, url=database_url) as world:
        began = world.clock.now()
        run = await flow.start()
        await world.drain()
        assert await run.result() == "fetched"
        assert attempts == [1]
        assert world.clock.now() == began, "no timer of the step has fired"


@pytest.mark.parametrize("settles", [True, False])
async def test_a_result_comes_though_a_step_awaits_something_real(
    database_url: str, settles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(testing, "GRACE_S", 0.01)
    monkeypatch.setattr(testing, "REAL_WORK_S", 0.05)
    app, flow, _ = fetching(0.3)
    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.settle()  # gives up before the step has ended
        monkeypatch.setattr(testing, "REAL_WORK_S", 20)
        if settles:
            await world.settle()
        assert await asyncio.wait_for(run.result(), 20) == "fetched"


async def test_time_waits_for_one_run_while_others_only_sleep(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(testing, "GRACE_S", 0.01)
    app, flow, _ = fetching(0.3)
    order: list[str] = []

    @app.step
    async def note(what: str) -> None:
        order.append(what)

    @app.workflow
    async def real() -> None:
        await note(await flow.function())

    @app.workflow
    async def nap() -> None:
        await sleep("1s")
        await note("slept")

    async with virtual(app, url=database_url) as world:
        await nap.start()
        await real.start()
        await world.advance("1h")
        assert order == ["fetched", "slept"]


async def test_the_end_of_a_call_is_waited_for_however_late_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call of the store that ends at the end of the grace may still lead to more."""
    app = Rota()
    opened = asyncio.Event()

    @app.step
    async def wait() -> None:
        with held():
            await opened.wait()

    @app.workflow
    async def flow() -> None:
        await wait()

    async def answer(iterations: int) -> None:
        for _ in range(iterations):
            await asyncio.sleep(0)

    async def follow(iterations: int) -> None:
        await call(iterations)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async with virtual(app) as world:
        await app.start(flow)
        await world.settle()
        call = world._calls._counted(answer)
        monkeypatch.setattr(testing, "GRACE_S", 0)
        monkeypatch.setattr(testing, "GRACE_ITERATIONS", 5)
        for iterations in range(20):
            following = asyncio.ensure_future(follow(iterations))
            await asyncio.sleep(0)
            await world.settle()
            assert following.done(), iterations
        opened.set()


async def test_time_passes_while_a_step_waits_for_its_next_attempt(database_url: str) -> None:
    app = Rota()
    attempts: list[int] = []

    @app.step(retries=3)
    async def work() -> None:
        attempts.append(1)
        raise ConnectionError("down")

    @app.step
    async def waits() -> None:
        with held():
            await asyncio.Event().wait()

    @app.workflow
    async def flow() -> None:
        await gather(work(), waits())

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.advance("1d")
        assert len(attempts) == 4
        assert (await run.run()).status == "failed"


@pytest.mark.parametrize("verb", ["advance", "drain", "result"])
async def test_a_step_that_never_ends_is_named_with_its_line(
    database_url: str, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(testing, "REAL_WORK_S", 0.2)
    app = Rota()

    async def hangs() -> None:
        await asyncio.Event().wait()  # this line

    @app.step(timeout="1m")
    async def work() -> None:
        await hangs()

    @app.workflow
    async def flow() -> None:
        await work()

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.settle()
        with pytest.raises(UsageError, match="step work has waited for something real") as error:
            await {
                "advance": lambda: world.advance("1h"), "drain": world.drain, "result": run.result,
            }[verb]()  # fmt: skip
        source, first = inspect.getsourcelines(hangs)
        assert f"{__file__}:{first + len(source) - 1}" in str(error.value)
        assert await run.status() == "running", "its timeout has not fired"


async def test_a_sync_step_that_never_ends_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testing, "REAL_WORK_S", 0.2)
    app = Rota()
    may_end = threading.Event()

    @app.step(timeout="1m")
    def work() -> None:
        may_end.wait(20)

    @app.workflow
    async def flow() -> None:
        await work.aio()

    try:
        with pytest.raises(UsageError, match=f"step work .* at {re.escape(__file__)}:"):
            await once_passed(app, flow)
    finally:
        may_end.set()


@pytest.mark.parametrize("is_async", [True, False])
async def test_time_does_not_wait_for_a_step_that_the_test_holds(
    database_url: str, is_async: bool
) -> None:
    app = Rota()
    may_end = threading.Event()

    @app.step(timeout="1m")
    async def hangs() -> None:
        with held():
            await asyncio.Event().wait()

    @app.step(timeout="1m")
    def hangs_in_thread() -> None:
        with held():
            may_end.wait(20)

    @app.workflow
    async def flow() -> None:
        await (hangs() if is_async else hangs_in_thread.aio())

    try:
        async with virtual(app, url=database_url) as world:
            run = await flow.start()
            await world.advance("59s")
            assert await run.status() == "running"
            await world.advance("1s")
            assert (await run.run()).label == "failed:timeout"
    finally:
        may_end.set()


async def test_a_step_may_wait_for_virtual_time(database_url: str) -> None:
    app = Rota()
    worlds: list[testing.World] = []

    @app.step(timeout="1m", retries=1)
    async def slow(seconds: float) -> str:
        await worlds[0].sleep(seconds)
        return "answered"

    @app.workflow
    async def flow(seconds: float) -> str:
        return await slow(seconds)

    async with virtual(app, url=database_url) as world:
        worlds.append(world)
        in_time, late = await flow.start(59), await flow.start(61)
        await world.drain()
        assert await in_time.result() == "answered"
        assert (await late.run()).label == "failed:timeout"
