"""The schedule of a pipeline: how it was read is logged, and an operator's change of it stays."""

from __future__ import annotations

import logging

import pytest

from rota import Rota
from rota.errors import BadSchedule
from rota.pipelines.folder.scheduler import PipelineScheduler
from tests.pipelines.kit.virtual_folder import DAILY, FolderWorld, block


async def id_of(scheduler: PipelineScheduler) -> str:
    [one] = await scheduler.list_schedules()
    return one.schedule_id


async def changed(folder_world: FolderWorld, **words: object) -> str:
    """A pipeline with a schedule that an operator has changed; the schedule's name."""
    folder_world.write("daily", DAILY)
    async with folder_world.daemon() as scheduler:
        name = await id_of(scheduler)
    async with Rota(folder_world.url, clock=folder_world.clock).connected() as app:
        await app.schedules.update(name, **words)  # type: ignore[arg-type]
    return name


async def test_a_phrase_in_a_file_is_logged_with_its_reading_once(
    folder_world: FolderWorld, caplog: pytest.LogCaptureFixture
) -> None:
    folder_world.write("daily", DAILY.replace("0 9 * * *", "every day at half past 8"))
    with caplog.at_level(logging.INFO, logger="rota.pipelines"):
        async with folder_world.daemon() as scheduler:
            name = await id_of(scheduler)
        async with folder_world.daemon():
            pass
    [line] = [r.getMessage() for r in caplog.records if " means: " in r.getMessage()]
    assert line == (
        f'schedule {name}: "every day at half past 8" means: at 08:30, every day (UTC) '
        "[30 8 * * *]; next Tue 2030-01-01 08:30 UTC"
    )


async def test_a_scheduler_keeps_the_operators_time_and_says_that_its_file_differs(
    folder_world: FolderWorld, caplog: pytest.LogCaptureFixture
) -> None:
    name = await changed(folder_world, when="0 7 * * *", queue="slow")
    folder_world.write("daily", block(DAILY.replace("0 9 * * *", "0 10 * * *"), overlap="skip"))
    with caplog.at_level(logging.WARNING, logger="rota.pipelines"):
        async with folder_world.daemon():
            assert folder_world.state("daily")["nextRun"] == "2030-01-01T07:00:00.000Z"
    async with Rota(folder_world.url, clock=folder_world.clock).connected() as app:
        shown = await app.schedules.get(name)
        assert shown.intent.policies.overlap == "skip"
        assert [tuple(one) for one in shown.differences] == [
            ("when", "0 10 * * *", "0 7 * * *"), ("queue", "default", "slow"),
        ]  # fmt: skip
    [line] = [r.getMessage() for r in caplog.records if " differs from " in r.getMessage()]
    assert "daily/pipeline.yaml: when is 0 7 * * * (declared: 0 10 * * *)" in line


async def test_reset_restores_what_the_file_says(folder_world: FolderWorld) -> None:
    name = await changed(folder_world, when="0 7 * * *", priority=5)
    async with Rota(folder_world.url, clock=folder_world.clock).connected() as app:
        shown = await app.schedules.reset(name)
        assert (shown.intent.text, shown.schedule.priority) == ("0 9 * * *", 0)
    async with folder_world.daemon():
        assert folder_world.state("daily")["nextRun"] == "2030-01-01T09:00:00.000Z"


async def test_the_workflow_of_a_pipelines_schedule_cannot_be_changed(
    folder_world: FolderWorld,
) -> None:
    """The folder decides what runs: the schedule would fire a workflow as a pipeline."""
    with pytest.raises(BadSchedule, match="runs pipeline:daily, which an edit cannot") as refused:
        await changed(folder_world, workflow="report")
    assert "another schedule" in refused.value.advice


async def test_a_trigger_from_the_app_runs_the_pipeline(folder_world: FolderWorld) -> None:
    folder_world.write("daily", DAILY)
    async with folder_world.daemon() as scheduler:
        name = await id_of(scheduler)
    async with Rota(folder_world.url, clock=folder_world.clock).connected() as app:
        run = await app.runs.get(await app.schedules.trigger(name))
        assert (run.kind, run.name, run.trigger) == ("pipeline", "pipeline:daily", "manual")
