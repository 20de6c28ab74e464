"""Prices of calls: cached tokens, tiers, long prompts, searches, and costs that providers state."""

from __future__ import annotations

import contextlib
import re
from datetime import date
from typing import Any

import pytest

from rota.ai import Budget, Budgeted, Request
from rota.ai.anthropic import Anthropic
from rota.ai.model_data import find, listed
from rota.ai.openai import OpenAI
from rota.ai.prices import Prices
from rota.errors import BadSetting
from tests.ai.kit.model_server import Model, Say

ENV = {"MY_KEY": "sk-very-secret"}
OPUS, MINI = "claude-opus-4-7", "gpt-5-mini"
streaming = pytest.mark.parametrize("stream", [True, False])


def ai_of(kind: str, model: Model, **options: Any) -> OpenAI | Anthropic:
    if kind == "anthropic":
        return Anthropic(base_url=model.url, key_env="MY_KEY", env=ENV, **options)
    base = f"{model.url}/v1"
    return OpenAI(name=kind, base_url=base, key_env="MY_KEY", env=ENV, **options)


def chat(tokens_in: int, tokens_out: int, **details: Any) -> dict[str, Any]:
    return {
        "prompt_tokens": tokens_in, "completion_tokens": tokens_out,
        "prompt_tokens_details": details,
    }  # fmt: skip


def messages(tokens_in: int, tokens_out: int, **more: Any) -> dict[str, Any]:
    return {"input_tokens": tokens_in, "output_tokens": tokens_out, **more}


TARIFFS = [
    pytest.param("openai", MINI, chat(1000, 100), {}, (1000 * 0.25 + 100 * 2) / 1e6, id="plain"),
    pytest.param(
        "openai", MINI, chat(1000, 100, cached_tokens=900), {},
        (100 * 0.25 + 900 * 0.025 + 200) / 1e6, id="OpenAI, 90 % cached"),
    pytest.param(
        "openai", MINI, chat(1000, 100), {"service_tier": "priority"},
        (1000 * 0.45 + 360) / 1e6, id="OpenAI, priority"),
    pytest.param(
        "openai", MINI, chat(1000, 100), {"service_tier": "flex"},
        (1000 * 0.125 + 100) / 1e6, id="OpenAI, flex"),
    pytest.param(
        "openai", MINI, chat(1000, 100), {"service_tier": "scale"}, None, id="an unknown tier"),
    pytest.param(
        "openai", "gpt-5.5", chat(300_000, 100), {},
        (300_000 * 10 + 4500) / 1e6, id="OpenAI, a long prompt"),
    pytest.param(
        "anthropic", OPUS, messages(1000, 100, cache_creation_input_tokens=2000), {},
        (1000 * 5 + 2000 * 6.25 + 2500) / 1e6, id="Anthropic, written to the cache"),
    pytest.param(
        "anthropic", OPUS,
        messages(1000, 100, cache_creation_input_tokens=2000,
                 cache_creation={"ephemeral_1h_input_tokens": 2000}), {},
        (1000 * 5 + 2000 * 10 + 2500) / 1e6, id="Anthropic, written for an hour"),
    pytest.param(
        "anthropic", OPUS, messages(1000, 100, cache_read_input_tokens=2000), {},
        (1000 * 5 + 2000 * 0.5 + 2500) / 1e6, id="Anthropic, read from the cache"),
    pytest.param(
        "gemini", "gemini-2.5-pro", chat(250_000, 100), {},
        (250_000 * 2.5 + 100 * 15) / 1e6, id="Gemini, a long prompt"),
    pytest.param(
        "anthropic", OPUS, messages(1000, 100, server_tool_use={"web_search_requests": 3}), {},
        (1000 * 5 + 2500) / 1e6 + 0.03, id="Anthropic, searches"),
    pytest.param(
        "anthropic", "claude-opus-5-5", messages(1000, 100, speed="fast"), {},
        2 * (1000 * 4 + 2000) / 1e6, id="Anthropic, fast"),
    pytest.param(
        "openrouter", "anthropic/claude-opus-4.7", {**chat(1000, 100), "cost": 0.123}, {}, 0.123,
        id="OpenRouter states the cost"),
    pytest.param(
        "openrouter", "openai/gpt-5-mini",
        {**chat(1000, 100), "cost": 0.001, "is_byok": True,
         "cost_details": {"upstream_inference_cost": 0.05}},
        {}, 0.051, id="OpenRouter, with a key of the vendor"),
    pytest.param(
        "openrouter", "openai/gpt-5-mini", {**chat(1000, 100), "cost": "much"}, {},
        (1000 * 0.25 + 200) / 1e6, id="OpenRouter, no believable cost"),
]  # fmt: skip


@streaming
@pytest.mark.parametrize(("kind", "name", "usage", "more", "cost"), TARIFFS)
async def test_the_cost_of_a_call_is_that_of_its_tariff(
    kind: str, name: str, usage: Any, more: Any, cost: float | None, *, stream: bool
) -> None:
    options: dict[str, Any] = {"states_cost": True} if kind == "openrouter" else {}
    say = Say(reported=usage, more=more)
    async with (
        Model(say).up() as model,
        contextlib.aclosing(ai_of(kind, model, stream=stream, **options)) as ai,
    ):
        reply = await ai.ask(Request(name, "x" * 40, timeout_s=5))
    assert reply.cost_usd == (None if cost is None else pytest.approx(cost))
    assert reply.is_cost_stated is (isinstance(usage.get("cost"), float))
    assert not reply.guessed


REFUSED = [
    ("openai", MINI, {"models": ["gpt-5.5-pro"]}, "same_price: [models]"),
    ("openai", MINI, {"tools": [{"type": "web_search"}]}, "same_price: [tools]"),
    ("openai", MINI, {"web_search_options": {}}, "same_price: [web_search_options]"),
    ("openai", MINI, {"service_tier": "scale"}, "tiers: {scale: [2, 4]}"),
    ("openai", "gpt-4o-new", {}, "'openai:gpt-4o-new': [1.25, 10.0]"),
    ("anthropic", OPUS, {"mcp_servers": []}, "same_price: [mcp_servers]"),
    ("anthropic", OPUS, {"inference_geo": "us"}, "same_price: [inference_geo]"),
    ("anthropic", OPUS, {"speed": "fast"}, "tiers: {fast: [2, 4]}"),
    ("openrouter", "openai/gpt-5-mini", {"provider": {"sort": "price"}}, "same_price: [provider]"),
]


@pytest.mark.parametrize(("kind", "name", "body", "line"), REFUSED)
async def test_under_a_budget_in_dollars_an_unknown_tariff_is_refused_with_the_line_to_type(
    kind: str, name: str, body: dict[str, Any], line: str
) -> None:
    async with Model().up() as model, contextlib.aclosing(ai_of(kind, model)) as inner:
        ai = Budgeted(inner, Budget(limit_usd=1.0))
        with pytest.raises(BadSetting) as raised:
            await ai.ask(Request(name, "Hi.", body=body, timeout_s=5))
        assert line in raised.value.advice
        assert model.asked == []
        await Budgeted(inner, Budget(limit_tokens=9000)).ask(
            Request(name, "Hi.", body=body, timeout_s=5)
        )


async def test_the_settings_of_a_provider_open_the_list_of_fields() -> None:
    async with (
        Model().up() as model,
        contextlib.aclosing(ai_of("openai", model, same_price=["tools"])) as inner,
    ):
        request = Request(MINI, "Hi.", body={"tools": []}, timeout_s=5)
        await Budgeted(inner, Budget(limit_usd=1.0)).ask(request)


def most_usd(kind: str, name: str, own: Any = None, **body: Any) -> float:
    prices = None if own is None else Prices(own)
    ai: OpenAI | Anthropic = Anthropic(prices=prices) if kind == "anthropic" else OpenAI(kind)
    request = Request(name, "x" * 936, max_tokens=1000, body=body)
    found = ai.estimate(request).cost_usd_max
    assert found is not None
    return found * 1e6


def test_a_call_reserves_the_most_of_its_tariff() -> None:
    assert most_usd("openai", MINI) == pytest.approx(250 + 2000)
    priority = most_usd("openai", MINI, service_tier="priority")
    assert priority == pytest.approx((936 + 64 + 28) * 0.45 + 3600, abs=5)
    assert most_usd("openai", MINI, service_tier="auto") == pytest.approx(
        (936 + 64 + 24) * 0.45 + 3600, abs=5
    )
    flex = most_usd("openai", MINI, service_tier="flex")
    assert flex < most_usd("openai", MINI) < priority
    plain = most_usd("anthropic", OPUS)
    assert plain == pytest.approx(1000 * 5 + 25_000)
    written = most_usd("anthropic", OPUS, cache_control={"type": "ephemeral"})
    assert written > 1000 * 10 + 25_000 > plain


async def test_a_budget_with_a_cache_needs_the_price_of_its_writes() -> None:
    short = Anthropic("work", prices=Prices({"work:m": [1, 2]}))
    request = Request("m", "Hi.", body={"cache_control": {"type": "ephemeral"}})
    estimate = short.estimate(request)
    assert estimate.no_price is not None
    assert "cache_write" in estimate.no_price[1]
    long = {"in": 1, "out": 2, "cache_write": 1.25, "cache_write_long": 2, "cache_read": 0.1}
    priced = Anthropic("work", prices=Prices({"work:m": long}))
    assert priced.estimate(request).no_price is None


@pytest.mark.parametrize(
    "own",
    [
        [1], [1, -1], ["a", 2], {"in": 1}, {"in": 1, "out": 2, "cached": 3}, {"in": 1, "out": True},
        {"in": 1, "out": 2, "tiers": {"flex": [1]}}, {"in": 1, "out": 2, "search": -1}, 3, "free",
    ],
)  # fmt: skip
def test_a_price_that_cannot_be_is_refused(own: Any) -> None:
    with pytest.raises(BadSetting, match="the price of m cannot be"):
        Prices({"m": own})


def test_own_prices_win_over_the_list() -> None:
    prices = Prices({MINI: {"in": 1, "out": 2, "tiers": {"flex": [0.5, 1]}, "search": 0.02}})
    price = prices.find("openai", MINI)
    assert price is not None
    assert set(price.rates) == {"", "flex"}
    assert price.search_usd == 0.02


def test_the_list_has_a_date_and_the_models_of_today() -> None:
    assert date.fromisoformat(listed().date) > date(2026, 1, 1)
    assert re.fullmatch(r"litellm \d+\.\d+\.\d+", listed().source)
    for vendor, name in (
        ("openai", "gpt-5.5"), ("anthropic", "claude-sonnet-5"), ("gemini", "gemini-2.5-pro"),
        ("mistral", "mistral-large-latest"), ("azure", "gpt-5"), ("deepseek", "deepseek-chat"),
        ("work", "gpt-5.6"), ("openrouter", "google/gemini-2.5-pro:free"),
    ):  # fmt: skip
        assert find(vendor, name) is not None, name


def test_every_model_of_the_list_can_be_read() -> None:
    for vendor, models in listed().models.items():
        for name in models:
            facts = find(vendor, name)
            assert facts is not None
            assert facts.rates[""][0].above == 0
            assert facts.cost_max(1000, 1000, "auto", writes=True) is not None
