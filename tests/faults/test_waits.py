"""Waits without an end: runs awaited by another run than their parent, early wakes."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from rota import RetryPolicy, Rota, Transient, sleep
from rota.errors import RotaError
from tests.kit import broken, until

QUICK: dict[str, Any] = {"heartbeat_s": 0.3, "poll_s": 0.2, "migrate": True}


async def test_a_workflow_may_await_a_run_that_somebody_else_started(database_url: str) -> None:
    app = Rota(database_url, **QUICK)

    @app.workflow
    async def shared() -> int:
        await sleep(0.5)
        return 1

    @app.workflow
    async def joins() -> int:
        run = await app.options(external_id="the only one").start(shared)
        value: int = await run.result()
        return value

    async with app:
        await app.options(external_id="the only one").start(shared)
        run = await app.start(joins)
        try:
            assert await run.result(timeout=60) == 1
        finally:
            with contextlib.suppress(RotaError):
                await run.cancel()
    assert await broken(database_url) == []


async def test_a_fork_may_await_a_child_of_the_chain_it_was_forked_from(database_url: str) -> None:
    app = Rota(database_url, **QUICK)

    @app.step
    async def note() -> int:
        return 3

    @app.workflow
    async def child() -> int:
        await sleep(1)
        return 1

    @app.workflow
    async def parent() -> int:
        started = await app.start(child)
        await note()
        value: int = await started.result()
        return value

    async with app:
        run = await app.start(parent)

        async def noted() -> bool:
            return any(step.key == "note#0" for step in await app.runs.steps(run.id))

        await until(noted)
        fork = await app.runs.fork(run.id, from_step="note#0")
        assert await run.result(timeout=60) == 1
        try:
            assert await fork.result(timeout=60) == 1
        finally:
            with contextlib.suppress(RotaError):
                await fork.cancel()
    assert await broken(database_url) == []


async def test_a_signal_does_not_start_a_delayed_run_early(database_url: str) -> None:
    app = Rota(database_url, **QUICK)

    @app.workflow
    async def later() -> None: ...

    async with app:
        run = await app.options(delay="1h").start(later)
        await run.signal("word")
        with pytest.raises(TimeoutError):
            await run.result(timeout=1)
        assert (await run.run()).status == "sleeping"


async def test_a_signal_does_not_cut_short_the_pause_before_a_retry(database_url: str) -> None:
    app = Rota(database_url, **QUICK)

    @app.workflow(retries=RetryPolicy(attempts=2, delay_s=3600))
    async def fails() -> None:
        raise Transient("once more")

    async with app:
        run = await app.start(fails)

        async def rests() -> bool:
            return await run.status() == "sleeping:retry"

        await until(rests)
        await run.signal("word")
        with pytest.raises(TimeoutError):
            await run.result(timeout=1)
        assert await run.status() == "sleeping:retry"
