"""How a workflow reads the ends of its children: many at a time, and none that it just started."""

from __future__ import annotations

import asyncio

import pytest

from rota import Rota, gather, sleep
from rota.testing import held, virtual
from tests.engine.kit import StoreTap
from tests.workflows.kit import result, sound


@pytest.mark.parametrize("form", ["start_many", "gather"])
async def test_children_that_are_awaited_together_are_read_together_and_once(
    database_url: str, form: str
) -> None:
    app = Rota()

    @app.workflow
    async def child(n: int) -> int:
        await sleep("1m")
        return n

    @app.workflow
    async def parent() -> list[int]:
        if form == "gather":
            return await gather(*[child(n) for n in range(20)])
        handles = await app.start_many(child, [(n,) for n in range(20)])
        return await gather(*[handle.result() for handle in handles])

    async with virtual(app, url=database_url) as world:
        tap = StoreTap(app)
        run = await app.start(parent)
        await world.settle()
        assert tap.count("read_child_ends") == 0, "their ends wake the run"
        await world.drain()
        assert await result(run) == list(range(20))
        # Single reads may go ahead of the others; those share a transaction.
        assert 1 <= tap.count("read_child_ends") <= 4


async def test_a_cancelled_await_does_not_take_the_reading_of_its_siblings_along(
    database_url: str,
) -> None:
    app = Rota()

    @app.workflow
    async def child(n: int) -> int:
        await sleep("1m")
        return n

    @app.workflow
    async def parent() -> list[int]:
        handles = await app.start_many(child, [(n,) for n in range(5)])
        await sleep("2m")
        awaits = [asyncio.ensure_future(handle.result()) for handle in handles]
        await asyncio.sleep(0)
        awaits[0].cancel()
        return await gather(*awaits[1:])

    async with virtual(app, url=database_url) as world:
        run = await app.start(parent)
        await world.drain()
        assert await result(run) == [1, 2, 3, 4]
        await sound(app)


async def test_a_child_that_ended_while_its_parent_worked_is_read_without_a_suspension(
    database_url: str,
) -> None:
    app = Rota()
    gate = asyncio.Event()

    @app.step
    async def work() -> None:
        with held():
            await gate.wait()

    @app.workflow
    async def child() -> str:
        return "done"

    @app.workflow
    async def parent() -> str:
        handle = await app.start(child)
        await work()
        return await handle.result()

    async with virtual(app, url=database_url) as world:
        run = await app.start(parent)
        await world.settle()
        await world.advance("2s")
        gate.set()
        await world.drain()
        assert await result(run) == "done"
        assert (await run.run()).claim_count == 1
