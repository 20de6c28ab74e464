"""The usage of runs and schedules, and its report."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.core.runs.model import StoredStep
from rota.errors import BadInput
from rota.pipelines import usage
from rota.pipelines.usage import PipelineUsage
from tests.pipelines.kit.offline_folder import offline_world
from tests.pipelines.kit.receiver import Receiver


async def test_a_schedule_costs_what_its_executions_cost(database_url: str, tmp_path: Path) -> None:
    async with offline_world(database_url, tmp_path) as place:
        await place.add("sums", 'cron: "0 * * * *"', titles=("one", "two", "three"))
        assert await usage.of_schedule(place.app, "sums-1") == PipelineUsage()
        await place.world.advance("3h")
        runs = await place.app.schedules.history("sums-1")
        each = [await usage.of_run(place.app, run.id) for run in runs]
        total = await usage.of_schedule(place.app, "sums-1")
        assert total.executions == 3
        assert total.calls == 9 == sum(one.calls for one in each)
        assert total.tokens == sum(one.tokens for one in each) > 0
        assert total.unpriced_calls == 0
        expected = (1000 * total.tokens_in + 2000 * total.tokens_out) / 1_000_000
        assert total.cost_usd == pytest.approx(expected)


async def test_one_that_failed_or_was_called_off_cost_what_it_had_taken(
    database_url: str, tmp_path: Path
) -> None:
    async with offline_world(database_url, tmp_path) as place:
        place.broken.add("two")
        await place.add("sums", 'cron: "0 * * * *"', titles=("one", "two"))
        await place.world.advance("1h")
        assert await place.ends("sums") == ["completed:partial"]
        partial = await usage.of_schedule(place.app, "sums-1")
        assert partial.executions == 1
        assert partial.cost_usd > 0
        place.broken.add("sums")
        await place.world.advance("1h")
        assert (await place.ends("sums"))[-1].startswith("failed")
        place.broken.clear()
        place.answers.clear()  # the model does not answer from now on
        await place.world.advance("1h")
        [run, *_] = await place.app.schedules.history("sums-1")
        await place.app.runs.cancel(run.id)
        place.answers.set()
        await place.world.settle()
        assert (await place.ends("sums"))[-1].startswith("cancelled")
        total = await usage.of_schedule(place.app, "sums-1")
        assert total.executions == 3
        assert total.cost_usd == pytest.approx(partial.cost_usd)


async def test_a_partial_result_is_reported_as_a_failure_with_its_numbers(
    database_url: str, tmp_path: Path
) -> None:
    async with Receiver().up() as receiver, offline_world(database_url, tmp_path) as place:
        hook = f"{receiver.url}/hook"
        notify = f'notify: {{on_success: "{hook}", on_failure: "{hook}", on_recovery: "{hook}"}}'
        place.broken.add("two")
        await place.add("sums", f'cron: "0 * * * *"\n{notify}', titles=("one", "two"))
        await place.world.advance("1h")
        await place.world.settle()
        [call] = receiver.calls
        assert call.message["event"] == "failure"
        assert call.message["outcome"] == "partial"
        assert call.message["items"]["failed"] == 1
        assert call.message["items"]["processed"] == 1
        assert call.message["costUsd"] > 0
        assert call.message["text"].startswith("sums: 1 of 2 items failed: ")
        place.broken.clear()
        await place.world.advance("1h")
        await place.world.settle()
        assert receiver.events == ["failure", "success", "recovery"]


async def test_the_cost_of_a_run_is_shared_by_model_by_day_and_by_item(
    database_url: str, tmp_path: Path
) -> None:
    async with offline_world(database_url, tmp_path) as place:
        place.broken.add("two")
        await place.add("sums", 'cron: "0 23 * * *"', titles=("one", "two", "three"))
        await place.world.advance("23h")
        [run] = await place.app.schedules.history("sums-1")
        place.broken.clear()
        await place.world.advance("5h")
        await place.app.pipelines.retry(run.id)
        await place.world.settle()
        cost = place.app.pipelines.cost
        whole = await usage.of_run(place.app, run.id)
        by_model = await cost(run.id)
        by_day = await cost(run.id, by="day")
        by_item = await cost(run.id, by="item")
        assert [one.of for one in by_model.shares] == ["offline:offline"]
        assert [(one.of, one.items) for one in by_day.shares] == [
            ("2030-01-01", 2), ("2030-01-02", 1),
        ]  # fmt: skip
        assert [one.of for one in by_item.shares] == ["0", "1", "2"]
        for page in (by_model, by_day, by_item):
            assert page.next is None
            assert sum(one.tokens_in for one in page.shares) == whole.tokens_in
            assert sum(one.cost_usd for one in page.shares) == pytest.approx(whole.cost_usd)
        first = await cost(run.id, by="day", limit=1)
        rest = await cost(run.id, by="day", limit=1, after=first.next or 0)
        assert ([*first.shares, *rest.shares], rest.next) == (by_day.shares, None)
        with pytest.raises(BadInput, match="by='week' is not a unit"):
            await cost(run.id, by="week")  # type: ignore[arg-type]


async def test_steps_come_in_pages_although_stages_share_positions(
    database_url: str, tmp_path: Path
) -> None:
    async with offline_world(database_url, tmp_path) as place:
        await place.add("sums", 'cron: "0 * * * *"', titles=("one", "two", "three"))
        await place.world.advance("1h")
        runs = place.app.runs
        [run] = await place.app.schedules.history("sums-1")
        whole = sorted(await runs.steps(run.id), key=lambda step: (step.position, step.key))
        assert len({step.position for step in whole}) < len(whole)
        found: list[StoredStep] = []
        after = ""
        while page := await runs.steps_page(run.id, after=after, limit=2):
            found += page
            after = page[-1].key
        assert found == whole
        with pytest.raises(BadInput, match="has no step 'none'"):
            await runs.steps_page(run.id, after="none")
