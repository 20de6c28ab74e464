"""Sessions of browsers: sign in with a token or a one-time link, sign out, bound the failures."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable
from http import HTTPStatus

from rota.client.client import Client
from rota.client.tokens import NewSession
from rota.core.time.instants import MINUTE
from rota.errors import BadToken
from rota.http.problems import RequestRefused
from rota.http.request import Redirect, WebRequest

FAILURES_MAX = 10
PEERS_MAX = 10_000
SESSION_S = 7 * 24 * 3600


class Logins:
    """The name of the cookie, and the failed logins of each peer within a minute."""

    def __init__(self, client: Client, *, https: bool) -> None:
        self._client = client
        self._https = https
        self._failures: dict[str, deque[int]] = {}

    @property
    def cookie_name(self) -> str:
        """`__Host-` binds the cookie to this host; browsers accept it over https only."""
        return "__Host-rota" if self._https else "rota"

    def cookie(self, secret: str) -> str:
        """The Set-Cookie value of a session; an empty secret ends it."""
        age = SESSION_S if secret else 0
        secure = "; Secure" if self._https else ""
        return f"{self.cookie_name}={secret}; Path=/; HttpOnly; SameSite=Lax; Max-Age={age}{secure}"

    def failed(self, peer: str) -> None:
        """Note a wrong token, and refuse the peer after too many. A right token always passes:
        people behind one proxy share an address, and none of them may lock the others out."""
        now = self._client.clock.now()
        if peer not in self._failures and len(self._failures) >= PEERS_MAX:
            self._failures.pop(next(iter(self._failures)))
        failures = self._failures.setdefault(peer, deque(maxlen=FAILURES_MAX))
        is_full = len(failures) == FAILURES_MAX and failures[0] > now - MINUTE
        failures.append(now)
        if is_full:
            raise RequestRefused(
                HTTPStatus.TOO_MANY_REQUESTS, "too_many_logins",
                "too many wrong tokens from this address", hint="Wait a minute.",
                headers={"retry-after": "60"},
            )  # fmt: skip


async def sign_in(request: WebRequest, opening: Awaitable[NewSession]) -> tuple[str, ...]:
    """The cookies of a session that begins; BadToken for a token or link that is not valid."""
    logins: Logins = request.site.logins
    try:
        opened = await opening
    except BadToken:
        logins.failed(request.peer)
        raise
    await request.client.audit.record(
        opened.session.name, "login", request.peer, request_id=request.request_id
    )
    return (logins.cookie(opened.secret),)


async def follow_link(request: WebRequest) -> Redirect:
    """`POST /open/{secret}`: use up the link that `rota open` prints. It works once, within a
    minute; GET shows the button for it, so that the preview of a link does not spend it."""
    opening = request.client.sessions.redeem(request.parameters["secret"])
    return Redirect("/", cookies=await sign_in(request, opening))


async def sign_out(request: WebRequest) -> Redirect:
    """`POST /logout`: end the session."""
    logins: Logins = request.site.logins
    secret = request.cookies.get(logins.cookie_name)
    if secret:
        await request.client.sessions.close(secret)
    return Redirect("/login", cookies=(logins.cookie(""),))
