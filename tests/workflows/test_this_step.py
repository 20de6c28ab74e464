"""`this_step()`: the code of a step knows its call, its run and its worker."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from datetime import timedelta
from typing import Any

import pytest

import rota
from rota import RetryPolicy, Rota, in_workflow, sleep, this_run, this_step
from rota.errors import UsageError
from rota.testing import held, virtual
from tests.workflows.kit import Endless, eventually, result, sound

FACTS = (
    "run_id", "root_id", "workflow", "external_id", "key", "attempt", "deadline", "is_cancelled",
    "is_stopping", "idempotency_key", "last_progress",
)  # fmt: skip


def facts() -> dict[str, Any]:
    step = this_step()
    return {name: getattr(step, name) for name in FACTS} | {"tags": dict(step.tags)}


async def test_a_step_knows_its_call_and_its_run(database_url: str) -> None:
    app = Rota()
    seen: dict[str, dict[str, Any]] = {}

    @app.step(timeout="10s")
    async def on_loop() -> None:
        seen["loop"] = facts()
        seen["task"] = await asyncio.create_task(asyncio.to_thread(facts))

    @app.step
    def in_thread() -> None:
        seen["thread"] = facts()

    @app.workflow(timeout="1h")
    async def flow() -> dict[str, str]:
        await on_loop()
        await on_loop.keyed("mine")()
        await in_thread.aio()
        return dict(this_run().tags)

    async with virtual(app, url=database_url) as world:
        run = await flow.options(external_id="o-7", tags={"customer": "7"}).start()
        await world.drain()
        assert await result(run) == {"customer": "7"}
        row = await run.run()
        now = world.clock.moment()
    assert seen["task"] == seen["loop"]
    loop, thread = seen["loop"], seen["thread"]
    assert (loop["run_id"], loop["root_id"], loop["workflow"]) == (row.id, row.root_id, "flow")
    assert (loop["external_id"], loop["tags"]) == ("o-7", {"customer": "7"})
    assert (loop["key"], thread["key"]) == ("on_loop:mine", "in_thread#0")
    assert loop["deadline"] == now + timedelta(seconds=10)
    assert thread["deadline"] == now + timedelta(hours=1)  # that of the run
    assert (loop["attempt"], loop["is_cancelled"], loop["is_stopping"]) == (1, False, False)
    assert loop["last_progress"] is None
    digest = hashlib.sha256(b"in_thread#0").hexdigest()[:16]
    assert thread["idempotency_key"] == f"{row.root_id}-{digest}"


async def test_the_idempotency_key_is_the_same_at_each_attempt_and_unique_for_each_call(
    database_url: str,
) -> None:
    app = Rota()
    keys: list[tuple[int, int, str]] = []

    @app.step(retries=1)
    async def shaky(n: int) -> None:
        keys.append((n, this_step().attempt, this_step().idempotency_key))
        if len(keys) in (1, 3):
            raise ConnectionError("down")
        if len(keys) == 4:
            raise RuntimeError("for good")

    @app.workflow(retries=RetryPolicy(attempts=2))
    async def flow() -> None:
        await shaky(1)
        await sleep("1h")
        await shaky(2)

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert await run.status() == "completed"
        other = await flow.start()
        await world.drain()
        assert await other.status() == "completed"
    first, second = (
        {key for n, _, key in keys[:5] if n == 1},
        {key for n, _, key in keys[:5] if n == 2},
    )
    assert len(first) == len(second) == 1
    assert [attempt for _, attempt, _ in keys[:5]] == [1, 2, 1, 2, 1]
    assert first.isdisjoint({key for _, _, key in keys[5:]})
    assert first != second


def test_this_step_outside_of_a_step_says_what_to_write() -> None:
    @rota.step
    def plain() -> str:
        return this_step().key

    for call in (this_step, plain):
        with pytest.raises(UsageError, match="outside of a step") as error:
            call()
        assert "@rota.step" in error.value.advice


async def test_this_step_in_workflow_code_is_refused(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def flow() -> None:
        this_step()

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert "outside of its steps" in ((await run.run()).error or "")


async def test_in_workflow_is_true_in_workflow_code_alone(database_url: str) -> None:
    app = Rota()

    @app.step
    def in_thread() -> bool:
        return in_workflow()

    @app.step
    async def on_loop() -> bool:
        return in_workflow() or await asyncio.to_thread(in_workflow)

    @app.workflow
    async def flow() -> list[bool]:
        task = asyncio.create_task(asyncio.sleep(0, result=0))
        await task
        return [in_workflow(), await in_thread.aio(), await on_loop()]

    @app.workflow
    def sync_flow() -> list[bool]:
        return [in_workflow(), in_thread()]

    async with virtual(app, url=database_url) as world:
        run, other = await flow.start(), await sync_flow.start()
        await world.drain()
        assert await result(run) == [True, False, False]
        assert await result(other) == [True, False]
    assert not in_workflow()


async def test_a_step_in_a_thread_sees_that_its_run_was_cancelled(database_url: str) -> None:
    app = Rota()
    begun, ended = threading.Event(), threading.Event()

    @app.step
    def long() -> None:
        step = this_step()
        begun.set()
        while not step.is_cancelled:
            ended.wait(0.001)
        ended.set()

    @app.workflow
    async def flow() -> None:
        await long.aio()

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        work = asyncio.ensure_future(world.settle())
        await eventually(begun.is_set)
        await run.cancel()
        await world.beat()
        await eventually(ended.is_set)
        await work
        assert (await run.run()).status == "cancelled"


async def test_a_step_in_a_thread_sees_that_its_time_is_over_and_the_next_attempt_does_not(
    database_url: str,
) -> None:
    app = Rota()
    begun, over = threading.Event(), threading.Event()
    seen: list[tuple[int, bool]] = []

    @app.step(timeout="10s", retries=1)
    def slow() -> str:
        step = this_step()
        if step.attempt == 1:
            begun.set()
            while not step.is_cancelled:
                over.wait(0.001)
            step.progress(99)  # counts for nothing
            seen.append((step.attempt, this_step().is_cancelled))
            over.set()
            return "late"
        assert over.wait(30)
        seen.append((step.attempt, step.is_cancelled))
        assert step.last_progress is None
        return "in time"

    @app.workflow
    async def flow() -> str:
        return await slow.aio()

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        work = asyncio.ensure_future(world.settle())
        await eventually(begun.is_set)
        world.clock.move_to(world.clock.now() + 11_000_000)
        await work
        await world.drain()
        assert await result(run) == "in time"
        assert seen == [(1, True), (2, False)]
        await sound(app)


async def test_a_step_sees_that_the_worker_stops(database_url: str) -> None:
    app = Rota(database_url, migrate=True)
    begun = asyncio.Event()
    seen: list[bool] = []

    @app.step
    async def polite() -> None:
        seen.append(this_step().is_stopping)
        begun.set()
        while not this_step().is_stopping:
            await asyncio.sleep(0.001)
        seen.append(True)

    @app.workflow
    async def flow() -> None:
        await polite()

    async with app:
        await flow.start()
        await begun.wait()
    assert seen == [False, True]


async def test_a_cancelled_step_sees_it(database_url: str) -> None:
    app = Rota()
    endless = Endless()
    seen: list[bool] = []

    @app.step
    async def work() -> None:
        try:
            with held():
                await endless()
        finally:
            seen.append(this_step().is_cancelled)

    @app.workflow
    async def flow() -> str:
        task = asyncio.create_task(work())
        await sleep("1m")
        task.cancel()
        return "done"

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert await result(run) == "done"
        assert seen == [True]
        await sound(app)
