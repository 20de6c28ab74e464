"""One call to the outside: a signed webhook, or the ping of a dead-man's switch.

The signature is that of Standard Webhooks, for which there are libraries everywhere: three headers,
`webhook-id`, `webhook-timestamp` (seconds) and `webhook-signature`, which is `v1,` and the base64
of the HMAC-SHA256 of `id.timestamp.body`. The id stays the same when a message is sent again.
Addresses are shown without path and query: hooks of chats carry their secret there.

A dead-man's switch is a monitor outside that expects calls. It raises the alarm when they stay
away, even if no process is left here to report a failure. `{event}` in its address represents
start, success, fail or missed. Without it the paths of healthchecks and its like are used: the
address itself is success, `/start` and `/fail` are what they say, and a missed execution is `/log`.
The monitor notes it and still awaits the expected call.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Mapping
from typing import Literal, TypeAlias
from urllib.parse import urljoin, urlsplit, urlunsplit

from rota.core.runs.retry import retry_after_s
from rota.core.webhook_signatures import signature
from rota.errors import Rejected, Transient

Ping: TypeAlias = Literal["start", "success", "fail", "missed"]
PATHS: dict[Ping, str] = {"start": "/start", "success": "", "fail": "/fail", "missed": "/log"}
TIMEOUT_S = 15.0
ANSWER_BYTES_MAX = 4096
RETRY_AFTER_S_MAX = 3600.0
ENV = "env:"
LATER = (408, 425, 429)
_VARIABLE = re.compile(r"[A-Za-z_]\w*")


def resolved(address: str) -> str:
    """An address as it is, or what the variable holds that `env:NAME` names."""
    if not address.startswith(ENV):
        return address
    name = address.removeprefix(ENV)
    url = os.environ.get(name, "").strip()
    if not url.startswith(("http://", "https://")):
        raise Transient(f"the environment has no address in {name}")
    return url


def is_variable(name: str) -> bool:
    """Whether a text is the name of an environment variable."""
    return _VARIABLE.fullmatch(name) is not None


def is_address(text: str) -> bool:
    """Whether a text is an address that can be called, or names a variable that may hold one."""
    if text.startswith(ENV):
        return is_variable(text.removeprefix(ENV))
    try:
        parts = urlsplit(text)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return fits and not any(char.isspace() for char in text)


async def post(
    address: str, secret_env: str | None, *, message_id: str, timestamp: int, body: bytes
) -> None:
    """Send one message, signed if `secret_env` names the variable with the key."""
    headers = {
        "content-type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
    }
    if secret_env is not None:
        key = os.environ.get(secret_env, "")
        if not key:
            raise Transient(
                f"environment variable {secret_env} is not set, so the message could not be signed "
                "and was not sent"
            )
        headers["webhook-signature"] = signature(
            key, message_id=message_id, timestamp=timestamp, body=body
        )
    await call("POST", resolved(address), headers=headers, body=body)


async def call(
    method: str, url: str, *, headers: Mapping[str, str], body: bytes | None = None
) -> int:
    """Send once and return the status, if the other side took it; a redirect is not followed.

    Transient: it may work later. Rejected: it would be refused again.
    """
    from rota.net import http  # needs an extra, which only webhooks need

    request = http.HttpRequest(method, url, headers, body)
    try:
        answer = await http.exchange(request, timeout_s=TIMEOUT_S, bytes_max=ANSWER_BYTES_MAX)
    except http.IncompleteResponse as error:
        message = str(error).removeprefix(f"{http.place(url)}: ").replace(url, shown(url))
        raise Transient(f"{shown(url)}: {message}") from None  # the cause would show the address
    if answer.status // 100 == 2:
        return answer.status
    message = f"{shown(url)} answered {answer.status}"
    if answer.status // 100 == 3:
        target = _moved_to(url, answer.headers.get("location"))
        raise Rejected(
            f"{message}: moved to {target}", hint="Write the new address, if it is right."
        )
    if answer.status in LATER or answer.status >= 500:
        wait_s = retry_after_s(answer.headers)
        raise Transient(
            message, retry_after_s=None if wait_s is None else min(wait_s, RETRY_AFTER_S_MAX)
        )
    raise Rejected(message, hint="Check the address and the key; then `rota run retry`.")


def _moved_to(url: str, location: str | None) -> str:
    try:
        return shown(urljoin(url, location)) if location else "another address"
    except ValueError:  # not an address
        return "another address"


async def call_ping(address: str, event: Ping, *, run_id: str) -> None:
    """Report an event to a dead-man's switch."""
    await call("GET", ping_address(resolved(address), event, run_id=run_id), headers={})


def ping_address(url: str, event: Ping, *, run_id: str) -> str:
    """The address to call. Calls of one execution have the same `rid`."""
    if "{event}" in url:
        return url.replace("{event}", event)
    try:
        rid = str(uuid.UUID(run_id))
    except ValueError:
        rid = run_id
    parts = urlsplit(url)
    query = f"{parts.query}&" if parts.query else ""
    path = parts.path.rstrip("/") + PATHS[event]
    return urlunsplit(parts._replace(path=path, query=f"{query}rid={rid}", fragment=""))


def shown(url: str) -> str:
    """The address without anything that may be a secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}" + (f":{parts.port}" if parts.port else "")
