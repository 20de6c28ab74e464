"""Branches are told apart by a task factory on the event loop. Each gets its own results. Other
code may set a factory, close an app or give a task a context of its own.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Coroutine
from typing import Any

import pytest

from rota import Rota, gather, sleep
from rota.testing import virtual
from tests.workflows.kit import keys, result, trouble


def app_with_branches(make: Any = None) -> tuple[Rota, Any]:
    """Branches that are slower the lower their number, so that a replay asks in another order."""
    app = Rota()

    @app.step
    async def first(n: int) -> None:
        for _ in range(20 - 5 * n):
            await asyncio.sleep(0)

    @app.step
    async def second(n: int) -> str:
        return f"second of {n}"

    async def branch(n: int) -> str:
        await first(n)
        found = await second(n)
        await sleep("1h")
        return found

    @app.workflow
    async def flow() -> list[str]:
        begin = make or asyncio.create_task
        return list(await asyncio.gather(*[begin(branch(n)) for n in range(4)]))

    return app, flow


RIGHT = [f"second of {n}" for n in range(4)]


async def test_an_app_that_closes_first_leaves_the_branches_of_the_other_apart(
    database_url: str, tmp_path: Any
) -> None:
    before = asyncio.get_running_loop().get_task_factory()
    other, _ = app_with_branches()
    app, flow = app_with_branches()
    closing = virtual(other, url=f"sqlite:///{tmp_path}/other.db")
    await closing.__aenter__()
    async with virtual(app, url=database_url) as world:
        await closing.__aexit__(None, None, None)
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == RIGHT
    assert asyncio.get_running_loop().get_task_factory() is before


def in_a_copied_context(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.create_task(work, context=contextvars.copy_context())


def in_an_empty_context(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    return asyncio.create_task(work, context=contextvars.Context())


@pytest.mark.parametrize("make", [in_a_copied_context, in_an_empty_context])
async def test_tasks_with_a_context_of_their_own_are_branches(database_url: str, make: Any) -> None:
    app, flow = app_with_branches(make)
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == RIGHT
        assert "second#2.0" in await keys(app, run)


async def test_two_tasks_in_one_context_are_refused(database_url: str) -> None:
    shared: list[contextvars.Context] = []

    def begin(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        if not shared:
            shared.append(contextvars.copy_context())
        return asyncio.create_task(work, context=shared[0])

    app, flow = app_with_branches(begin)
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await run.status() == "failed:logic"
        assert "share one context" in (await trouble(run))["message"]


def plain_factory(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> Any:
    """A factory that a tracing library might set, without asking for the one before."""
    return asyncio.Task(work, loop=loop, **options)


def foreign_factories() -> list[Any]:
    eager = getattr(asyncio, "eager_task_factory", None)
    return [plain_factory] if eager is None else [plain_factory, eager]


@pytest.mark.parametrize("factory", foreign_factories())
async def test_a_run_is_refused_when_another_factory_displaced_ours(
    database_url: str, factory: Any
) -> None:
    app, flow = app_with_branches()
    loop = asyncio.get_running_loop()
    async with virtual(app, url=database_url) as world:
        ours = loop.get_task_factory()
        loop.set_task_factory(factory)
        run = await app.start(flow)
        await world.drain()
        assert await run.status() == "failed:logic"
        assert "task factory" in (await trouble(run))["message"]
        assert await keys(app, run) == []
        loop.set_task_factory(ours)
        await app.runs.retry(run.id)
        await world.drain()
        assert await result(run) == RIGHT


async def test_a_factory_set_in_the_middle_of_a_run_stops_it(database_url: str) -> None:
    app = Rota()
    loop = asyncio.get_running_loop()
    done: list[int] = []

    @app.step
    async def work(n: int) -> int:
        done.append(n)
        return n

    async def branch(n: int) -> int:
        return await work(n)

    @app.workflow
    async def flow() -> str:
        await work(0)
        loop.set_task_factory(plain_factory)
        # Code that swallows the refusal does not get around it.
        found = await asyncio.gather(branch(1), branch(2), return_exceptions=True)
        return str(found)

    async with virtual(app, url=database_url) as world:
        ours = loop.get_task_factory()
        run = await app.start(flow)
        await world.drain()
        loop.set_task_factory(ours)
        assert await run.status() == "failed:logic"
        assert "task factory" in (await trouble(run))["message"]
        assert done == [0]


async def test_a_factory_that_calls_ours_is_welcome(database_url: str) -> None:
    app, flow = app_with_branches()
    loop = asyncio.get_running_loop()
    async with virtual(app, url=database_url) as world:
        ours = loop.get_task_factory()
        assert ours is not None
        made: list[Any] = []

        def tracing(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> Any:
            made.append(work)
            return ours(loop, work, **options)

        loop.set_task_factory(tracing)
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == RIGHT
        assert made
    # Theirs is still in use: taking it away is not ours to do.
    assert loop.get_task_factory() is tracing
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == RIGHT
        assert "second#2.0" in await keys(app, run)
    loop.set_task_factory(None)


async def test_a_factory_that_was_there_before_is_used_and_put_back(database_url: str) -> None:
    loop = asyncio.get_running_loop()
    for factory in foreign_factories():
        loop.set_task_factory(factory)
        app, flow = app_with_branches()
        async with virtual(app, url=database_url) as world:
            run = await app.start(flow)
            await world.drain()
            assert await result(run) == RIGHT
        assert loop.get_task_factory() is factory
    loop.set_task_factory(None)


async def test_branches_of_branches_in_their_own_contexts_keep_their_order(
    database_url: str,
) -> None:
    app = Rota()

    @app.step
    async def work(name: str) -> str:
        return name

    async def leaf(name: str) -> str:
        found = await work(name)
        await sleep("1h")
        return found

    async def branch(n: int) -> list[str]:
        tasks = [in_a_copied_context(leaf(f"{n}.{m}")) for m in range(3)]
        return [await task for task in reversed(tasks)]

    @app.workflow
    async def flow() -> list[list[str]]:
        return await gather(*[branch(n) for n in range(3)])

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == [[f"{n}.{m}" for m in (2, 1, 0)] for n in range(3)]


def test_eager_tasks_are_covered_where_python_has_them() -> None:
    assert (len(foreign_factories()) == 2) == (sys.version_info >= (3, 12))


async def test_what_rota_does_for_a_workflow_counts_as_no_branch(database_url: str) -> None:
    app = Rota()

    @app.step
    async def work(n: int) -> int:
        return n

    @app.workflow
    async def child(n: int) -> int:
        return n

    async def branch(n: int) -> int:
        await child(n)
        found = await gather(work(n), work(n))
        await sleep("1h")
        return sum(found)

    @app.workflow
    async def flow() -> list[int]:
        await work(0)
        await child(1)
        await sleep("1h")
        return await gather(branch(1), branch(2))

    async with virtual(app, url=database_url) as world:
        runs = [await app.start(flow) for _ in range(3)]
        await world.drain()
        for run in runs:
            assert await result(run) == [2, 4]
            named = {key for key in await keys(app, run) if "#" in key}
            assert named == {
                "work#0", "start child#0", "sleep#0", "start child#0.0", "start child#1.0",
                "work#0.0", "work#0.1", "work#1.0", "work#1.1", "sleep#0.0", "sleep#1.0",
            }  # fmt: skip
