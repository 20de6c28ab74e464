"""The HTTP client: an exchange, with errors that say what is known of its effect; and a stream on a
kept connection, for calls that may be repeated.

Each exchange has a connection of its own: on a kept one, a server that hangs up at the moment of
sending would make the outcome unknown for nothing.
"""

from __future__ import annotations

import asyncio
import base64
import codecs
import contextlib
import functools
import logging
import re
import ssl
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

import msgspec

from rota.errors import BadInput, MissingExtra, Rejected
from rota.net import addresses
from rota.net.secret import Secret, Text, hide, hide_bytes, reveal_all

try:
    import httpx2
except ImportError as missing:
    raise MissingExtra(
        "HTTP needs the httpx2 package", hint="pip install 'rota[http]'"
    ) from missing

SHOWN_CHARS_MAX = 300
KEPT_HEADERS = ("content-type", "date", "etag", "last-modified", "location", "retry-after")
# The client alone decides where a message begins and ends, and which host it is for. A second
# opinion in a header would let a call smuggle in another request.
FRAMING = frozenset((
    *("host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer"),
    *("upgrade", "expect", "proxy-connection", "proxy-authorization", "http2-settings"),
    *("accept-encoding", "content-encoding"),
))  # fmt: skip
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e]*")

_CHARSET = re.compile(
    r"ascii|utf-(8|8-sig|16|16-[bl]e|32|32-[bl]e)|(iso8859|koi8|mac)-.+|cp\d+|gb\w+|big5\w*"
    r"|euc_\w+|shift_jis\w*|iso2022_\w+|hz|johab|tis-620|ptcp154|kz1048"
)

_calling: ContextVar[bool] = ContextVar("calling", default=False)

Kind = Literal["auto", "json", "text", "base64"]
Headers = Mapping[str, Text]


class HttpRequest(NamedTuple):
    """The request; secrets of headers are still names. `public_only` refuses private addresses.
    `secrets` are in the address or the content; `shown` represents an address that holds one."""

    method: str
    url: str
    headers: Headers
    content: bytes | None = None
    public_only: bool = False
    secrets: tuple[Secret, ...] = ()
    shown: str = ""

    def __repr__(self) -> str:
        return f"HttpRequest({self.method} {self.place})"  # content and query may hold secrets

    @property
    def place(self) -> str:
        """The address, for people."""
        return self.shown or place(self.url)

    @property
    def hidden(self) -> list[Text]:
        """All values that must not be shown."""
        return [*self.headers.values(), *self.secrets]


class HttpResponse(NamedTuple):
    """The response; `whole` is False when the body was longer than the limit."""

    request: HttpRequest
    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool
    location: str = ""  # as it came; that of `headers` holds no secret

    @property
    def status_text(self) -> str:
        """The address, the status and the start of the body, for people."""
        text = self.body[: 4 * SHOWN_CHARS_MAX].decode(errors="replace").strip()
        text = text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "…"
        return f"{self.request.place} answered {self.status}" + (f": {text}" if text else "")


class IncompleteResponse(Exception):
    """There is no whole answer; `sent` says whether the counterpart may have seen the request,
    and `head` is the answer without its body, if that much came."""

    def __init__(self, message: str, *, sent: bool, head: HttpResponse | None = None) -> None:
        super().__init__(message)
        self.sent = sent
        self.head = head


async def exchange(request: HttpRequest, *, timeout_s: float, bytes_max: int) -> HttpResponse:
    """Send once and read the answer; never follows a redirect, never tries again."""
    seen = SendProgress(request)
    here = _calling.set(True)
    try:
        async with (
            asyncio.timeout(timeout_s),
            httpx2.AsyncClient(verify=_trust(), timeout=None) as client,
        ):
            return await _sent(client, request, seen, bytes_max)
    except (TimeoutError, httpx2.TransportError) as error:
        if seen.head is not None and seen.head.status // 100 == 4:
            return seen.head  # the refusal holds, though its text was lost
        if isinstance(error, TimeoutError):
            message = f"no {seen.awaited} within {timeout_s:g} s"
        else:
            message = hide(str(error) or type(error).__name__, request.hidden)
        raise IncompleteResponse(
            f"{request.place}: {message}", sent=seen.sent, head=seen.head
        ) from (None if request.secrets else error)
    finally:
        _calling.reset(here)


def _discreet(_record: logging.LogRecord) -> bool:
    """Drops log records of our calls: the client logs whole addresses and answers."""
    return not _calling.get()


for _logger in ("", ".connection", ".http11", ".http2", ".proxy", ".socks"):
    logging.getLogger(f"httpcore2{_logger}").addFilter(_discreet)
logging.getLogger("httpx2").addFilter(_discreet)


class SendProgress:
    """How far an exchange came. It also refuses private addresses, if they are not allowed."""

    def __init__(self, request: HttpRequest) -> None:
        self.sent = False
        self.head: HttpResponse | None = None
        self._public_only = request.public_only
        self._host = httpx2.URL(request.url).raw_host.decode()
        self._is_direct = True

    @property
    def awaited(self) -> str:
        return "whole answer" if self.sent else "connection"

    async def __call__(self, event: str, facts: dict[str, Any]) -> None:
        """Receives each event of the client, before it happens."""
        if event.endswith("send_request_headers.started"):
            # A proxy that is asked for a tunnel has not seen the request yet.
            self.sent = self.sent or facts["request"].method != b"CONNECT"
        elif event.endswith("connect_tcp.started") and self._public_only:
            self._is_direct = facts["host"] == self._host
            if not self._is_direct and addresses.is_private_name(self._host):
                raise self._refused(self._host)
        elif event.endswith("connect_tcp.complete") and self._public_only and self._is_direct:
            await self._check(facts["return_value"])

    async def _check(self, stream: Any) -> None:
        """Look at the address that was connected to, before anything is sent to it: a lookup of the
        name beforehand could see another one."""
        address = str(stream.get_extra_info("server_addr")[0])
        if not addresses.is_public(address):
            await stream.aclose()
            raise self._refused(address)

    def _refused(self, address: str) -> Rejected:
        return Rejected(
            f"{self._host} is {address}, which is not a public address",
            hint="Give the tool a base=, or private=True if calls may go to private networks.",
        )


@contextlib.asynccontextmanager
async def _stream(
    client: httpx2.AsyncClient, request: HttpRequest, seen: SendProgress
) -> AsyncIterator[httpx2.Response]:
    """Send once; the answer is read by the caller, and closed when the caller leaves."""
    ready = client.build_request(
        request.method,
        request.url,
        headers={"accept-encoding": "identity", **_revealed(request.headers)},
        content=request.content,
        extensions={"trace": seen},
    )
    answer = await client.send(ready, stream=True)
    try:
        yield answer
    finally:
        await answer.aclose()


async def _sent(
    client: httpx2.AsyncClient, request: HttpRequest, seen: SendProgress, bytes_max: int
) -> HttpResponse:
    async with _stream(client, request, seen) as answer:
        kept = {
            name: hide(answer.headers[name], request.hidden)
            for name in KEPT_HEADERS
            if name in answer.headers
        }
        location = answer.headers.get("location", "")
        seen.head = HttpResponse(request, answer.status_code, kept, b"", False, location)
        body, whole = await _body(answer, bytes_max)
    # Some servers echo the request; the body is stored and shown.
    return seen.head._replace(body=hide_bytes(body, request.hidden), whole=whole)


class StreamedResponse:
    """A response with a body that is read piece by piece."""

    def __init__(self, answer: httpx2.Response, request: HttpRequest) -> None:
        self.status = answer.status_code
        self.headers: Mapping[str, str] = answer.headers
        self.is_redirect = answer.is_redirect
        self._answer = answer
        self._request = request

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body; IncompleteResponse where it breaks off."""
        try:
            async for chunk in self._answer.aiter_bytes():
                yield chunk
        except httpx2.RequestError as error:
            raise _broken(error, self._request, sent=True) from error

    async def read(self, bytes_max: int) -> bytes:
        """The body, cut off at a limit."""
        body = bytearray()
        async with contextlib.aclosing(self.chunks()) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) > bytes_max:
                    break
        return bytes(body[:bytes_max])


class KeptConnections:
    """Connections that are used again. They belong to an event loop; most owners see only one."""

    def __init__(self) -> None:
        self._clients: dict[asyncio.AbstractEventLoop, httpx2.AsyncClient] = {}

    @contextlib.asynccontextmanager
    async def stream(
        self, request: HttpRequest, seen: SendProgress
    ) -> AsyncIterator[StreamedResponse]:
        """Send once, and read the answer while it comes; IncompleteResponse if none comes."""
        try:
            async with _stream(self._client(), request, seen) as answer:
                yield StreamedResponse(answer, request)
        except httpx2.RequestError as error:
            raise _broken(error, request, sent=seen.sent) from error

    async def aclose(self) -> None:
        """Close the kept connections of this event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    def _client(self) -> httpx2.AsyncClient:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            # The caller limits how many calls run at once; each may have a connection.
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
            client = httpx2.AsyncClient(verify=_trust(), timeout=None, limits=limits)
            open_ones = {old: kept for old, kept in self._clients.items() if not old.is_closed()}
            self._clients = {**open_ones, loop: client}
        return client


def _broken(error: Exception, request: HttpRequest, *, sent: bool) -> IncompleteResponse:
    return IncompleteResponse(hide(str(error) or type(error).__name__, request.hidden), sent=sent)


def _revealed(headers: Headers) -> dict[str, str]:
    revealed = reveal_all(headers)
    for name, value in revealed.items():
        if not _VALUE.fullmatch(value):
            raise Rejected(
                f"the header {name} may hold only plain ASCII, on one line; its secret does not",
                hint="Look for a line break at its end.",
            )
    return revealed


async def _body(answer: httpx2.Response, bytes_max: int) -> tuple[bytes, bool]:
    raw = bytearray()
    async for chunk in answer.aiter_raw():
        raw += chunk
        if len(raw) > bytes_max:
            break
    packing = answer.headers.get("content-encoding", "identity").lower()
    if packing in ("gzip", "x-gzip", "deflate"):
        raw = bytearray(_unpacked(bytes(raw), bytes_max))  # although the request declined it
    return bytes(raw[:bytes_max]), len(raw) <= bytes_max


def _unpacked(raw: bytes, bytes_max: int) -> bytes:
    """At most one byte more than the limit, however much is packed into these."""
    try:
        return zlib.decompressobj(wbits=47).decompress(raw, bytes_max + 1)
    except zlib.error:
        return raw


@functools.cache
def _trust() -> ssl.SSLContext:
    return httpx2.create_ssl_context()  # reads the certificates of the machine: once is enough


def checked_url(url: str, *, base: str | None, tool: str) -> str:
    """The whole URL, or BadInput: only HTTP, no login in it, and at `base` if there is one."""
    try:
        whole = urljoin(base, url) if base else url
        parts = http_parts(whole)
    except ValueError:
        raise BadInput(f"{tool}: {url!r} is not a URL") from None
    if parts is None:
        raise BadInput(f"{tool}: {url!r} is not an http or https URL")
    if parts.username or parts.password:
        raise BadInput(
            f"{tool}: the URL holds a login, which would be stored and shown",
            hint='Put it into a header as secret("NAME").',
        )
    if base and origin(whole) != origin(base):
        raise BadInput(f"{tool}: {url!r} leads away from {base}", hint="Give a path of that site.")
    return whole


def http_parts(url: str) -> SplitResult | None:
    """The parts of an http or https URL, or None. ValueError if it is not a URL at all."""
    parts = urlsplit(url)
    is_http = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    try:
        httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise ValueError(str(error)) from error
    return parts if is_http else None


def origin(url: str) -> tuple[str, bytes, int | None]:
    """Scheme, host and port, as the client reads them: a secret is bound to them."""
    parts = httpx2.URL(url)
    return parts.scheme, parts.raw_host, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def is_same_site(url: str, target: str) -> bool:
    """Whether what belongs to one address may follow a redirect to another: the same origin, or
    the same host with http replaced by https, each at its usual port."""
    before, after = origin(url), origin(target)
    return before == after or (before == ("http", after[1], 80) and after[::2] == ("https", 443))


def checked_headers(headers: Headers, *, tool: str) -> Headers:
    """The same, or BadInput: a line break in one would be a forged header."""
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            raise BadInput(f"{tool}: {name!r} cannot be the name of a header")
        if name.lower() in FRAMING:
            raise BadInput(
                f"{tool}: the header {name} is set by Rota", hint="Leave it out; nothing was sent."
            )
        if not isinstance(value, Secret) and not _VALUE.fullmatch(value):
            raise BadInput(f"{tool}: the header {name} may hold only plain ASCII, on one line")
    return headers


def content_of(answer: HttpResponse, kind: Kind) -> dict[str, Any]:
    """The body under the name of what it is: json, text, or base64 for anything else."""
    media, charset = _media(answer.headers.get("content-type", ""))
    if kind == "json" or (kind == "auto" and media.endswith("json")):
        try:
            return {"json": msgspec.json.decode(answer.body)}
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            if kind == "json":
                raise Rejected(f"{answer.request.place} answered with no JSON: {error}") from error
    if kind != "base64" and _is_charset(charset):
        with contextlib.suppress(UnicodeError):
            return {"text": answer.body.decode(charset, "replace" if kind == "text" else "strict")}
    return {"base64": base64.b64encode(answer.body).decode()}


def _media(content_type: str) -> tuple[str, str]:
    media, _, rest = content_type.lower().partition(";")
    match = re.search(r"charset=[\"']?([\w.:-]+)", rest)
    return media.strip(), match.group(1) if match else "utf-8"


def _is_charset(name: str) -> bool:
    """Whether a charset is one of texts. Python has others, such as `unicode_escape` and `utf_7`:
    these make surrogates, which JSON does not have, or take long."""
    try:
        return _CHARSET.fullmatch(codecs.lookup(name).name) is not None
    except LookupError:
        return False


def merged(*many: Headers) -> dict[str, Text]:
    """All headers, by lower-case names; later ones win."""
    together: dict[str, Text] = {}
    for headers in many:
        together.update({name.lower(): value for name, value in headers.items()})
    return together


def place(url: str) -> str:
    """The address without login and query, which often hold keys."""
    plain = url.partition("?")[0].partition("#")[0]
    scheme, mark, rest = plain.rpartition("://")
    return scheme + mark + rest.rpartition("@")[2]
