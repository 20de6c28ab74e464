"""One HTTP call to a provider: sent once, read as a stream, closed when it is given up.

A stream ends with us: when the time is over or the caller is cancelled, the connection is closed,
and the provider, which is writing to it, stops writing.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

import msgspec

from rota.ai.base import passing
from rota.ai.errors import Refusal, judge
from rota.ai.keys import Key
from rota.errors import BadSetting, MissingExtra, Rejected, RotaError, UsageError

try:
    import httpx2
except ImportError as missing:
    raise MissingExtra(
        "asking a provider over HTTP needs the httpx2 package", hint="pip install 'rota[http]'"
    ) from missing

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


class Wire:
    """The way to one provider, with its kept connections."""

    def __init__(self, who: str, base_url: str, key: Key) -> None:
        self.who = who
        self._base = checked_base(base_url, who)
        self._key = key
        # Connections belong to an event loop; most invokers see only one.
        self._clients: dict[asyncio.AbstractEventLoop, httpx2.AsyncClient] = {}

    async def aclose(self) -> None:
        """Close the kept connections of this event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    async def post(
        self, path: str, body: Any, fold: Fold, *, headers: Mapping[str, str], timeout_s: float
    ) -> None:
        """Send, and fold what comes back; raises what an end without an answer means."""
        own = self._key.headers(self.who)
        names = {name.lower() for name in own}
        sent = {name: text for name, text in headers.items() if name.lower() not in names} | own
        progress = _Progress()
        request = self._client().build_request(
            "POST",
            self._url(path),
            headers={"accept-encoding": "identity", "content-type": "application/json", **sent},
            content=_encoded(body),
            extensions={"trace": progress},
        )
        try:
            async with asyncio.timeout(timeout_s) as limit:
                await self._exchange(request, fold, limit)
        except TimeoutError as error:
            if not fold.done:
                said = f"{self.who} did not answer within {timeout_s:g} s, and was hung up on"
                raise passing(said, sent=progress.sent) from error
        except httpx2.RequestError as error:
            if not fold.done:
                raise self._broken(error, progress.sent) from error

    def refused(self, status: int, body: bytes, headers: Mapping[str, str]) -> RotaError:
        """The meaning of a refusal, without the key."""
        said = self._key.hide(body.decode("latin-1")).encode("latin-1")
        return judge(Refusal(self.who, status, said, headers, self._key.variable))

    async def _exchange(self, request: httpx2.Request, fold: Fold, limit: asyncio.Timeout) -> None:
        answer = await self._client().send(request, stream=True)
        try:
            if answer.status_code // 100 != 2:
                raise await self._refusal(answer)
            kind = answer.headers.get("content-type", "").lower()
            if "event-stream" in kind:
                await self._fold_stream(answer, fold, limit)
            else:
                await self._fold_whole(answer, fold, kind)
        finally:
            await answer.aclose()
        fold.done = fold.done or fold.ended()
        if not fold.done:
            raise passing(f"{self.who} stopped in the middle of its answer", sent=True)

    async def _refusal(self, answer: httpx2.Response) -> RotaError:
        kept = {
            name.lower(): value
            for name, value in answer.headers.items()
            if name.lower().startswith(KEPT_HEADERS)
        }
        try:
            body = await _read(answer, REFUSAL_BYTES_MAX)
        except httpx2.RequestError:
            body = b""  # the refusal holds, though its text was lost
        if answer.is_redirect:
            return Rejected(
                f"{self.who} has moved to {_place(answer.headers.get('location', 'nowhere'))}",
                hint="Set `base_url` to where it is now.",
                status=answer.status_code,
            )
        return self.refused(answer.status_code, body, kept)

    async def _fold_stream(
        self, answer: httpx2.Response, fold: Fold, limit: asyncio.Timeout
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

    async def _fold_whole(self, answer: httpx2.Response, fold: Fold, kind: str) -> None:
        body = await _read(answer, BYTES_MAX + 1)
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

    def _broken(self, error: httpx2.RequestError, sent: bool) -> RotaError:
        told = self._key.hide(str(error) or type(error).__name__)
        did = "hung up" if sent else "cannot be reached"
        return passing(f"{self.who} ({_place(self._base)}) {did}: {told}", sent=sent)

    def _client(self) -> httpx2.AsyncClient:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            # How many calls run at once is for the caller to say; each may have a connection.
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
            client = httpx2.AsyncClient(verify=_trust(), timeout=None, limits=limits)
            open_ones = {old: kept for old, kept in self._clients.items() if not old.is_closed()}
            self._clients = {**open_ones, loop: client}
        return client

    def _url(self, path: str) -> str:
        parts = urlsplit(self._base)
        return urlunsplit(parts._replace(path=parts.path.rstrip("/") + path))


class _Progress:
    """Whether the provider may have seen the request."""

    def __init__(self) -> None:
        self.sent = False

    async def __call__(self, event: str, facts: dict[str, Any]) -> None:
        """Receives each move of the client, before the client makes it."""
        if event.endswith("send_request_headers.started"):
            # A proxy that is asked for a tunnel has not seen the request yet.
            self.sent = self.sent or facts["request"].method != b"CONNECT"


def _encoded(body: Any) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError as error:  # half of a character, from a file that is not UTF-8
        raise UsageError(f"the prompt holds something that is not text: {error}") from error


async def _read(answer: httpx2.Response, bytes_max: int) -> bytes:
    body = bytearray()
    async for chunk in answer.aiter_bytes():
        body += chunk
        if len(body) > bytes_max:
            break
    return bytes(body[:bytes_max])


async def _events(answer: httpx2.Response) -> AsyncGenerator[bytes, None]:
    """The texts of server-sent events. Lines end at line feeds alone: JSON may hold the others."""
    rest, parts, size = b"", list[bytes](), 0
    async for chunk in answer.aiter_bytes():
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


@functools.cache
def _trust() -> ssl.SSLContext:
    return httpx2.create_ssl_context()  # reads the certificates of the machine: once is enough


def checked_base(base_url: str, who: str) -> str:
    """The address, or BadSetting: only HTTP, and no login in it, which would be shown."""
    try:
        parts = urlsplit(base_url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        httpx2.URL(base_url)
    except (ValueError, httpx2.InvalidURL):
        fits, parts = False, urlsplit("")
    if not fits:
        raise BadSetting(
            f"{who}: base_url {_place(base_url)!r} is not an address",
            hint="Write it as http://localhost:11434/v1.",
        )
    if parts.username or parts.password:
        raise BadSetting(
            f"{who}: base_url holds a login, which would be shown",
            hint="Put the key into an environment variable, and name it with `key_env`.",
        )
    return base_url


def _place(url: str) -> str:
    """The address without login and query: keys tend to hide there."""
    plain = url.partition("?")[0].partition("#")[0]
    scheme, mark, rest = plain.rpartition("://")
    return scheme + mark + rest.rpartition("@")[2]
