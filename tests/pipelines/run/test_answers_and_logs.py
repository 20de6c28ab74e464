"""A reply with two answers is asked for again; a budget that is used up logs one line."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.ai.kit.model_server import Model, Say
from tests.pipelines.kit.live_app import world

TEXT = """
name: Labels
settings: {budget: {maxCalls: 2}, retry: {maxRetries: 0}}
input: {items: [{w: a}, {w: b}]}
map: {prompt: "Label {{w}}", parallel: 1, output: [label]}
reduce: {type: json}
"""
TWO = 'It is {"label": "spam"}. For ham it would be {"label": "ham"}.'


async def test_two_answers_cost_a_question_more_and_a_spent_budget_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = Model(Say(text=TWO), Say(text='{"label": "spam"}'))
    async with world(f"sqlite:///{tmp_path}/r.db", tmp_path, model) as it:
        with caplog.at_level(logging.ERROR, "rota"):
            ref = await it.app.pipelines.start(it.pipeline(TEXT))
            result = await it.stopped(ref.id)
        found = [each.output async for each in it.app.pipelines.items(ref.id)]
        assert found == [{"label": "spam"}, None]
        assert "2 different answers" in it.prompts[1]
        assert (result.outcome, result.calls) == ("failed", 2)
        [line] = [each for each in caplog.records if "the budget is used up" in each.getMessage()]
        assert line.exc_info is None


async def test_an_error_of_the_settings_is_not_retried_and_stops_at_once(
    database_url: str, tmp_path: Path
) -> None:
    async with world(database_url, tmp_path) as it:
        text = TEXT.replace("settings: {", "settings: {model: locl:m, ")
        ref = await it.app.pipelines.start(it.pipeline(text), retries=2, retry_delay_s=0.01)
        result = await it.stopped(ref.id)
        assert (result.failed, result.skipped) == (0, 2)
        assert "'locl' is not a provider" in str(result.error)
        assert len(await it.app.runs.chain(ref.id)) == 1
        named = text.replace("map: {", 'map: {model: "{{w}}:m", ')
        result = await it.run(named, items=[{"w": "local"}, {"w": "locl"}])
        assert (result.processed + result.failed, result.failed_by.get("UsageError")) == (2, 1)
