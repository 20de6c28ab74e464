"""The meaning of a provider's refusal: status and error code → who has to act. Pure, one table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

import msgspec

from rota.ai.base import Reply, passing
from rota.core.runs.retry import capped_delay_s, retry_after_s
from rota.errors import FilteredReply, NeedsLogin, NeedsPermission, Rejected, RotaError

SHOWN_CHARS_MAX = 300
ID_CHARS_MAX = 100
# The headers with the provider's name for a call, best first.
REQUEST_IDS = ("x-request-id", "request-id", "apim-request-id", "x-amzn-requestid")

# Values that providers write into `type` or `code` of an error, where the status alone would
# mislead: a used-up account answers 429 as well, and a stream breaks after it has said 200.
_LOGIN = {
    *("authentication_error", "invalid_api_key", "UNAUTHENTICATED"),
    *("API_KEY_INVALID", "API_KEY_EXPIRED"),
}
_PERMISSION = {
    *("permission_error", "insufficient_quota", "billing_error", "insufficient_balance"),
    *("billing_hard_limit_reached", "billing_not_active"),
    *("PERMISSION_DENIED", "BILLING_DISABLED", "CONSUMER_SUSPENDED", "API_KEY_SERVICE_BLOCKED"),
}
# Messages of providers that answer 400 without an error code of their own.
_LOGIN_SAID = ("api key not valid", "api key expired", "invalid api key", "incorrect api key")
_PERMISSION_SAID = ("credit balance is too low", "insufficient balance", "insufficient credits")
# Messages about a prompt that does not fit: Anthropic, OpenAI and vLLM, llama.cpp, Gemini, Ollama
# and LM Studio, Bedrock, Mistral, xAI.
_TOO_LONG_SAID = (
    "prompt is too long", "maximum context length", "exceeds the available context size",
    "exceeds the maximum number of tokens allowed", "exceeds the context length",
    "exceeds maximum context length", "greater than the context length",
    "input is too long for requested model", "too large for model with",
    "maximum prompt length is",
)  # fmt: skip
_LIMIT = re.compile(r"Limit (?P<limit>[0-9]{1,12}), Requested (?P<requested>[0-9]{1,12})")
_THROTTLED = {"rate_limit_error", "rate_limit_exceeded"}
_PASSING = _THROTTLED | {
    *("overloaded_error", "api_error", "server_error", "timeout_error"),
    *("RESOURCE_EXHAUSTED", "UNAVAILABLE", "DEADLINE_EXCEEDED", "INTERNAL"),
}
_REASONS = {
    "context_length_exceeded": "too_long",
    "request_too_large": "too_long",
    "exceed_context_size_error": "too_long",
    "content_filter": "content_filter",
    "content_policy_violation": "content_filter",
    "ResponsibleAIPolicyViolation": "content_filter",
    "model_not_found": "unknown_model",
    "not_found_error": "unknown_model",
}
_HINTS = {
    "too_long": "Make the prompt shorter, or use a model with a larger context.",
    "content_filter": "The provider will not answer this; change the prompt or the item.",
    "unknown_model": "Check the name of the model and the address of the provider.",
}
_HINT = "Correct the request; the provider says what it refuses. `rota pipeline render` shows it."
_BUSY = (408, 425, 429, 499)
# The status of a server that did not work on the question. Behind any other 5xx, as behind 408 and
# 499, the model may work, and its provider charges for it: 504 of a gateway, 524 of Cloudflare.
_FREE = (500, 501, 502, 503, 505, 521, 522, 523, 525, 526, 529, 530)
_ANTHROPIC = "anthropic-ratelimit-"
_RESET = re.compile(
    r"x-ratelimit-reset-(?P<openai>[a-z-]{1,40})"
    r"|anthropic-ratelimit-(?P<anthropic>[a-z-]{1,40})-reset"
)
_DURATION = re.compile(r"([0-9]{1,9}(\.[0-9]{1,9})?(ms|h|m|s))+")
_DURATION_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|h|m|s)")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class Refusal(NamedTuple):
    """The error of a provider instead of an answer; `status` is 0 when it broke off a stream."""

    who: str
    status: int
    body: bytes
    headers: Mapping[str, str]
    variable: str | None  # where the key came from


class _ProviderText(NamedTuple):
    words: frozenset[str]
    message: str
    status: int
    wait_s: float | None = None  # in the body: Gemini

    def says(self, *sentences: str) -> bool:
        """Whether one of these is part of the message."""
        return any(sentence in self.message.lower() for sentence in sentences)


def judge(refusal: Refusal) -> RotaError:
    """The error to raise. One that came after a 200 may be charged for, whatever it says."""
    reply = _provider_text(refusal.body)
    error = _judged(refusal, reply)
    if any(map(_may_have_worked, (refusal.status, reply.status or refusal.status))):
        error.facts["sent"] = True
    return error


def _may_have_worked(status: int) -> bool:
    return status in (0, 408, 499) or (status >= 500 and status not in _FREE)


def _judged(refusal: Refusal, reply: _ProviderText) -> RotaError:
    status = refusal.status or reply.status  # gateways put the status of others into the body
    message = f"{refusal.who} " + (f"answered {status}" if status else "broke off its answer")
    message += f": {reply.message}" if reply.message else ""
    message += request_text(refusal.headers)
    if reply.words & _LOGIN or status in (401, 407) or reply.says(*_LOGIN_SAID):
        return _login(refusal, status, message)
    if reply.words & _PERMISSION or status in (402, 403) or reply.says(*_PERMISSION_SAID):
        return NeedsPermission(
            message, service=refusal.who, account=refusal.variable, status=status
        )
    reason = _reason(reply)
    may_pass = status in _BUSY or status >= 500 or status == 0
    if reason is None and (reply.words & _PASSING or may_pass):
        waits = _wait_s(refusal.headers, reply)
        throttled = status == 429 or bool(reply.words & _THROTTLED)
        return passing(message, retry_after_s=waits, throttled=throttled)
    hint = _HINTS.get(reason or ("unknown_model" if status == 404 else ""), _HINT)
    return Rejected(message, hint=hint, status=status, reason=reason)


def filtered(who: str, explanation: str, reply: Reply) -> FilteredReply:
    """The provider answered by refusing to; it charges for that as for any answer."""
    why = explanation[:SHOWN_CHARS_MAX] or f"it stopped with {reply.finish_word!r}"
    text = f"{who} would not answer: {why}"
    text += f" (request {reply.request_id})" if reply.request_id else ""
    error = FilteredReply(text, reason="content_filter", sent=True)
    if not reply.guessed:
        error.facts |= {
            "tokens_in": reply.tokens_in, "tokens_out": reply.tokens_out,
            "cost_usd": reply.cost_usd, "model": reply.model,
        }  # fmt: skip
    return error


def request_text(headers: Mapping[str, str]) -> str:
    """The provider's name for the call, for its support."""
    found = next((headers[name] for name in REQUEST_IDS if name in headers), "")
    return f" (request {found[:ID_CHARS_MAX]})" if found else ""


def _login(refusal: Refusal, status: int, message: str) -> NeedsLogin:
    if status == 407:
        hint = "The proxy needs a login; see HTTPS_PROXY and NO_PROXY."
    elif refusal.variable:
        hint = f"Set {refusal.variable} to a key that is valid there, then try again."
    else:
        hint = "Name the variable that holds the key with `key_env`, then try again."
    return NeedsLogin(
        message, hint=hint, service=refusal.who, account=refusal.variable, status=status
    )


def _reason(reply: _ProviderText) -> str | None:
    reason = next((_REASONS[word] for word in sorted(reply.words) if word in _REASONS), None)
    if reason is None and (reply.says(*_TOO_LONG_SAID) or _exceeds_limit(reply.message)):
        return "too_long"
    return reason


def _exceeds_limit(message: str) -> bool:
    """Whether one question alone is larger than the account's limit a minute: OpenAI's 429."""
    match = _LIMIT.search(message)
    return match is not None and int(match["requested"]) > int(match["limit"])


def _provider_text(body: bytes) -> _ProviderText:
    """The words and the sentence of an error body, in any of the forms in use."""
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = body[: 4 * SHOWN_CHARS_MAX].decode(errors="replace")
        return _ProviderText(frozenset(), _clipped(text), 0)
    if isinstance(value, list) and value:  # Gemini puts it into a list
        value = value[0]
    error = value.get("error", value) if isinstance(value, dict) else value
    if not isinstance(error, dict):
        return _ProviderText(
            frozenset(), _clipped(error if isinstance(error, str) else str(value)), 0
        )
    inner = error.get("innererror")
    given = error.get("details")
    details = [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []
    parts = [error, inner if isinstance(inner, dict) else {}, *details]
    words = frozenset(
        word for part in parts for name in ("type", "code", "status", "reason")
        if isinstance(word := part.get(name), str)
    )  # fmt: skip
    message = error.get("message") or error.get("detail") or str(error)
    code = error.get("code")
    status = code if isinstance(code, int) and 400 <= code < 600 else 0
    delays = [duration_s(str(each["retryDelay"])) for each in details if "retryDelay" in each]
    return _ProviderText(words, _clipped(str(message)), status, next(iter(delays), None))


def _clipped(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "…"


def _wait_s(headers: Mapping[str, str], reply: _ProviderText) -> float | None:
    """How long a provider asks to wait: a stated time, or until its limits are free again."""
    for asked in (retry_after_s(headers), reply.wait_s, limits_reset_s(headers)):
        if asked is not None:
            return capped_delay_s(asked)
    return None


def limits_reset_s(headers: Mapping[str, str]) -> float | None:
    """Seconds until the limits that are used up are free again, by the headers of rate limits."""
    used_up, others = list[float](), list[float]()
    for name, value in headers.items():
        match = _RESET.fullmatch(name.lower())
        wait_s = None if match is None else _reset_s(value, headers.get("date", ""))
        if match is None or wait_s is None:
            continue
        vendor, unit = match.group("openai", "anthropic")
        left = f"x-ratelimit-remaining-{vendor}" if vendor else f"{_ANTHROPIC}{unit}-remaining"
        (used_up if headers.get(left, "").strip() == "0" else others).append(wait_s)
    return max(used_up) if used_up else min(others, default=None)


def _reset_s(value: str, date: str) -> float | None:
    """A duration (OpenAI: `6m0s`), or an instant (Anthropic: `2026-01-27T12:00:00Z`)."""
    wait_s = duration_s(value)
    if wait_s is not None:
        return wait_s
    try:
        until = datetime.fromisoformat(value.strip().replace("Z", "+00:00"))
        return max(0.0, (until - parsedate_to_datetime(date)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None


def duration_s(text: str) -> float | None:
    """Seconds of `1s`, `6m0s`, `20ms`, `1h2m3.5s`; None if it is none of these."""
    if not _DURATION.fullmatch(text.strip()):
        return None
    parts = _DURATION_PART.findall(text)
    return sum(float(number) * _UNITS_S[unit] for number, unit in parts)
