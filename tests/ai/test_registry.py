"""Which invoker answers, what it costs, and the errors of bad settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rota.ai import Budget, Budgeted, Limiter, Prices, Request, invoker_of, release
from rota.ai.prices import read_prices
from rota.errors import BadSetting, NeedsLogin, UsageError
from tests.ai.kit.model_server import Model

PROVIDERS: dict[str, Any] = {
    "local": {"kind": "openai", "base_url": "http://127.0.0.1:9/v1"},
    "shout": {"kind": "command", "argv": ["tr", "a-z", "A-Z"]},
}


@pytest.mark.parametrize(
    ("default", "text", "provider", "model"),
    [
        (None, "openai:gpt-5", "openai", "gpt-5"),
        (None, "local:llama3:8b", "local", "llama3:8b"),
        (None, "offline", "offline", ""),
        ("local:x", "", "local", "x"),
        ("local:x", "llama3:8b", "local", "llama3:8b"),
        ("local:x", "mistral", "local", "mistral"),
        ("local:x", "anthropic:claude", "anthropic", "claude"),
    ],
)
def test_a_text_names_a_provider_and_a_model(
    default: str | None, text: str, provider: str, model: str
) -> None:
    ai = invoker_of({"model": default, "providers": PROVIDERS}, env={})
    assert ai.route(text) == (provider, model)


@pytest.mark.parametrize(
    ("default", "text", "says"),
    [
        (None, "", "no default"),
        (None, "gpt-5", "does not name its provider"),
        (None, "opnai:gpt-5", 'did you mean "openai"'),
        ("local:x", "Antropic:claude", 'did you mean "anthropic"'),
        (None, "zzz:claude", "'zzz' is not a provider"),
    ],
)
def test_a_wrong_name_is_reported_with_the_nearest(
    default: str | None, text: str, says: str
) -> None:
    ai = invoker_of({"model": default, "providers": PROVIDERS}, env={})
    with pytest.raises(UsageError, match=says):
        ai.route(text)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"modle": "x"}, 'did you mean "model"'),
        ({"model": "opnai:x"}, 'did you mean "openai"'),
        ({"model": 7}, "is a text"),
        ({"providers": []}, "nothing"),
        ({"providers": [1]}, "is a mapping"),
        ({"providers": {"a:b": {}}}, "cannot be the name"),
        ({"providers": {"mine": {}}}, "no known kind"),
        ({"providers": {"mine": {"kind": "opnai"}}}, 'did you mean "openai"'),
        ({"providers": {"mine": 7}}, "is a mapping"),
        ({"providers": {"openai": {"baseUrl": "x"}}}, 'did you mean "base_url"'),
        ({"providers": {"openai": {"stream": "perhaps"}}}, "stream"),
        ({"providers": {"openai": {"limits": {"request_per_minute": 5}}}}, "requests_per_minute"),
        ({"providers": {"openai": {"limits": {"requests_per_minute": 0}}}}, ">= 1"),
        ({"providers": {"mine": {"kind": "command"}}}, "argv"),
        ({"prices": 7}, "a table"),
        ({"prices": {"x": 7}}, "price of x"),
        ({"prices": {"x": [-1, 2]}}, "price of x"),
        ({"prices": "nowhere.yaml"}, "cannot be read"),
    ],
)
def test_settings_that_cannot_be_are_reported_at_once(settings: Any, says: str) -> None:
    if says == "nothing":
        invoker_of(settings, env={})
        return
    with pytest.raises(UsageError, match=says):
        invoker_of(settings, env={})


def test_a_key_in_the_settings_is_refused_and_not_repeated() -> None:
    with pytest.raises(BadSetting) as raised:
        invoker_of({"providers": {"openai": {"api_key": "sk-very-secret"}}}, env={})
    assert "key_env" in raised.value.advice
    assert "sk-very-secret" not in raised.value.message + raised.value.advice


async def test_one_invoker_asks_them_all(tmp_path: Path) -> None:
    async with Model().up() as model:
        file = tmp_path / "ai.yaml"
        file.write_text(
            f"model: local:tiny\nprices: prices.yaml\nproviders:\n"
            f"  local: {{kind: openai, base_url: '{model.url}/v1', limits: {{failures_max: 3}}}}\n"
            f"  shout: {{kind: command, argv: [tr, a-z, A-Z], exits: {{3: login}}}}\n"
        )
        (tmp_path / "prices.yaml").write_text("tiny: [1, 2]\nshout:*: [0, 0]\n")
        ai = invoker_of(env={"ROTA_AI_FILE": str(file), "PATH": "/usr/bin:/bin"})
        reply = await ai.ask(Request("", "Hello."))
        assert reply.text == "Hello, world."
        assert reply.cost_usd == pytest.approx(25 / 1e6)
        assert model.asked[0].body["model"] == "tiny"
        shouted = await ai.ask(Request("shout", "hello"))
        assert (shouted.text, shouted.cost_usd) == ("HELLO", 0.0)
        assert (await ai.ask(Request("offline:any", "x"))).cost_usd == 0.0
        with pytest.raises(NeedsLogin, match="ANTHROPIC_API_KEY"):
            await ai.ask(Request("anthropic:claude-haiku-4-5", "x"))
        await release(ai)


def test_the_environment_alone_is_enough() -> None:
    ai = invoker_of(env={"ROTA_AI_MODEL": "anthropic:claude-haiku-4-5"})
    estimate = ai.estimate(Request("", "x" * 400, max_tokens=1000))
    assert estimate.model == "anthropic:claude-haiku-4-5"
    assert estimate.cost_usd == pytest.approx((108 * 1.0 + 1000 * 5.0) / 1e6)


def test_limits_may_be_kept_by_somebody_else() -> None:
    seen: list[str] = []

    def limit(invoker: Any, limits: Any) -> Any:
        seen.append(f"{invoker.name} {limits.requests_per_minute}")
        return Limiter(invoker, limits)

    settings = {"providers": {"offline": {"limits": {"requests_per_minute": 5}}}}
    ai = invoker_of(settings, env={}, limit=limit)
    assert seen == []
    ai.estimate(Request("offline", "x"))
    assert seen == ["offline 5"]


@pytest.mark.parametrize(
    ("provider", "model", "price"),
    [
        ("openai", "gpt-4o", (2.5, 10.0)),
        ("openai", "gpt-4o-2024-08-06", (2.5, 10.0)),
        ("gateway", "claude-haiku-4-5-20251001", (1.0, 5.0)),
        ("openai", "gpt-4o-audio-preview", None),
        ("openai", "nobody-knows", None),
        ("mine", "gpt-4o", (7.0, 8.0)),
        ("free", "gpt-4o", (0.0, 0.0)),
    ],
)
def test_a_price_is_found_by_name_family_or_provider(
    provider: str, model: str, price: tuple[float, float] | None
) -> None:
    prices = Prices({"mine:gpt-4o": [7, 8], "free:*": [0, 0]})
    found = prices.find(provider, model)
    rates = None if found is None else found.rates[""][0]
    assert (rates and (rates.in_usd, rates.out_usd)) == price


def test_a_file_of_prices_may_be_broken(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    for text in ("a: [", "- 1", "a: b", "\xff"):
        file.write_text(text, encoding="latin-1")
        with pytest.raises(BadSetting):
            read_prices(file)
    file.write_text("")
    assert read_prices(file).find("x", "gpt-4o") is not None


async def test_a_budget_over_all_providers_is_one_budget() -> None:
    ai = Budgeted(invoker_of({"model": "offline:m"}, env={}), Budget(limit_tokens=5000))
    await ai.ask(Request("", "x"))
    await ai.ask(Request("offline:n", "x"))
    assert 0 < ai.budget.spent_tokens < 100


def test_nothing_of_http_is_loaded_before_it_is_needed() -> None:
    code = (
        "import sys; sys.modules['httpx2'] = None\n"
        "from rota.ai import Request, invoker_of\n"
        "from rota.errors import MissingExtra\n"
        "ai = invoker_of({'model': 'offline:m'}, env={})\n"
        "ai.estimate(Request('', 'x'))\n"
        "try: ai.estimate(Request('openai:m', 'x'))\n"
        "except MissingExtra as error: print(error.advice)\n"
    )
    seen = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (seen.stdout, seen.stderr) == ("pip install 'rota[http]'\n", "")
