"""The life of a daemon: it starts, executes, stops; two of them never share a folder."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import pytest

from rota.errors import SchedulerLockError, WrongState
from rota.pipelines.folder.lock_file import LOCK_FILE
from tests.pipelines.kit.virtual_folder import DAILY, JOB, START, FolderWorld, block


async def test_it_starts_executes_and_stops(folder_world: FolderWorld) -> None:
    folder = folder_world.write("daily", DAILY)
    async with folder_world.daemon() as scheduler:
        assert bool(scheduler.is_running)
        lock = json.loads((folder_world.root / LOCK_FILE).read_text())
        assert set(lock) == {"pid", "hostname", "startedAt", "heartbeat"}
        assert folder_world.state("daily")["nextRun"] == "2030-01-01T09:00:00.000Z"
        folder_world.pass_time("9h")
        await folder_world.until(lambda: folder_world.total("daily") == 1)
        await scheduler.stop()
        assert not bool(scheduler.is_running)
    assert not (folder_world.root / LOCK_FILE).exists()
    state = folder_world.state("daily")
    assert state["status"] == "idle"
    assert state["nextRun"] == "2030-01-02T09:00:00.000Z"
    assert state["stats"] | {"averageDuration": 0} == {
        "totalRuns": 1, "successfulRuns": 1, "failedRuns": 0, "lastFailure": None,
        "averageDuration": 0,
    }  # fmt: skip
    last = state["lastRun"]
    assert last["startedAt"].startswith("2030-01-01T09:00:")
    assert (last["success"], last["itemsProcessed"], last["error"]) == (True, 2, None)
    result = json.loads((folder / last["resultFile"]).read_text())
    assert result
    assert [r["startedAt"] for r in state["history"]] == [last["startedAt"]]


async def test_the_events_come_in_the_order_of_the_life(folder_world: FolderWorld) -> None:
    folder_world.write("daily", DAILY)
    async with folder_world.daemon():
        folder_world.pass_time("9h")
        await folder_world.until(lambda: folder_world.of("execution:complete"))
    statuses = [event.status for event in folder_world.of("scheduler:status")]
    assert statuses == ["starting", "running", "stopping", "stopped"]
    names = [name for name in folder_world.reported() if name != "scheduler:status"]
    assert names == ["schedule:changed", "execution:start", "execution:complete"]
    [start] = folder_world.of("execution:start")
    [complete] = folder_world.of("execution:complete")
    assert start.pipeline_id == complete.pipeline_id == "daily"
    assert start.schedule_id == folder_world.state("daily")["scheduleId"]
    assert start.trigger == "schedule"
    assert complete.result.processed == 2
    line = json.loads(complete.line())
    assert line["event"] == "execution:complete"
    assert line["at"].startswith("2030-01-01T09:00:")


async def test_a_second_daemon_is_refused_and_shown_who_holds_the_folder(
    folder_world: FolderWorld,
) -> None:
    folder_world.write("daily", DAILY)
    async with folder_world.daemon():
        other = folder_world.app()
        with pytest.raises(SchedulerLockError) as refused:
            await folder_world.scheduler(other).start()
        assert f"process {json.loads((folder_world.root / LOCK_FILE).read_text())['pid']}" in str(
            refused.value
        )
        await other.close()
    async with folder_world.daemon() as next_one:
        assert next_one.is_running


async def test_a_stale_lock_is_taken_over(small: FolderWorld) -> None:
    small.write("daily", DAILY)
    lock = {
        "pid": 1, "hostname": "gone-machine", "startedAt": "2029-12-31T22:00:00.000Z",
        "heartbeat": "2029-12-31T23:58:59.000Z",
    }  # fmt: skip
    (small.root / LOCK_FILE).write_text(json.dumps(lock))
    async with small.daemon():
        assert json.loads((small.root / LOCK_FILE).read_text())["hostname"] != "gone-machine"


async def test_a_fresh_lock_of_another_machine_is_respected(small: FolderWorld) -> None:
    small.write("daily", DAILY)
    lock = {
        "pid": 1, "hostname": "other-machine", "startedAt": "2029-12-31T22:00:00.000Z",
        "heartbeat": "2029-12-31T23:59:30.000Z",
    }  # fmt: skip
    (small.root / LOCK_FILE).write_text(json.dumps(lock))
    app = small.app()
    with pytest.raises(SchedulerLockError, match="other-machine"):
        await small.scheduler(app).start()
    await app.close()
    assert json.loads((small.root / LOCK_FILE).read_text()) == lock


async def test_the_heartbeat_goes_on_while_it_runs(small: FolderWorld) -> None:
    small.write("daily", DAILY)
    async with small.daemon():
        first = json.loads((small.root / LOCK_FILE).read_text())["heartbeat"]
        await small.until(
            lambda: json.loads((small.root / LOCK_FILE).read_text())["heartbeat"] > first
        )


async def test_a_daemon_that_lost_its_lock_stops(small: FolderWorld) -> None:
    small.write("daily", DAILY)
    async with small.daemon() as scheduler:
        lock = json.loads((small.root / LOCK_FILE).read_text())
        (small.root / LOCK_FILE).write_text(json.dumps(lock | {"hostname": "thief"}))
        await small.until(scheduler.stopped.is_set)
        assert scheduler.lost is not None
        assert "thief" in str(scheduler.lost)
    assert json.loads((small.root / LOCK_FILE).read_text())["hostname"] == "thief"


async def test_a_graceful_stop_waits_for_work_in_flight(folder_world: FolderWorld) -> None:
    folder_world.write("daily", DAILY)
    async with folder_world.daemon() as scheduler:
        folder_world.model.gate.clear()
        folder_world.pass_time("9h")
        await folder_world.until(
            lambda: folder_world.model.waiting and folder_world.of("execution:start")
        )
        assert folder_world.state("daily")["status"] == "running"
        stopping = asyncio.create_task(scheduler.stop("30s"))
        await folder_world.until(lambda: scheduler.status == "stopping")
        assert not stopping.done()
        folder_world.model.gate.set()
        await stopping
    assert folder_world.total("daily") == 1
    assert folder_world.state("daily")["lastRun"]["success"] is True
    assert folder_world.of("execution:complete")


async def test_what_does_not_end_in_time_is_handed_over_and_goes_on(
    folder_world: FolderWorld,
) -> None:
    folder_world.write("daily", DAILY)
    async with folder_world.daemon() as scheduler:
        folder_world.model.gate.clear()
        folder_world.pass_time("9h")
        await folder_world.until(lambda: folder_world.model.waiting == 2)
        await scheduler.stop(0)
    assert folder_world.total("daily") == 0
    folder_world.model.gate.set()
    async with folder_world.daemon():
        await folder_world.until(lambda: folder_world.total("daily") == 1)
    assert folder_world.state("daily")["lastRun"]["success"] is True
    assert folder_world.state("daily")["stats"]["totalRuns"] == 1


async def test_history_goes_on_after_a_restart(folder_world: FolderWorld) -> None:
    folder_world.write("daily", DAILY)
    for day in (1, 2):
        async with folder_world.daemon():
            folder_world.clock.move_to(
                int((START + timedelta(days=day, hours=-15)).timestamp() * 1e6)
            )
            await folder_world.until(lambda day=day: folder_world.total("daily") == day)  # type: ignore[misc]
    days = [run["startedAt"][:10] for run in folder_world.state("daily")["history"]]
    assert days == ["2030-01-02", "2030-01-01"]


async def test_a_start_while_it_runs_is_refused_and_a_second_stop_is_no_error(
    small: FolderWorld,
) -> None:
    small.write("daily", DAILY)
    async with small.daemon() as scheduler:
        with pytest.raises(WrongState):
            await scheduler.start()
        await scheduler.stop()
        await scheduler.stop()


async def test_it_may_be_started_again_after_it_was_stopped(small: FolderWorld) -> None:
    small.write("daily", DAILY)
    async with small.daemon() as scheduler:
        await scheduler.stop()
        await scheduler.start()
        assert scheduler.is_running
        small.pass_time("9h")
        await small.until(lambda: small.total("daily") == 1)


async def test_dispose_lets_go_of_the_lock_at_once(small: FolderWorld) -> None:
    small.write("daily", DAILY)
    app = small.app()
    scheduler = small.scheduler(app)
    await scheduler.start()
    scheduler.dispose()
    assert not (small.root / LOCK_FILE).exists()
    assert not scheduler.is_running
    await app.close()


async def test_a_folder_that_is_not_there_is_a_clear_error(
    tmp_path: Path, small: FolderWorld
) -> None:
    small.root.rmdir()
    app = small.app()
    with pytest.raises(Exception, match="is not a folder"):
        await small.scheduler(app).start()
    await app.close()
    assert not small.root.exists()


async def test_a_failing_listener_disturbs_nobody(small: FolderWorld) -> None:
    small.write("job", block(JOB))
    app = small.app()
    scheduler = small.scheduler(app)

    def broken(event: object) -> None:
        raise RuntimeError("no")

    scheduler.on("execution:start", broken)
    await scheduler.start()
    small.pass_time("9h")
    await small.until(lambda: small.total("job") == 1)
    await scheduler.stop()
    await app.close()
