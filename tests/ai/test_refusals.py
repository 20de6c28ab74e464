"""Meaning of refusals of providers: who has to act, and how long to wait."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from rota.ai.errors import Refusal, duration_s, judge
from rota.errors import NeedsLogin, NeedsPermission, Rejected, RotaError, Transient

DATE = "Tue, 27 Jan 2026 12:00:00 GMT"


def judged(status: int, body: Any, headers: Mapping[str, str] | None = None) -> RotaError:
    return judge(Refusal("them", status, json.dumps(body).encode(), headers or {}, "THEIR_KEY"))


GEMINI_KEY = [
    {"error": {"code": 400, "message": "API key not valid. Please pass a valid API key.",
               "status": "INVALID_ARGUMENT",
               "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo",
                            "reason": "API_KEY_INVALID"}]}}
]  # fmt: skip
GEMINI_QUOTA = [
    {"error": {"code": 429, "message": "You exceeded your current quota, please check your plan.",
               "status": "RESOURCE_EXHAUSTED",
               "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo",
                            "retryDelay": "34.5s"}]}}
]  # fmt: skip
CREDIT = {
    "type": "error",
    "error": {"type": "invalid_request_error",
              "message": "Your credit balance is too low to access the Anthropic API."},
}  # fmt: skip


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        pytest.param(400, GEMINI_KEY, NeedsLogin, id="Gemini: a bad key"),
        pytest.param(401, {"error": {"code": "invalid_api_key"}}, NeedsLogin, id="OpenAI: key"),
        pytest.param(400, CREDIT, NeedsPermission, id="Anthropic: no credit"),
        pytest.param(402, {"error": {"message": "Insufficient Balance"}}, NeedsPermission,
                     id="DeepSeek: no credit"),
        pytest.param(429, {"error": {"code": "insufficient_quota"}}, NeedsPermission,
                     id="OpenAI: no credit"),
        pytest.param(403, [{"error": {"status": "PERMISSION_DENIED"}}], NeedsPermission,
                     id="Gemini: not allowed"),
        pytest.param(429, GEMINI_QUOTA, Transient, id="Gemini: throttled"),
        pytest.param(503, [{"error": {"status": "UNAVAILABLE"}}], Transient, id="Gemini: busy"),
        pytest.param(400, [{"error": {"status": "INVALID_ARGUMENT", "message": "no"}}], Rejected,
                     id="Gemini: a bad request"),
    ],
)  # fmt: skip
def test_a_refusal_says_who_has_to_act(status: int, body: Any, kind: type[RotaError]) -> None:
    assert type(judged(status, body)) is kind


@pytest.mark.parametrize(
    ("headers", "body", "wait_s"),
    [
        pytest.param({"retry-after": "7"}, {}, 7.0, id="Retry-After"),
        pytest.param({}, GEMINI_QUOTA, 34.5, id="Gemini: retryDelay"),
        pytest.param(
            {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m30s",
             "x-ratelimit-remaining-tokens": "900", "x-ratelimit-reset-tokens": "6m0s"},
            {}, 90.0, id="OpenAI: requests are used up"),
        pytest.param(
            {"x-ratelimit-remaining-requests": "9", "x-ratelimit-reset-requests": "20ms",
             "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"},
            {}, 360.0, id="OpenAI: tokens are used up"),
        pytest.param(
            {"date": DATE, "anthropic-ratelimit-input-tokens-remaining": "0",
             "anthropic-ratelimit-input-tokens-reset": "2026-01-27T12:00:42Z",
             "anthropic-ratelimit-requests-remaining": "5",
             "anthropic-ratelimit-requests-reset": "2026-01-27T12:05:00Z"},
            {}, 42.0, id="Anthropic: input tokens are used up"),
        pytest.param({"x-ratelimit-reset-tokens": "soon"}, {}, None, id="nonsense"),
        pytest.param({}, {}, None, id="nothing is said"),
        pytest.param({"x-ratelimit-reset-requests": "999999999h"}, {}, 7 * 86_400.0, id="too long"),
    ],
)  # fmt: skip
def test_a_throttling_provider_says_how_long_to_wait(
    headers: dict[str, str], body: Any, wait_s: float | None
) -> None:
    error = judged(429, body, headers)
    assert isinstance(error, Transient)
    assert (error.retry_after_s, error.facts["throttled"]) == (wait_s, True)


@pytest.mark.parametrize(
    ("status", "may_be_billed"),
    [
        (400, False), (401, False), (404, False), (408, True), (413, False), (429, False),
        (499, True), (500, False), (502, False), (503, False), (504, True), (520, True),
        (522, False), (524, True), (529, False), (598, True),
    ],
)  # fmt: skip
def test_behind_a_timeout_of_a_gateway_the_model_may_have_worked(
    status: int, *, may_be_billed: bool
) -> None:
    for error in (judged(status, {}), judged(500, {"error": {"code": status}})):
        assert bool(error.facts.get("sent")) is may_be_billed
    if may_be_billed:
        assert isinstance(judged(status, {}), Transient)


def test_a_refusal_shows_the_providers_name_for_the_call() -> None:
    error = judged(500, {"error": {"message": "oops"}}, {"x-request-id": "req_7"})
    assert error.message == "them answered 500: oops (request req_7)"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1s", 1.0), ("6m0s", 360.0), ("20ms", 0.02), ("1h2m3.5s", 3723.5), ("", None), ("5", None)],
)
def test_durations_of_providers(text: str, seconds: float | None) -> None:
    assert duration_s(text) == seconds
