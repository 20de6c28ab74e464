"""Providers over HTTP: one call is sent once, read as a stream, and closed when it is given up.

When the time is over or the caller is cancelled, the connection is closed. The provider notices
that and stops writing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Collection, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypedDict
from urllib.parse import SplitResult, urlsplit, urlunsplit

import msgspec

from rota.ai.base import Reply, Request, passing
from rota.ai.base_invoker import Priced, check
from rota.ai.errors import ID_CHARS_MAX, REQUEST_IDS, Refusal, filtered, judge
from rota.ai.finish import Finish, Words, finish_of
from rota.ai.model_data import TokenUsage
from rota.ai.prices import Prices
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
KEPT_HEADERS = (
    "retry-after",
    "retry-after-ms",
    "date",
    "x-ratelimit-",
    "anthropic-ratelimit-",
    *REQUEST_IDS,
)


class ReplyParser(ABC):
    """Gathers a reply from the events of a stream, or from one JSON object."""

    def __init__(self, provider: str) -> None:
        self.provider = provider
        self.done = False  # the reply is complete
        self.parts: list[str] = []
        self.model: str | None = None
        self.used: TokenUsage | None = None
        self.request_id: str | None = None
        self.finish_word = ""  # why the model stopped, as the provider says

    @property
    @abstractmethod
    def refusal(self) -> str:
        """The text of the model's or the filter's refusal, if there is one."""

    @abstractmethod
    def event(self, value: dict[str, Any]) -> None:
        """Read one event of a stream; unknown ones are ignored."""

    @abstractmethod
    def whole(self, value: dict[str, Any]) -> None:
        """Read the reply in one piece."""

    def named(self, request_id: object) -> None:
        """The provider's name for the call; the first one counts."""
        if self.request_id is None and isinstance(request_id, str) and request_id:
            self.request_id = request_id[:ID_CHARS_MAX]

    def ended(self) -> bool:
        """Whether a stream may end here, for servers that do not mark the end."""
        return self.done


class Home(NamedTuple):
    """A vendor's own address, and the variables that people set for it."""

    url: str
    url_variable: str
    key_variable: str
    hosts: str = ""  # a pattern of further hosts of the vendor

    def has(self, address: str) -> bool:
        """Whether an address is the vendor's own."""
        if address == self.url or address.startswith(f"{self.url.removesuffix('/v1')}/"):
            return bool(self.url)
        parts = urlsplit(address)
        is_host = self.hosts and re.fullmatch(self.hosts, parts.hostname or "")
        return bool(is_host) and parts.scheme == "https" and parts.port in (None, 443)


class HttpInvokerOptions(TypedDict, total=False):
    """The options that all providers over HTTP have."""

    base_url: str | None
    key_env: str | None
    key_header: str
    stream: bool
    schema: bool | None
    finish_words: Words
    same_price: Collection[str]
    prices: Prices | None
    env: Mapping[str, str]


class HttpInvoker(Priced, ABC):
    """Base of the invokers that ask a provider over HTTP; it keeps their connections.

    Only the vendor gets the key of the vendor's own variable, or the address that the environment
    names. An address in a settings file alone must not receive that key.
    """

    home: Home
    key_header: str
    path: str
    schemas = False  # whether every model takes a schema
    base_suffix = ""  # the end of a base URL that `path` begins with
    own_headers: ClassVar[Mapping[str, str]] = {}
    parser: ClassVar[type[ReplyParser]]
    words: ClassVar[Words]  # for `finish`

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        key_env: str | None = None,
        key_header: str | None = None,
        stream: bool = True,
        schema: bool | None = None,
        finish_words: Words = MappingProxyType({}),
        same_price: Collection[str] = (),
        prices: Prices | None = None,
        env: Mapping[str, str] = os.environ,
    ) -> None:
        super().__init__(name, prices, same_price)
        if key_header is not None:
            self.key_header = key_header
        base = base_url or env.get(self.home.url_variable) or self.home.url
        parts = _checked_base(base, name)
        path = parts.path.rstrip("/").removesuffix(self.base_suffix) + self.path
        self._base, self._url = base, urlunsplit(parts._replace(path=path))
        self._at_home = self.home.has(base)
        trusted = self._at_home or base_url is None
        variable = key_env or (self.home.key_variable if trusted else None)
        prefix = "Bearer " if self.key_header.lower() == "authorization" else ""
        self._key = ApiKey(variable, name, prefix=prefix, env=env) if variable else None
        self._needs_key = self._at_home or key_env is not None
        self._stream, self._schema = stream, schema
        self._words = {**self.words, **finish_words}
        self._connections = KeptConnections()

    async def ask(self, request: Request) -> Reply:
        """Ask once; see `rota.ai.base` for what may be raised."""
        check(request)
        parser = self._parser()
        try:
            await self._post(request, parser)
        except RotaError as error:
            if parser.request_id is not None:
                error.facts.setdefault("request_id", parser.request_id)
            raise
        finish = finish_of(parser.finish_word, self._words)
        if parser.refusal:
            finish = Finish.FILTERED
        reply = self.reply(
            request, "".join(parser.parts), model=parser.model, used=parser.used,
            finish=finish, finish_word=parser.finish_word, request_id=parser.request_id,
        )  # fmt: skip
        if finish is Finish.FILTERED:
            raise filtered(self.name, parser.refusal, reply)
        return reply

    def takes_schema(self, request: Request) -> bool:
        """Whether the schema of a question is sent: if the settings say so, or if the server or
        the list says that the model takes one."""
        if request.schema is None or self._schema is not None:
            return request.schema is not None and bool(self._schema)
        facts = self.facts(request.model)
        return self.schemas or (facts is not None and facts.takes_schema)

    def _address(self, model: str) -> str:
        """The address at which a model is asked."""
        return self._url

    async def aclose(self) -> None:
        """Close the kept connections of this event loop."""
        await self._connections.aclose()

    def _parser(self) -> ReplyParser:
        """A parser for one reply."""
        return self.parser(self.name)

    @abstractmethod
    def _body(self, request: Request) -> dict[str, Any]:
        """The fields of the request."""

    def _headers(self, given: Mapping[str, str]) -> dict[str, Text]:
        headers: dict[str, Text] = {"content-type": "application/json", **self.own_headers}
        headers |= given
        if self._key is not None and (self._needs_key or self._key.value()):
            name = self.key_header.lower()
            headers = {other: text for other, text in headers.items() if other.lower() != name}
            headers[self.key_header] = self._key
        return headers

    async def _post(self, request: Request, parser: ReplyParser) -> None:
        """Send, and parse the answer; raises what an end without an answer means."""
        sent = HttpRequest(
            "POST",
            self._address(request.model),
            self._headers(request.headers),
            _encoded(self._body(request)),
        )
        seen = SendProgress(sent)
        try:
            async with asyncio.timeout(request.timeout_s) as limit:
                async with self._connections.stream(sent, seen) as answer:
                    await self._parse(answer, parser, limit)
        except TimeoutError as error:
            if not parser.done:
                message = f"{self.name} did not answer within {request.timeout_s:g} s"
                raise passing(f"{message}; Rota closed the connection", sent=seen.sent) from error
        except IncompleteResponse as error:
            if not parser.done:
                did = "closed the connection" if error.sent else "cannot be reached"
                message = f"{self.name} ({place(self._base)}) {did}: {error}"
                raise passing(message, sent=error.sent) from error.__cause__

    def _refused(self, status: int, body: bytes, headers: Mapping[str, str]) -> RotaError:
        """The meaning of a refusal, without the key."""
        text, variable = hide_bytes(body, [self._key]), self._key.secret if self._key else None
        return judge(Refusal(self.name, status, text, headers, variable))

    async def _parse(
        self, answer: StreamedResponse, parser: ReplyParser, limit: asyncio.Timeout
    ) -> None:
        headers = {name.lower(): value for name, value in answer.headers.items()}
        for name in REQUEST_IDS:
            parser.named(headers.get(name))
        if answer.status // 100 != 2:
            raise await self._refusal(answer)
        kind = headers.get("content-type", "").lower()
        if "event-stream" in kind:
            await self._parse_stream(answer, parser, limit)
        else:
            await self._parse_whole(answer, parser, kind)
        parser.done = parser.done or parser.ended()
        if not parser.done:
            raise passing(f"{self.name} stopped in the middle of its answer", sent=True)

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
                f"{self.name} has moved to {place(answer.headers.get('location', 'nowhere'))}",
                hint="Set `base_url` to where it is now.",
                status=answer.status,
            )
        return self._refused(answer.status, body, kept)

    async def _parse_stream(
        self, answer: StreamedResponse, parser: ReplyParser, limit: asyncio.Timeout
    ) -> None:
        async with contextlib.aclosing(_events(answer)) as events:
            async for text in events:
                if text == b"[DONE]":
                    parser.done = True
                elif not parser.done:
                    parser.event(self._object(text))
                if parser.done:
                    end = asyncio.get_running_loop().time() + LINGER_S
                    limit.reschedule(min(end, limit.when() or end))

    async def _parse_whole(self, answer: StreamedResponse, parser: ReplyParser, kind: str) -> None:
        body = await answer.read(BYTES_MAX + 1)
        if len(body) > BYTES_MAX:
            raise Rejected(f"{self.name} answered with more than {BYTES_MAX} bytes", sent=True)
        if "html" in kind:
            raise Rejected(
                f"{self.name} answered with a web page",
                hint="Check `base_url`: it is the address of something else.",
            )
        parser.whole(self._object(body))
        parser.done = True

    def _object(self, text: bytes) -> dict[str, Any]:
        try:
            value: Any = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise passing(f"{self.name} answered with broken JSON: {error}", sent=True) from error
        if not isinstance(value, dict):
            raise passing(f"{self.name} answered with JSON that is not an object", sent=True)
        if value.get("error"):  # said after a 200: by gateways, and in the middle of a stream
            raise self._refused(0, text, {})
        return value


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


def _checked_base(base_url: str, provider: str) -> SplitResult:
    """The parts of the address, or BadSetting: only HTTP, and no login in it."""
    try:
        parts = http_parts(base_url)
    except ValueError:
        parts = None
    if parts is None:
        raise BadSetting(
            f"{provider}: base_url {place(base_url)!r} is not an address",
            hint="Write it as http://localhost:11434/v1.",
        )
    if parts.username or parts.password:
        raise BadSetting(
            f"{provider}: base_url holds a login, which would be shown",
            hint="Put the key into an environment variable, and name it with `key_env`.",
        )
    return parts
