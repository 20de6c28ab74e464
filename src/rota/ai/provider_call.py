"""One call to a provider: sent once, read as a stream, closed when it is given up.

A stream ends with us: when the time is over or the caller is cancelled, the connection is closed,
and the provider, which is writing to it, stops writing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Mapping
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit, urlunsplit

import msgspec

from rota.ai.base import passing
from rota.ai.errors import Refusal, judge
from rota.errors import BadSetting, Rejected, RotaError, UsageError
from rota.net.http import (
    HttpRequest,
    IncompleteResponse,
    KeptConnections,
    SendProgress,
    StreamedResponse,
    http_parts,
    place,
)
from rota.net.secret import ApiKey, Text, hide_bytes

BYTES_MAX = 32 * 1024 * 1024
REFUSAL_BYTES_MAX = 64 * 1024
LINGER_S = 1.0  # for the end of a stream that has said all: a connection read to its end is kept
KEPT_HEADERS = ("retry-after", "retry-after-ms", "date", "x-ratelimit-", "anthropic-ratelimit-")


class Fold(Protocol):
    """Gathers an answer from its parts."""

    done: bool  # everything was said

    def ended(self) -> bool:
        """Whether a stream may end here, for servers that do not mark the end."""
        ...

    def event(self, value: dict[str, Any]) -> None:
        """One event of a stream."""
        ...

    def whole(self, value: dict[str, Any]) -> None:
        """The answer in one piece."""
        ...


class Home(NamedTuple):
    """A vendor's own address, and the variables that people set for it."""

    url: str
    url_variable: str
    key_variable: str


class Key(NamedTuple):
    """The key of a provider, how it is sent, and whether one is needed at all."""

    secret: ApiKey | None
    header: str
    needed: bool = True

    def headers(self) -> dict[str, Text]:
        """The header with the key in it, if there is one to send."""
        if self.secret is None or not (self.needed or self.secret.value()):
            return {}
        return {self.header: self.secret}


def key_for(
    base_url: str | None,
    home: Home,
    provider: str,
    *,
    named: str | None,
    header: str,
    env: Mapping[str, str] = os.environ,
) -> tuple[str, Key]:
    """The address to ask at and the key to send there.

    Only the vendor gets the vendor's own variable, or the address that the environment itself
    names: an address out of a settings file must not be enough to be sent it.
    """
    address = base_url or env.get(home.url_variable) or home.url
    at_home = is_at(address, home)
    trusted = at_home or base_url is None
    variable = named or (home.key_variable if trusted else None)
    prefix = "Bearer " if header.lower() == "authorization" else ""
    secret = ApiKey(variable, provider, prefix=prefix, env=env) if variable else None
    return address, Key(secret, header, needed=at_home or named is not None)


def is_at(address: str, home: Home) -> bool:
    """Whether an address is the vendor's own."""
    return address.startswith(f"{home.url.removesuffix('/v1')}/") or address == home.url


class Wire:
    """The way to one provider, with its kept connections."""

    def __init__(self, who: str, base_url: str, key: Key) -> None:
        self.who = who
        self._base = checked_base(base_url, who)
        self._key = key
        self._connections = KeptConnections()

    async def aclose(self) -> None:
        """Close the kept connections of this event loop."""
        await self._connections.aclose()

    async def post(
        self, path: str, body: Any, fold: Fold, *, headers: Mapping[str, str], timeout_s: float
    ) -> None:
        """Send, and fold what comes back; raises what an end without an answer means."""
        own = self._key.headers()
        names = {name.lower() for name in own}
        sent = {name: text for name, text in headers.items() if name.lower() not in names} | own
        request = HttpRequest(
            "POST", self._url(path), {"content-type": "application/json", **sent}, _encoded(body)
        )
        seen = SendProgress(request)
        try:
            async with asyncio.timeout(timeout_s) as limit:
                async with self._connections.stream(request, seen) as answer:
                    await self._fold(answer, fold, limit)
        except TimeoutError as error:
            if not fold.done:
                said = f"{self.who} did not answer within {timeout_s:g} s, and was hung up on"
                raise passing(said, sent=seen.sent) from error
        except IncompleteResponse as error:
            if not fold.done:
                did = "hung up" if error.sent else "cannot be reached"
                said = f"{self.who} ({place(self._base)}) {did}: {error}"
                raise passing(said, sent=error.sent) from error.__cause__

    def refused(self, status: int, body: bytes, headers: Mapping[str, str]) -> RotaError:
        """The meaning of a refusal, without the key."""
        key = self._key.secret
        said = hide_bytes(body, [key])
        return judge(Refusal(self.who, status, said, headers, key.secret if key else None))

    async def _fold(self, answer: StreamedResponse, fold: Fold, limit: asyncio.Timeout) -> None:
        if answer.status // 100 != 2:
            raise await self._refusal(answer)
        kind = answer.headers.get("content-type", "").lower()
        if "event-stream" in kind:
            await self._fold_stream(answer, fold, limit)
        else:
            await self._fold_whole(answer, fold, kind)
        fold.done = fold.done or fold.ended()
        if not fold.done:
            raise passing(f"{self.who} stopped in the middle of its answer", sent=True)

    async def _refusal(self, answer: StreamedResponse) -> RotaError:
        kept = {
            name.lower(): value
            for name, value in answer.headers.items()
            if name.lower().startswith(KEPT_HEADERS)
        }
        try:
            body = await answer.read(REFUSAL_BYTES_MAX)
        except IncompleteResponse:
            body = b""  # the refusal holds, though its text was lost
        if answer.is_redirect:
            return Rejected(
                f"{self.who} has moved to {place(answer.headers.get('location', 'nowhere'))}",
                hint="Set `base_url` to where it is now.",
                status=answer.status,
            )
        return self.refused(answer.status, body, kept)

    async def _fold_stream(
        self, answer: StreamedResponse, fold: Fold, limit: asyncio.Timeout
    ) -> None:
        async with contextlib.aclosing(_events(answer)) as events:
            async for text in events:
                if text == b"[DONE]":
                    fold.done = True
                elif not fold.done:
                    fold.event(self._object(text))
                if fold.done:
                    end = asyncio.get_running_loop().time() + LINGER_S
                    limit.reschedule(min(end, limit.when() or end))

    async def _fold_whole(self, answer: StreamedResponse, fold: Fold, kind: str) -> None:
        body = await answer.read(BYTES_MAX + 1)
        if len(body) > BYTES_MAX:
            raise Rejected(f"{self.who} answered with more than {BYTES_MAX} bytes", sent=True)
        if "html" in kind:
            raise Rejected(
                f"{self.who} answered with a web page",
                hint="Check `base_url`: it is the address of something else.",
            )
        fold.whole(self._object(body))
        fold.done = True

    def _object(self, text: bytes) -> dict[str, Any]:
        try:
            value: Any = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise passing(f"{self.who} answered with broken JSON: {error}", sent=True) from error
        if not isinstance(value, dict):
            raise passing(f"{self.who} answered with JSON that is not an object", sent=True)
        if value.get("error"):  # said after a 200: by gateways, and in the middle of a stream
            raise self.refused(0, text, {})
        return value

    def _url(self, path: str) -> str:
        parts = urlsplit(self._base)
        return urlunsplit(parts._replace(path=parts.path.rstrip("/") + path))


def _encoded(body: Any) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError as error:  # half of a character, from a file that is not UTF-8
        raise UsageError(f"the prompt holds something that is not text: {error}") from error


async def _events(answer: StreamedResponse) -> AsyncGenerator[bytes, None]:
    """The texts of server-sent events. Lines end at line feeds alone: JSON may hold the others."""
    rest, parts, size = b"", list[bytes](), 0
    async for chunk in answer.chunks():
        size += len(chunk)
        if size > BYTES_MAX:
            raise Rejected(f"the answer is longer than {BYTES_MAX} bytes", sent=True)
        *lines, rest = (rest + chunk).split(b"\n")
        for line in (each.removesuffix(b"\r") for each in lines):
            if line.startswith(b"data:"):
                parts.append(line[5:].removeprefix(b" "))
            elif not line and parts:
                yield b"\n".join(parts)
                parts = []
    if rest.startswith(b"data:"):
        parts.append(rest[5:].strip())
    if parts:
        yield b"\n".join(parts)


def checked_base(base_url: str, who: str) -> str:
    """The address, or BadSetting: only HTTP, and no login in it, which would be shown."""
    try:
        parts = http_parts(base_url)
    except ValueError:
        parts = None
    if parts is None:
        raise BadSetting(
            f"{who}: base_url {place(base_url)!r} is not an address",
            hint="Write it as http://localhost:11434/v1.",
        )
    if parts.username or parts.password:
        raise BadSetting(
            f"{who}: base_url holds a login, which would be shown",
            hint="Put the key into an environment variable, and name it with `key_env`.",
        )
    return base_url
