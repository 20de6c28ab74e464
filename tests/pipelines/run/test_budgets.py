"""Budgets of runs: never passed, whatever the answers, the parallelism and the provider."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rota.pipelines.outcome import PipelineResult
from tests.ai.kit.model_server import Model, Say, bound_of, long_answer
from tests.pipelines.kit.live_app import World, ai_settings, says, world

ITEMS = """
name: Many
settings: {{budget: {{{budget}}}, retry: {{maxRetries: 0, retryDelayMs: 1}}{more}}}
input: {{items: [{items}]}}
map: {{prompt: "Say {{{{w}}}}", parallel: {parallel}}}
reduce: {{type: json}}
"""


def many(count: int, budget: str, *, parallel: int = 20, more: str = "") -> str:
    """A pipeline over so many items under a budget."""
    items = ", ".join(f"{{w: {number}}}" for number in range(count))
    return ITEMS.format(budget=budget, items=items, parallel=parallel, more=more)


async def spent(it: World, text: str) -> PipelineResult:
    """The result of a run, which must agree with the bill of the model."""
    result = await it.run(text)
    usage = it.model.usage
    assert (result.calls, result.tokens_in, result.tokens_out) == usage
    assert result.cost_usd == pytest.approx(usage.cost_usd())
    return result


async def test_long_answers_do_not_pass_a_budget_in_dollars(
    database_url: str, tmp_path: Path
) -> None:
    model = Model(answer=lambda asked: long_answer(asked, 5000))
    async with world(database_url, tmp_path, model) as it:
        result = await spent(it, many(40, "maxCost: 0.05"))
        assert 0 < result.cost_usd <= 0.05
        assert result.outcome == "failed"
        assert "may take up to" in (result.error or "")


async def test_long_answers_do_not_pass_a_budget_in_tokens(
    database_url: str, tmp_path: Path
) -> None:
    model = Model(answer=lambda asked: long_answer(asked, 3000))
    async with world(database_url, tmp_path, model) as it:
        result = await spent(it, many(40, "maxTokens: 30000"))
        assert 0 < result.tokens <= 30_000
        assert {bound_of(asked) for asked in it.model.asked} == {4096}


async def test_anthropic_answers_do_not_pass_a_budget_in_tokens(
    database_url: str, tmp_path: Path
) -> None:
    model = Model(answer=lambda asked: long_answer(asked, 4000))
    async with world(database_url, tmp_path, model) as it:
        settings = ai_settings(it.model.url, kind="anthropic", base_url=it.model.url)
        it.app.pipelines.use(settings)
        result = await spent(it, many(8, "maxTokens: 12000", parallel=8))
        assert 0 < result.tokens <= 12_000
        assert result.outcome == "failed"


async def test_refused_and_throttled_calls_are_no_calls(database_url: str, tmp_path: Path) -> None:
    throttled = Say(status=429, raw=b"{}", headers={"retry-after-ms": "1"})
    broken = Say(status=500, raw=b"{}")
    model = Model(throttled, broken, throttled, broken)
    async with world(database_url, tmp_path, model) as it:
        text = many(6, "maxCalls: 6").replace("maxRetries: 0", "maxRetries: 5")
        result = await spent(it, text)
        assert (result.outcome, result.calls) == ("completed", 6)
        assert len(it.prompts) == 10


async def test_the_calls_of_a_budget_are_all_that_is_made(
    database_url: str, tmp_path: Path
) -> None:
    async with world(database_url, tmp_path) as it:
        result = await spent(it, many(9, "maxCalls: 5"))
        assert (result.calls, result.processed, result.skipped) == (5, 5, 4)
        assert "5 of 5 calls" in (result.error or "")


async def test_a_call_without_an_answer_counts_against_the_budget_after_a_resume(
    database_url: str, tmp_path: Path
) -> None:
    # Two calls are hung up on: their cost is unknown, so they count as the most.
    async with world(database_url, tmp_path, Model(Say(way="drop"), Say(way="drop"))) as it:
        # A call may take 4,069: two are gone, and a third fits as long as nothing was answered.
        text = many(3, "maxTokens: 12210", parallel=1, more=", maxTokens: 4000")
        result = await it.run(text)
        assert (result.calls, result.unanswered_calls, result.tokens) == (3, 2, 18)
        [run, *_] = await it.app.runs.list()
        await it.app.pipelines.retry(run.id)
        await it.app.runs.wait(run.id, timeout=60)
        again = await it.app.pipelines.result(run.id)
        assert again.outcome == "failed"
        assert "may take up to" in (again.error or "")
        assert it.model.usage.calls == again.calls == 3


async def test_a_provider_that_ignores_its_bound_is_reported(
    database_url: str, tmp_path: Path
) -> None:
    model = Model(answer=lambda asked: Say(tokens_out=6000))
    async with world(database_url, tmp_path, model) as it:
        result = await spent(it, many(9, "maxTokens: 40000", parallel=1))
        assert result.tokens <= 40_000
        [reported] = result.warnings
        assert "more than its bound" in reported


OPTIONS = """
name: Options
settings:
  maxTokens: 100
  temperature: 0
  system: You are terse.
  headers: {X-Title: report}
  body: {seed: 7, top_p: 0.5}
input: {items: [{w: a}]}
map: {prompt: "Say {{w}}", maxTokens: 200, body: {seed: 8}, headers: {X-Part: map}}
reduce: {type: ai, prompt: "Join {{RESULTS}}", system: You join.}
"""


async def test_options_of_a_part_win_over_those_of_the_file(
    database_url: str, tmp_path: Path
) -> None:
    async with world(database_url, tmp_path) as it:
        assert (await it.run(OPTIONS)).outcome == "completed"
        mapped, joined = it.model.asked
    assert (mapped.body["max_tokens"], joined.body["max_tokens"]) == (200, 100)
    assert (mapped.body["temperature"], mapped.body["seed"], mapped.body["top_p"]) == (0, 8, 0.5)
    assert joined.body["seed"] == 7
    assert [asked.body["messages"][0]["content"] for asked in (mapped, joined)] == [
        "You are terse.",
        "You join.",
    ]
    assert (mapped.headers["x-title"], mapped.headers["x-part"]) == ("report", "map")
    assert "x-part" not in joined.headers


GRAPH_OPTIONS = """
name: Graph options
nodes:
  a: {kind: load, source: {type: ai, prompt: "List words", schema: [w], maxTokens: 50}}
  keep:
    {kind: filter, from: a, rule: {type: ai, prompt: "Keep {{w}}?", maxTokens: 5, system: Judge.}}
  say: {kind: map, from: keep, prompt: "Say {{w}}", maxTokens: 60, temperature: 1}
"""


async def test_nodes_have_options_of_their_own(database_url: str, tmp_path: Path) -> None:
    def answer(prompt: str) -> Any:
        if prompt.startswith("List"):
            return [{"w": "tea"}]
        return "yes"

    async with world(database_url, tmp_path, Model(answer=says(answer))) as it:
        assert (await it.run(GRAPH_OPTIONS)).outcome == "completed"
        bodies = [asked.body for asked in it.model.asked]
    assert [body["max_tokens"] for body in bodies] == [50, 5, 60]
    assert bodies[1]["messages"][0] == {"role": "system", "content": "Judge."}
    assert bodies[2]["temperature"] == 1


async def test_another_system_prompt_is_another_question(database_url: str, tmp_path: Path) -> None:
    async with world(database_url, tmp_path) as it:
        first = await it.app.pipelines.start(it.pipeline(OPTIONS))
        await first.result(timeout=60)
        same = OPTIONS.replace("maxTokens: 100", "maxTokens: 150")
        ref = await it.app.pipelines.start(it.pipeline(same), cache_from=first.id)
        assert (await ref.result(timeout=60)).calls == 0
        other = OPTIONS.replace("You are terse.", "You are kind.")
        ref = await it.app.pipelines.start(it.pipeline(other), cache_from=first.id)
        assert (await ref.result(timeout=60)).calls == 1


async def test_a_program_without_a_bound_cannot_keep_a_budget_in_tokens(
    database_url: str, tmp_path: Path
) -> None:
    async with world(database_url, tmp_path) as it:
        cat = {"kind": "command", "argv": ["cat"]}
        it.app.pipelines.use({"model": "cat:x", "providers": {"cat": cat}})
        result = await it.run(many(3, "maxTokens: 90000"))
        assert "nothing bounds the answers" in (result.error or "")
        result = await it.run(many(3, "maxCalls: 3"))
        assert (result.outcome, result.calls) == ("completed", 3)
        bound = {"kind": "command", "argv": ["sh", "-c", "cat", "{max_tokens}"]}
        it.app.pipelines.use({"model": "cat:x", "providers": {"cat": bound}})
        assert (await it.run(many(3, "maxTokens: 90000"))).outcome == "completed"
