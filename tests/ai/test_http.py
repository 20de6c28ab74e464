"""The HTTP invokers, against a server that speaks like both vendors."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from rota.ai import Request
from rota.ai.anthropic import Anthropic
from rota.ai.openai import OpenAI
from rota.ai.prices import Prices
from rota.errors import (
    BadSetting,
    NeedsLogin,
    NeedsPermission,
    Rejected,
    RotaError,
    Transient,
    UsageError,
)
from tests.ai.kit.model_server import Model, Say

ASK = Request("tiny", "Say hello.", timeout_s=5)
ENV = {"MY_KEY": "sk-very-secret"}
PRICES = Prices({"tiny": [1.0, 2.0]})
Ai = OpenAI | Anthropic
Make = Callable[..., Ai]


def openai(model: Model, **options: Any) -> Ai:
    base = f"{model.url}/v1"
    return OpenAI(base_url=base, key_env="MY_KEY", prices=PRICES, env=ENV, **options)


def anthropic(model: Model, **options: Any) -> Ai:
    return Anthropic(base_url=model.url, key_env="MY_KEY", prices=PRICES, env=ENV, **options)


both = pytest.mark.parametrize("make", [openai, anthropic])
streaming = pytest.mark.parametrize("stream", [True, False])


@contextlib.asynccontextmanager
async def talking(make: Make, *said: Say, **options: Any) -> AsyncIterator[tuple[Model, Ai]]:
    async with Model(*said).up() as model, contextlib.aclosing(make(model, **options)) as ai:
        yield model, ai


@both
@streaming
async def test_an_answer_comes_with_its_tokens_and_its_cost(make: Make, stream: bool) -> None:
    text = "Grüße, \u2028 and {braces}\nin lines"
    async with talking(make, Say(text=text), stream=stream) as (model, ai):
        reply = await ai.ask(ASK)
        assert (reply.text, reply.model, reply.finish) == (text, "tiny-2025-01-01", "stop")
        assert (reply.tokens_in, reply.tokens_out, reply.guessed) == (11, 7, False)
        assert reply.cost_usd == pytest.approx((11 * 1.0 + 7 * 2.0) / 1e6)
        assert model.asked[0].body.get("stream", False) is stream


@both
async def test_connections_are_kept_for_the_next_question(make: Make) -> None:
    async with talking(make) as (model, ai):
        for _ in range(5):
            await ai.ask(ASK)
        assert (len(model.asked), model.connections) == (5, 1)


async def test_openai_is_asked_in_its_own_words() -> None:
    request = Request("tiny", "Give JSON.", "Be brief.", 50, 0.5, 5, True)
    async with talking(openai) as (model, ai):
        await ai.ask(request)
        [asked] = model.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == "Bearer sk-very-secret"
    assert asked.body == {
        "model": "tiny",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Give JSON."},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 50,
        "temperature": 0.5,
        "response_format": {"type": "json_object"},
    }


async def test_json_mode_is_left_out_where_it_would_be_refused() -> None:
    silent = Request("tiny", "No word of it.", timeout_s=5, wants_json=True)
    async with talking(openai) as (model, ai):
        await ai.ask(silent)
        assert "response_format" not in model.asked[0].body
    async with talking(openai, json_mode=False) as (model, ai):
        await ai.ask(Request("tiny", "Give JSON.", timeout_s=5, wants_json=True))
        assert "response_format" not in model.asked[0].body


async def test_anthropic_is_asked_in_its_own_words() -> None:
    request = Request("tiny", "Hi.", "Be brief.", 50, 0.5, 5, True)
    async with talking(anthropic) as (model, ai):
        await ai.ask(request)
        await ai.ask(ASK)
        first, second = model.asked
    assert first.path == "/v1/messages"
    assert first.headers["x-api-key"] == "sk-very-secret"
    assert first.headers["anthropic-version"] == "2023-06-01"
    assert first.body == {
        "model": "tiny",
        "max_tokens": 50,
        "messages": [{"role": "user", "content": "Hi."}],
        "stream": True,
        "system": "Be brief.",
        "temperature": 0.5,
    }
    assert second.body["max_tokens"] == 4096


@both
@streaming
async def test_an_answer_cut_at_its_bound_says_so(make: Make, stream: bool) -> None:
    finish = "length" if make is openai else "max_tokens"
    async with talking(make, Say(finish=finish), stream=stream) as (_, ai):
        assert (await ai.ask(ASK)).finish == "length"


@both
@streaming
async def test_an_answer_that_is_withheld_is_rejected(make: Make, stream: bool) -> None:
    finish = "content_filter" if make is openai else "refusal"
    async with talking(make, Say(finish=finish), stream=stream) as (_, ai):
        with pytest.raises(Rejected) as raised:
            await ai.ask(ASK)
        assert raised.value.facts["reason"] == "content_filter"
        assert (await ai.ask(ASK)).finish == "stop"


@streaming
async def test_tokens_nobody_counted_are_estimated_and_marked(stream: bool) -> None:
    async with talking(openai, Say(usage=False), stream=stream) as (_, ai):
        reply = await ai.ask(ASK)
        assert reply.guessed
        assert reply.tokens_in > 0
        assert reply.tokens_out > 0


def error(kind: str, message: str = "no", **more: Any) -> bytes:
    return json.dumps({"error": {"type": kind, "message": message, **more}}).encode()


@both
@pytest.mark.parametrize(
    ("status", "body", "kind", "reason"),
    [
        (400, error("invalid_request_error"), Rejected, None),
        (400, error("x", code="context_length_exceeded"), Rejected, "too_long"),
        (400, error("invalid_request_error", "prompt is too long: 9 > 8"), Rejected, "too_long"),
        (400, error("x", code="content_filter"), Rejected, "content_filter"),
        (401, error("authentication_error"), NeedsLogin, None),
        (402, error("billing_error"), NeedsPermission, None),
        (403, error("permission_error"), NeedsPermission, None),
        (404, error("not_found_error"), Rejected, "unknown_model"),
        (404, b'{"error": "model tiny not found"}', Rejected, None),
        (408, b"", Transient, None),
        (413, error("request_too_large"), Rejected, "too_long"),
        (422, b'{"detail": [{"msg": "field required"}]}', Rejected, None),
        (429, error("rate_limit_error"), Transient, None),
        (429, error("insufficient_quota"), NeedsPermission, None),
        (500, error("api_error"), Transient, None),
        (502, b"<html>bad gateway</html>", Transient, None),
        (503, b"", Transient, None),
        (529, error("overloaded_error"), Transient, None),
        (301, b"", Rejected, None),
        (200, error("x", code=429), Transient, None),
        (200, error("x", code=401), NeedsLogin, None),
        (200, b'{"id": "cut of', Transient, None),
        (200, b"[1]", Transient, None),
        (200, b"{}", Transient, None),
        (200, b'{"choices": [], "content": null}', Transient, None),
    ],
)
async def test_each_refusal_says_who_has_to_act(
    make: Make, status: int, body: bytes, kind: type[RotaError], reason: str | None
) -> None:
    headers = {"location": "http://new.example/v1?key=1"} if status == 301 else {}
    async with talking(make, Say(status=status, raw=body, headers=headers)) as (model, ai):
        with pytest.raises(kind) as raised:
            await ai.ask(ASK)
        assert type(raised.value) is kind
        assert raised.value.facts.get("reason") == reason
        assert ai.name in raised.value.message
        assert len(model.asked) == 1
        if kind is NeedsLogin:
            assert "MY_KEY" in raised.value.advice
        assert (await ai.ask(ASK)).finish == "stop"  # what failed leaves the invoker usable


@both
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        (
            {
                "date": "Wed, 01 Jan 2025 10:00:00 GMT",
                "retry-after": "Wed, 01 Jan 2025 10:01:30 GMT",
            },
            90.0,
        ),
        (
            {
                "date": "Wed, 01 Jan 2025 10:00:00 GMT",
                "retry-after": "Wed, 01 Jan 2025 09:00:00 GMT",
            },
            0.0,
        ),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({}, None),
    ],
)
async def test_the_wait_that_is_asked_for_is_passed_on(
    make: Make, headers: dict[str, str], seconds: float | None
) -> None:
    async with talking(make, Say(status=429, headers=headers)) as (_, ai):
        with pytest.raises(Transient) as raised:
            await ai.ask(ASK)
        assert raised.value.retry_after_s == seconds
        assert raised.value.facts["sent"] is False


@both
@streaming
async def test_a_web_page_is_not_an_answer(make: Make, stream: bool) -> None:
    page = Say(raw=b"<html>log in</html>", headers={"content-type": "text/html"})
    async with talking(make, page, stream=stream) as (_, ai):
        with pytest.raises(Rejected, match="web page"):
            await ai.ask(ASK)


@both
@pytest.mark.parametrize("way", ["drop", "cut"])
async def test_a_connection_that_breaks_is_worth_another_try(make: Make, way: str) -> None:
    async with talking(make, Say(way)) as (model, ai):
        with pytest.raises(Transient) as raised:
            await ai.ask(ASK)
        assert raised.value.facts["sent"] is True
        assert (await ai.ask(ASK)).text == "Hello, world."
        assert len(model.asked) == 2


@both
async def test_nobody_at_home_is_worth_another_try(make: Make) -> None:
    async with Model().up() as model:
        ai = make(model)
    with pytest.raises(Transient, match="cannot be reached") as raised:
        await ai.ask(ASK)
    assert raised.value.facts["sent"] is False
    await ai.aclose()


@pytest.mark.wall_clock("the question must be sent within the moment that it has")
@both
@pytest.mark.parametrize("way", ["hang", "stall"])
async def test_a_timeout_hangs_up(make: Make, way: str) -> None:
    async with talking(make, Say(way)) as (model, ai):
        with pytest.raises(Transient, match=r"within 0\.2 s") as raised:
            await ai.ask(Request("tiny", "Slowly.", timeout_s=0.2))
        assert raised.value.facts["sent"] is True
        await asyncio.wait_for(model.hung_up.wait(), 60)
        assert (await ai.ask(ASK)).text == "Hello, world."


@both
@pytest.mark.parametrize("way", ["hang", "stall"])
async def test_a_cancelled_question_hangs_up(make: Make, way: str) -> None:
    async with talking(make, Say(way)) as (model, ai):
        task = asyncio.create_task(ai.ask(ASK))
        await asyncio.wait_for(model.reached.wait(), 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(model.hung_up.wait(), 60)


@both
async def test_a_stream_that_has_said_all_is_not_waited_for(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.ai.provider_call.LINGER_S", 0.05)
    async with talking(make, Say("linger")) as (model, ai):
        reply = await asyncio.wait_for(ai.ask(Request("tiny", "Hi.", timeout_s=60)), 60)
        assert reply.text == "Hello, world."
        assert reply.tokens_out == 7
        await asyncio.wait_for(model.hung_up.wait(), 60)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ({"type": "overloaded_error", "message": "busy"}, Transient),
        ({"type": "whatever", "message": "?"}, Transient),
        ({"code": 502, "message": "the gateway's own status"}, Transient),
        ({"code": 429, "message": "slow down"}, Transient),
        ({"type": "authentication_error", "message": "late"}, NeedsLogin),
        ({"code": "context_length_exceeded", "message": "long"}, Rejected),
    ],
)
@both
async def test_an_error_in_the_middle_of_a_stream_is_judged_and_may_be_charged_for(
    make: Make, said: dict[str, Any], kind: type[RotaError]
) -> None:
    async with talking(make, Say(events=[{"type": "error", "error": said}])) as (_, ai):
        with pytest.raises(kind) as raised:
            await ai.ask(ASK)
        assert raised.value.facts["sent"] is True
        assert (await ai.ask(ASK)).finish == "stop"


@both
@pytest.mark.parametrize("events", [[b"{broken"], [b"7"], []])
async def test_nonsense_in_a_stream_is_worth_another_try(make: Make, events: list[Any]) -> None:
    async with talking(make, Say(events=events)) as (_, ai):
        with pytest.raises(Transient):
            await ai.ask(ASK)


async def test_a_stream_without_a_last_word_is_taken_when_it_said_why_it_ends() -> None:
    events = [{"choices": [{"delta": {"content": "All."}, "finish_reason": "stop"}]}]
    async with talking(openai, Say(events=events)) as (_, ai):
        assert (await ai.ask(ASK)).text == "All."


@both
async def test_a_refusal_that_echoes_the_key_does_not_show_it(make: Make) -> None:
    echo = Say(status=401, raw=error("x", "bad key sk-very-secret here"))
    async with talking(make, echo) as (_, ai):
        with pytest.raises(NeedsLogin) as raised:
            await ai.ask(ASK)
        assert "sk-very-secret" not in repr((raised.value.message, raised.value.facts))
        assert "<MY_KEY>" in raised.value.message


@both
@pytest.mark.parametrize(("key", "says"), [("", "not set"), ("two lines\n x", "cannot be a key")])
async def test_a_missing_key_names_its_variable_and_sends_nothing(
    make: Make, key: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENV, "MY_KEY", key)
    async with talking(make) as (model, ai):
        with pytest.raises(NeedsLogin, match=says) as raised:
            await ai.ask(ASK)
        assert "MY_KEY" in raised.value.message
        assert model.asked == []


@pytest.mark.parametrize(("make", "vendor"), [(OpenAI, "OPENAI"), (Anthropic, "ANTHROPIC")])
async def test_a_vendors_key_goes_to_nobody_else(make: Any, vendor: str) -> None:
    """An address in a settings file gets no key; the environment's own address does."""
    async with Model().up() as model:
        env = {f"{vendor}_API_KEY": "sk-vendor", f"{vendor}_BASE_URL": model.url}
        async with contextlib.aclosing(make(base_url=model.url, env=env)) as ai:
            await ai.ask(ASK)
        async with contextlib.aclosing(make(env=env)) as ai:
            await ai.ask(ASK)
        sent = ["sk-vendor" in str(asked.headers) for asked in model.asked]
        assert sent == [False, True]
    with pytest.raises(NeedsLogin, match=f"{vendor}_API_KEY"):
        await make(env={}).ask(ASK)


@both
@pytest.mark.parametrize(
    "request_",
    [
        Request("", "Hi."),
        Request("tiny", " \n"),
        Request("tiny", "Hi.", max_tokens=0),
        Request("tiny", "Hi.", timeout_s=0),
    ],
)
async def test_a_senseless_question_is_not_sent(make: Make, request_: Request) -> None:
    async with talking(make) as (model, ai):
        with pytest.raises(UsageError):
            await ai.ask(request_)
        assert model.asked == []


@pytest.mark.parametrize(
    "url", ["ftp://x/v1", "nonsense", "http://", "http://[x", "http://me:secret@host/v1"]
)
@pytest.mark.parametrize("make", [OpenAI, Anthropic])
def test_an_address_that_cannot_be_is_refused_and_not_shown_whole(make: Any, url: str) -> None:
    with pytest.raises(BadSetting) as raised:
        make(base_url=url)
    assert "secret" not in raised.value.message


def test_an_estimate_asks_nobody() -> None:
    ai = OpenAI(base_url="http://127.0.0.1:9/v1", prices=PRICES)
    known = ai.estimate(Request("tiny", "x" * 400, "y" * 40, max_tokens=100))
    assert (known.tokens_in, known.tokens_out) == (118, 100)
    assert known.cost_usd == pytest.approx((118 + 200) / 1e6)
    assert ai.estimate(Request("strange", "x")).cost_usd is None
