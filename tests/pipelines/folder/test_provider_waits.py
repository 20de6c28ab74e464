"""An execution that waits for its provider says so in the events of the scheduler."""

from __future__ import annotations

from rota.ai.base import passing
from rota.errors import NeedsLogin
from tests.pipelines.kit.virtual_folder import DAILY, Gated, House

SLOW = DAILY.replace("input:", "settings: {retry: {retryDelayMs: 5000}}\ninput:")


async def test_an_execution_that_waits_for_its_provider_is_an_event(house: House) -> None:
    house.write("daily", SLOW)
    house.model = Gated(passing("acme cannot be reached"))
    async with house.daemon():
        house.pass_time("9h")
        await house.until(lambda: house.of("execution:complete"))
    waits, goes_on = house.of("execution:waiting")
    assert "acme cannot be reached; next try in" in waits.reason
    assert (waits.pipeline_id, goes_on.reason) == ("daily", None)
    [start] = house.of("execution:start")
    assert waits.run_id == goes_on.run_id == start.run_id
    assert '"event":"execution:waiting"' in waits.line()


async def test_an_execution_that_waits_for_a_login_is_not_idle(house: House) -> None:
    """The status, the state file, the history and the events say so; a retry continues it."""
    house.write("daily", DAILY)
    house.model = Gated(NeedsLogin("acme needs a key"))
    async with house.daemon() as scheduler:
        house.pass_time("9h")
        await house.until(lambda: house.of("execution:error"))
        [told] = house.of("execution:error")
        assert (told.error, told.will_retry, told.waits) == ("acme needs a key", False, True)
        state = house.state("daily")
        assert state["status"] == "error"
        assert state["lastRun"]["outcome"] == "waiting"
        assert state["lastRun"]["error"] == "acme needs a key"
        assert state["stats"]["totalRuns"] == 0
        [record] = await scheduler.get_history("daily")
        assert (record.outcome, record.error, record.completed_at) == (
            "waiting", "acme needs a key", None,
        )  # fmt: skip
        house.pass_time("24h")  # the next one waits behind it, and that is no news about this one
        await house.until(lambda: house.state("daily")["nextRun"].startswith("2030-01-03"))
        assert len(house.of("execution:error")) == 1
        assert house.state("daily")["status"] == "error"
        app = scheduler._app
        await app.runs.retry(told.run_id)
        await house.until(lambda: len(house.of("execution:complete")) == 2)
        state = house.state("daily")
        assert (state["status"], state["lastRun"]["outcome"]) == ("idle", "completed")
        assert (state["stats"]["totalRuns"], state["stats"]["failedRuns"]) == (2, 0)
        assert house.state("daily")["history"][1]["runId"] == told.run_id


async def test_a_scheduler_that_takes_over_knows_that_an_execution_waits(house: House) -> None:
    house.write("daily", DAILY)
    house.model = Gated(NeedsLogin("acme needs a key"))
    async with house.daemon():
        house.pass_time("9h")
        await house.until(lambda: house.of("execution:error"))
    (house.root / "daily" / ".schedule-state.json").unlink()
    house.events.clear()
    async with house.daemon() as scheduler:
        found = await scheduler.get_schedule("daily")
        assert found is not None
        assert found.state.status == "error"
        assert found.state.last_run is not None
        assert found.state.last_run.error == "acme needs a key"
    assert house.of("execution:error") == []  # the one before has reported it
