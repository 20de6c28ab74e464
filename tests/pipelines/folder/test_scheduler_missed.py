"""Executions that were missed because no scheduler ran, and folders that come from elsewhere."""

from __future__ import annotations

import errno
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from rota.pipelines.folder.registry import PipelineRegistry
from rota.pipelines.folder.state_file import STATE_FILE, ScheduleState, save_state
from rota.pipelines.run.content_keys import schedule_id
from tests.kit import broken
from tests.pipelines.kit.virtual_folder import DAILY, FolderWorld, block

HOURLY = DAILY.replace("0 9 * * *", "0 * * * *")


async def outcomes(folder_world: FolderWorld, name: str) -> list[str]:
    """The ledger of a schedule, oldest first."""
    app = folder_world.app()
    await app.connect()
    try:
        rows = await app.schedules.history(folder_world.state(name)["scheduleId"], limit=100)
        return [row.label for row in reversed(rows)]
    finally:
        await app.close()


# -- missed --------------------------------------------------------------------------------


async def test_a_missed_execution_runs_at_the_start(folder_world: FolderWorld) -> None:
    folder_world.write("daily", DAILY)
    async with folder_world.daemon():
        pass
    folder_world.pass_time("12h")
    async with folder_world.daemon():
        await folder_world.until(lambda: folder_world.total("daily") == 1)
        assert folder_world.state("daily")["lastRun"]["startedAt"].startswith("2030-01-01T12:00:")
        assert folder_world.state("daily")["nextRun"] == "2030-01-02T09:00:00.000Z"
    assert await broken(folder_world.url) == []


async def test_of_many_missed_ones_the_latest_runs_once(folder_world: FolderWorld) -> None:
    folder_world.write("hourly", HOURLY)
    async with folder_world.daemon():
        pass
    folder_world.pass_time("5h30m")
    async with folder_world.daemon():
        await folder_world.until(lambda: folder_world.total("hourly") == 1)
    assert await outcomes(folder_world, "hourly") == ["skipped:missed", "completed"]


async def test_every_missed_execution_runs_where_the_file_says_all(
    folder_world: FolderWorld,
) -> None:
    folder_world.write("hourly", block(HOURLY, missedExecution="all"))
    async with folder_world.daemon():
        pass
    folder_world.pass_time("5h30m")
    async with folder_world.daemon():
        await folder_world.until(lambda: folder_world.total("hourly") == 5)
    assert await outcomes(folder_world, "hourly") == ["completed"] * 5


async def test_queue_all_is_an_overlap_of_a_pipeline(folder_world: FolderWorld) -> None:
    folder_world.write("hourly", block(HOURLY, overlap="queue-all"))
    async with folder_world.daemon():
        await folder_world.until(
            lambda: folder_world.state("hourly")["nextRun"] == "2030-01-01T01:00:00.000Z"
        )


async def test_a_missed_execution_is_skipped_where_the_file_says_so(
    folder_world: FolderWorld,
) -> None:
    folder_world.write("daily", block(DAILY, missedExecution="skip"))
    async with folder_world.daemon():
        pass
    folder_world.pass_time("12h")
    async with folder_world.daemon():
        await folder_world.until(
            lambda: folder_world.state("daily")["nextRun"] == "2030-01-02T09:00:00.000Z"
        )
    assert folder_world.total("daily") == 0
    assert await outcomes(folder_world, "daily") == ["skipped:missed"]


async def test_one_that_is_too_late_is_skipped(
    folder_world: FolderWorld, caplog: pytest.LogCaptureFixture
) -> None:
    folder_world.write("daily", block(DAILY, window={"maxDelayMinutes": 30}))
    async with folder_world.daemon():
        pass
    folder_world.pass_time("9h31m")
    with caplog.at_level(logging.INFO, "rota.pipelines"):
        async with folder_world.daemon():
            await folder_world.until(
                lambda: folder_world.state("daily")["nextRun"] == "2030-01-02T09:00:00.000Z"
            )
            await folder_world.until(lambda: "skipped: too late" in caplog.text)
    assert folder_world.total("daily") == 0
    assert await outcomes(folder_world, "daily") == ["skipped:too late"]


async def test_one_that_is_late_within_its_window_runs(folder_world: FolderWorld) -> None:
    folder_world.write("daily", block(DAILY, window={"maxDelayMinutes": 30}))
    async with folder_world.daemon():
        pass
    folder_world.pass_time("9h29m")
    async with folder_world.daemon():
        await folder_world.until(lambda: folder_world.total("daily") == 1)


# -- folders from elsewhere ----------------------------------------------------------------


def old_state(folder: Path, **more: Any) -> None:
    """A state file as another machine left it."""
    run = {
        "startedAt": "2029-12-31T09:00:00.000Z", "completedAt": "2029-12-31T09:00:10.000Z",
        "success": True, "duration": 10000,
    }  # fmt: skip
    state = {
        "version": 1, "scheduleId": "daily-a1b2c3", "pipelineId": "daily", "status": "idle",
        "enabled": True, "lastRun": run, "nextRun": "2030-01-01T09:00:00.000Z",
        "stats": {"totalRuns": 7, "successfulRuns": 6, "failedRuns": 1, "lastFailure": None},
        "history": [run],
    }  # fmt: skip
    (folder / STATE_FILE).write_text(json.dumps(state | more))


async def test_a_copied_folder_keeps_its_history_and_id(folder_world: FolderWorld) -> None:
    old_state(folder_world.write("daily", DAILY))
    async with folder_world.daemon() as scheduler:
        assert folder_world.state("daily")["scheduleId"] == "daily-a1b2c3"
        folder_world.pass_time("9h")
        await folder_world.until(lambda: folder_world.total("daily") == 8)
        history = await scheduler.get_history("daily")
        assert [run.started_at[:10] for run in history] == ["2030-01-01", "2029-12-31"]


async def test_what_a_copied_folder_has_missed_runs(folder_world: FolderWorld) -> None:
    old_state(folder_world.write("daily", DAILY), nextRun="2029-12-31T09:00:00.000Z")
    async with folder_world.daemon():
        await folder_world.until(lambda: folder_world.total("daily") == 8)
        assert folder_world.state("daily")["lastRun"]["startedAt"].startswith("2030-01-01T00:00:")


async def test_what_a_copied_folder_has_missed_is_skipped_where_its_file_says_so(
    folder_world: FolderWorld,
) -> None:
    folder = folder_world.write("daily", block(DAILY, missedExecution="skip"))
    old_state(folder, nextRun="2029-12-31T09:00:00.000Z")
    async with folder_world.daemon():
        await folder_world.until(
            lambda: folder_world.state("daily")["nextRun"] == "2030-01-01T09:00:00.000Z"
        )
    assert folder_world.total("daily") == 7


async def test_a_copied_folder_that_was_paused_stays_so(folder_world: FolderWorld) -> None:
    old_state(folder_world.write("daily", DAILY), status="paused", nextRun=None)
    async with folder_world.daemon() as scheduler:
        assert folder_world.state("daily")["status"] == "paused"
        folder_world.pass_time("10h")
        await folder_world.tick(scheduler)
        assert folder_world.total("daily") == 7


async def test_a_copy_beside_the_original_is_a_schedule_of_its_own(
    folder_world: FolderWorld,
) -> None:
    folder = folder_world.write("daily", DAILY)
    async with folder_world.daemon():
        folder_world.pass_time("9h")
        await folder_world.until(lambda: folder_world.total("daily") == 1)
    elsewhere = FolderWorld(folder_world.root.parent / "copy", folder_world.url)
    shutil.copytree(folder, elsewhere.root / "daily")
    async with elsewhere.daemon():
        pass
    first, second = folder_world.state("daily"), elsewhere.state("daily")
    assert first["scheduleId"] != second["scheduleId"]
    assert second["scheduleId"] == schedule_id("daily", elsewhere.root / "daily")
    assert second["stats"]["totalRuns"] == 1


async def test_a_folder_that_was_moved_goes_on_with_its_schedule(folder_world: FolderWorld) -> None:
    folder_world.write("daily", DAILY)
    async with folder_world.daemon():
        folder_world.pass_time("9h")
        await folder_world.until(lambda: folder_world.total("daily") == 1)
    before = folder_world.state("daily")["scheduleId"]
    folder_world.root = folder_world.root.rename(folder_world.root.with_name("moved"))
    async with folder_world.daemon():
        assert folder_world.state("daily")["scheduleId"] == before
        folder_world.pass_time("24h")
        await folder_world.until(lambda: folder_world.total("daily") == 2)
    app = folder_world.app()
    await app.connect()
    assert len(await app.schedules.list()) == 1
    await app.close()


async def test_a_run_that_another_machine_never_ended_is_closed(folder_world: FolderWorld) -> None:
    run = {"startedAt": "2029-12-31T23:00:00.000Z", "completedAt": None, "success": False}
    old_state(folder_world.write("daily", DAILY), status="running", lastRun=run)
    async with folder_world.daemon():
        state = folder_world.state("daily")
        assert state["stats"]["failedRuns"] == 2
        assert "stopped while it was running" in state["history"][0]["error"]


# -- files that cannot be read or written --------------------------------------------------


async def test_a_corrupt_state_file_is_made_again_with_a_warning(
    folder_world: FolderWorld, caplog: pytest.LogCaptureFixture
) -> None:
    folder = folder_world.write("daily", DAILY)
    (folder / STATE_FILE).write_text('{"version": 1, "sched')
    with caplog.at_level(logging.WARNING, "rota.pipelines"):
        async with folder_world.daemon():
            assert folder_world.state("daily")["nextRun"] == "2030-01-01T09:00:00.000Z"
    assert "cannot be read" in caplog.text
    assert (folder / f"{STATE_FILE}.corrupt").exists()


async def test_a_corrupt_state_file_is_made_again_from_what_the_database_knows(
    folder_world: FolderWorld,
) -> None:
    folder = folder_world.write("daily", DAILY)
    async with folder_world.daemon():
        folder_world.pass_time("9h")
        await folder_world.until(lambda: folder_world.total("daily") == 1)
    (folder / STATE_FILE).write_text("not json")
    async with folder_world.daemon():
        assert folder_world.total("daily") == 1


async def test_a_full_disk_for_one_state_file_is_logged_and_the_others_go_on(
    folder_world: FolderWorld, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_world.write("full", DAILY)
    folder_world.write("fine", DAILY)
    is_full = True

    def saves(folder: Path, state: ScheduleState) -> None:
        if is_full and folder.name == "full":
            raise OSError(errno.ENOSPC, "No space left on device")
        save_state(folder, state)

    monkeypatch.setattr("rota.pipelines.folder.state_file_sync.save_state", saves)
    with caplog.at_level(logging.WARNING, "rota.pipelines"):
        async with folder_world.daemon():
            folder_world.pass_time("9h")
            await folder_world.until(lambda: len(folder_world.of("execution:complete")) == 2)
            await folder_world.until(lambda: folder_world.total("fine") == 1)
            assert folder_world.total("full") == 0
            assert caplog.text.count("No space left on device") == 1
            is_full = False
            await folder_world.until(lambda: folder_world.total("full") == 1)


# -- many machines -------------------------------------------------------------------------


async def test_machines_that_hold_the_same_folder_share_its_schedules(
    folder_world: FolderWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SamePath(PipelineRegistry):
        """The folder of another machine, at the same path."""

        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            self.origin = str(folder_world.root)

    monkeypatch.setattr("rota.pipelines.folder.scheduler.PipelineRegistry", SamePath)
    folder_world.write("daily", DAILY)
    twin = FolderWorld(folder_world.root.parent / "twin", folder_world.url)
    twin.clock, twin.model = folder_world.clock, folder_world.model
    twin.write("daily", DAILY)
    first, second = folder_world.app(), twin.app()
    one, other = folder_world.scheduler(first), twin.scheduler(second)
    try:
        await one.start()
        await other.start()
        folder_world.pass_time("9h")
        await folder_world.until(lambda: folder_world.total("daily") == twin.total("daily") == 1)
        assert folder_world.model.calls == 2
        assert folder_world.state("daily")["scheduleId"] == twin.state("daily")["scheduleId"]
        assert len(await one.list_schedules()) == len(await other.list_schedules()) == 1
    finally:
        await one.stop(0)
        await other.stop(0)
        await first.close()
        await second.close()
    assert await broken(folder_world.url) == []
