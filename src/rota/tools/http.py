"""HTTP tools: a write, with a safety that follows from its configuration, and a read."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, TypedDict, Unpack, cast
from urllib.parse import quote, urlencode, urljoin

import msgspec

from rota.core.runs.retry import retry_after_s
from rota.core.suggest import check_options
from rota.errors import BadInput, NotSent, OutcomeUnknown, PayloadTooBig, Rejected, UsageError
from rota.net import http
from rota.net.secret import Text, hide, reveal_all, reveal_deep
from rota.tools.base import (
    SETTLE_S,
    Applied,
    Call,
    NotApplied,
    Safety,
    Tool,
    Unknown,
    Verdict,
    checked_settle_s,
    read_params,
)
from rota.tools.http_lookup import Found, Lookup
from rota.tools.http_site import HttpSite, body_fields, checked_own_headers, refuse_secrets

BYTES_MAX = 1024 * 1024
REDIRECTS_MAX = 5
# Headers that say who asks, and whether the page has changed.
TRAVELLING = ("accept", "accept-language", "user-agent", "if-none-match", "if-modified-since")
METHODS = ("POST", "PUT", "PATCH", "DELETE")


class HttpWriteParams(msgspec.Struct, forbid_unknown_fields=True):
    """The arguments of one call of an HttpWrite."""

    url: str = ""  # may be empty where the base is a secret
    json: Any = msgspec.UNSET
    form: dict[str, str] | None = None
    body: str | None = None
    headers: dict[str, str] = {}


class HttpWrite(Tool):
    """Sends one request that changes something.

    Idempotent if the counterpart honours the key in `key_header`, or by nature (PUT, DELETE).
    Reconcilable with a `lookup`, otherwise unknowable.
    """

    def __init__(
        self,
        name: str = "http_write",
        *,
        method: str = "POST",
        base: Text | None = None,
        headers: Mapping[str, Text] | None = None,
        query: Mapping[str, Text] | None = None,
        json: Mapping[str, Any] | None = None,
        form: Mapping[str, Text] | None = None,
        key_header: str | None = None,
        lookup: Lookup | None = None,
        accept: Found | None = None,
        applied_statuses: Collection[int] = (),
        pending_statuses: Collection[int] = (),
        not_sent_statuses: Collection[int] = (),
        private: bool | None = None,
        service: str | None = None,
        account: str | None = None,
        settle_s: float = SETTLE_S,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        if method not in METHODS:
            raise UsageError(f"{method!r} is not a method of a write", hint=", ".join(METHODS))
        self.name = name
        self.settle_s = checked_settle_s(settle_s, tool=name)
        self.safety = _safety(method, key_header, lookup)
        self._method = method
        self._fields = body_fields(json, form, tool=name)
        self._site = HttpSite(
            name, base=base, headers=headers, query=query, private=private, service=service,
            account=account, fields=json or form,
        )  # fmt: skip
        self.service = self._site.shown
        if lookup is not None:
            checked_own_headers(lookup.headers, base, tool=name)
        if key_header:
            http.checked_headers({key_header: ""}, tool=name)
        self._key_header = key_header
        self._lookup = lookup
        self._accept = accept
        given = {
            "applied": set(applied_statuses), "pending": set(pending_statuses),
            "not_sent": set(not_sent_statuses),
        }  # fmt: skip
        self._meanings = {status: word for word, statuses in given.items() for status in statuses}
        if twice := [
            one for one in self._meanings if sum(one in each for each in given.values()) > 1
        ]:
            raise UsageError(
                f"{name}: status {twice[0]} is in more than one of applied_statuses, "
                "pending_statuses and not_sent_statuses"
            )
        self._bytes_max = bytes_max

    def read(self, params: dict[str, Any]) -> HttpWriteParams:
        """The parameters, typed and checked."""
        refuse_secrets(params, tool=self.name)
        values = read_params(HttpWriteParams, params, tool=self.name)
        self._check_body(values)
        http.checked_headers(values.headers, tool=self.name)
        self._site.refuse_own_headers(values.headers, self._key_header)
        self._site.asked(values.url, is_write=True)
        if self._lookup is not None:
            self._looked_up(values, "key")
        return values

    def _looked_up(self, values: HttpWriteParams, key: str) -> tuple[str, str]:
        """The address of the lookup, and the part of it that holds no secret."""
        assert self._lookup is not None
        filled = self._lookup.fill(values.json, key)
        self._site.refuse_own_query(filled)
        return self._site.whole(urljoin(self._site.whole(values.url), filled)), filled

    def _check_body(self, values: HttpWriteParams) -> None:
        """One kind of body, to which the tool's own fields can be added."""
        if self._fields.json and values.json is msgspec.UNSET:
            values.json = {}
        if self._fields.form and values.form is None:
            values.form = {}
        given = (values.json is not msgspec.UNSET, values.form is not None, values.body is not None)
        if sum(given) > 1:
            raise BadInput(f"parameters of {self.name}: give one of json, form and body")
        if values.json is not msgspec.UNSET:
            self._fields.json_of(values.json, tool=self.name)
        if values.form is not None:
            self._fields.form_of(values.form, tool=self.name)

    async def perform(self, params: HttpWriteParams, call: Call) -> Any:
        """Send, and let the status decide."""
        headers = self._sent_headers(params, call)
        url = self._site.whole(params.url)
        request = self._site.request(self._method, url, headers, self._content(params), params.url)
        try:
            answer = await http.exchange(
                request, timeout_s=call.timeout_s, bytes_max=self._bytes_max
            )
        except http.IncompleteResponse as error:
            if not error.sent:
                raise NotSent(str(error)) from error
            if error.head is None or not self._is_success(error.head.status):
                raise OutcomeUnknown(str(error), tool=self.name) from error
            answer = error.head  # its status says enough, though its body was lost
        self._judge(answer)
        return _result(answer)

    def _is_success(self, status: int) -> bool:
        return self._meanings.get(status, "applied" if status // 100 == 2 else "") == "applied"

    def _judge(self, answer: http.HttpResponse) -> None:
        """Return if the answer says that the effect happened, or raise what it says instead."""
        meaning = self._meanings.get(answer.status)
        if meaning == "not_sent":
            raise NotSent(answer.status_text, retry_after_s=retry_after_s(answer.headers))
        if meaning == "pending":
            raise OutcomeUnknown(
                f"{answer.status_text}: an earlier call is still in progress",
                tool=self.name,
                status=answer.status,
                retry_after_s=retry_after_s(answer.headers),
            )
        if meaning is None:
            self._site.judge_write(answer)
            self._believe(answer)

    async def look_up(self, params: HttpWriteParams, call: Call) -> Verdict:
        """Ask the counterpart."""
        if self._lookup is None:
            return await super().look_up(params, call)
        url, filled = self._looked_up(params, call.key)
        headers = http.merged(self._site.headers, self._lookup.headers)
        request = self._site.request("GET", url, headers, None, filled)
        try:
            answer = await http.exchange(
                request, timeout_s=call.timeout_s, bytes_max=self._bytes_max
            )
        except http.IncompleteResponse as error:
            return Unknown(f"the lookup failed: {error}", unreachable=True)
        if answer.status in (404, 410) and self._lookup.found is None:
            return NotApplied(answer.status_text)
        try:
            self._site.judge_read(answer)
        except (Rejected, NotSent) as error:
            asked_s = getattr(error, "retry_after_s", None)
            unreachable = isinstance(error, NotSent)
            return Unknown(f"the lookup failed: {error}", asked_s, unreachable)
        exists = self._lookup.verdict(answer, params.json, call.key)
        if isinstance(exists, Unknown):
            return exists
        return Applied(_result(answer)) if exists else NotApplied(answer.status_text)

    def _sent_headers(self, params: HttpWriteParams, call: Call) -> dict[str, Text]:
        own: dict[str, Text] = {}
        if params.json is not msgspec.UNSET:
            own["content-type"] = "application/json"
        elif params.form is not None:
            own["content-type"] = "application/x-www-form-urlencoded"
        elif params.body is not None:
            own["content-type"] = "text/plain; charset=utf-8"
        merged = http.merged(own, self._site.headers, params.headers)
        if self._key_header:
            merged[self._key_header.lower()] = quote(call.key, safe="!#$&'()*+,/:;=?@[]~ ")
        return merged

    def _content(self, params: HttpWriteParams) -> bytes | None:
        """The body, with the values of its secrets."""
        if params.json is not msgspec.UNSET:
            return msgspec.json.encode(
                reveal_deep(self._fields.json_of(params.json, tool=self.name))
            )
        if params.form is not None:
            form = self._fields.form_of(params.form, tool=self.name)
            return urlencode(reveal_all(form)).encode()
        return params.body.encode() if params.body is not None else None

    def _believe(self, answer: http.HttpResponse) -> None:
        """Some servers answer 200 and refuse in the body: `accept` checks the body."""
        if self._accept is None:
            return
        if not answer.whole:
            message = f"{answer.status_text}; accept= needs the whole answer, and it was cut"
            raise OutcomeUnknown(message, tool=self.name, status=answer.status)
        try:
            accepted = self._accept(_plain(answer))
        except Exception as error:
            message = f"accept= failed on the answer: {type(error).__name__}: {error}"
            raise OutcomeUnknown(f"{answer.status_text}; {message}", tool=self.name) from error
        if accepted is None:
            raise OutcomeUnknown(answer.status_text, tool=self.name, status=answer.status)
        if not accepted:
            raise Rejected(answer.status_text, tool=self.name, status=answer.status)


class HttpReadParams(msgspec.Struct, forbid_unknown_fields=True):
    """The arguments of one call of an HttpRead."""

    url: str = ""  # may be empty where the base is a secret
    headers: dict[str, str] = {}
    etag: str | None = None
    last_modified: str | None = None
    kind: http.Kind = "auto"


class HttpSiteOptions(TypedDict, total=False):
    """The options about the site that a tool calls."""

    base: Text | None
    headers: Mapping[str, Text] | None
    query: Mapping[str, Text] | None
    private: bool | None
    service: str | None
    account: str | None


class HttpReadOptions(HttpSiteOptions, total=False):
    """The options of the tools that read by HTTP."""

    bytes_max: int


class HttpRead(Tool):
    """Gets a page: JSON, text, or base64 for the rest; with `etag`, only if it has changed."""

    safety = Safety.READ

    def __init__(self, name: str = "http_read", **options: Unpack[HttpReadOptions]) -> None:
        check_options(options, HttpReadOptions, type(self))
        self.name = name
        self._bytes_max = options.pop("bytes_max", BYTES_MAX)
        self._site = HttpSite(name, **cast(HttpSiteOptions, options))
        self.service = self._site.shown

    def read(self, params: dict[str, Any]) -> HttpReadParams:
        """The parameters, typed and checked."""
        refuse_secrets(params, tool=self.name)
        values = read_params(HttpReadParams, params, tool=self.name)
        http.checked_headers(values.headers, tool=self.name)
        self._site.refuse_own_headers(values.headers)
        self._site.asked(values.url)
        return values

    async def perform(self, params: HttpReadParams, call: Call) -> Any:
        """The page and what is needed to ask whether it changed."""
        answer = await self.get(params, call)
        known = {
            "url": hide(answer.request.shown or answer.request.url, self._site.secrets),
            "status": answer.status,
            **change_of(answer, params),
        }
        return known | (http.content_of(answer, params.kind) if known["changed"] else {})

    async def get(self, params: HttpReadParams, call: Call) -> http.HttpResponse:
        """The answer at the end of all redirects."""
        asked: dict[str, Text] = {}
        if params.etag:
            asked["if-none-match"] = params.etag
        if params.last_modified:
            asked["if-modified-since"] = params.last_modified
        headers = http.merged(
            http.checked_headers(asked, tool=self.name), self._site.headers, params.headers
        )
        url = self._site.whole(params.url)
        request = self._site.request("GET", url, headers, None, params.url)
        try:
            async with asyncio.timeout(call.timeout_s):
                return await self._followed(request, call)
        except http.IncompleteResponse as error:
            raise NotSent(str(error)) from error
        except TimeoutError as error:
            message = f"{request.place} gave no page within {call.timeout_s:g} s"
            raise NotSent(message) from error

    async def _followed(self, request: http.HttpRequest, call: Call) -> http.HttpResponse:
        for _ in range(REDIRECTS_MAX + 1):
            answer = await self._once(request, call)
            if answer.status not in (301, 302, 303, 307, 308):
                return answer
            try:
                url = self._site.whole(urljoin(request.url, answer.location))
            except (BadInput, ValueError) as error:
                reason = hide(str(error), request.hidden)
                raise Rejected(f"{request.place} redirects: {reason}") from None
            request = _redirected(request, url)
        raise Rejected(f"{request.place} redirects again, after {REDIRECTS_MAX} redirects")

    async def _once(self, request: http.HttpRequest, call: Call) -> http.HttpResponse:
        answer = await http.exchange(request, timeout_s=call.timeout_s, bytes_max=self._bytes_max)
        if answer.status // 100 != 3:
            self._site.judge_read(answer)
        if not answer.whole:
            raise PayloadTooBig(
                f"{request.place} has more than {self._bytes_max:,} bytes",
                hint="Raise bytes_max of the tool, or read a smaller page.",
                bytes_max=self._bytes_max,
            )
        return answer


def _redirected(request: http.HttpRequest, url: str) -> http.HttpRequest:
    """The request after a redirect. Another site gets no header that may be meant for this one
    alone: a closed list, because no list knows all names of keys."""
    if request.url.lower().startswith("https:") and not url.lower().startswith("https:"):
        raise Rejected(f"{request.place} redirects from https to http")
    if http.is_same_site(request.url, url):
        return request._replace(url=url)
    kept = {name: value for name, value in request.headers.items() if name in TRAVELLING}
    return request._replace(url=url, headers=kept)


def change_of(answer: http.HttpResponse, params: HttpReadParams) -> dict[str, Any]:
    """Whether a page has changed, and what the next call asks that with."""
    return {
        "changed": answer.status != 304,
        "etag": answer.headers.get("etag", params.etag),
        "last_modified": answer.headers.get("last-modified", params.last_modified),
    }


def _safety(method: str, key_header: str | None, lookup: Lookup | None) -> Safety:
    if key_header or method in ("PUT", "DELETE"):
        return Safety.IDEMPOTENT
    return Safety.RECONCILABLE if lookup else Safety.UNKNOWABLE


def _result(answer: http.HttpResponse) -> dict[str, Any]:
    """The stored part of an answer. Never raises: the effect has happened."""
    known: dict[str, Any] = {"status": answer.status} | http.content_of(answer, "auto")
    for header in ("etag", "location"):
        if header in answer.headers:
            known[header] = answer.headers[header]
    return known if answer.whole else known | {"cut": True}


def _plain(answer: http.HttpResponse) -> Any:
    content = http.content_of(answer, "auto")
    return next(iter(content.values()))
