"""The headers that every answer carries."""

from __future__ import annotations

from collections.abc import Mapping

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

ALWAYS: Mapping[str, str] = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "x-robots-tag": "noindex",
}
HTTPS: Mapping[str, str] = {"strict-transport-security": "max-age=31536000"}
NO_STORE: Mapping[str, str] = {"cache-control": "no-store"}


def security_headers(given: Mapping[str, str], *, https: bool) -> dict[str, str]:
    """The answer's own headers with those of every answer; `no-store` unless it says otherwise."""
    return {**NO_STORE, **ALWAYS, **(HTTPS if https else {}), **given}
