"""Calls that look durable and are not: each is refused with a sentence, or logged once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

from rota import Rota, RunHandle, Start, blocking, gather, now, sleep, sleep_until, wait_for
from rota.testing import virtual
from tests.workflows.kit import keys, result, trouble

Body = Callable[[], Coroutine[Any, Any, Any]]


async def ended(url: str, app: Rota, name: str = "flow") -> tuple[RunHandle[Any], str, str]:
    """Run a workflow to its end; returns it with its status and what its error said."""
    async with virtual(app, url=url) as world:
        run = await app.start(name)
        await world.drain()
        status = await run.status()
        return run, status, "" if status == "completed" else (await trouble(run))["message"]


def with_step(body: Callable[[Rota], Body]) -> Rota:
    """An app with a workflow that calls one step, `work`, that does `body`."""
    app = Rota()

    @app.workflow(name="child")
    async def child() -> int:
        return 1

    inner = body(app)

    @app.step
    async def work() -> Any:
        return await inner()

    @app.workflow(name="flow")
    async def flow() -> Any:
        return await work()

    return app


# -- inside a step -------------------------------------------------------------------------------


def calls_workflow(app: Rota) -> Body:
    async def body() -> Any:
        child: Any = app.workflows["child"]
        return await child()

    return body


def calls_workflow_aio(app: Rota) -> Body:
    async def body() -> Any:
        return await app.workflows["child"].aio()

    return body


def calls_sleep(app: Rota) -> Body:
    async def body() -> None:
        await sleep(0)

    return body


def calls_sleep_until(app: Rota) -> Body:
    async def body() -> None:
        from datetime import UTC, datetime

        await sleep_until(datetime(2020, 1, 1, tzinfo=UTC))

    return body


def calls_wait_for(app: Rota) -> Body:
    async def body() -> None:
        await wait_for("x")

    return body


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (calls_workflow, "workflow child was called inside step work"),
        (calls_workflow_aio, "workflow child was called inside step work"),
        (calls_sleep, "rota.sleep was called inside step work"),
        (calls_sleep_until, "rota.sleep_until was called inside step work"),
        (calls_wait_for, "wait_for was called outside of a workflow"),
    ],
)
async def test_durable_calls_inside_a_step_are_refused(
    database_url: str, body: Any, says: str
) -> None:
    _, status, message = await ended(database_url, with_step(body))
    assert status == "failed:logic"
    assert says in message


async def test_a_durable_sleep_inside_a_sync_step_is_refused(database_url: str) -> None:
    app = Rota()

    @app.step
    def work() -> None:
        blocking.sleep(0)

    @app.workflow
    def flow() -> None:
        work()

    _, status, message = await ended(database_url, app)
    assert status == "failed:logic"
    assert "rota.sleep was called inside step work" in message


async def test_a_step_inside_a_step_is_a_plain_call(database_url: str) -> None:
    app = Rota()

    @app.step
    async def inner(n: int) -> int:
        return n + 1

    @app.step
    async def outer(n: int) -> int:
        return await inner(n)

    @app.workflow
    async def flow() -> int:
        return await outer(1)

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == 2
        assert await keys(app, run) == ["outer#0"]


def starts(app: Rota) -> Body:
    async def body() -> None:
        await app.start("child")
        await app.start("child")

    return body


def starts_with_external_id(app: Rota) -> Body:
    async def body() -> None:
        await app.workflows["child"].options(external_id="once").start()

    return body


def starts_many(app: Rota) -> Body:
    async def body() -> None:
        await app.start_many("child", [Start(external_id="one"), ()])
        await app.start_many("child", iter([()]))

    return body


def starts_many_with_external_ids(app: Rota) -> Body:
    async def body() -> None:
        items = [Start(external_id=f"n{number}") for number in range(3)]
        assert len(await app.start_many("child", iter(items))) == 3

    return body


@pytest.mark.parametrize("body", [starts, starts_many])
async def test_a_start_inside_a_step_is_logged_once(
    database_url: str, caplog: pytest.LogCaptureFixture, body: Any
) -> None:
    with caplog.at_level(logging.WARNING, "rota"):
        _, status, _ = await ended(database_url, with_step(body))
    assert status == "completed"
    said = [line for line in caplog.messages if "external_id" in line]
    assert len(said) == 1
    assert "step work starts child" in said[0]


@pytest.mark.parametrize("body", [starts_with_external_id, starts_many_with_external_ids])
async def test_a_start_with_an_external_id_inside_a_step_is_nothing_to_log(
    database_url: str, caplog: pytest.LogCaptureFixture, body: Any
) -> None:
    with caplog.at_level(logging.WARNING, "rota"):
        _, status, _ = await ended(database_url, with_step(body))
    assert status == "completed"
    assert not [line for line in caplog.messages if "external_id" in line]


# -- never awaited -------------------------------------------------------------------------------


def forgetful(body: Callable[[Any, Any], Coroutine[Any, Any, Any]]) -> Rota:
    app = Rota()

    @app.step
    async def work(n: int) -> int:
        return n

    @app.workflow(name="child")
    async def child(n: int) -> int:
        return n

    @app.workflow(name="flow")
    async def flow() -> Any:
        return await body(work, child)

    return app


async def test_a_step_that_is_never_awaited_fails_the_run(database_url: str) -> None:
    async def body(work: Any, child: Any) -> None:
        await work(1)
        work(2)
        await work(3)

    _, status, message = await ended(database_url, forgetful(body))
    assert status == "failed:logic"
    assert "called work without awaiting it" in message


async def test_a_child_that_is_never_awaited_fails_the_run(database_url: str) -> None:
    async def body(work: Any, child: Any) -> None:
        child(1)

    _, status, message = await ended(database_url, forgetful(body))
    assert status == "failed:logic"
    assert "called child without awaiting it" in message


@pytest.mark.parametrize("name", ["work", "child"])
async def test_an_aio_call_that_is_never_awaited_fails_the_run(
    database_url: str, name: str
) -> None:
    async def body(work: Any, child: Any) -> None:
        await work.aio(1)
        {"work": work, "child": child}[name].aio(2)

    _, status, message = await ended(database_url, forgetful(body))
    assert status == "failed:logic"
    assert f"called {name}.aio without awaiting it" in message


FORGOTTEN: dict[str, Callable[[Rota], Any]] = {
    "sleep": lambda _: sleep("1h"),
    "sleep_until": lambda _: sleep_until(datetime(2031, 1, 1, tzinfo=UTC)),
    "wait_for": lambda _: wait_for("word"),
    "now": lambda _: now(),
    "child.start": lambda app: app.workflows["child"].start(1),
    "child.start_many": lambda app: app.workflows["child"].options(priority=1).start_many([(1,)]),
    "start": lambda app: app.start("child", 1),
    "start_many": lambda app: app.options(priority=1).start_many("child", [(1,)]),
}


@pytest.mark.parametrize("name", FORGOTTEN)
async def test_a_wait_or_a_start_that_is_never_awaited_fails_the_run(
    database_url: str, name: str
) -> None:
    async def body(work: Any, child: Any) -> None:
        await work(1)
        FORGOTTEN[name](app)

    app = forgetful(body)
    _, status, message = await ended(database_url, app)
    assert status == "failed:logic"
    assert f"called {name} without awaiting it" in message


async def test_a_sleep_that_a_sync_workflow_does_not_block_on_fails_the_run(
    database_url: str,
) -> None:
    app = Rota()

    @app.workflow(name="flow")
    def flow() -> None:
        sleep("1h")  # type: ignore[unused-coroutine]

    async with virtual(app, url=database_url) as world:
        run = await app.start("flow")
        await world.drain()
        found = await trouble(run)
        assert "called sleep without awaiting it" in found["message"]
        assert "rota.blocking.block_on(sleep(…))" in found["trace"]


async def test_a_sleep_in_a_sync_step_fails_the_step(database_url: str) -> None:
    app = Rota()

    @app.step
    def work() -> None:
        sleep("1h")  # type: ignore[unused-coroutine]

    @app.workflow(name="flow")
    async def flow() -> None:
        await work.aio()

    _, status, message = await ended(database_url, app)
    assert status == "failed:logic"
    assert "rota.sleep was called inside step work" in message


async def test_an_error_of_code_that_forgot_to_await_names_the_step(database_url: str) -> None:
    async def body(work: Any, child: Any) -> int:
        return int(work(1) + 1)

    app = forgetful(body)
    async with virtual(app, url=database_url) as world:
        run = await app.start("flow")
        await world.drain()
        found = await trouble(run)
        assert found["type"] == "TypeError"
        assert "called work without awaiting it" in found["trace"]


async def test_steps_awaited_later_are_no_mistake(database_url: str) -> None:
    async def body(work: Any, child: Any) -> list[int]:
        begun = [work(n) for n in range(3)]
        await sleep("1h")
        first = await work(9)
        return [first, *await gather(*begun), *await asyncio.gather(child(4), work(5))]

    app = forgetful(body)
    async with virtual(app, url=database_url) as world:
        run = await app.start("flow")
        await world.drain()
        assert await result(run) == [9, 0, 1, 2, 4, 5]


# -- asyncio.timeout around a durable wait -------------------------------------------------------


async def timeout_around_sleep() -> None:
    async with asyncio.timeout(60):
        await sleep("5h")


async def timeout_around_gather() -> None:
    async with asyncio.timeout(60):
        await gather(sleep("5h"), sleep("6h"))


async def wait_for_around_signal() -> None:
    await asyncio.wait_for(wait_for("never"), 60)


async def timeout_in_a_branch() -> None:
    await gather(timeout_around_sleep(), sleep("1h"))


@pytest.mark.parametrize(
    "body",
    [timeout_around_sleep, timeout_around_gather, wait_for_around_signal, timeout_in_a_branch],
)
async def test_a_plain_timeout_around_a_durable_wait_is_durable(
    database_url: str, body: Body
) -> None:
    app = Rota()
    seen: list[str] = []

    @app.workflow(name="flow")
    async def flow() -> None:
        try:
            await body()
        except TimeoutError:
            seen.append("timed out")
        await sleep("1h")

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.advance("59s")
        assert (await run.run()).status == "sleeping"
        assert seen == []
        await world.drain()
        assert await result(run) is None
        assert set(seen) == {"timed out"}


async def test_a_wait_with_a_timeout_leaves_its_tasks_at_work(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def flow() -> list[bool]:
        task = asyncio.ensure_future(sleep("5h"))
        await asyncio.wait([task], timeout=60)
        early = task.done()
        await task
        return [early, task.done()]

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == [False, True]


async def test_a_plain_timeout_around_a_step_works(database_url: str) -> None:
    app = Rota()

    @app.step
    async def work() -> int:
        await asyncio.sleep(0)
        return 1

    @app.workflow
    async def flow() -> int:
        async with asyncio.timeout(60):
            found = await work()
        await sleep("1h")
        return found

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == 1
