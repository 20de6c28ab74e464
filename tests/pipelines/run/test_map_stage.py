"""The map: windows, batches, ceilings, models, and what an earlier run has done already."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rota.core.runs.model import StoredStep
from rota.errors import RunFailed, WrongState
from rota.pipelines.run.run_store import CHUNK_ITEMS
from rota.store.backend.database import Tx
from rota.store.pipelines import steps
from tests.ai.kit.model_server import Model, Say
from tests.pipelines.kit.live_app import says, world


def numbered(count: int, more: str = "", reduce: str = "{type: json}") -> str:
    items = ", ".join(f"{{n: {n}}}" for n in range(count))
    return f"""
name: Numbers
input: {{items: [{items}]}}
map: {{prompt: "Number {{{{n}}}}", retry: {{maxRetries: 0}}{more}}}
reduce: {reduce}
"""


def batches(size: int) -> str:
    more = f", batchSize: {size}, output: [{{name: twice, type: integer}}]"
    return numbered(10, more).replace("Number {{n}}", "Double {{ITEMS}}")


def listed(prompt: str) -> list[int]:
    """The numbers of the items in a batch prompt."""
    first = prompt.split("Double ", 1)[1].split("\n\n", 1)[0]
    return [item["n"] for item in json.loads(first)]


def twice(prompt: str) -> Any:
    return [{"twice": 2 * n} for n in listed(prompt)]


async def test_the_window_slides_and_is_never_wider_than_parallel(
    database_url: str, tmp_path: Path
) -> None:
    async with world(database_url, tmp_path) as it:
        result = await it.run(numbered(30, ", parallel: 4"))
        assert result.processed == 30
        assert max(each.running for each in it.reported) == 4


async def test_results_stand_in_the_order_of_the_items(database_url: str, tmp_path: Path) -> None:
    async with world(database_url, tmp_path, Model(answer=refuse())) as it:
        result = await it.run(numbered(12, ", parallel: 12"))
        rows = json.loads(result.output or "")
        assert [row["output"] for row in rows] == [f"got {n}" for n in range(12)]


async def test_batches_are_asked_together_and_distinguished(
    database_url: str, tmp_path: Path
) -> None:
    async with world(database_url, tmp_path, Model(answer=says(twice))) as it:
        result = await it.run(batches(4))
        rows = json.loads(result.output or "")
        assert [row["output"]["twice"] for row in rows] == [2 * n for n in range(10)]
        assert sorted(len(listed(prompt)) for prompt in it.prompts) == [2, 4, 4]
        assert (result.calls, result.tokens_in) == (3, 33)
        # A list cannot be had in the mode that insists on one object.
        assert all("response_format" not in asked.body for asked in it.model.asked)


async def test_a_batch_with_a_wrong_count_is_split(database_url: str, tmp_path: Path) -> None:
    def answer(prompt: str) -> Any:
        return twice(prompt) if len(listed(prompt)) < 3 else twice(prompt)[1:]

    async with world(database_url, tmp_path, Model(answer=says(answer))) as it:
        result = await it.run(batches(4))
        rows = json.loads(result.output or "")
        assert [row["output"]["twice"] for row in rows] == [2 * n for n in range(10)]
        assert result.outcome == "completed"
        assert result.calls == len(it.prompts) == 7


async def test_one_bad_item_in_a_batch_fails_alone(database_url: str, tmp_path: Path) -> None:
    def answer(prompt: str) -> Any:
        return [{"twice": "seven?" if n == 7 else 2 * n} for n in listed(prompt)]

    async with world(database_url, tmp_path, Model(answer=says(answer))) as it:
        result = await it.run(batches(5))
        assert (result.processed, result.failed) == (9, 1)
        assert [each.position for each in result.errors] == [7]
        assert [7] in [listed(prompt) for prompt in it.prompts]


async def test_every_item_may_have_its_own_model(database_url: str, tmp_path: Path) -> None:
    text = """
name: Models
input: {from: [{model: one}, {model: two}]}
map: {prompt: "Hi", model: "local:{{model}}"}
reduce: {type: list}
"""
    async with world(database_url, tmp_path) as it:
        result = await it.run(text)
        assert result.outcome == "completed"
        assert sorted(asked.body["model"] for asked in it.model.asked) == ["one", "two"]
        await it.run(text, name="other", model="local:three")
        assert it.model.asked[-1].body["model"] == "three"


def refuse(*numbers: int) -> Any:
    def answer(prompt: str) -> Any:
        n = int(prompt.split()[1])
        return Say(status=400, raw=b'{"error": "no"}') if n in numbers else f"got {n}"

    return says(answer)


async def test_fail_fast_begins_no_further_items(database_url: str, tmp_path: Path) -> None:
    async with world(database_url, tmp_path, Model(answer=refuse(3))) as it:
        ref = await it.app.pipelines.start(
            it.pipeline(numbered(20, ", parallel: 1, failFast: true"))
        )
        with pytest.raises(RunFailed, match="stopped after 1 of 20 items failed"):
            await ref.result(timeout=60)
        result = await it.app.pipelines.result(ref.id)
        assert (result.processed, result.failed, result.skipped) == (3, 1, 16)
        assert len(it.prompts) == 4


async def test_so_many_failures_and_no_more(database_url: str, tmp_path: Path) -> None:
    async with world(database_url, tmp_path, Model(answer=refuse(1, 2, 3))) as it:
        allowed = await it.run(numbered(20, ', parallel: 1, maxFailures: "15%"'))
        assert (allowed.outcome, allowed.failed) == ("partial", 3)
        stopped = await it.run(numbered(20, ", parallel: 1, maxFailures: 2"), name="other")
        assert (stopped.outcome, stopped.failed, stopped.skipped) == ("failed", 3, 16)


async def test_a_retry_executes_only_what_failed_and_reduces_again(
    database_url: str, tmp_path: Path
) -> None:
    async with world(database_url, tmp_path, Model(answer=refuse(2, 5))) as it:
        ref = await it.app.pipelines.start(it.pipeline(numbered(8)))
        first = await ref.result(timeout=60)
        assert (first.outcome, first.failed) == ("partial", 2)
        it.model.answer = refuse()
        again = await it.app.pipelines.retry(ref.id)
        assert again.id == ref.id
        result = await again.result(timeout=60)
        assert (result.outcome, result.processed) == ("completed", 8)
        assert len(it.prompts) == 10
        rows = json.loads(result.output or "")
        assert [row["output"] for row in rows] == [f"got {n}" for n in range(8)]
        with pytest.raises(WrongState, match="nothing to retry"):
            await it.app.pipelines.retry(ref.id)


async def test_a_run_stopped_by_its_budget_goes_on_after_a_retry(
    database_url: str, tmp_path: Path
) -> None:
    text = numbered(6, ", parallel: 1") + "settings: {budget: {maxCalls: 4}}\n"
    async with world(database_url, tmp_path) as it:
        ref = await it.app.pipelines.start(it.pipeline(text))
        await it.app.runs.wait(ref.id, timeout=60)
        # The budget is that of the run: its cost stays counted.
        again = await it.app.pipelines.retry(ref.id)
        await it.app.runs.wait(again.id, timeout=60)
        assert len(it.prompts) == 4


async def test_a_new_run_takes_over_results_of_equal_content(
    database_url: str, tmp_path: Path
) -> None:
    async with world(database_url, tmp_path) as it:
        first = await it.app.pipelines.start(it.pipeline(numbered(6)))
        await first.result(timeout=60)
        longer = it.pipeline(numbered(8).replace("{n: 0}, {n: 1}", "{n: 70}, {n: 0}, {n: 1}"))
        second = await it.app.pipelines.start(longer, cache_from=first.id)
        result = await second.result(timeout=60)
        assert (result.processed, result.calls) == (9, 3)
        assert len(it.prompts) == 9
        other = await it.app.pipelines.start(longer, cache_from=first.id, model="local:big")
        assert (await other.result(timeout=60)).calls == 9


@pytest.mark.slow
async def test_a_later_page_of_items_does_not_read_what_comes_before_it(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 3 * CHUNK_ITEMS + 50
    async with world(database_url, tmp_path) as it:
        await it.run(numbered(count, ", parallel: 50"))
        run_id = (await it.app.runs.list())[0].id
        whole = [each async for each in it.app.pipelines.items(run_id)]
        read: list[StoredStep] = []
        page = steps.page

        async def counted(tx: Tx, **where: Any) -> list[StoredStep]:
            found = await page(tx, **where)
            read.extend(one for one in found if "~end" not in one.key)
            return found

        monkeypatch.setattr(steps, "page", counted)
        for after in (0, 1, CHUNK_ITEMS - 1, CHUNK_ITEMS, 2 * CHUNK_ITEMS + 3, count - 5, count):
            read.clear()
            found = await it.app.pipelines.items_page(run_id, after=after, limit=20)
            assert found.items == whole[after : after + 20]
            earlier = [one for one in read if one.position < after - CHUNK_ITEMS]
            assert not earlier, after
