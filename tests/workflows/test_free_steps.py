"""Steps of no app: `rota.step` of libraries, `rota.run_step`, and steps that a workflow makes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import rota
from rota import Rota, blocking, run_step, sleep
from rota.errors import UnknownOption, UsageError
from rota.testing import virtual
from tests.workflows.kit import Receipt, keys, result, sound, trouble

calls: list[str] = []


@rota.step(name="shop.charge", retries=2)
async def charge(order: str) -> Receipt:
    calls.append(order)
    if len(calls) == 1:
        raise ConnectionError("down")
    return Receipt(order, 7)


@rota.step
def label(order: str) -> str:
    return f"{order} in {threading.current_thread().name.partition('_')[0]}"


def plain(order: str, times: int = 1) -> str:
    calls.append(f"plain {order}")
    return order * times


async def afar(order: str) -> str:
    calls.append(f"afar {order}")
    return f"afar {order}"


async def test_a_step_of_a_library_works_in_each_app(database_url: str) -> None:
    calls.clear()
    for _ in range(2):
        app = Rota()

        @app.workflow
        async def flow(order: str) -> list[Any]:
            receipt = await charge(order)
            await sleep("1h")
            return [receipt.total, await label.aio(order)]

        async with virtual(app, url=database_url) as world:
            run = await flow.start("o-7")
            await world.drain()
            assert await result(run) == [7, "o-7 in rota-step"]
            assert await keys(app, run) == ["shop.charge#0", "sleep#0", "label#0"]
            await sound(app)
    assert calls == ["o-7"] * 3


async def test_a_sync_workflow_calls_the_step_of_a_library(database_url: str) -> None:
    app = Rota()

    @app.workflow
    def flow() -> str:
        return label("o-7")

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert await result(run) == "o-7 in rota-step"


def test_an_option_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UnknownOption, match="retrys"):
        rota.step(retrys=3)  # type: ignore[call-overload]


async def test_two_different_steps_of_one_name_are_refused_in_one_run(database_url: str) -> None:
    app = Rota()
    calls.clear()

    @app.step(name="label")
    def other(order: str) -> str:
        calls.append(order)
        return order

    @app.workflow
    async def flow() -> None:
        await label.aio("o-7")
        await other.aio("o-7")

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        said = await trouble(run)
        assert "two different steps of this run have the name label" in said["message"]
        assert f"{__name__}.label and {__name__}." in said["message"]
        assert calls == []


async def test_a_step_that_the_workflow_makes_works_at_every_execution(database_url: str) -> None:
    app = Rota()
    calls.clear()

    async def double(n: int) -> int:
        calls.append(f"double {n}")
        return 2 * n

    @app.workflow
    async def flow() -> list[int]:
        def local(n: int) -> int:
            calls.append(f"local {n}")
            return n

        found = []
        for n in (1, 2):
            found.append(await app.step(double)(n))
            await sleep("1h")
            found.append(await app.step(retries=2)(local).aio(n))
        return found

    async with virtual(app, url=database_url) as world:
        for _ in range(2):
            run = await flow.start()
            await world.drain()
            assert await result(run) == [2, 1, 4, 2]
        assert calls == ["double 1", "local 1", "double 2", "local 2"] * 2
        await sound(app)
    app.step(double)  # the app itself registers it once
    with pytest.raises(UsageError, match="registered twice"):
        app.step(double)


@pytest.mark.parametrize("is_sync", [False, True], ids=["async", "sync"])
async def test_run_step_records_results_under_its_name(database_url: str, is_sync: bool) -> None:
    app = Rota()
    calls.clear()

    @app.workflow(name="flow")
    async def flow() -> list[Any]:
        one = await run_step("order", plain, "a", times=2)
        await sleep("1h")
        two = await run_step("order", plain, "b", retries=3, timeout="10s")
        return [one, two, await run_step("far", afar, "c"), await run_step("size", max, 4, 3)]

    def sync_flow() -> list[Any]:
        one = blocking.run_step("order", plain, "a", times=2)
        blocking.sleep("1h")
        two = blocking.run_step("order", plain, "b", retries=3, timeout="10s")
        far = blocking.run_step("far", afar, "c")
        return [one, two, far, blocking.run_step("size", max, 4, 3)]

    if is_sync:
        app = Rota()
        app.workflow(name="flow")(sync_flow)
    async with virtual(app, url=database_url) as world:
        run = await app.start("flow")
        await world.drain()
        assert await result(run) == ["aa", "b", "afar c", 4]
        assert await keys(app, run) == ["order#0", "sleep#0", "order#1", "far#0", "size#0"]
        assert calls == ["plain a", "plain b", "afar c"]
        await sound(app)


async def test_run_step_is_tried_again_and_runs_sync_functions_in_a_thread(
    database_url: str,
) -> None:
    app = Rota()
    seen: list[str] = []

    def shaky() -> str:
        seen.append(threading.current_thread().name.partition("_")[0])
        if len(seen) < 3:
            raise ConnectionError("down")
        return "done"

    @app.workflow
    async def flow() -> str:
        return await run_step("shaky", shaky, retries=2)

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert await result(run) == "done"
        assert seen == ["rota-step"] * 3


def constant(n: int) -> Callable[[], int]:
    return lambda: n


async def test_two_functions_under_one_name_are_refused(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def flow() -> None:
        for n in range(3):  # one piece of code, three closures
            await run_step("number", constant(n))
        await run_step("number", lambda: 3)

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert "two different steps of this run" in (await trouble(run))["message"]
        assert await keys(app, run) == ["number#0", "number#1", "number#2"]


async def test_a_lambda_around_an_async_function_is_refused(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def flow() -> None:
        await run_step("far", lambda: afar("a"))

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert "returned a coroutine" in (await trouble(run))["message"]


async def test_run_step_without_await_is_named(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def flow() -> None:
        run_step("far", afar, "a")  # type: ignore[unused-coroutine]

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert "called run_step without awaiting it" in (await trouble(run))["message"]


async def test_outside_of_a_workflow_run_step_is_a_plain_call() -> None:
    assert await run_step("order", plain, "a", times=2) == "aa"
    assert await run_step("far", afar, "c", retries=3) == "afar c"
    assert await asyncio.to_thread(blocking.run_step, "order", plain, "a") == "a"
