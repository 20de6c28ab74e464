"""An execution that waits for its provider says so in the events of the scheduler."""

from __future__ import annotations

from rota.ai.base import passing
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
