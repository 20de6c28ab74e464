"""Parallel branches keep their own results and sleeps, by whichever means they were started."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rota import Rota, gather, sleep
from rota.testing import virtual
from tests.workflows.kit import result, sound


async def test_branches_keep_their_own_results_whatever_finished_first(database_url: str) -> None:
    """Live, the second branch comes to `store` first; on replay the first one does."""
    app = Rota()
    second_stored = asyncio.Event()
    seen: list[list[str]] = []

    @app.step
    async def fetch(n: int) -> int:
        if n == 0:
            await second_stored.wait()
        return n

    @app.step
    async def store(n: int) -> str:
        if n == 1:
            second_stored.set()
        return f"stored {n}"

    async def branch(n: int) -> str:
        return await store(await fetch(n))

    @app.workflow
    async def flow() -> list[str]:
        seen.append(await gather(branch(0), branch(1)))
        await sleep("1h")
        return seen[-1]

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == ["stored 0", "stored 1"]
        assert seen == [["stored 0", "stored 1"]] * 2


@pytest.mark.parametrize("shape", ["asyncio.gather", "TaskGroup", "create_task"])
async def test_branches_keep_their_own_results_in_every_shape(
    database_url: str, shape: str
) -> None:
    app = Rota()
    second_stored = asyncio.Event()
    seen: list[list[str]] = []

    @app.step
    async def fetch(n: int) -> int:
        if n == 0:
            await second_stored.wait()
        return n

    @app.step
    async def store(n: int) -> str:
        if n == 1:
            second_stored.set()
        return f"stored {n}"

    async def branch(n: int) -> str:
        return await store(await fetch(n))

    @app.workflow
    async def flow() -> list[str]:
        seen.append(await SHAPES[shape](branch(0), branch(1)))
        await sleep("1h")
        return seen[-1]

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == ["stored 0", "stored 1"]
        assert seen == [["stored 0", "stored 1"]] * 2


@pytest.mark.parametrize("shape", ["asyncio.gather", "TaskGroup", "create_task", "rota.gather"])
async def test_branches_within_branches_keep_their_own_results(
    database_url: str, shape: str
) -> None:
    """Live, the last branch of the second lane comes before the last one of the first lane."""
    app = Rota()
    last_came = asyncio.Event()

    @app.step
    async def fetch(n: int) -> int:
        if n == 0:
            await last_came.wait()
        if n == 3:
            last_came.set()
        return n

    async def work(n: int) -> int:
        return await fetch(n)

    async def lane(first: int, second: int) -> list[int]:
        # No durable call of its own: only the branches below it make any.
        return await gather(work(first), work(second), limit=1)

    @app.workflow
    async def flow() -> list[list[int]]:
        found = await SHAPES[shape](lane(0, 1), lane(2, 3))
        await sleep("1h")
        return found

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == [[0, 1], [2, 3]]


async def grouped(*work: Any) -> list[Any]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(item) for item in work]
    return [task.result() for task in tasks]


async def created(*work: Any) -> list[Any]:
    tasks = [asyncio.create_task(item) for item in work]
    return [await task for task in tasks]


async def gathered(*work: Any) -> list[Any]:
    return list(await asyncio.gather(*work))


SHAPES: dict[str, Callable[..., Awaitable[list[Any]]]] = {
    "asyncio.gather": gathered,
    "TaskGroup": grouped,
    "create_task": created,
    "rota.gather": gather,
}


async def test_sleeps_of_branches_are_not_mistaken_for_each_other(database_url: str) -> None:
    app = Rota()
    short_asleep = asyncio.Event()
    woke: list[tuple[str, int]] = []

    @app.step
    async def prepare(name: str) -> None:
        if name == "long":
            await short_asleep.wait()

    @app.step
    async def note(name: str) -> None:
        woke.append((name, world.clock.now() - began))

    async def branch(name: str, seconds: int) -> None:
        await prepare(name)
        await sleep(seconds)
        await note(name)

    @app.workflow
    async def flow() -> None:
        await gather(branch("long", 7200), branch("short", 60))

    async with virtual(app, url=database_url) as world:
        began = world.clock.now()
        run = await app.start(flow)
        await world.settle()
        short_asleep.set()
        await world.drain()
        assert await run.status() == "completed"
        assert woke == [("short", 60_000_000), ("long", 7_200_000_000)]


@pytest.mark.parametrize("shape", sorted(SHAPES))
async def test_durable_sleeps_work_in_every_shape(database_url: str, shape: str) -> None:
    app = Rota()
    calls: list[int] = []

    @app.step
    async def note(n: int) -> int:
        calls.append(n)
        return n

    async def branch(n: int) -> int:
        await sleep(60 * n)
        return await note(n)

    @app.workflow
    async def flow() -> list[int]:
        return await SHAPES[shape](branch(2), branch(1), branch(3))

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        assert await run.status() == "sleeping:sleep"
        await world.drain()
        assert await result(run) == [2, 1, 3]
        assert calls == [1, 2, 3]
        await sound(app)
