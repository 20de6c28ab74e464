"""What happens to executions nobody was there for, and to folders that come from elsewhere."""

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
from tests.pipelines.kit.virtual_folder import DAILY, House, block

HOURLY = DAILY.replace("0 9 * * *", "0 * * * *")


async def outcomes(house: House, name: str) -> list[str]:
    """The ledger of a schedule, oldest first."""
    app = house.app()
    await app.connect()
    try:
        rows = await app.schedules.history(house.state(name)["scheduleId"], limit=100)
        return [row.label for row in reversed(rows)]
    finally:
        await app.close()


# -- missed --------------------------------------------------------------------------------


async def test_a_missed_execution_runs_at_the_start(house: House) -> None:
    house.write("daily", DAILY)
    async with house.daemon():
        pass
    house.pass_time("12h")
    async with house.daemon():
        await house.until(lambda: house.total("daily") == 1)
        assert house.state("daily")["lastRun"]["startedAt"].startswith("2030-01-01T12:00:")
        assert house.state("daily")["nextRun"] == "2030-01-02T09:00:00.000Z"
    assert await broken(house.url) == []


async def test_of_many_missed_ones_the_latest_runs_once(house: House) -> None:
    house.write("hourly", HOURLY)
    async with house.daemon():
        pass
    house.pass_time("5h30m")
    async with house.daemon():
        await house.until(lambda: house.total("hourly") == 1)
    assert await outcomes(house, "hourly") == ["skipped:missed", "completed"]


async def test_every_missed_execution_runs_where_the_file_says_all(house: House) -> None:
    house.write("hourly", block(HOURLY, missedExecution="all"))
    async with house.daemon():
        pass
    house.pass_time("5h30m")
    async with house.daemon():
        await house.until(lambda: house.total("hourly") == 5)
    assert await outcomes(house, "hourly") == ["completed"] * 5


async def test_queue_all_is_an_overlap_of_a_pipeline(house: House) -> None:
    house.write("hourly", block(HOURLY, overlap="queue-all"))
    async with house.daemon():
        await house.until(lambda: house.state("hourly")["nextRun"] == "2030-01-01T01:00:00.000Z")


async def test_a_missed_execution_is_skipped_where_the_file_says_so(house: House) -> None:
    house.write("daily", block(DAILY, missedExecution="skip"))
    async with house.daemon():
        pass
    house.pass_time("12h")
    async with house.daemon():
        await house.until(lambda: house.state("daily")["nextRun"] == "2030-01-02T09:00:00.000Z")
    assert house.total("daily") == 0
    assert await outcomes(house, "daily") == ["skipped:missed"]


async def test_one_that_is_too_late_is_skipped(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    house.write("daily", block(DAILY, window={"maxDelayMinutes": 30}))
    async with house.daemon():
        pass
    house.pass_time("9h31m")
    with caplog.at_level(logging.INFO, "rota.pipelines"):
        async with house.daemon():
            await house.until(lambda: house.state("daily")["nextRun"] == "2030-01-02T09:00:00.000Z")
            await house.until(lambda: "skipped: too late" in caplog.text)
    assert house.total("daily") == 0
    assert await outcomes(house, "daily") == ["skipped:too late"]


async def test_one_that_is_late_within_its_window_runs(house: House) -> None:
    house.write("daily", block(DAILY, window={"maxDelayMinutes": 30}))
    async with house.daemon():
        pass
    house.pass_time("9h29m")
    async with house.daemon():
        await house.until(lambda: house.total("daily") == 1)


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


async def test_a_copied_folder_keeps_its_history_and_id(house: House) -> None:
    old_state(house.write("daily", DAILY))
    async with house.daemon() as scheduler:
        assert house.state("daily")["scheduleId"] == "daily-a1b2c3"
        house.pass_time("9h")
        await house.until(lambda: house.total("daily") == 8)
        history = await scheduler.get_history("daily")
        assert [run.started_at[:10] for run in history] == ["2030-01-01", "2029-12-31"]


async def test_what_a_copied_folder_has_missed_runs(house: House) -> None:
    old_state(house.write("daily", DAILY), nextRun="2029-12-31T09:00:00.000Z")
    async with house.daemon():
        await house.until(lambda: house.total("daily") == 8)
        assert house.state("daily")["lastRun"]["startedAt"].startswith("2030-01-01T00:00:")


async def test_what_a_copied_folder_has_missed_is_skipped_where_its_file_says_so(
    house: House,
) -> None:
    folder = house.write("daily", block(DAILY, missedExecution="skip"))
    old_state(folder, nextRun="2029-12-31T09:00:00.000Z")
    async with house.daemon():
        await house.until(lambda: house.state("daily")["nextRun"] == "2030-01-01T09:00:00.000Z")
    assert house.total("daily") == 7


async def test_a_copied_folder_that_was_paused_stays_so(house: House) -> None:
    old_state(house.write("daily", DAILY), status="paused", nextRun=None)
    async with house.daemon() as scheduler:
        assert house.state("daily")["status"] == "paused"
        house.pass_time("10h")
        await house.tick(scheduler)
        assert house.total("daily") == 7


async def test_a_copy_beside_the_original_is_a_schedule_of_its_own(house: House) -> None:
    folder = house.write("daily", DAILY)
    async with house.daemon():
        house.pass_time("9h")
        await house.until(lambda: house.total("daily") == 1)
    elsewhere = House(house.root.parent / "copy", house.url)
    shutil.copytree(folder, elsewhere.root / "daily")
    async with elsewhere.daemon():
        pass
    first, second = house.state("daily"), elsewhere.state("daily")
    assert first["scheduleId"] != second["scheduleId"]
    assert second["scheduleId"] == schedule_id("daily", elsewhere.root / "daily")
    assert second["stats"]["totalRuns"] == 1


async def test_a_folder_that_was_moved_goes_on_with_its_schedule(house: House) -> None:
    house.write("daily", DAILY)
    async with house.daemon():
        house.pass_time("9h")
        await house.until(lambda: house.total("daily") == 1)
    before = house.state("daily")["scheduleId"]
    house.root = house.root.rename(house.root.with_name("moved"))
    async with house.daemon():
        assert house.state("daily")["scheduleId"] == before
        house.pass_time("24h")
        await house.until(lambda: house.total("daily") == 2)
    app = house.app()
    await app.connect()
    assert len(await app.schedules.list()) == 1
    await app.close()


async def test_a_run_that_another_machine_never_ended_is_closed(house: House) -> None:
    run = {"startedAt": "2029-12-31T23:00:00.000Z", "completedAt": None, "success": False}
    old_state(house.write("daily", DAILY), status="running", lastRun=run)
    async with house.daemon():
        state = house.state("daily")
        assert state["stats"]["failedRuns"] == 2
        assert "stopped while it was running" in state["history"][0]["error"]


# -- files that cannot be read or written --------------------------------------------------


async def test_a_corrupt_state_file_is_made_anew_with_a_warning(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    folder = house.write("daily", DAILY)
    (folder / STATE_FILE).write_text('{"version": 1, "sched')
    with caplog.at_level(logging.WARNING, "rota.pipelines"):
        async with house.daemon():
            assert house.state("daily")["nextRun"] == "2030-01-01T09:00:00.000Z"
    assert "cannot be read" in caplog.text
    assert (folder / f"{STATE_FILE}.corrupt").exists()


async def test_a_corrupt_state_file_is_made_anew_from_what_the_database_knows(house: House) -> None:
    folder = house.write("daily", DAILY)
    async with house.daemon():
        house.pass_time("9h")
        await house.until(lambda: house.total("daily") == 1)
    (folder / STATE_FILE).write_text("not json")
    async with house.daemon():
        assert house.total("daily") == 1


async def test_a_full_disk_for_one_state_file_is_logged_and_the_others_go_on(
    house: House, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.write("full", DAILY)
    house.write("fine", DAILY)
    is_full = True

    def saves(folder: Path, state: ScheduleState) -> None:
        if is_full and folder.name == "full":
            raise OSError(errno.ENOSPC, "No space left on device")
        save_state(folder, state)

    monkeypatch.setattr("rota.pipelines.folder.state_file_sync.save_state", saves)
    with caplog.at_level(logging.WARNING, "rota.pipelines"):
        async with house.daemon():
            house.pass_time("9h")
            await house.until(lambda: len(house.of("execution:complete")) == 2)
            await house.until(lambda: house.total("fine") == 1)
            assert house.total("full") == 0
            assert caplog.text.count("No space left on device") == 1
            is_full = False
            await house.until(lambda: house.total("full") == 1)


# -- many machines -------------------------------------------------------------------------


async def test_machines_that_hold_the_same_folder_share_its_schedules(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SamePath(PipelineRegistry):
        """The folder of another machine, at the same path."""

        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            self.origin = str(house.root)

    monkeypatch.setattr("rota.pipelines.folder.scheduler.PipelineRegistry", SamePath)
    house.write("daily", DAILY)
    twin = House(house.root.parent / "twin", house.url)
    twin.clock, twin.model = house.clock, house.model
    twin.write("daily", DAILY)
    first, second = house.app(), twin.app()
    one, other = house.scheduler(first), twin.scheduler(second)
    try:
        await one.start()
        await other.start()
        house.pass_time("9h")
        await house.until(lambda: house.total("daily") == twin.total("daily") == 1)
        assert house.model.calls == 2
        assert house.state("daily")["scheduleId"] == twin.state("daily")["scheduleId"]
        assert len(await one.list_schedules()) == len(await other.list_schedules()) == 1
    finally:
        await one.stop(0)
        await other.stop(0)
        await first.close()
        await second.close()
    assert await broken(house.url) == []
