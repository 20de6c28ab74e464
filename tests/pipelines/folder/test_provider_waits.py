"""An execution that waits for its provider says so in the events of the scheduler."""

from __future__ import annotations

from rota.ai.base import passing
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
