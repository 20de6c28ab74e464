"""What a provider's refusal means: status and error words → who has to act. Pure, one table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

import msgspec

from rota.ai.base import Reply, passing
from rota.core.runs.retry import capped_delay_s
from rota.errors import FilteredReply, NeedsLogin, NeedsPermission, Rejected, RotaError

SHOWN_CHARS_MAX = 300

# What providers write into `type` or `code` of an error, where the status alone would mislead:
# a used-up account answers 429 as well, and a stream breaks after it has said 200.
_LOGIN = {"authentication_error", "invalid_api_key"}
_PERMISSION = {
    *("permission_error", "insufficient_quota", "billing_error"),
    *("billing_hard_limit_reached", "billing_not_active"),
}
_THROTTLED = {"rate_limit_error", "rate_limit_exceeded"}
_PASSING = _THROTTLED | {"overloaded_error", "api_error", "server_error", "timeout_error"}
_REASONS = {
    "context_length_exceeded": "too_long",
    "request_too_large": "too_long",
    "content_filter": "content_filter",
    "content_policy_violation": "content_filter",
    "ResponsibleAIPolicyViolation": "content_filter",
    "model_not_found": "unknown_model",
    "not_found_error": "unknown_model",
}
_HINTS = {
    "too_long": "Make the prompt shorter, or take a model that reads more at once.",
    "content_filter": "The provider will not answer this; change the prompt or the item.",
    "unknown_model": "Check the name of the model and the address of the provider.",
}
_BUSY = (408, 425, 429)
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


class Refusal(NamedTuple):
    """What a provider said instead of an answer; `status` is 0 when it broke off a stream."""

    who: str
    status: int
    body: bytes
    headers: Mapping[str, str]
    variable: str | None  # where the key came from


class _Told(NamedTuple):
    words: frozenset[str]
    message: str
    status: int


def judge(refusal: Refusal) -> RotaError:
    """The error to raise. One that came after a 200 may be charged for, whatever it says."""
    error = _judged(refusal)
    if not refusal.status:
        error.facts["sent"] = True
    return error


def _judged(refusal: Refusal) -> RotaError:
    told = _told(refusal.body)
    status = refusal.status or told.status  # gateways put the status of others into the body
    said = f"{refusal.who} " + (f"answered {status}" if status else "broke off its answer")
    said += f": {told.message}" if told.message else ""
    if told.words & _LOGIN or status in (401, 407):
        return _login(refusal, status, said)
    if told.words & _PERMISSION or status in (402, 403):
        return NeedsPermission(said, service=refusal.who, account=refusal.variable, status=status)
    reason = _reason(told)
    if reason is None and (told.words & _PASSING or _may_pass(status)):
        waits = retry_after_s(refusal.headers)
        throttled = status == 429 or bool(told.words & _THROTTLED)
        return passing(said, retry_after_s=waits, throttled=throttled)
    hint = _HINTS.get(reason or ("unknown_model" if status == 404 else ""))
    return Rejected(said, hint=hint, status=status, reason=reason)


def filtered(who: str, said: str, reply: Reply) -> FilteredReply:
    """The provider answered by refusing to; it charges for that as for any answer."""
    told = f"{who} would not answer" + (f": {said[:SHOWN_CHARS_MAX]}" if said else "")
    error = FilteredReply(told, reason="content_filter", sent=True)
    if not reply.guessed:
        error.facts |= {
            "tokens_in": reply.tokens_in, "tokens_out": reply.tokens_out,
            "cost_usd": reply.cost_usd, "model": reply.model,
        }  # fmt: skip
    return error


def _login(refusal: Refusal, status: int, said: str) -> NeedsLogin:
    if status == 407:
        hint = "The proxy on the way wants a login; see HTTPS_PROXY and NO_PROXY."
    elif refusal.variable:
        hint = f"Set {refusal.variable} to a key that is valid there, then try again."
    else:
        hint = "Name the variable that holds the key with `key_env`, then try again."
    return NeedsLogin(said, hint=hint, service=refusal.who, account=refusal.variable, status=status)


def _may_pass(status: int) -> bool:
    return status in _BUSY or status >= 500 or status == 0


def _reason(told: _Told) -> str | None:
    found = next((_REASONS[word] for word in sorted(told.words) if word in _REASONS), None)
    if found is None and "prompt is too long" in told.message.lower():
        return "too_long"
    return found


def _told(body: bytes) -> _Told:
    """The words and the sentence of an error body, in any of the forms in use."""
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = body[: 4 * SHOWN_CHARS_MAX].decode(errors="replace")
        return _Told(frozenset(), _clipped(text), 0)
    error = value.get("error", value) if isinstance(value, dict) else value
    if not isinstance(error, dict):
        return _Told(frozenset(), _clipped(error if isinstance(error, str) else str(value)), 0)
    inner = error.get("innererror")
    parts = [error, inner if isinstance(inner, dict) else {}]
    words = frozenset(
        word for part in parts for word in (part.get("type"), part.get("code"))
        if isinstance(word, str)
    )  # fmt: skip
    message = error.get("message") or error.get("detail") or str(error)
    code = error.get("code")
    status = code if isinstance(code, int) and 400 <= code < 600 else 0
    return _Told(words, _clipped(str(message)), status)


def _clipped(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "…"


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds we are asked to wait; a date counts from the date of the answer itself."""
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return capped_delay_s(milliseconds / 1000)
    asked = headers.get("retry-after", "").strip()
    seconds = _number(asked)
    if seconds is not None:
        return capped_delay_s(seconds)
    try:
        until = parsedate_to_datetime(asked)
        since = parsedate_to_datetime(headers.get("date", ""))
        return capped_delay_s((until - since).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None


def _number(text: str) -> float | None:
    found = _SECONDS.fullmatch(text.strip())
    return float(found.group()) if found else None
