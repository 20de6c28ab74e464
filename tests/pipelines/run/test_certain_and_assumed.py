"""Bills of a provider that knows its tariff: within the budget, and within what the run shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rota.errors import BadInput
from rota.pipelines.outcome import PipelineResult
from rota.pipelines.run.assumed_costs import correct, of_run
from rota.pipelines.run.call_ledger import ASSUMED
from rota.pipelines.run.result_reader import find
from tests.ai.kit.model_server import Asked, Model, Say, long_answer
from tests.kit import until
from tests.pipelines.kit.live_app import World, prompt_of, world

ITEMS = "input: {items: [" + ", ".join(f"{{w: {n}}}" for n in range(40)) + "]}\n"
WORDS = (
    "name: Words\nsettings: {maxTokens: 300, BUDGET, retry: {maxRetries: 1, retryDelayMs: 1}}\n"
    + ITEMS
    + 'map: {prompt: "Say {{w}}", parallel: 4}\nreduce: {type: json}\n'
)
NO_COUNTS: list[Any] = [
    None, {}, "12", {"prompt_tokens": 0, "completion_tokens": 0},
    {"prompt_tokens": -5, "completion_tokens": 3}, {"prompt_tokens": 12.7, "completion_tokens": 3},
    {"prompt_tokens": 1e20, "completion_tokens": 3}, {"prompt_tokens": 11, "completion_tokens": 0},
    {"prompt_tokens": 11},
]  # fmt: skip


def words(budget: str) -> str:
    return WORDS.replace("BUDGET", f"budget: {{{budget}}}")


def contains(result: PipelineResult, it: World) -> None:
    """Whether the bill is between the certain cost, and the certain and the assumed cost."""
    bill = it.model.usage.cost_usd()
    assert result.cost_usd - 1e-9 <= bill <= result.cost_usd + result.assumed_cost_usd + 1e-9
    tokens = it.model.usage.tokens_in + it.model.usage.tokens_out
    assert result.tokens <= tokens <= result.tokens + result.assumed_tokens


@pytest.mark.parametrize("usage", NO_COUNTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_without_a_believable_count_takes_what_it_reserved(
    database_url: str, tmp_path: Path, usage: Any, *, stream: bool
) -> None:
    model = Model(answer=lambda asked: long_answer(asked, 300, reported=usage))
    async with world(database_url, tmp_path, model) as it:
        it.stream(stream)
        result = await it.run(words("maxCost: 0.01"))
        assert it.model.usage.cost_usd() <= 0.01
        assert result.calls == result.estimated_calls == it.model.usage.calls > 0
        assert (result.cost_usd, result.tokens) == (0, 0)
        contains(result, it)


@pytest.mark.parametrize("status", [408, 499, 504, 524])
async def test_a_timeout_of_a_gateway_counts_as_a_call_at_its_maximum(
    database_url: str, tmp_path: Path, status: int
) -> None:
    model = Model(answer=lambda asked: Say(status=status, raw=b"{}", works=True, tokens_out=300))
    async with world(database_url, tmp_path, model) as it:
        result = await it.run(words("maxCalls: 5"))
        assert len(model.asked) == result.calls == result.unanswered_calls == 5
        contains(result, it)


async def test_certain_and_assumed_are_kept_apart(database_url: str, tmp_path: Path) -> None:
    def answer(asked: Asked) -> Say:
        prompt = prompt_of(asked)
        if prompt.endswith("Say 7"):
            return Say(status=504, raw=b"{}", works=True, headers={"x-request-id": "req_7"})
        return Say(reported=None) if prompt.endswith("Say 8") else Say()

    async with world(database_url, tmp_path, Model(answer=answer)) as it:
        ref = await it.app.pipelines.start(it.pipeline(words("maxCost: 1")))
        result = await it.stopped(ref.id)
        assert (result.failed, result.calls) == (1, 41)  # two tries of the one behind the gateway
        assert (result.unanswered_calls, result.estimated_calls) == (2, 1)
        assert (result.tokens_in, result.tokens_out) == (38 * 11, 38 * 7)
        contains(result, it)
        assert "request req_7" in result.errors[0].message
        run = await find(it.app, ref.id)
        assumed = [step.output or "" async for step in run.reader.steps(ASSUMED)]
        assert sum("req_7" in text for text in assumed) == 2
        assert sum("without a count" in text for text in assumed) == 1
        totals = await run.reader.call_totals()
        assert totals.assumed_nano_usd / 1e9 == pytest.approx(result.assumed_cost_usd)


async def test_an_item_keeps_the_providers_names_for_its_calls(
    database_url: str, tmp_path: Path
) -> None:
    model = Model(
        Say(headers={"x-request-id": "req_1"}, text=" "), Say(headers={"request-id": "b"})
    )
    text = words("maxCalls: 9").replace(ITEMS, "input: {items: [{w: 1}]}\n")
    async with world(database_url, tmp_path, model) as it:
        ref = await it.app.pipelines.start(it.pipeline(text))
        await it.stopped(ref.id)
        [item] = [each async for each in it.app.pipelines.items(ref.id)]
        assert item.requests == ["req_1", "b"]


async def test_a_corrected_call_is_certain_in_the_report_and_in_the_budget(
    database_url: str, tmp_path: Path
) -> None:
    timeout = Say(status=504, raw=b"{}", works=True, headers={"x-request-id": "req_7"})
    model = Model(timeout, answer=lambda asked: Say())
    async with world(database_url, tmp_path, model) as it:
        ref = await it.app.pipelines.start(it.pipeline(words("maxCost: 1")))
        await it.stopped(ref.id)
        reader = (await find(it.app, ref.id)).reader
        before, _ = await of_run(reader)
        [call] = before.assumed
        assert (call.request_id, call.model, call.corrected_usd) == ("req_7", "local:tiny", None)
        assert before.assumed_cost_usd == pytest.approx(call.cost_usd)
        spent = (await reader.call_totals()).spent
        for name, cost in (("1", 0.5), ("req_7", 0.000025)):  # the last correction counts
            await correct(it.app, reader, name, cost)
        after, _ = await of_run(reader)
        assert after.assumed[0].corrected_usd == 0.000025
        assert after.assumed_cost_usd == 0
        assert after.cost_usd == pytest.approx(it.model.usage.cost_usd())
        now = (await reader.call_totals()).spent
        assert now.nano_usd < spent.nano_usd
        assert now.tokens < spent.tokens
        assert now.calls == spent.calls
        for name, cost in (("2", 1.0), ("req_8", 1.0), ("1", -1.0), ("1", float("nan"))):
            with pytest.raises(BadInput):
                await correct(it.app, reader, name, cost)


async def test_a_call_lost_in_a_crash_is_in_the_report(database_url: str, tmp_path: Path) -> None:
    model = Model(Say(way="hang"), answer=lambda asked: Say())
    async with world(database_url, tmp_path, model) as it:
        ref = await it.app.pipelines.start(it.pipeline(words("maxCost: 1")))

        async def is_asked() -> bool:
            return len(model.asked) >= 40

        await until(is_asked)
        report, _ = await of_run((await find(it.app, ref.id)).reader)
        assert any("in progress" in call.why for call in report.assumed)
        await ref.cancel()
        await it.stopped(ref.id)
        report, _ = await of_run((await find(it.app, ref.id)).reader)
        assert [call.model for call in report.assumed] == ["local:tiny"]
