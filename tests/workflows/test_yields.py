"""Code that yields in a loop, as anyio does in a cancelled scope, and the clock of the loop."""

from __future__ import annotations

import asyncio

import anyio

from rota import Rota, sleep
from rota.testing import held, virtual
from tests.workflows.kit import result


async def test_a_deadline_of_anyio_has_passed_when_its_timer_fires(database_url: str) -> None:
    """A sum of floats may lie between two microseconds. anyio compares it with the clock."""
    app = Rota()

    @app.workflow
    async def flow() -> int:
        passed = 0
        for us in range(280_601, 280_641):
            with anyio.move_on_after(us / 1e6) as scope:
                await sleep("1h")
            passed += scope.cancelled_caught
        return passed

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert await result(run) == 40


async def test_a_branch_of_a_cancelled_scope_cleans_up_with_a_step(database_url: str) -> None:
    """anyio yields in a loop until the code of the scope has ended."""
    app = Rota()
    ended: list[str] = []

    @app.step
    async def close(name: str) -> None:
        with held():
            await app.clock.wait(asyncio.Event(), app.clock.now() + 1_000_000)
        ended.append(name)

    async def branch(name: str) -> None:
        try:
            await sleep("1h")
        finally:
            with anyio.CancelScope(shield=True):
                await close(name)

    @app.workflow
    async def flow() -> float:
        began = asyncio.get_running_loop().time()
        with anyio.move_on_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(branch, "a")
        took = asyncio.get_running_loop().time() - began
        await sleep("1h")
        return round(took, 3)

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert await result(run) == 6.0
    assert ended == ["a"]


async def test_code_may_poll_a_task(database_url: str) -> None:
    app = Rota()
    seen: list[list[str]] = []

    @app.step
    async def work(name: str, seconds: int) -> str:
        with held():
            await app.clock.wait(asyncio.Event(), app.clock.now() + seconds * 1_000_000)
        return name

    @app.workflow
    async def flow() -> list[str]:
        seen.append([])

        async def poll(name: str, seconds: int) -> None:
            task = asyncio.create_task(work(name, seconds))
            while not task.done():
                await asyncio.sleep(0)
            seen[-1].append(await task)

        async with asyncio.TaskGroup() as group:
            group.create_task(poll("second", 2))
            group.create_task(poll("first", 1))
        await sleep("1h")
        return seen[-1]

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert await result(run) == ["first", "second"]
    assert seen == [["first", "second"]] * 2


async def test_code_may_yield_long_before_its_calls(database_url: str) -> None:
    app = Rota()

    @app.step
    async def work(n: int) -> int:
        return n

    @app.workflow
    async def flow() -> int:
        for _ in range(20_000):
            await asyncio.sleep(0)
        total = await work(1)
        for _ in range(20_000):
            await asyncio.sleep(0)
        await sleep("1h")
        for _ in range(20_000):
            await asyncio.sleep(0)
        await sleep("1h")
        return total + await work(2)

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert await result(run) == 3
