"""Kill -9 and restart on one machine: resumed within a second. Two processes on one file."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from rota import Client, Start
from tests.faults.kit import (
    Hire,
)
from tests.kit import Effects, broken, drop_schemas, split_schema, until

# The settings of a real daemon: only the dead process may be what makes it quick.
USUAL = ("--set", "lease_s=30", "--set", "heartbeat_s=5", "--set", "poll_s=5")


async def _is_ready(log: Path) -> bool:
    return "ready" in log.read_text()


@pytest.mark.wall_clock("runs resume within a real second")
@pytest.mark.parametrize("run_count", [1, 100, 450])
async def test_a_daemon_killed_with_kill_9_resumes_within_a_second_of_its_restart(
    database_url: str, hire: Hire, effects: Effects, run_count: int
) -> None:
    usual = (*USUAL, "--set", "slots=500")
    daemon = hire(*usual)
    async with Client(database_url, migrate=True) as client:
        items = [Start(kwargs={"label": f"r{n}", "seconds": 60}) for n in range(run_count)]
        await client.start_many("long", items)

        async def all_begun() -> bool:
            return sum(e.pid == daemon.pid for e in effects.read()) == run_count

        await until(all_begun)
        daemon.kill()
        successor = hire(*usual)
        await until(lambda: _is_ready(successor.log), every_s=0.005)
        ready_at = time.monotonic_ns()

        async def all_resumed() -> bool:
            return sum(e.pid == successor.pid for e in effects.read()) == run_count

        await until(all_resumed, timeout_s=8)
        resumed_s = (effects.read()[-1].at - ready_at) / 1e9
        assert resumed_s < 1.0, f"resumed {resumed_s:.2f} s after it was ready"
    assert await broken(database_url) == []


@pytest.mark.wall_clock("runs are taken over within a real second")
async def test_a_neighbour_takes_over_the_runs_of_a_killed_process_at_its_next_heartbeat(
    database_url: str, hire: Hire, effects: Effects
) -> None:
    victim = hire("--set", "lease_s=30")
    async with Client(database_url, migrate=True) as client:
        await client.start("long", label="r", seconds=60)

        async def begun() -> bool:
            return effects.count("r/busy#0") == 1

        await until(begun)
        successor = hire("--set", "lease_s=30")
        await until(lambda: _is_ready(successor.log))
        victim.kill()
        killed_at = time.monotonic_ns()

        async def taken_over() -> bool:
            return effects.count("r/busy#0") == 2

        await until(taken_over, timeout_s=5)
        assert effects.read()[-1].at - killed_at < 1e9


async def test_two_processes_open_and_migrate_an_empty_database_at_once(
    database_url: str, hire: Hire
) -> None:
    if database_url.startswith("sqlite:"):
        Path(database_url.removeprefix("sqlite:///")).unlink()
    else:
        await drop_schemas(*split_schema(database_url))
    crew = [hire() for _ in range(4)]
    for worker in crew:
        await until(lambda log=worker.log: _is_ready(log))  # type: ignore[misc]
    assert [worker.code for worker in crew] == [None] * 4


async def test_two_processes_and_a_client_share_one_database(
    database_url: str, hire: Hire, effects: Effects
) -> None:
    crew = [hire() for _ in range(2)]
    async with Client(database_url, migrate=True) as client:
        for worker in crew:
            await until(lambda log=worker.log: _is_ready(log))  # type: ignore[misc]
        runs = await asyncio.gather(*(client.start("two", label=f"r{n}") for n in range(300)))
        await asyncio.gather(*(run.result(timeout=60) for run in runs))
    labels = [effect.label for effect in effects.read()]
    assert sorted(labels) == sorted(f"r{n}/note#{k}" for n in range(300) for k in range(2))
    assert await broken(database_url) == []
