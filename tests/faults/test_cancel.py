"""Cancelling really interrupts work in another process, reaches children, and wins."""

from __future__ import annotations

import time

import pytest

from rota import Client, RunCancelled
from tests.faults.kit import (
    Hire,
)
from tests.kit import Effects, broken, until

USUAL_LEASE = ("--set", "lease_s=30", "--set", "heartbeat_s=5", "--set", "poll_s=5")


@pytest.mark.wall_clock("work is interrupted within a real second")
async def test_cancel_interrupts_async_work_in_another_process_within_a_second(
    database_url: str, hire: Hire, effects: Effects
) -> None:
    hire(*USUAL_LEASE)
    async with Client(database_url, migrate=True) as client:
        run = await client.start("long", label="r", seconds=60)

        async def begun() -> bool:
            return effects.count("r/busy#0") == 1

        await until(begun)
        asked = time.monotonic_ns()
        await run.cancel()

        async def interrupted() -> bool:
            return [e.mark for e in effects.read()] == ["begin", "cancelled"]

        await until(interrupted)
        assert effects.read()[-1].at - asked < 1e9
        with pytest.raises(RunCancelled):
            await run.result(timeout=60)
    assert await broken(database_url) == []


async def test_cancel_reaches_the_children_of_a_run(
    database_url: str, hire: Hire, effects: Effects
) -> None:
    hire(*USUAL_LEASE)
    async with Client(database_url, migrate=True) as client:
        run = await client.start("parent", label="r", seconds=60)

        async def begun() -> bool:
            return effects.count("r-child/busy#0") == 1

        await until(begun)
        assert len(await client.runs.cancel(run.id)) == 2

        async def interrupted() -> bool:
            return [e.mark for e in effects.read()] == ["begin", "cancelled"]

        await until(interrupted)
        assert {r.status for r in await client.runs.list()} == {"cancelled"}
    assert await broken(database_url) == []


async def test_a_workflow_that_swallows_its_cancellation_executes_nothing_more(
    database_url: str, hire: Hire, effects: Effects
) -> None:
    hire(*USUAL_LEASE)
    async with Client(database_url, migrate=True) as client:
        run = await client.start("stubborn", label="r")

        async def begun() -> bool:
            return effects.count("r") == 1

        await until(begun)
        await run.cancel()

        async def ended() -> bool:
            return {"cancelled", "swallowed"} <= {effect.mark for effect in effects.read()}

        await until(ended)
        last = await run.run()
        assert (last.status, last.output) == ("cancelled", None)
        # Its slot is free again.
        other = await client.start("two", label="s")
        await other.result(timeout=60)
    assert effects.count("r/note#0") == 0
    assert await broken(database_url) == []
