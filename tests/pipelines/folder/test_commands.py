"""Commands for schedules: pause, resume, trigger, cancel, look; and what failures do."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise

import pytest

from rota.errors import Rejected, RunFailed, UnknownSchedule, UsageError, WrongState
from tests.kit import broken
from tests.pipelines.kit.virtual_folder import DAILY, JOB, FolderWorld, block

BAD = Rejected("the question makes no sense")


# -- commands ------------------------------------------------------------------------------


async def test_a_paused_schedule_skips_its_executions_until_it_is_resumed(
    folder_world: FolderWorld,
) -> None:
    folder_world.write("daily", DAILY)
    async with folder_world.daemon() as scheduler:
        info = await scheduler.pause("daily", note="holidays")
        assert (info.state.status, info.note, info.state.next_run) == ("paused", "holidays", None)
        assert folder_world.state("daily")["status"] == "paused"
        folder_world.pass_time("25h")
        await folder_world.tick(scheduler)
        assert folder_world.total("daily") == 0
        info = await scheduler.resume("daily")
        assert info.state.next_run == "2030-01-02T09:00:00.000Z"
        assert folder_world.state("daily")["status"] == "idle"
        folder_world.pass_time("9h")
        await folder_world.until(lambda: folder_world.total("daily") == 1)


async def test_skipped_executions_are_found_behind_those_that_ran(
    folder_world: FolderWorld,
) -> None:
    folder_world.write("daily", DAILY)
    async with folder_world.daemon() as scheduler:
        await scheduler.pause("daily")
        folder_world.pass_time("25h")
        await scheduler.resume("daily")
        folder_world.pass_time("9h")
        await folder_world.until(lambda: folder_world.total("daily") == 1)
        [skipped] = await scheduler.skipped("daily", 1)
        assert (skipped.reason, skipped.occurrences) == ("paused", 1)


async def test_a_pause_outlives_a_restart(folder_world: FolderWorld) -> None:
    folder_world.write("daily", DAILY)
    async with folder_world.daemon() as scheduler:
        await scheduler.pause("daily")
    async with folder_world.daemon():
        assert folder_world.state("daily")["status"] == "paused"


async def test_resuming_what_is_not_paused_is_refused(folder_world: FolderWorld) -> None:
    folder_world.write("daily", DAILY)
    folder_world.write("off", block(DAILY, enabled=False))
    async with folder_world.daemon() as scheduler:
        with pytest.raises(WrongState):
            await scheduler.resume("daily")
        with pytest.raises(WrongState, match="disabled in its file"):
            await scheduler.resume("off")


async def test_a_trigger_runs_it_now_and_does_not_move_the_schedule(
    folder_world: FolderWorld,
) -> None:
    folder_world.write("daily", DAILY)
    async with folder_world.daemon() as scheduler:
        triggering = asyncio.create_task(scheduler.trigger_now("daily"))
        await folder_world.until(triggering.done)
        result = await triggering
        assert (result.outcome, result.processed) == ("completed", 2)
        assert folder_world.state("daily")["nextRun"] == "2030-01-01T09:00:00.000Z"
        assert folder_world.total("daily") == 1
        [start] = folder_world.of("execution:start")
        assert start.trigger == "manual"


async def test_a_paused_schedule_may_be_triggered(folder_world: FolderWorld) -> None:
    folder_world.write("daily", DAILY)
    async with folder_world.daemon() as scheduler:
        await scheduler.pause("daily")
        triggering = asyncio.create_task(scheduler.trigger_now("daily"))
        await folder_world.until(triggering.done)
        assert folder_world.state("daily")["status"] == "paused"
        assert folder_world.total("daily") == 1


async def test_a_trigger_that_fails_says_why(folder_world: FolderWorld) -> None:
    folder_world.write("job", block(JOB).replace("maxRetries: 2", "maxRetries: 0"))
    folder_world.model = type(folder_world.model)(BAD)
    async with folder_world.daemon() as scheduler:
        triggering = asyncio.create_task(scheduler.trigger_now("job"))
        await folder_world.until(triggering.done)
        with pytest.raises(RunFailed, match="makes no sense"):
            await triggering


async def test_a_running_execution_can_be_cancelled(folder_world: FolderWorld) -> None:
    folder_world.write("daily", DAILY)
    async with folder_world.daemon() as scheduler:
        with pytest.raises(WrongState, match="nothing"):
            await scheduler.cancel("daily")
        folder_world.model.gate.clear()
        folder_world.pass_time("9h")
        await folder_world.until(lambda: folder_world.of("execution:start"))
        [run_id] = await scheduler.cancel("daily")
        await folder_world.until(lambda: folder_world.of("execution:error"))
        [error] = folder_world.of("execution:error")
        assert (error.run_id, error.will_retry) == (run_id, False)
        assert "cancelled" in error.error
        await folder_world.until(lambda: folder_world.model.waiting == 0)
        state = folder_world.state("daily")
        assert (state["status"], state["stats"]["failedRuns"]) == ("error", 1)
        assert state["nextRun"] == "2030-01-02T09:00:00.000Z"


async def test_an_unknown_schedule_is_answered_with_the_nearest_name(
    folder_world: FolderWorld,
) -> None:
    folder_world.write("daily", DAILY)
    folder_world.write(
        "plain", DAILY.replace('schedule:\n  cron: "0 9 * * *"\n  timezone: UTC\n', "")
    )
    folder_world.write("bad", "name: [")
    async with folder_world.daemon() as scheduler:
        assert await scheduler.get_schedule("dialy") is None
        with pytest.raises(UnknownSchedule, match='did you mean "daily"'):
            await scheduler.pause("dialy")
        with pytest.raises(UnknownSchedule, match="has no schedule"):
            await scheduler.pause("plain")
        with pytest.raises(UnknownSchedule, match="is broken"):
            await scheduler.pause("bad")


async def test_a_schedule_is_known_by_its_id_and_by_its_pipeline(folder_world: FolderWorld) -> None:
    folder_world.write("daily", DAILY)
    async with folder_world.daemon() as scheduler:
        by_name = await scheduler.get_schedule("daily")
        assert by_name is not None
        assert await scheduler.get_schedule(by_name.schedule_id) == by_name
        assert by_name.pipeline_name == "Daily"
        assert by_name.pipeline_directory.endswith("pipelines/daily")
        assert by_name.config.cron == "0 9 * * *"
        assert by_name.next_run_in == 9 * 3600 * 1000


async def test_what_comes_next_is_called_across_all_schedules(folder_world: FolderWorld) -> None:
    folder_world.write("daily", DAILY)
    folder_world.write("hourly", DAILY.replace("0 9 * * *", "30 */4 * * *"))
    folder_world.write("off", block(DAILY, enabled=False))
    async with folder_world.daemon() as scheduler:
        found = await scheduler.get_upcoming(5)
        assert [(one.pipeline_id, f"{one.next_run:%d %H:%M}") for one in found] == [
            ("hourly", "01 00:30"),
            ("hourly", "01 04:30"),
            ("hourly", "01 08:30"),
            ("daily", "01 09:00"),
            ("hourly", "01 12:30"),
        ]


async def test_no_execution_is_upcoming_beyond_max_runs(small: FolderWorld) -> None:
    small.write("daily", block(DAILY, maxRuns=2))
    async with small.daemon() as scheduler:
        assert len(await scheduler.get_upcoming(5)) == 2
        small.pass_time("9h")
        await small.until(lambda: small.total("daily") == 1)
        assert [f"{one.next_run:%d %H:%M}" for one in await scheduler.get_upcoming(5)] == [
            "02 09:00"
        ]


async def test_an_overdue_execution_counts_and_is_not_upcoming(small: FolderWorld) -> None:
    small.write("daily", block(DAILY, maxRuns=2))
    async with small.daemon():
        pass
    small.pass_time("10h")
    app = small.app()
    await app.connect()
    found = await small.scheduler(app).get_upcoming(5)
    listed = await app.schedules.upcoming(within="30d")
    await app.close()
    assert [f"{each.next_run:%d %H:%M}" for each in found] == ["02 09:00"]
    assert [each.runs_at for each in listed] == [each.next_run for each in found]


async def test_upcoming_executions_include_a_pipeline_that_no_scheduler_has_seen(
    small: FolderWorld,
) -> None:
    small.write("daily", DAILY)
    async with small.daemon():
        pass
    small.write("new", DAILY.replace("0 9", "1 9"))
    app = small.app()
    await app.connect()
    found = await small.scheduler(app).get_upcoming(3)
    await app.close()
    assert [each.pipeline_id for each in found] == ["daily", "new", "daily"]


async def test_the_history_is_bounded_and_the_totals_are_not(small: FolderWorld) -> None:
    small.write("daily", DAILY.replace("0 9", "* *"))
    async with small.daemon(history_max=3) as scheduler:
        for count in range(1, 6):
            small.pass_time("1m")
            await small.until(lambda count=count: small.total("daily") >= count)  # type: ignore[misc]
        assert len(await scheduler.get_history("daily")) == 3
        assert len(await scheduler.get_history("daily", 2)) == 2
        starts = [run.started_at for run in await scheduler.get_history("daily")]
        assert starts == sorted(starts, reverse=True)


def test_there_are_no_other_events(small: FolderWorld) -> None:
    scheduler = small.scheduler(small.app())
    with pytest.raises(UsageError, match='did you mean "execution:start"'):
        scheduler.on("execution:started", print)


# -- failures ------------------------------------------------------------------------------


async def test_a_failed_execution_is_tried_again_by_its_policy(folder_world: FolderWorld) -> None:
    folder_world.write("job", JOB)
    folder_world.model = type(folder_world.model)(BAD, BAD, "Hello")
    async with folder_world.daemon():
        folder_world.pass_time("9h")
        await folder_world.until(lambda: len(folder_world.of("execution:error")) == 1)
        assert folder_world.state("job")["status"] == "error"
        folder_world.pass_time("61s")
        await folder_world.until(lambda: len(folder_world.of("execution:error")) == 2)
        folder_world.pass_time("121s")
        await folder_world.until(lambda: folder_world.of("execution:complete"))
        await folder_world.until(lambda: folder_world.total("job") == 1)
    first, second = folder_world.of("execution:error")
    assert (first.will_retry, first.retry_attempt) == (True, 1)
    assert (second.will_retry, second.retry_attempt) == (True, 2)
    assert "makes no sense" in first.error
    line = json.loads(first.line())
    assert (line["willRetry"], line["retryAttempt"]) == (True, 1)
    state = folder_world.state("job")
    assert state["lastRun"]["retryAttempt"] == 2
    assert (state["stats"]["successfulRuns"], state["stats"]["failedRuns"]) == (1, 0)
    starts = [event.at for event in folder_world.of("execution:start")]
    waits = [(later - earlier) // 1_000_000 for earlier, later in pairwise(starts)]
    assert waits[0] >= 60
    assert waits[1] >= 120


async def test_after_the_last_try_the_failure_is_reported_and_the_next_day_comes(
    folder_world: FolderWorld,
) -> None:
    folder_world.write("job", block(JOB).replace("maxRetries: 2", "maxRetries: 1"))
    folder_world.model = type(folder_world.model)(BAD, BAD, "Hello")
    async with folder_world.daemon():
        folder_world.pass_time("9h")
        await folder_world.until(lambda: len(folder_world.of("execution:error")) == 1)
        folder_world.pass_time("61s")
        await folder_world.until(lambda: len(folder_world.of("execution:error")) == 2)
        last = folder_world.of("execution:error")[-1]
        assert last.will_retry is False
        assert not last.retry_attempt
        await folder_world.until(lambda: folder_world.total("job") == 1)
        state = folder_world.state("job")
        assert (state["status"], state["stats"]["failedRuns"]) == ("error", 1)
        assert "makes no sense" in state["lastRun"]["error"]
        assert state["stats"]["lastFailure"].startswith("2030-01-01T09:00:")
        assert state["nextRun"] == "2030-01-02T09:00:00.000Z"
        folder_world.pass_time("24h")
        await folder_world.until(lambda: folder_world.total("job") == 2)
        assert folder_world.state("job")["status"] == "idle"
    assert await broken(folder_world.url) == []


async def test_no_retry_where_the_policy_says_none(folder_world: FolderWorld) -> None:
    folder_world.write("job", block(JOB).replace("maxRetries: 2", "maxRetries: 0"))
    folder_world.model = type(folder_world.model)(BAD)
    async with folder_world.daemon():
        folder_world.pass_time("9h")
        await folder_world.until(lambda: folder_world.total("job") == 1)
    [error] = folder_world.of("execution:error")
    assert error.will_retry is False


# -- overlap and jitter --------------------------------------------------------------------


async def test_an_execution_that_overlaps_waits_in_the_queue(folder_world: FolderWorld) -> None:
    folder_world.write("job", JOB.replace("0 9 * * *", "* * * * *"))
    async with folder_world.daemon():
        folder_world.model.gate.clear()
        folder_world.pass_time("1m")
        await folder_world.until(lambda: folder_world.of("execution:start"))
        folder_world.pass_time("1m")
        await folder_world.until(
            lambda: folder_world.state("job")["nextRun"] == "2030-01-01T00:03:00.000Z"
        )
        assert len(folder_world.of("execution:start")) == 1
        folder_world.model.gate.set()
        await folder_world.until(lambda: folder_world.total("job") == 2)


async def test_an_execution_that_overlaps_is_skipped_where_the_file_says_so(
    folder_world: FolderWorld,
) -> None:
    folder_world.write("job", block(JOB.replace("0 9 * * *", "* * * * *"), overlap="skip"))
    async with folder_world.daemon():
        folder_world.model.gate.clear()
        folder_world.pass_time("1m")
        await folder_world.until(lambda: folder_world.of("execution:start"))
        folder_world.pass_time("1m")
        await folder_world.until(
            lambda: folder_world.state("job")["nextRun"] == "2030-01-01T00:03:00.000Z"
        )
        folder_world.model.gate.set()
        await folder_world.until(lambda: folder_world.total("job") == 1)
        assert folder_world.model.calls == 1


async def test_jitter_delays_each_schedule_by_its_own_stable_part(
    folder_world: FolderWorld,
) -> None:
    folder_world.write("one", block(DAILY, jitter="10m"))
    folder_world.write("two", block(DAILY, jitter="10m"))
    async with folder_world.daemon():
        first, second = folder_world.state("one")["nextRun"], folder_world.state("two")["nextRun"]
    assert first != second
    assert all("2030-01-01T09:0" in each for each in (first, second))
    async with folder_world.daemon():
        assert folder_world.state("one")["nextRun"] == first


async def test_what_has_ended_is_not_kept_in_memory(small: FolderWorld) -> None:
    small.write("job", JOB.replace("0 9 * * *", "* * * * *"))
    async with small.daemon(watch=None) as scheduler:
        for count in range(1, 31):
            small.pass_time("1m")
            await small.until(lambda count=count: small.total("job") >= count)  # type: ignore[misc]
        await small.until(lambda: not scheduler._tracker.open_count)
        await scheduler.list_schedules()
        assert not scheduler._tracker._awaited
        assert scheduler.begun_count == 0
    assert len(small.of("execution:complete")) == small.total("job")


async def test_a_start_by_hand_that_was_over_before_anybody_looked_is_reported(
    folder_world: FolderWorld,
) -> None:
    folder_world.write("job", JOB)
    async with folder_world.daemon() as scheduler:
        await scheduler._cease("follow")  # no scheduler looks while it runs
        # No time passes, so the next daemon begins at the instant at which this was started.
        await asyncio.wait_for(scheduler.trigger_now("job"), 60)
        assert (
            len(folder_world.of("execution:start"))
            == len(folder_world.of("execution:complete"))
            == 1
        )
        assert folder_world.total("job") == 1
        await scheduler.list_schedules()
        assert len(folder_world.of("execution:start")) == 1
    async with folder_world.daemon() as scheduler:  # and never again
        await scheduler.list_schedules()
        assert len(folder_world.of("execution:start")) == 1
        assert folder_world.total("job") == 1
