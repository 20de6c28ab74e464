"""The lines of the scheduler's design: its formats, its sequences, its error table, its tests."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from rota.core.time.instants import instant
from rota.pipelines.definition.schedule_block import (
    RetryPolicyBlock,
    ScheduleBlock,
    policies_of,
)
from rota.pipelines.folder.commands import ScheduleCommands
from rota.pipelines.folder.lock_file import LOCK_FILE, acquire, release
from rota.pipelines.folder.registry import PipelineRegistry
from rota.pipelines.folder.scheduler import PipelineScheduler
from rota.pipelines.folder.state_file import STATE_FILE
from tests.pipelines.kit.virtual_folder import DAILY, JOB, START, FolderWorld

NOW = instant(START)  # Tuesday, 2030-01-01, midnight in UTC


async def next_run(root: Path, cron: str, zone: str = "UTC") -> str | None:
    """When a pipeline with this block runs next, as its files alone say."""
    text = DAILY.replace("0 9 * * *", cron).replace("timezone: UTC", f"timezone: {zone}")
    (root / "one").mkdir()
    (root / "one" / "pipeline.yaml").write_text(text)
    commands = ScheduleCommands(None, PipelineRegistry(None, root, history_max=50), now=lambda: NOW)
    return (await commands.show("one")).state.next_run


# -- unit tests of the strategy ------------------------------------------------------------


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("* * * * *", "2030-01-01T00:01:00"),
        ("0 9 * * 1-5", "2030-01-01T09:00:00"),
        ("1,15 * * * *", "2030-01-01T00:01:00"),
        ("*/15 * * * *", "2030-01-01T00:15:00"),
        ("30 0 9 * * *", "2030-01-01T09:00:30"),
        ("0 0 * * 0", "2030-01-06T00:00:00"),
        ("0 0 * * 7", "2030-01-06T00:00:00"),
        ("@yearly", "2031-01-01T00:00:00"),
        ("@monthly", "2030-02-01T00:00:00"),
        ("@weekly", "2030-01-06T00:00:00"),
        ("@daily", "2030-01-02T00:00:00"),
        ("@hourly", "2030-01-01T01:00:00"),
    ],
)
async def test_cron_parsing_with_various_expressions(
    tmp_path: Path, cron: str, expected: str
) -> None:
    assert await next_run(tmp_path, cron) == f"{expected}.000Z"


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        ("America/New_York", "2030-01-01T14:00:00"),
        ("America/Los_Angeles", "2030-01-01T17:00:00"),
        ("Asia/Kolkata", "2030-01-01T03:30:00"),
        ("UTC", "2030-01-01T09:00:00"),
    ],
)
async def test_timezone_calculations(tmp_path: Path, zone: str, expected: str) -> None:
    assert await next_run(tmp_path, "0 9 * * *", zone) == f"{expected}.000Z"


def test_retry_logic_by_default_is_three_retries_beginning_with_a_minute() -> None:
    policy = policies_of(ScheduleBlock(cron="@daily")).retry
    assert policy is not None
    assert (policy.attempts, policy.delay_s) == (4, 60.0)
    block = ScheduleBlock(
        cron="@daily", retry_policy=RetryPolicyBlock(max_retries=5, retry_delay_ms=300_000)
    )
    policy = policies_of(block).retry
    assert policy is not None
    assert (policy.attempts, policy.delay_s) == (6, 300.0)


def test_lock_acquisition_and_release(tmp_path: Path) -> None:
    lock = acquire(tmp_path, now=NOW)
    assert json.loads((tmp_path / LOCK_FILE).read_text())["startedAt"] == "2030-01-01T00:00:00.000Z"
    assert release(lock)
    assert not (tmp_path / LOCK_FILE).exists()


# -- formats -------------------------------------------------------------------------------


async def test_the_state_file_has_the_fields_of_the_design(folder_world: FolderWorld) -> None:
    folder_world.write("daily", DAILY)
    async with folder_world.daemon():
        folder_world.pass_time("9h")
        await folder_world.until(lambda: folder_world.total("daily") == 1)
    state = folder_world.state("daily")
    assert list(state) == [
        "version", "scheduleId", "pipelineId", "status", "enabled", "lastRun", "nextRun", "stats",
        "history",
    ]  # fmt: skip
    wanted = {"startedAt", "completedAt", "success", "resultFile", "itemsProcessed", "error"}
    assert wanted <= set(state["lastRun"])
    assert {"totalRuns", "successfulRuns", "failedRuns", "lastFailure"} <= set(state["stats"])
    assert {"startedAt", "completedAt", "success", "duration"} <= set(state["history"][0])
    assert state["lastRun"]["resultFile"].startswith(".results/2030-01-01T09-00-")


def test_the_scheduler_has_the_methods_of_the_design() -> None:
    for name in (
        "start", "stop", "list_schedules", "get_schedule", "trigger_now", "pause", "resume",
        "cancel", "get_upcoming", "get_history",
    ):  # fmt: skip
        assert inspect.iscoroutinefunction(getattr(PipelineScheduler, name)), name
    assert isinstance(inspect.getattr_static(PipelineScheduler, "is_running"), property)
    assert callable(PipelineScheduler.dispose)


# -- sequences -----------------------------------------------------------------------------


async def test_the_startup_sequence(small: FolderWorld) -> None:
    folder = small.write("daily", DAILY)
    async with small.daemon():
        pass
    small.pass_time("12h")  # an execution is missed
    app = small.app()
    scheduler = small.scheduler(app)
    there: list[tuple[str, bool, bool]] = []
    small.events.clear()
    (folder / STATE_FILE).unlink()

    def note(event: Any) -> None:
        there.append(
            (event.name, (small.root / LOCK_FILE).exists(), (folder / STATE_FILE).exists())
        )

    scheduler.on("*", note)
    await scheduler.start()
    await small.until(lambda: small.of("execution:complete"))
    await scheduler.stop()
    await app.close()
    assert there[:4] == [
        ("scheduler:status", True, False),  # the lock comes first
        ("scheduler:status", True, True),  # running: the state is loaded
        ("execution:start", True, True),  # what was missed
        ("execution:complete", True, True),
    ]
    assert [event.status for event in small.of("scheduler:status")][:2] == ["starting", "running"]


async def test_the_shutdown_sequence(small: FolderWorld) -> None:
    small.write("daily", DAILY)
    locked: dict[str, bool] = {}

    def note(event: Any) -> None:
        locked[getattr(event, "status", event.name)] = (small.root / LOCK_FILE).exists()

    async with small.daemon() as scheduler:
        scheduler.on("*", note)
        small.model.gate.clear()
        small.pass_time("9h")
        await small.until(lambda: small.of("execution:start"))
        before = json.loads((small.root / LOCK_FILE).read_text())["heartbeat"]
        stopping = asyncio.create_task(scheduler.stop("60s"))
        # While it waits for what is in flight, the heartbeat continues and no other scheduler may
        # begin.
        await small.until(
            lambda: json.loads((small.root / LOCK_FILE).read_text())["heartbeat"] > before
        )
        assert not stopping.done()
        small.model.gate.set()
        await stopping
    assert locked["stopping"] is True
    assert locked["execution:complete"] is True
    assert locked["stopped"] is False
    names = small.reported()
    assert names.index("execution:complete") < len(names) - 1


async def test_nothing_new_is_begun_while_it_stops(small: FolderWorld) -> None:
    small.write("daily", DAILY)
    small.write("later", DAILY.replace("0 9", "1 9"))
    async with small.daemon() as scheduler:
        small.model.gate.clear()
        small.pass_time("9h")
        await small.until(lambda: small.of("execution:start"))
        stopping = asyncio.create_task(scheduler.stop("5m"))
        await small.until(lambda: scheduler.status == "stopping")
        small.pass_time("2m")  # the other one is due now
        small.model.gate.set()
        await stopping
    assert {event.pipeline_id for event in small.of("execution:start")} == {"daily"}
    async with small.daemon():  # and is not lost
        await small.until(lambda: small.total("later") == 1)


# -- the error table -----------------------------------------------------------------------


async def test_config_error_skips_the_schedule_and_logs_a_warning(
    small: FolderWorld, caplog: pytest.LogCaptureFixture
) -> None:
    small.write("bad", DAILY.replace("0 9 * * *", "nonsense"))
    small.write("good", DAILY)
    with caplog.at_level(logging.WARNING, "rota.pipelines"):
        async with small.daemon() as scheduler:
            assert [each.pipeline_id for each in await scheduler.list_schedules()] == ["good"]
    assert "pipeline bad is broken, so it has no schedule" in caplog.text


async def test_execution_error_an_ai_that_times_out_is_retried_by_the_policy(
    small: FolderWorld,
) -> None:
    from rota.errors import Transient

    small.write("job", JOB.replace("job:", "settings: {retry: {maxRetries: 0}}\njob:"))
    small.model = type(small.model)(Transient("the model took too long"), "Hello")
    async with small.daemon():
        small.pass_time("9h")
        await small.until(lambda: small.of("execution:error"))
        [error] = small.of("execution:error")
        assert error.will_retry is True
        small.pass_time("61s")
        await small.until(lambda: small.of("execution:complete"))
