"""An execution that waits for its provider says so in the events of the scheduler."""

from __future__ import annotations

from rota.ai.base import passing
from rota.errors import NeedsLogin
from tests.pipelines.kit.virtual_folder import DAILY, FolderWorld, Gated

SLOW = DAILY.replace("input:", "settings: {retry: {retryDelayMs: 5000}}\ninput:")


async def test_an_execution_that_waits_for_its_provider_is_an_event(
    folder_world: FolderWorld,
) -> None:
    folder_world.write("daily", SLOW)
    folder_world.model = Gated(passing("acme cannot be reached"))
    async with folder_world.daemon():
        folder_world.pass_time("9h")
        await folder_world.until(lambda: folder_world.of("execution:complete"))
    waits, goes_on = folder_world.of("execution:waiting")
    assert "acme cannot be reached; next try in" in waits.reason
    assert (waits.pipeline_id, goes_on.reason) == ("daily", None)
    [start] = folder_world.of("execution:start")
    assert waits.run_id == goes_on.run_id == start.run_id
    assert '"event":"execution:waiting"' in waits.line()


async def test_an_execution_that_waits_for_a_login_is_not_idle(folder_world: FolderWorld) -> None:
    """The status, the state file, the history and the events say so; a retry continues it."""
    folder_world.write("daily", DAILY)
    folder_world.model = Gated(NeedsLogin("acme needs a key"))
    async with folder_world.daemon() as scheduler:
        folder_world.pass_time("9h")
        await folder_world.until(lambda: folder_world.of("execution:error"))
        [reported] = folder_world.of("execution:error")
        assert (reported.error, reported.will_retry, reported.waits) == (
            "acme needs a key",
            False,
            True,
        )
        state = folder_world.state("daily")
        assert state["status"] == "error"
        assert state["lastRun"]["outcome"] == "waiting"
        assert state["lastRun"]["error"] == "acme needs a key"
        assert state["stats"]["totalRuns"] == 0
        [record] = await scheduler.get_history("daily")
        assert (record.outcome, record.error, record.completed_at) == (
            "waiting", "acme needs a key", None,
        )  # fmt: skip
        folder_world.pass_time(
            "24h"
        )  # the next one waits behind it, which does not concern this one
        await folder_world.until(
            lambda: folder_world.state("daily")["nextRun"].startswith("2030-01-03")
        )
        assert len(folder_world.of("execution:error")) == 1
        assert folder_world.state("daily")["status"] == "error"
        app = scheduler._app
        await app.runs.retry(reported.run_id)
        await folder_world.until(lambda: len(folder_world.of("execution:complete")) == 2)
        state = folder_world.state("daily")
        assert (state["status"], state["lastRun"]["outcome"]) == ("idle", "completed")
        assert (state["stats"]["totalRuns"], state["stats"]["failedRuns"]) == (2, 0)
        assert folder_world.state("daily")["history"][1]["runId"] == reported.run_id


async def test_a_scheduler_that_takes_over_knows_that_an_execution_waits(
    folder_world: FolderWorld,
) -> None:
    folder_world.write("daily", DAILY)
    folder_world.model = Gated(NeedsLogin("acme needs a key"))
    async with folder_world.daemon():
        folder_world.pass_time("9h")
        await folder_world.until(lambda: folder_world.of("execution:error"))
    (folder_world.root / "daily" / ".schedule-state.json").unlink()
    folder_world.events.clear()
    async with folder_world.daemon() as scheduler:
        found = await scheduler.get_schedule("daily")
        assert found is not None
        assert found.state.status == "error"
        assert found.state.last_run is not None
        assert found.state.last_run.error == "acme needs a key"
    assert folder_world.of("execution:error") == []  # the one before has reported it
