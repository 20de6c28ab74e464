"""The request and the response of a handler, without any web framework."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qs

import msgspec

from rota.client.client import Client
from rota.core.access.model import Role
from rota.errors import BadInput
from rota.pipelines.client import PipelineClient

# The least role that may ask for a page; `open` asks for no identity.
RequiredRole: TypeAlias = Literal["open", "read", "operate", "admin"]
ROLES = tuple(Role)  # each may do what the ones before it may
FIELDS_MAX = 1_000


@dataclass(frozen=True)
class Identity:
    """Who asks: the name for the audit list, the role, and the token if there is one."""

    name: str
    role: Role | None  # None: the caller is not known
    token_id: str | None = None
    session_id: str | None = None

    def may(self, required: RequiredRole) -> bool:
        """Whether this identity has at least that role."""
        if required == "open" or self.role is None:
            return required == "open"
        return ROLES.index(self.role) >= ROLES.index(Role(required))


NOBODY = Identity("nobody", None)


class Fields:
    """Names with one or more values: a query string or a form."""

    def __init__(self, text: str) -> None:
        try:
            self._values = parse_qs(
                text, keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX
            )
        except ValueError as error:  # UnicodeDecodeError is one
            raise BadInput(
                "the query or form cannot be read",
                hint=f"Encode it as UTF-8, with at most {FIELDS_MAX} fields.",
            ) from error

    def get(self, name: str) -> str:
        """The last value of that name."""
        return self._values.get(name, [""])[-1]

    def all(self, name: str) -> list[str]:
        """Every value of that name, in order."""
        return list(self._values.get(name, ()))

    def names(self) -> list[str]:
        """Every name, once."""
        return list(self._values)


@dataclass(frozen=True)
class RawRequest:
    """A request as it comes in, before the gate: nothing of it is trusted. The body is read later,
    up to a limit."""

    method: str
    raw_path: str  # still percent-encoded
    query_string: str
    headers: Mapping[str, str]  # names in lower case
    header_bytes: int
    peer: str  # address of the other end
    read: Callable[[int], Awaitable[bytes]]  # raises RequestRefused beyond that many bytes


@dataclass
class SiteState:
    """The objects that all requests of one server share."""

    events: Any = None  # EventHub
    metrics: Any = None  # MetricsCache
    logins: Any = None  # Logins
    url: str = ""  # the address of the overview, without a slash at its end
    store_key: str = ""
    attention: tuple[float, int] = (float("-inf"), 0)  # when, how many things waited


@dataclass(frozen=True)
class WebRequest:
    """One request, after the gate has let it in."""

    method: str
    path: str  # percent-encoded
    client: Client
    identity: Identity = NOBODY
    parameters: Mapping[str, str] = field(default_factory=dict)  # of the path
    query_string: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case
    body: bytes = b""
    request_id: str = ""
    peer: str = ""
    zone: str = "UTC"  # of the person who looks
    site: SiteState = field(default_factory=SiteState)

    @cached_property
    def query(self) -> Fields:
        """The query string."""
        return Fields(self.query_string)

    @cached_property
    def cookies(self) -> Mapping[str, str]:
        """The cookies by name; the first of a name counts."""
        return read_cookies(self.headers.get("cookie", ""))

    @cached_property
    def pipelines(self) -> PipelineClient:
        """The pipelines of an app. A bare client knows no folders, but it reads every run."""
        own = getattr(self.client, "pipelines", None)
        return own if isinstance(own, PipelineClient) else PipelineClient(self.client)

    @property
    def is_from_page(self) -> bool:
        """Whether a browser sends this for a person: with a session, or with Fetch Metadata."""
        return self.identity.session_id is not None or "sec-fetch-site" in self.headers

    def form(self) -> Fields:
        """A body sent by an HTML form (application/x-www-form-urlencoded)."""
        try:
            return Fields(self.body.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise BadInput("the form is not UTF-8") from error

    def json(self) -> Any:
        """A body of JSON."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadInput(f"the body is not JSON: {error}") from error


def media_type(headers: Mapping[str, str]) -> str:
    """The content type without its parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def read_cookies(header: str) -> dict[str, str]:
    """The cookies of a `Cookie` header."""
    cookies: dict[str, str] = {}
    for pair in header.split(";"):
        name, equals, value = pair.strip().partition("=")
        if equals:
            cookies.setdefault(name, value)
    return cookies


# -- answers -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """The fields that all answers share."""

    status: int = field(default=HTTPStatus.OK, kw_only=True)
    headers: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    cookies: tuple[str, ...] = field(default=(), kw_only=True)  # whole Set-Cookie values


@dataclass(frozen=True)
class Text(Answer):
    """Text of any type, or the bytes of a small file."""

    text: str | bytes
    media: str = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class Html(Text):
    """A page, or a fragment of one."""

    media: str = "text/html; charset=utf-8"


@dataclass(frozen=True)
class Json(Answer):
    """Any value that msgspec can encode."""

    value: Any


@dataclass(frozen=True)
class Empty(Answer):
    """No body: 204, 304."""

    status: int = field(default=HTTPStatus.NO_CONTENT, kw_only=True)


@dataclass(frozen=True)
class Redirect(Answer):
    """Go there with GET: the answer to a form that was accepted."""

    location: str
    status: int = field(default=HTTPStatus.SEE_OTHER, kw_only=True)


@dataclass(frozen=True)
class Download(Answer):
    """Text chunks of a long body of any type."""

    chunks: AsyncIterator[str]
    media: str = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class EventStream(Download):
    """Text chunks of a `text/event-stream`, until the reader or the server ends it."""

    media: str = "text/event-stream; charset=utf-8"
