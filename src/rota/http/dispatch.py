"""One request from the gate to its answer: everything between the server and the handlers."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from urllib.parse import quote

from rota.client.client import Client
from rota.core import redaction
from rota.core.process_metrics import HTTP_REQUESTS, HTTP_SECONDS
from rota.core.redaction import Redactor
from rota.core.time.zones import zone_named
from rota.errors import StoreError, UnknownZone
from rota.http import files, pages
from rota.http.address import store_key
from rota.http.auth import SAFE, Gate
from rota.http.events import EventHub
from rota.http.hooks import HOOK
from rota.http.login import Logins, follow_link, sign_out
from rota.http.mcp.protocol import mcp_page
from rota.http.metrics_cache import MetricsCache
from rota.http.options import HttpOptions
from rota.http.problems import RequestRefused, problem_of
from rota.http.request import (
    NOBODY,
    Answer,
    Download,
    RawRequest,
    Redirect,
    SiteState,
    Text,
    WebRequest,
    read_cookies,
)
from rota.http.router import Match, Page, Router
from rota.http.routes import ROUTES
from rota.schedules.host_zone import host_zone_name

log = logging.getLogger("rota.http")

HEADER_BYTES_MAX = 16 * 1024
BODY_BYTES_EXTRA = 64 * 1024
REQUEST_S = 35.0  # a wait for a result takes up to 30 s of it
READ_S = 10.0  # for a read; lists are bounded, so a longer read means a store in trouble
BODY_S = 30.0  # a slower sender loses its connection
ZONE_COOKIE = "rota_zone"
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

# An answer may say otherwise.
ALWAYS: Mapping[str, str] = {
    "cache-control": "no-store",
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "x-robots-tag": "noindex",
}
HTTPS: Mapping[str, str] = {"strict-transport-security": "max-age=31536000"}
NO_ROUTE = "none"
OPEN_PAGES = (
    Page("GET", "/static/{name}", "open", files.static_file),
    Page("GET", "/robots.txt", "open", files.robots),
    Page("GET", "/open/{secret}", "open", pages.login.offer),
    Page("POST", "/open/{secret}", "open", follow_link, audits=True),
    Page("POST", "/logout", "open", sign_out),
)


class Site:
    """The pages and routes of one client."""

    def __init__(
        self, client: Client, options: HttpOptions, *, port: int, table: Sequence[Page] = ()
    ) -> None:
        self.client = client
        self._options = options
        self._redactor = Redactor(client.settings.secret_fields)
        logins = Logins(client, https=options.is_https)
        self._gate = Gate(client, options, port, logins)
        self._hub = EventHub(client)
        url = options.address(port)
        self._state = SiteState(
            self._hub, MetricsCache(client, self._hub.stream_count), logins, url, store_key(client)
        )
        own = [*OPEN_PAGES, HOOK, *pages.PAGES, *(route.page for route in ROUTES)]
        if options.mcp != "off":
            own.append(mcp_page(options.mcp))
        self._router = Router((*own, *table))

    def open(self) -> None:
        """Listen for wake-ups of the client."""
        self._hub.open()

    def close(self) -> None:
        """End every stream."""
        self._hub.close()

    async def answer(self, raw: RawRequest) -> Answer:
        """The answer to one request, with the headers that every answer has."""
        request_id = secrets.token_hex(8)
        redaction.serve(self._redactor)
        began = time.perf_counter()
        match = self._router.match(raw.raw_path)
        try:
            reply = await self._answer(raw, match, request_id)
        except Exception as error:  # a handler's failure must not end the server
            reply = self._problem(error, raw, request_id)
        # Counted under the pattern of the path: paths have names of users in them.
        route = NO_ROUTE if match is None else match.path
        HTTP_REQUESTS.add(route, str(int(reply.status)))
        HTTP_SECONDS.observe(time.perf_counter() - began, route)
        secure = HTTPS if self._options.is_https else {}
        headers = {**ALWAYS, **secure, "x-request-id": request_id, **reply.headers}
        return dataclasses.replace(reply, headers=headers)

    async def _answer(self, raw: RawRequest, match: Match | None, request_id: str) -> Answer:
        if raw.header_bytes > HEADER_BYTES_MAX:
            raise RequestRefused(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "headers_too_big",
                f"the headers have {raw.header_bytes} bytes; {HEADER_BYTES_MAX} is the most",
            )  # fmt: skip
        self._gate.check_host(raw)
        page, parameters = _entry(raw, match)
        identity = NOBODY if page.role == "open" else await self._gate.identify(raw)
        self._gate.check_role(identity, page.role)
        if not page.is_signed:
            self._gate.check_origin(raw, identity)
        body = await self._body(raw)
        request = WebRequest(
            raw.method, raw.raw_path, self.client, identity, parameters,
            raw.query_string, raw.headers, body, request_id, raw.peer,
            _zone(raw), self._state,
        )  # fmt: skip
        async with asyncio.timeout(page.limit_s or (READ_S if raw.method in SAFE else REQUEST_S)):
            reply = await page.handler(request)
        if raw.method == "HEAD" and isinstance(reply, Download):
            reply = Text("", reply.media, headers=reply.headers)
        is_write = raw.method not in SAFE and not page.audits
        if is_write and reply.status < HTTPStatus.BAD_REQUEST:
            await self._audit(page, request, reply)
        return reply

    async def _body(self, raw: RawRequest) -> bytes:
        try:
            async with asyncio.timeout(BODY_S):
                return await raw.read(self.client.settings.payload_bytes_max + BODY_BYTES_EXTRA)
        except TimeoutError as error:
            raise RequestRefused(
                HTTPStatus.REQUEST_TIMEOUT, "slow_body",
                f"the request body did not arrive within {BODY_S:.0f} s",
                headers={"connection": "close"},
            ) from error  # fmt: skip

    async def _audit(self, page: Page, request: WebRequest, reply: Answer) -> None:
        """Write down who did what. A refusal of the store does not undo what was done."""
        verb = page.verb or f"{page.method} {page.path}"
        who = f"webhook {request.parameters['name']}" if page.is_signed else request.identity.name
        created = reply.headers.get("location") if page.path.startswith("/api/") else None
        detail = redaction.shown(request.json()) if page.audits_body else None
        try:
            await self.client.audit.record(
                who, verb, created or request.path, request_id=request.request_id, detail=detail
            )
        except StoreError as error:
            log.warning("request %s is not in the audit list: %s", request.request_id, error)

    def _problem(self, error: Exception, raw: RawRequest, request_id: str) -> Answer:
        problem = problem_of(error, request_id)
        if isinstance(error, StoreError):
            log.warning("request %s: %s", request_id, error.message)
        elif problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            log.error("request %s failed", request_id, exc_info=error)
        if not _is_page(raw):
            return problem
        if problem.status == HTTPStatus.UNAUTHORIZED and raw.method in SAFE:
            return Redirect(f"/login?next={quote(raw.raw_path, safe='/%')}")
        return dataclasses.replace(
            pages.problem_page(problem.document), status=problem.status, headers=problem.headers
        )


def _entry(raw: RawRequest, match: Match | None) -> tuple[Page, dict[str, str]]:
    if match is None:
        raise RequestRefused(
            HTTPStatus.NOT_FOUND, "unknown_path", "there is nothing at this address"
        )
    method = "GET" if raw.method == "HEAD" else raw.method
    if method not in match.methods:
        raise RequestRefused(
            HTTPStatus.METHOD_NOT_ALLOWED, "unknown_method",
            f"{raw.method} does not apply to this address",
            hint=f"Use {match.allow}.", headers={"allow": match.allow},
        )  # fmt: skip
    return match.methods[method], match.parameters


def _zone(raw: RawRequest) -> str:
    """The zone that the viewer's browser has sent, or that of this machine."""
    zone = read_cookies(raw.headers.get("cookie", "")).get(ZONE_COOKIE, "").replace("%2F", "/")
    try:
        return zone_named(zone).key or host_zone_name() if zone else host_zone_name()
    except UnknownZone:
        return host_zone_name()


def _is_page(raw: RawRequest) -> bool:
    """Whether a browser asks for a page: it accepts HTML, and the path is not below /api."""
    if raw.raw_path.startswith(("/api/", "/static/")):
        return False
    return "text/html" in raw.headers.get("accept", "")
