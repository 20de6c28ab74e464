"""Clocks that jump an hour: no living worker is reaped, sleeps end, ids stay unique.

The workers' wall clock is wrong by what a file says, so a test steps it for all of them at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rota import Client, Rota, RunHandle
from tests.faults.kit import (
    Hire,
)
from tests.kit import Effects, broken, until
from tests.kit.children import Child

HOUR_S = 3600.0
Step = Callable[[float], None]


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    """The file that says by how many seconds the workers' clock is wrong."""
    path = tmp_path / "clock"
    set_clock(path, 0)
    return path


def set_clock(path: Path, error_s: float) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(str(error_s))
    fresh.replace(path)


async def ready(worker: Child) -> None:
    async def said() -> bool:
        return "ready" in worker.log.read_text()

    await until(said)


async def sleeps(run: RunHandle) -> bool:
    """Whether a run has begun to sleep. A busy machine may look only when it has ended."""
    return await run.status() in ("sleeping:sleep", "completed")


@pytest.mark.wall_clock("a lease of one second must be renewed in time")
@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
async def test_no_living_run_is_reaped_because_the_clock_jumped(
    database_url: str, hire: Hire, effects: Effects, clock: Path, jump_s: float
) -> None:
    options = ("--clock", clock, "--set", "lease_s=4", "--set", "heartbeat_s=0.1")
    crew = [hire(*options) for _ in range(2)]
    async with Client(database_url, migrate=True) as client:
        for worker in crew:
            await ready(worker)
        runs = [await client.start("long", label=f"r{n}", seconds=3) for n in range(6)]

        async def begun() -> bool:
            return len(effects.read()) == 6

        await until(begun)
        set_clock(clock, jump_s)
        for run in runs:
            await run.result(timeout=60)
        assert len(effects.read()) == 12, "something was executed twice"
        assert await client.runs.counts() == {"completed": 6}
    assert await broken(database_url) == []


async def test_a_worker_created_after_the_jump_does_not_reap_the_living(
    database_url: str, hire: Hire, effects: Effects, clock: Path
) -> None:
    # The holder renews at a third of its lease, so its lease looks lapsed for some seconds.
    options = ("--clock", clock, "--set", "lease_s=9")
    hire(*options)
    async with Client(database_url, migrate=True) as client:
        run = await client.start("long", label="r", seconds=5)

        async def begun() -> bool:
            return len(effects.read()) == 1

        await until(begun)
        set_clock(clock, HOUR_S)
        await ready(hire(*options))
        await run.result(timeout=60)
        assert [attempt.label for attempt in await client.runs.chain(run.id)] == ["completed"]
        assert [effect.mark for effect in effects.read()] == ["begin", "end"]


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
async def test_the_dead_are_still_reaped_after_a_jump_and_their_history_makes_sense(
    database_url: str, hire: Hire, effects: Effects, clock: Path, jump_s: float
) -> None:
    options = ("--clock", clock, "--set", "lease_s=9", "--set", "heartbeat_s=0.1")
    victim = hire(*options)
    async with Client(database_url, migrate=True) as client:
        run = await client.start("long", label="r", seconds=0.5)

        async def begun() -> bool:
            return len(effects.read()) >= 1

        await until(begun)
        successor = hire(*options)
        await ready(successor)
        set_clock(clock, jump_s)
        victim.kill()
        await run.result(timeout=60)
        chain = await client.runs.chain(run.id)
        now_us = time.time_ns() // 1000
        for attempt in chain:
            for at in (attempt.created_at, attempt.started_at, attempt.finished_at):
                assert at is not None
                assert abs(at - now_us) < 2 * HOUR_S * 1e6, f"{at} is far from now"
    assert await broken(database_url) == []


async def test_a_sleep_ends_when_the_clock_jumps_forward(
    database_url: str, hire: Hire, effects: Effects, clock: Path
) -> None:
    await ready(hire("--clock", clock))
    async with Client(database_url, migrate=True) as client:
        run = await client.start("nap", label="r", seconds=1.5)
        await until(lambda: sleeps(run))
        set_clock(clock, HOUR_S)
        await run.result(timeout=60)
        assert effects.count("r/note#0") == 1


async def test_a_sleep_survives_a_clock_that_goes_back_and_is_set_right_again(
    database_url: str, hire: Hire, effects: Effects, clock: Path
) -> None:
    await ready(hire("--clock", clock))
    async with Client(database_url, migrate=True) as client:
        run = await client.start("nap", label="r", seconds=1)
        await until(lambda: sleeps(run))
        set_clock(clock, -HOUR_S)
        other = await client.start("two", label="s")
        await other.result(timeout=60)
        set_clock(clock, 0)
        await run.result(timeout=60)
        assert effects.count("r/note#0") == 1


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
async def test_ids_stay_unique_and_rise_over_a_jump(
    database_url: str, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    true_ns = time.time_ns
    app = Rota(database_url, migrate=True)

    @app.workflow
    async def quick() -> None: ...

    async with app.connected():
        before = [(await app.start(quick)).id for _ in range(50)]
        monkeypatch.setattr(time, "time_ns", lambda: true_ns() + int(jump_s * 1e9))
        after = [(await app.start(quick)).id for _ in range(50)]
        monkeypatch.undo()
        last = [(await app.start(quick)).id for _ in range(50)]
    ids = before + after + last
    assert len(set(ids)) == 150
    assert ids == sorted(ids)
