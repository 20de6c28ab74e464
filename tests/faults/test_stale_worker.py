"""A worker that stops past its lease and wakes up late changes nothing, and learns it."""

from __future__ import annotations

import signal

import pytest

from rota import Client
from tests.faults.kit import (
    Hire,
)
from tests.kit import Effects, broken, until

pytestmark = pytest.mark.wall_clock("a stopped process outlives a lease of real seconds")

SHORT_LEASE = ("--set", "lease_s=2")


async def test_a_worker_stopped_past_its_lease_changes_nothing_when_it_wakes(
    database_url: str, hire: Hire, effects: Effects
) -> None:
    stale = hire(*SHORT_LEASE)
    async with Client(database_url, migrate=True) as client:
        run = await client.start("long", label="r", seconds=4)

        async def begun() -> bool:
            return effects.count("r/busy#0") == 1

        await until(begun)
        stale.send(signal.SIGSTOP)
        fresh = hire(*SHORT_LEASE)

        async def taken_over() -> bool:
            return any(e.pid == fresh.pid for e in effects.read())

        await until(taken_over)
        stale.send(signal.SIGCONT)

        async def learned() -> bool:
            return any(e.pid == stale.pid and e.mark == "cancelled" for e in effects.read())

        await until(learned)
        assert await run.result(timeout=60) == "r/busy#0"
        chain = await client.runs.chain(run.id)
        assert [attempt.label for attempt in chain] == ["crashed:lapsed", "completed"]
        assert [e.pid for e in effects.read() if e.mark == "end"] == [fresh.pid]
        [step] = await client.runs.steps(run.id)
        assert (step.status, step.attempt) == ("completed", 1)
        # The stale one is a worker like any other again.
        assert stale.code is None

        async def both_on() -> bool:
            return len(await client.workers()) == 2

        await until(both_on)
    assert await broken(database_url) == []


async def test_a_result_that_comes_after_the_lease_lapsed_is_dropped(
    database_url: str, hire: Hire, effects: Effects
) -> None:
    # It is stopped in its last moments: when it wakes, its timer has run out and it would settle.
    stale = hire(*SHORT_LEASE)
    async with Client(database_url, migrate=True) as client:
        run = await client.start("slot", label="r", seconds=1.0)

        async def begun() -> bool:
            return effects.count("r") == 1

        await until(begun)
        stale.send(signal.SIGSTOP)
        fresh = hire(*SHORT_LEASE)

        async def done() -> bool:
            return (await run.run()).status == "completed"

        await until(done)
        rows = await client.runs.chain(run.id)
        stale.send(signal.SIGCONT)

        async def awake() -> bool:
            beats = [w for w in await client.workers() if w.pid == stale.pid]
            return bool(beats) and beats[0].heartbeat_at > (rows[-1].finished_at or 0)

        await until(awake)
        assert await client.runs.chain(run.id) == rows
        assert {e.pid for e in effects.read() if e.mark == "begin"} == {stale.pid, fresh.pid}
    assert await broken(database_url) == []
