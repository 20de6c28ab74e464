"""One route of the API: what its handler takes and returns, read from the type hints.

A handler is `async def name(request, …path parameters, query: Struct, body: Struct) -> Struct`. The
same entry makes routing, the check of what comes in, the OpenAPI document and the reference page.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from rota.core.suggest import did_you_mean
from rota.errors import BadInput
from rota.http.fields import CONFLICT, NOT_FOUND
from rota.http.problems import RequestRefused
from rota.http.request import Answer, Empty, Fields, Json, RequiredRole, WebRequest, media_type
from rota.http.router import Page, path_names

PREFIX = "/api/v1"
KEY = "idempotency-key"
KEY_PATTERN = r"^[!-~]{1,255}$"
REFERENCE = "See docs/reference/http.md, or /api/v1/openapi.json of this server."
T = TypeVar("T")


@dataclass(frozen=True)
class RouteReply(Generic[T]):
    """A body with a status or headers that differ from case to case."""

    value: T
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Route:
    """An entry of the API's table."""

    method: str
    path: str
    role: RequiredRole
    function: Callable[..., Any]
    client: str  # the method of the client it renders
    status: int = HTTPStatus.OK
    also: tuple[int, ...] = ()  # further statuses with the same body
    problems: tuple[int, ...] = ()  # beyond those that every route has
    takes_key: bool = False  # Idempotency-Key
    etag: bool = False  # sends ETag; a write checks If-Match
    media: str = "application/json"
    also_media: tuple[str, ...] = ()  # that `Accept` may choose instead
    prefix: str = PREFIX
    audits_body: bool = False  # the audit list keeps the body: it says what was changed
    limit_s: float | None = None  # the longest time for an answer; None is the usual one

    @property
    def name(self) -> str:
        """The name of the handler: the operation id."""
        return str(self.function.__name__)

    @property
    def summary(self) -> str:
        """The first line of the handler's docstring."""
        return inspect.cleandoc(self.function.__doc__ or "").partition("\n")[0]

    @cached_property
    def hints(self) -> Mapping[str, Any]:
        """The type hints of the handler."""
        return get_type_hints(self.function, include_extras=True)

    @property
    def query(self) -> Any:
        """The struct of the query, or None."""
        return self.hints.get("query")

    @property
    def body(self) -> Any:
        """The struct of the body, or None."""
        return self.hints.get("body")

    @property
    def returns(self) -> Any:
        """The type of the answer's body; None when it has none."""
        returned = self.hints["return"]
        if get_origin(returned) is RouteReply:
            return get_args(returned)[0]
        return None if returned is type(None) else returned

    @property
    def parameters(self) -> list[str]:
        """The names in the path."""
        return path_names(self.path)

    @property
    def page(self) -> Page:
        """The entry for the router."""
        return Page(
            self.method, self.prefix + self.path, self.role, self.answer, self.client,
            audits=self.role == "read", audits_body=self.audits_body, limit_s=self.limit_s,
        )  # fmt: skip

    async def answer(self, request: WebRequest) -> Answer:
        """Check what came in, call the handler, render what it returned."""
        given: dict[str, Any] = dict(request.parameters)
        if self.query is not None:
            given["query"] = read_query(request.query, self.query)
        else:
            refuse_fields(request.query)
        if self.body is not None:
            given["body"] = read_body(request, self.body)
        if self.takes_key:
            check_key(request)
        returned = await self.function(request, **given)
        if isinstance(returned, RouteReply):
            status = self.status if returned.status is None else returned.status
            return Json(returned.value, status=status, headers=returned.headers)
        if isinstance(returned, Answer):
            return returned
        return Empty(status=self.status) if returned is None else Json(returned, status=self.status)


def route(
    method: str, path: str, role: RequiredRole, client: str, *,
    problems: tuple[int, ...] | None = None, **more: Any,
) -> Callable[[Callable[..., Any]], Route]:  # fmt: skip
    """Make a handler a route of the table. Unless `problems` says otherwise, the thing that a path
    names may be unknown, and its state may refuse a command."""
    if problems is None:
        on_thing = NOT_FOUND if role == "read" else CONFLICT
        problems = on_thing if "{" in path else ()

    def make(function: Callable[..., Any]) -> Route:
        return Route(method, path, role, function, client, problems=problems, **more)

    return make


def read_query(fields: Fields, kind: Any) -> Any:
    """The query string as a struct; unknown and repeated names are refused."""
    known = kind.__struct_encode_fields__
    given: dict[str, str] = {}
    for name in fields.names():
        values = fields.all(name)
        if name not in known:
            raise BadInput(
                f"there is no query parameter {name!r}{did_you_mean(name, known)}",
                hint=f"Use one of: {', '.join(known) or 'none'}.",
            )
        if len(values) > 1:
            raise BadInput(f"the query parameter {name!r} is given {len(values)} times")
        given[name] = values[0]
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise BadInput(f"the query does not fit: {error}", hint=REFERENCE) from error


def refuse_fields(fields: Fields) -> None:
    """Refuse a query where none is known."""
    for name in fields.names():
        raise BadInput(f"there is no query parameter {name!r}", hint="Leave the query out.")


def read_body(request: WebRequest, kind: Any) -> Any:
    """The JSON body as a struct; without a body every field has its default."""
    text = request.body or b"{}"
    media = media_type(request.headers)
    if request.body and media != "application/json":
        raise RequestRefused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "wrong_type",
            f"the body has the type {media or 'none'!r}", hint="Send application/json.",
        )  # fmt: skip
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise BadInput(f"the body does not fit: {error}", hint=REFERENCE) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestRefused(
            HTTPStatus.BAD_REQUEST, "not_json", f"the body is not JSON: {error}"
        ) from error


def check_key(request: WebRequest) -> None:
    """Refuse an Idempotency-Key that no index can hold."""
    given = request.headers.get(KEY)
    if given is not None and not re.fullmatch(KEY_PATTERN[1:-1], given):
        raise BadInput(
            "the Idempotency-Key has 1 to 255 visible ASCII characters", hint="A UUID will do."
        )
