"""The end of a workflow with a timeout and cleanup; and graceful ends of sync workflows."""

from __future__ import annotations

import asyncio

import pytest

import rota
from rota import Rota, blocking, sleep, wait_for
from rota.testing import virtual
from tests.workflows.kit import Cleanup, end, sound, trouble

WARM = pytest.mark.parametrize("warm", [False, True], ids=["replayed", "warm"])


@WARM
async def test_a_timeout_with_cleanup(database_url: str, warm: bool) -> None:
    it = Cleanup()

    @it.app.workflow(timeout="1h", cleanup="5m", retries=3)
    async def flow() -> None:
        try:
            await wait_for("go")
        except rota.TimedOut as late:
            await it.note(str(late).partition(" took ")[2])
            await sleep("1m")
            await it.note("refund")
            raise

    async with virtual(it.app, url=database_url, warm=warm) as world:
        run = await flow.start()
        await world.advance("1h")
        assert it.calls == ["longer than 3600 s"]
        await world.drain()
        assert await run.status() == "failed:timeout"
        assert it.calls == ["longer than 3600 s", "refund"]
        assert len(await it.app.runs.chain(run.id)) == 1
        assert (await trouble(run))["type"] == "RunTimeout"
        await sound(it.app)


async def test_a_timeout_cleanup_has_its_own_limit(database_url: str) -> None:
    it = Cleanup()

    @it.app.workflow(timeout="1h", cleanup="5m")
    async def flow() -> None:
        try:
            await it.work()
        finally:
            await sleep("10m")
            await it.note("never")

    async with virtual(it.app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert await run.status() == "failed:timeout"
        last = await run.run()
        assert (last.finished_at or 0) - last.created_at == 3_900_000_000
        assert "not cleaned up in time" in (await trouble(run))["notes"]
        assert it.calls == []
        assert it.endless.interrupted == 1


@WARM
async def test_without_cleanup_a_timeout_is_immediate(database_url: str, warm: bool) -> None:
    it = Cleanup()

    @it.app.workflow(timeout="1h")
    async def flow() -> None:
        try:
            await sleep("2h")
        finally:
            await it.note("never")

    async with virtual(it.app, url=database_url, warm=warm) as world:
        run = await flow.start()
        await world.drain()
        assert await run.status() == "failed:timeout"
        assert it.calls == []


@pytest.mark.parametrize("by", ["cancel", "timeout"])
async def test_the_blocked_call_of_a_sync_workflow_raises(database_url: str, by: str) -> None:
    app = Rota()
    calls: list[str] = []

    @app.step
    def note(value: str) -> str:
        calls.append(value)
        return value

    @app.workflow(timeout="1h", cleanup="5m")
    def flow() -> None:
        note("begin")
        try:
            blocking.wait_for("go")
        except (rota.Cancelled, rota.TimedOut) as error:
            note(type(error).__name__)
            blocking.sleep("1m")
            note("cleaned")
            raise

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.settle()
        if by == "cancel":
            await end(world, run)
        await world.drain()
        expected = {"cancel": "cancelled:no stock", "timeout": "failed:timeout"}
        name = {"cancel": "Cancelled", "timeout": "TimedOut"}
        assert await run.status() == expected[by]
        assert calls == ["begin", name[by], "cleaned"]


async def test_a_timeout_of_the_cleanup_itself_is_a_timeout(database_url: str) -> None:
    """`asyncio.timeout` works in cleanup code as elsewhere."""
    it = Cleanup()

    @it.app.workflow
    async def flow() -> None:
        try:
            await sleep("1h")
        finally:
            assert rota.this_run().is_cancelled
            try:
                async with asyncio.timeout(10):
                    await it.work()
            except TimeoutError:
                await it.note("gave up")

    async with virtual(it.app, url=database_url) as world:
        run = await flow.start()
        await world.settle()
        await end(world, run)
        await world.drain()
        assert await run.status() == "cancelled:no stock"
        assert it.calls == ["gave up"]
