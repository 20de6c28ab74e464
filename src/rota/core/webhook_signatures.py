"""Signatures of webhooks, as senders make them and as receivers check them. Pure.

Each scheme is that of its public documents: `github` signs the body, `stripe` and `slack` the time
and the body. `standard` (Standard Webhooks, which Rota sends too) signs the id, the time and the
body.
A signed time keeps a captured delivery from being repeated later.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Literal, NamedTuple, TypeAlias, get_args

from rota.errors import Rejected

Scheme: TypeAlias = Literal["github", "stripe", "slack", "standard"]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)
PREFIX = "whsec_"


class SignatureVerdict(Enum):
    """The result of a check."""

    GENUINE = "genuine"
    WRONG = "wrong"
    STALE = "stale"  # signed with the secret, but at another time


class _Signed(NamedTuple):
    """The content that the sender signed, when, and the signatures it gave."""

    content: bytes
    given: list[str]
    is_base64: bool = False
    timestamp: str | None = None


def signature(key: str, *, message_id: str, timestamp: int, body: bytes) -> str:
    """The value of the header `webhook-signature` of Standard Webhooks."""
    signed = b".".join([message_id.encode(), str(timestamp).encode(), body])
    return f"v1,{_text(key_bytes(key), signed, is_base64=True)}"


def key_bytes(key: str) -> bytes:
    """The key itself: base64 after `whsec_`, otherwise the text unchanged."""
    if key.startswith(PREFIX):
        try:
            return base64.b64decode(key.removeprefix(PREFIX), validate=True)
        except binascii.Error:
            raise Rejected("the key of the signature is not base64 after whsec_") from None
    return key.encode()


def check(
    scheme: Scheme, secrets: Iterable[str], headers: Mapping[str, str], body: bytes, *,
    now_s: float, tolerance_s: float,
) -> SignatureVerdict:  # fmt: skip
    """Whether the sender of a delivery knows one of the secrets, and signed it just now. Names of
    headers are in lower case."""
    signed = _READERS[scheme](headers, body)
    if not any(_matches(scheme, secret, signed) for secret in secrets):
        return SignatureVerdict.WRONG
    if signed.timestamp is not None and not _is_near(signed.timestamp, now_s, tolerance_s):
        return SignatureVerdict.STALE
    return SignatureVerdict.GENUINE


def matches_body(secret: str, given: str, body: bytes) -> bool:
    """Whether a text is the HMAC-SHA256 of the body: hex or base64, with or without `sha256=`."""
    given = given.removeprefix("sha256=")
    forms = (_text(secret.encode(), body, is_base64=each) for each in (False, True))
    return any(same_text(given, form) for form in forms)


def same_text(one: str, other: str) -> bool:
    """Compare in a time that says nothing about the texts."""
    return hmac.compare_digest(one.encode(), other.encode())


def _matches(scheme: Scheme, secret: str, signed: _Signed) -> bool:
    try:
        key = key_bytes(secret) if scheme == "standard" else secret.encode()
    except Rejected:
        return False
    made = _text(key, signed.content, is_base64=signed.is_base64)
    return any(same_text(given, made) for given in signed.given)


def _text(key: bytes, content: bytes, *, is_base64: bool) -> str:
    digest = hmac.new(key, content, hashlib.sha256).digest()
    return base64.b64encode(digest).decode() if is_base64 else digest.hex()


def _is_near(timestamp: str, now_s: float, tolerance_s: float) -> bool:
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        return False
    return abs(now_s - int(timestamp)) <= tolerance_s


def _github(headers: Mapping[str, str], body: bytes) -> _Signed:
    return _Signed(body, _after("sha256=", [headers.get("x-hub-signature-256", "")]))


def _stripe(headers: Mapping[str, str], body: bytes) -> _Signed:
    parts = [part.strip() for part in headers.get("stripe-signature", "").split(",")]
    timestamp = next(iter(_after("t=", parts)), "")
    return _Signed(timestamp.encode() + b"." + body, _after("v1=", parts), timestamp=timestamp)


def _slack(headers: Mapping[str, str], body: bytes) -> _Signed:
    timestamp = headers.get("x-slack-request-timestamp", "")
    given = _after("v0=", [headers.get("x-slack-signature", "")])
    return _Signed(b"v0:" + timestamp.encode() + b":" + body, given, timestamp=timestamp)


def _standard(headers: Mapping[str, str], body: bytes) -> _Signed:
    message_id, timestamp = (headers.get(f"webhook-{name}", "") for name in ("id", "timestamp"))
    given = _after("v1,", headers.get("webhook-signature", "").split(" "))
    content = b".".join([message_id.encode(), timestamp.encode(), body])
    return _Signed(content, given if message_id else [], is_base64=True, timestamp=timestamp)


def _after(prefix: str, texts: Iterable[str]) -> list[str]:
    """The rest of each text that begins with this."""
    return [text.removeprefix(prefix) for text in texts if text.startswith(prefix)]


_READERS = {"github": _github, "stripe": _stripe, "slack": _slack, "standard": _standard}
