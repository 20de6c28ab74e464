"""A workflow that cancels its own task, by a task group or a timeout, continues: only the worker
interrupts a run."""

from __future__ import annotations

import asyncio

from rota import Rota, sleep
from rota.testing import held, virtual
from tests.workflows.kit import result


async def test_a_workflow_continues_after_a_task_group_with_a_failed_branch(
    database_url: str,
) -> None:
    app = Rota()
    calls: list[str] = []

    @app.step
    async def bad() -> None:
        await asyncio.sleep(0.01)
        raise ValueError("inner trouble")

    @app.step
    async def slow() -> None:
        with held():
            await asyncio.sleep(60)

    @app.step
    async def note(text: str) -> str:
        calls.append(text)
        return text

    @app.workflow
    async def flow() -> list[str]:
        found = []
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(bad())
                group.create_task(slow())
        except* Exception as failed:
            found += [type(one).__name__ for one in failed.exceptions]
        found.append(await note("after the group"))
        await sleep("1h")
        return [*found, await note("after the sleep")]

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert await result(run) == ["StepFailed", "after the group", "after the sleep"]
        assert calls == ["after the group", "after the sleep"]


async def test_a_step_in_a_finally_runs_while_a_timeout_cancels_the_workflow(
    database_url: str,
) -> None:
    app = Rota()
    calls: list[str] = []

    @app.step
    async def slow() -> None:
        with held():
            await asyncio.sleep(60)

    @app.step
    async def clean_up(text: str) -> str:
        calls.append(text)
        return text

    @app.workflow
    async def flow() -> str:
        try:
            async with asyncio.timeout(0.05):
                try:
                    await slow()
                finally:
                    await clean_up("first")
        except TimeoutError:
            await sleep("1h")
            return await clean_up("second")
        return "no timeout"

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert await result(run) == "second"
        assert calls == ["first", "second"]
