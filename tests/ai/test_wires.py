"""One test for each provider: its address, request and answer, by its public documents of 2026."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest

from rota.ai import Finish, Reply, Request, invoker_of
from rota.errors import BadSetting, FilteredReply, NeedsLogin, Rejected, Transient
from tests.ai.kit.model_server import Asked, Model, Say

SCHEMA = {
    "type": "object", "properties": {"label": {"type": "string", "enum": ["a", "b"]}},
    "required": ["label"], "additionalProperties": False,
}  # fmt: skip
TEXT = '{"label": "a"}'
QUESTION = Request("", "Give JSON.", "Be brief.", 50, timeout_s=5, wants_json=True, schema=SCHEMA)
KEYS = {
    "openai": "OPENAI_API_KEY", "responses": "OPENAI_API_KEY", "azure": "AZURE_OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY", "gemini": "GEMINI_API_KEY", "mistral": "MISTRAL_API_KEY",
    "openrouter": "OPENROUTER_API_KEY", "bedrock": "AWS_BEARER_TOKEN_BEDROCK",
}  # fmt: skip
ENV = dict.fromkeys(KEYS.values(), "sk-test")
MESSAGES = [
    {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Give JSON."}
]  # fmt: skip
STRICT = {
    "type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA}
}  # fmt: skip
BEARER = {"authorization": "Bearer sk-test"}
COUNTS = {
    "prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18,
    "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 3},
}  # fmt: skip


def completion(model: str, usage: dict[str, Any] = COUNTS, **more: Any) -> dict[str, Any]:
    said: dict[str, Any] = {
        "role": "assistant",
        "content": TEXT,
        "refusal": None,
        "annotations": [],
    }
    choice = {"index": 0, "message": said, "logprobs": None, "finish_reason": "stop"}
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1790000000, "model": model,
        "choices": [choice], "usage": usage, **more,
    }  # fmt: skip


def chunks(whole: dict[str, Any]) -> list[Any]:
    head = {**whole, "object": "chat.completion.chunk", "usage": None}
    delta = {"index": 0, "delta": {"role": "assistant", "content": TEXT}, "finish_reason": None}
    end = {"index": 0, "delta": {}, "finish_reason": "stop"}
    return [
        {**head, "choices": [delta]}, {**head, "choices": [end]},
        {**head, "choices": [], "usage": whole["usage"]}, b"[DONE]",
    ]  # fmt: skip


def response(model: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": TEXT, "annotations": [], "logprobs": []}
    return {
        "id": "resp_1", "object": "response", "status": "completed", "model": model, "error": None,
        "incomplete_details": None, "service_tier": "default",
        "output": [
            {"id": "rs_1", "type": "reasoning", "summary": []},
            {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
             "content": [part]},
        ],
        "usage": {
            "input_tokens": 11, "output_tokens": 7, "total_tokens": 18,
            "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 3},
        },
    }  # fmt: skip


def response_events(model: str) -> list[Any]:
    whole = response(model)
    return [
        {"type": "response.created", "sequence_number": 0,
         "response": {**whole, "status": "in_progress", "output": [], "usage": None}},
        {"type": "response.output_text.delta", "sequence_number": 1, "delta": TEXT},
        {"type": "response.completed", "sequence_number": 2, "response": whole},
    ]  # fmt: skip


def message(model: str) -> dict[str, Any]:
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": model,
        "content": [{"type": "thinking", "thinking": "hm", "signature": "x"},
                    {"type": "text", "text": TEXT}],
        "stop_reason": "end_turn", "stop_sequence": None,
        "usage": {
            "input_tokens": 7, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 4,
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
            "output_tokens": 7, "service_tier": "standard", "inference_geo": "global",
        },
    }  # fmt: skip


def message_events(model: str) -> list[Any]:
    whole = message(model)
    start = {**whole, "content": [], "stop_reason": None,
             "usage": {**whole["usage"], "output_tokens": 1}}  # fmt: skip
    return [
        {"type": "message_start", "message": start}, {"type": "ping"},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": TEXT}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None},
         "usage": {"output_tokens": 7}},
        {"type": "message_stop"},
    ]  # fmt: skip


def content(model: str) -> dict[str, Any]:
    parts = [{"text": "hm", "thought": True}, {"text": TEXT}]
    return {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP",
                        "index": 0}],
        "usageMetadata": {"promptTokenCount": 11, "candidatesTokenCount": 4,
                          "thoughtsTokenCount": 3, "totalTokenCount": 18,
                          "cachedContentTokenCount": 4},
        "modelVersion": model, "responseId": "gem_1",
    }  # fmt: skip


def converse(model: str) -> dict[str, Any]:
    return {
        "output": {"message": {"role": "assistant", "content": [
            {"reasoningContent": {"reasoningText": {"text": "hm"}}}, {"text": TEXT}]}},
        "stopReason": "end_turn", "metrics": {"latencyMs": 5},
        "usage": {"inputTokens": 7, "outputTokens": 7, "totalTokens": 18,
                  "cacheReadInputTokens": 4, "cacheWriteInputTokens": 0},
    }  # fmt: skip


class Wire(NamedTuple):
    """A provider: its kind and model, the end of its base URL, and what it takes and answers."""

    kind: str
    model: str
    base: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    whole: dict[str, Any]
    events: list[Any] | None
    cost: float | None  # in millionths of a dollar
    request_id: str | None = "chatcmpl-1"


def chat(kind: str, model: str, **more: Any) -> Wire:
    body = {"model": model, "messages": MESSAGES, "response_format": STRICT}
    body |= {"stream_options": {"include_usage": True}} | more.pop("body", {})
    body = {name: value for name, value in body.items() if value is not None}
    whole = more.pop("whole", completion(model))
    headers, cost = more.pop("headers", BEARER), more.pop("cost", None)
    return Wire(kind, model, "/v1", "/v1/chat/completions", headers, body, whole, chunks(whole),
                cost)  # fmt: skip


NEW, OLD = {"max_completion_tokens": 50}, {"max_tokens": 50}
GEMINI_BODY = {
    "contents": [{"role": "user", "parts": [{"text": "Give JSON."}]}],
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "generationConfig": {
        "candidateCount": 1, "maxOutputTokens": 50, "responseMimeType": "application/json",
        "responseJsonSchema": SCHEMA,
    },
}  # fmt: skip
CONVERSE_BODY = {
    "messages": [{"role": "user", "content": [{"text": "Give JSON."}]}],
    "system": [{"text": "Be brief."}], "inferenceConfig": {"maxTokens": 50},
    "outputConfig": {"textFormat": {"type": "json_schema", "structure": {
        "jsonSchema": {"name": "answer", "schema": json.dumps(SCHEMA, separators=(",", ":"))}}}},
}  # fmt: skip
OPUS = "anthropic.claude-opus-4-7"
WIRES = [
    chat("openai", "gpt-5-mini", body=NEW, cost=7 * 0.25 + 4 * 0.025 + 14),
    chat("openai", "gpt-4o", body=OLD, cost=7 * 2.5 + 4 * 1.25 + 70),
    Wire("responses", "gpt-5-codex", "/v1", "/v1/responses", BEARER,
         {"model": "gpt-5-codex", "input": "Give JSON.", "instructions": "Be brief.",
          "max_output_tokens": 50, "store": False,
          "text": {"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA,
                              "strict": True}}},
         response("gpt-5-codex"), response_events("gpt-5-codex"), 7 * 1.25 + 4 * 0.125 + 70,
         "resp_1"),
    Wire("anthropic", "claude-opus-4-7", "", "/v1/messages",
         {"x-api-key": "sk-test", "anthropic-version": "2023-06-01"},
         {"model": "claude-opus-4-7", "max_tokens": 50, "system": "Be brief.",
          "messages": MESSAGES[1:],
          "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
         message("claude-opus-4-7"), message_events("claude-opus-4-7"), 7 * 5 + 4 * 0.5 + 175,
         "msg_1"),
    Wire("gemini", "gemini-2.5-pro", "", "/v1beta/models/gemini-2.5-pro:",
         {"x-goog-api-key": "sk-test"}, GEMINI_BODY, content("gemini-2.5-pro"),
         [content("gemini-2.5-pro")], 7 * 1.25 + 4 * 0.125 + 70, "gem_1"),
    chat("azure", "gpt-5", body=NEW, headers={"api-key": "sk-test"}, cost=7 * 1.25 + 0.5 + 70),
    chat("azure", "my-deployment", body={**NEW, "response_format": {"type": "json_object"}},
         headers={"api-key": "sk-test"}),
    Wire("bedrock", OPUS, "", "/model/anthropic.claude-opus-4-7/converse", BEARER, CONVERSE_BODY,
         converse(OPUS), None, 7 * 5 + 4 * 0.5 + 175, "req_aws"),
    chat("mistral", "mistral-large-latest", body={**OLD, "stream_options": None},
         cost=7 * 0.5 + 4 * 0.05 + 7 * 1.5),
    chat("openrouter", "anthropic/claude-opus-4.7", body=OLD, cost=123.0,
         whole=completion("anthropic/claude-opus-4.7", {**COUNTS, "cost": 0.000123})),
    chat("ollama", "llama3:8b", body=OLD, headers={}),
    chat("vllm", "qwen3", body=OLD, headers={}),
    chat("lmstudio", "qwen3", body=OLD, headers={}),
]  # fmt: skip


@contextlib.asynccontextmanager
async def asking(
    kind: str, model: Model, base: str, name: str, **options: Any
) -> AsyncIterator[Any]:
    async with model.up():
        provider = {"kind": kind, "base_url": model.url + base, **options}
        if kind in KEYS:
            provider["key_env"] = KEYS[kind]
        settings = {"model": f"p:{name}", "providers": {"p": provider}}
        async with contextlib.aclosing(invoker_of(settings, env=ENV)) as ai:
            yield ai


def sent(asked: Asked, names: set[str]) -> dict[str, str]:
    return {name: asked.headers.get(name, "") for name in names}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: f"{wire.kind}-{wire.model}")
async def test_a_provider_is_asked_and_read_in_its_format(wire: Wire, *, stream: bool) -> None:
    raw = None if stream and wire.events else json.dumps(wire.whole).encode()
    headers = {"x-amzn-requestid": "req_aws"} if wire.kind == "bedrock" else {}
    model = Model(Say(events=wire.events, raw=raw, headers=headers))
    async with asking(wire.kind, model, wire.base, wire.model, stream=stream) as ai:
        reply: Reply = await ai.ask(QUESTION)
        [asked] = model.asked
    assert asked.path.startswith(wire.path)
    assert sent(asked, set(wire.headers)) == wire.headers
    if not wire.headers:
        assert "authorization" not in asked.headers
    body = dict(asked.body)
    assert body.pop("stream", False) is (stream and wire.kind not in ("gemini", "bedrock"))
    expected = dict(wire.body)
    if not stream:
        expected.pop("stream_options", None)
    assert body == expected
    assert (reply.text, reply.finish, reply.request_id) == (TEXT, Finish.WHOLE, wire.request_id)
    assert (reply.tokens_in, reply.tokens_out, reply.guessed) == (11, 7, False)
    cost = None if wire.cost is None else pytest.approx(wire.cost / 1e6)
    assert reply.cost_usd == cost


@pytest.mark.parametrize(
    ("kind", "model", "options", "field"),
    [
        ("openai", "openai/gpt-5-mini", {}, "max_completion_tokens"),
        ("openai", "o3", {}, "max_completion_tokens"),
        ("openai", "gpt-4.1", {}, "max_tokens"),
        ("openai", "my-reasoner", {}, "max_tokens"),
        ("openai", "my-reasoner", {"tokens_field": "max_completion_tokens"},
         "max_completion_tokens"),
        ("azure", "gpt-4o", {"tokens_field": "max_tokens"}, "max_tokens"),
    ],
)  # fmt: skip
async def test_the_field_for_the_longest_answer_is_known_or_set(
    kind: str, model: str, options: dict[str, Any], field: str
) -> None:
    server = Model()
    async with asking(kind, server, "/v1", model, **options) as ai:
        await ai.ask(Request("", "Hi.", max_tokens=50, timeout_s=5))
        assert {"max_tokens", "max_completion_tokens"} & server.asked[0].body.keys() == {field}


@pytest.mark.parametrize("schema", [True, False])
async def test_the_settings_say_whether_a_schema_is_sent(*, schema: bool) -> None:
    server = Model()
    async with asking("openai", server, "/v1", "gpt-4o-mini", schema=schema) as ai:
        await ai.ask(QUESTION)
        assert (server.asked[0].body["response_format"] == STRICT) is schema


async def test_a_model_that_always_thinks_has_a_higher_limit() -> None:
    server = Model()
    async with asking("anthropic", server, "", "claude-opus-5-5") as ai:
        await ai.ask(Request("", "Hi.", timeout_s=5))
        await ai.ask(Request("p:claude-opus-4-6", "Hi.", timeout_s=5))
        assert [asked.body["max_tokens"] for asked in server.asked] == [16_384, 4096]


@pytest.mark.parametrize(
    ("kind", "base", "whole", "finish"),
    [
        ("gemini", "", {"candidates": [{"finishReason": "MAX_TOKENS"}]}, Finish.LENGTH),
        ("gemini", "", {"candidates": [{"finishReason": "OTHER"}]}, Finish.UNKNOWN),
        ("responses", "/v1",
         {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
         Finish.LENGTH),
        ("responses", "/v1",
         {"status": "completed", "output": [{"type": "function_call", "name": "f"}]},
         Finish.TOOLS),
        ("responses", "/v1", {"status": "in_progress"}, Finish.UNKNOWN),
        ("bedrock", "",
         {"output": {"message": {"content": []}}, "stopReason": "malformed_model_output"},
         Finish.INTERRUPTED),
    ],
)  # fmt: skip
async def test_an_unfinished_answer_says_so(
    kind: str, base: str, whole: dict[str, Any], finish: Finish
) -> None:
    server = Model(Say(raw=json.dumps(whole).encode()))
    async with asking(kind, server, base, "m", stream=False) as ai:
        reply = await ai.ask(Request("", "Hi.", timeout_s=5))
        assert (reply.finish, reply.guessed) == (finish, True)


BLOCKED = {"promptFeedback": {"blockReason": "SAFETY"}}
SAID_NO = [{"type": "message", "content": [{"type": "refusal", "refusal": "no, sorry"}]}]
FAILED = {"status": "failed", "error": {"code": "server_error", "message": "oops"}}


@pytest.mark.parametrize(
    ("kind", "base", "whole", "error", "text"),
    [
        ("gemini", "", BLOCKED, FilteredReply, "SAFETY"),
        ("gemini", "", {"candidates": [{"finishReason": "SPII"}]}, FilteredReply, "SPII"),
        ("gemini", "", {}, Transient, "without a candidate"),
        ("responses", "/v1", {"status": "completed", "output": SAID_NO}, FilteredReply, "sorry"),
        ("responses", "/v1", FAILED, Transient, "oops"),
        ("bedrock", "", {"output": {}}, Transient, "without content"),
    ],
)
async def test_a_reply_without_an_answer_is_an_error(
    kind: str, base: str, whole: dict[str, Any], error: type[Exception], text: str
) -> None:
    server = Model(Say(raw=json.dumps(whole).encode()))
    async with asking(kind, server, base, "m", stream=False) as ai:
        with pytest.raises(error, match=text) as raised:
            await ai.ask(Request("", "Hi.", timeout_s=5))
        assert raised.value.facts["sent"] is True  # type: ignore[attr-defined]


async def test_the_key_of_a_vendor_goes_to_the_hosts_of_the_vendor() -> None:
    from rota.ai.bedrock import Bedrock
    from rota.ai.chat_vendors import Azure
    from rota.ai.openai import OPENAI

    assert OPENAI.has("https://eu.api.openai.com/v1")
    assert Bedrock.home.has("https://bedrock-runtime.eu-central-1.amazonaws.com")
    assert Azure.home.has("https://my-team.openai.azure.com/openai/v1")
    for stranger in (
        "http://eu.api.openai.com/v1", "https://api.openai.com.evil.example/v1",
        "https://evil.example/api.openai.com", "https://eu.api.openai.com:8443/v1",
    ):  # fmt: skip
        assert not OPENAI.has(stranger), stranger
    assert not Azure.home.has("")
    ai = invoker_of({"providers": {"mistral": {}}}, env={})
    with pytest.raises(NeedsLogin, match="MISTRAL_API_KEY"):
        await ai.ask(Request("mistral:m", "Hi."))


TOO_LONG = [
    ("vLLM", {"message": "This model's maximum context length is 16384 tokens. However, you "
              "requested 122946 tokens.", "type": "BadRequestError", "code": 400}),
    ("llama.cpp", {"code": 400, "message": "the request exceeds the available context size",
                   "type": "exceed_context_size_error", "n_prompt_tokens": 9, "n_ctx": 8}),
    ("Gemini", {"code": 400, "message": "The input token count (337807) exceeds the maximum "
                "number of tokens allowed (65536).", "status": "INVALID_ARGUMENT"}),
    ("Ollama", {"message": "the input length exceeds the context length"}),
    ("Bedrock", {"message": "Input is too long for requested model."}),
]  # fmt: skip


@pytest.mark.parametrize(("who", "said"), TOO_LONG)
async def test_a_prompt_that_is_too_long_is_recognised(who: str, said: dict[str, Any]) -> None:
    server = Model(Say(status=400, raw=json.dumps({"error": said}).encode()))
    async with asking("openai", server, "/v1", "m") as ai:
        with pytest.raises(Rejected) as raised:
            await ai.ask(Request("", "Hi.", timeout_s=5))
        assert raised.value.facts["reason"] == "too_long", who
        assert "shorter" in raised.value.advice


async def test_a_429_that_can_never_succeed_is_not_waited_for() -> None:
    text = "Request too large for m on tokens per min (TPM): Limit {}, Requested {}."
    said = [
        {"error": {"code": "rate_limit_exceeded", "message": text.format(*numbers)}}
        for numbers in ((30000, 90000), (30000, 9000))
    ]
    server = Model(*(Say(status=429, raw=json.dumps(each).encode()) for each in said))
    async with asking("openai", server, "/v1", "m", limits=None) as ai:
        with pytest.raises(Rejected):
            await ai.ask(Request("", "Hi.", timeout_s=5))
        with pytest.raises(Transient):
            await ai.ask(Request("", "Hi.", timeout_s=5))


class Parrot:
    """An invoker of another package."""

    def __init__(self, name: str, word: str = "squawk") -> None:
        self.name, self.word = name, word

    async def ask(self, request: Request) -> Reply:
        return Reply(self.word, request.model, 1, 1, None)


async def test_a_provider_may_be_a_class_of_another_package() -> None:
    kind = f"{__name__}:Parrot"
    ai = invoker_of({"providers": {"bird": {"kind": kind, "word": "hello", "limits": None}}})
    assert (await ai.ask(Request("bird:m", "Hi."))).text == "hello"


@pytest.mark.parametrize(
    "given",
    [{"kind": "no.such:Thing"}, {"kind": f"{__name__}:Nobody"},
     {"kind": f"{__name__}:Parrot", "colour": "red"}],
)  # fmt: skip
async def test_a_class_that_cannot_be_made_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(BadSetting, match="cannot be made"):
        await invoker_of({"providers": {"bird": given}}).ask(Request("bird:m", "Hi."))
