"""A run tells exactly the calls that its model charges for, in good and in bad times."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rota.errors import RunFailed
from rota.pipelines.outcome import PipelineResult
from tests.ai.kit.model_server import Model, Say
from tests.kit import until
from tests.pipelines.kit.live_app import ai_settings, world

WORDS = """
name: Words
settings: {retry: {maxRetries: 2, retryDelayMs: 1}}
input: {items: [{w: a}, {w: b}, {w: c}, {w: d}]}
map: {prompt: "Say {{w}}", parallel: 2}
reduce: {type: json}
"""
TYPED = WORDS.replace('"Say {{w}}"', '"Say {{w}}", output: [{name: n, type: number}]')
BATCHED = WORDS.replace('"Say {{w}}"', '"Say {{ITEMS}}", batchSize: 2, output: [n]')
FILTERED = WORDS.replace("map:", 'filter: {type: ai, ai: {prompt: "Keep {{w}}?"}}\nmap:')
IN_PAIRS = FILTERED.replace("}}\nmap", ", parallel: 2}}\nmap")
REDUCED = WORDS.replace("reduce: {type: json}", 'reduce: {type: ai, prompt: "Join {{RESULTS}}"}')
JOB = 'name: Job\nsettings: {retry: {retryDelayMs: 1}}\njob: {prompt: "Hello"}\n'
LOGIN = Say(status=401, raw=b"{}")
NUMBER = Say(text='{"n": 1}')
YES = Say(text="yes")


def equal(result: PipelineResult, model: Model) -> None:
    """The result is the bill. Only the model knows the cost of a call without an answer."""
    usage, lost = model.usage, result.unanswered_calls
    assert result.calls == usage.calls
    assert result.tokens_in == usage.tokens_in - 11 * lost
    assert result.tokens_out == usage.tokens_out - 7 * lost
    assert result.cost_usd == pytest.approx(usage.cost_usd() - lost * 25e-6)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(WORDS, [], id="all is well"),
        pytest.param(WORDS, [Say(status=500, raw=b"{}"), Say(status=429, raw=b"{}")], id="refused"),
        pytest.param(WORDS, [Say(way="drop"), Say(way="drop")], id="hung up"),
        pytest.param(
            WORDS.replace("}}", "}, timeoutMs: 500}", 1),
            [Say(way="hang"), Say()],
            id="too slow",
            marks=pytest.mark.wall_clock("the other calls must be answered in half a second"),
        ),
        pytest.param(WORDS, [Say(raw=b"{oops")], id="broken JSON"),
        pytest.param(WORDS, [Say(raw=b'{"error": {"code": 502}}')], id="an error after a 200"),
        pytest.param(WORDS, [Say(text="")] * 3, id="empty"),
        pytest.param(WORDS, [Say(finish="length"), Say()], id="cut off"),
        pytest.param(WORDS, [Say(finish="content_filter"), Say()], id="filtered"),
        pytest.param(WORDS, [Say(), LOGIN], id="a bad key"),
        pytest.param(TYPED, [Say(text="bogus"), Say(text="bogus"), NUMBER], id="asked again"),
        pytest.param(TYPED, [Say(text="bogus"), NUMBER, LOGIN], id="asked again with a bad key"),
        pytest.param(BATCHED, [Say(text="[1]"), Say(text="[]"), LOGIN], id="a batch is split"),
        pytest.param(FILTERED, [YES, Say(text="perhaps"), LOGIN], id="a filter"),
        pytest.param(REDUCED, [Say()] * 4 + [Say(way="cut")], id="a reduce"),
        pytest.param(REDUCED, [Say()] * 4 + [LOGIN], id="a reduce with a bad key"),
        pytest.param(JOB, [Say(text=""), Say(way="drop")], id="a job"),
    ],
)
async def test_a_run_and_its_retry_show_what_the_model_charged(
    database_url: str, tmp_path: Path, text: str, said: list[Say], *, stream: bool
) -> None:
    async with world(database_url, tmp_path, Model(*said)) as it:
        it.app.pipelines.use(ai_settings(it.model.url, stream=stream))
        ref = await it.app.pipelines.start(it.pipeline(text))
        result = await it.stopped(ref.id)
        equal(result, it.model)
        if result.outcome != "completed":
            it.model.answer = lambda asked: Say(
                text='[{"n": 1}]' if "ITEMS" in text else '{"n": 1}'
            )
            await it.app.pipelines.retry(ref.id)
            equal(await it.stopped(ref.id), it.model)


async def test_a_paid_reply_is_counted_when_its_re_ask_meets_the_budget(
    database_url: str, tmp_path: Path
) -> None:
    text = TYPED.replace("settings: {", "settings: {budget: {maxCalls: 1}, ")
    async with world(database_url, tmp_path, Model(answer=lambda asked: Say(text="bogus"))) as it:
        ref = await it.app.pipelines.start(it.pipeline(text))
        with pytest.raises(RunFailed, match="1 of 1 calls are spent"):
            await ref.result(timeout=60)
        for _ in range(3):
            result = await it.stopped(ref.id)
            assert (result.calls, result.tokens, it.model.usage.calls) == (1, 18, 1)
            await it.app.pipelines.retry(ref.id)


@pytest.mark.parametrize("text", [IN_PAIRS, WORDS], ids=["a filter", "a map"])
async def test_an_answer_that_comes_after_a_bad_key_is_kept(
    database_url: str, tmp_path: Path, text: str
) -> None:
    model = Model(Say(way="wait", text="yes"), LOGIN)
    async with world(database_url, tmp_path, model) as it:
        ref = await it.app.pipelines.start(it.pipeline(text))
        await until(lambda: _asked(model, 2))
        model.go.set()
        result = await it.stopped(ref.id)
        assert (result.outcome, result.calls, result.unanswered_calls) == ("failed", 1, 0)
        equal(result, model)
        answered = it.prompts[0]
        it.model.answer = lambda asked: Say(text="yes")
        await it.app.pipelines.retry(ref.id)
        equal(await it.stopped(ref.id), model)
        assert it.prompts.count(answered) == 1, "it is paid for once"


async def test_a_cancelled_run_shows_the_call_it_gave_up(database_url: str, tmp_path: Path) -> None:
    model = Model(Say(), Say(way="hang"), Say(way="hang"))
    async with world(database_url, tmp_path, model) as it:
        ref = await it.app.pipelines.start(it.pipeline(WORDS))
        await until(lambda: _asked(model, 3))
        await it.app.runs.cancel(ref.id)
        await asyncio.wait_for(model.hung_up.wait(), 60)
        result = await it.stopped(ref.id)
        assert (result.outcome, result.unanswered_calls) == ("cancelled", 2)
        equal(result, model)


async def test_a_run_that_changes_its_worker_shows_the_calls_of_both(
    database_url: str, tmp_path: Path
) -> None:
    model = Model(Say(), Say(way="hang"), Say(way="hang"))
    async with world(database_url, tmp_path, model, stop_s=0.1) as it:
        ref = await it.app.pipelines.start(it.pipeline(WORDS))
        await until(lambda: _asked(model, 3))
        await it.app.stop_worker()
        await it.app.start_worker()
        result = await it.stopped(ref.id)
        assert (result.outcome, result.calls, result.unanswered_calls) == ("completed", 6, 2)
        equal(result, model)


async def _asked(model: Model, count: int) -> Any:
    return len(model.asked) >= count
