"""Calls that are awaited as they end, and libraries that take tasks from sets: one order."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from rota import Rota, StepFailed, as_completed, sleep
from rota.errors import UsageError
from rota.testing import virtual
from tests.workflows.kit import result, sound


@pytest.mark.parametrize("warm", [False, True])
async def test_as_completed_begins_coroutines_in_the_order_given(
    database_url: str, warm: bool
) -> None:
    """Calls of one name are told apart by their order: another order strands the run."""
    app = Rota()
    count = 40
    calls: list[int] = []

    @app.step
    async def note(n: int) -> int:
        calls.append(n)
        return n

    async def branch(n: int) -> int:
        await note(n)
        await sleep(3600 * (count - n))
        return await note(n)

    @app.workflow
    async def flow() -> list[int]:
        return [await each for each in as_completed(map(branch, range(count)))]

    async with virtual(app, url=database_url, warm=warm) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == list(reversed(range(count)))
        assert calls == [*range(count), *reversed(range(count))]
        await sound(app)


async def test_as_completed_passes_each_error_on_and_the_others_continue(
    database_url: str,
) -> None:
    app = Rota()

    @app.step
    async def check(n: int) -> int:
        if n == 2:
            raise ValueError("no two")
        return n

    async def branch(n: int) -> int:
        await sleep(n)
        return await check(n)

    @app.workflow
    async def flow() -> list[str]:
        found = []
        for each in as_completed([branch(3), branch(1), branch(2)]):
            try:
                found.append(str(await each))
            except StepFailed as error:
                found.append(str(error.facts["error_type"]))
        await sleep("1h")
        return found

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == ["1", "ValueError", "3"]
        await sound(app)


async def test_as_completed_works_outside_of_workflows_and_refuses_other_values() -> None:
    async def value(n: int) -> int:
        await asyncio.sleep(0)
        return n

    ready = asyncio.get_running_loop().create_future()
    ready.set_result(7)
    assert [await each for each in as_completed([value(1), ready, value(2)])] == [7, 1, 2]
    assert list(as_completed([])) == []
    wrong: Any = [value]
    with pytest.raises(UsageError, match="as_completed cannot await a function"):
        as_completed(wrong)


async def test_anyio_cancels_the_tasks_of_a_group_in_one_order(database_url: str) -> None:
    """It takes them from a set: the hash of a task of a run is a function of its number."""
    app = Rota()
    count = 40
    orders: list[list[int]] = []

    @app.step
    async def note(n: int) -> int:
        return n

    @app.workflow
    async def flow() -> list[int]:
        order: list[int] = []
        orders.append(order)

        async def branch(n: int) -> None:
            try:
                await sleep("1d")
            finally:
                order.append(n)
                with anyio.CancelScope(shield=True):
                    await note(n)

        async with anyio.create_task_group() as group:
            for n in range(count):
                group.start_soon(branch, n)
            await sleep("1h")
            group.cancel_scope.cancel()
        await sleep("1h")
        return order

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        order = await result(run)
        assert sorted(order) == list(range(count))
        assert [one for one in orders if one] == [order] * 3
        assert len(orders) > 2, "the code was executed again after the cancellation"
        await sound(app)
