"""The one gate in front of everything: Host, identity, origin of a write, role."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from http import HTTPStatus
from urllib.parse import urlsplit

from rota.client.client import Client
from rota.core.access.model import Role
from rota.errors import BadToken
from rota.http.login import Logins
from rota.http.options import HttpOptions, ProxyTable
from rota.http.problems import RequestRefused
from rota.http.request import NOBODY, Identity, RawRequest, RequiredRole, media_type, read_cookies

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
SAFE = frozenset({"GET", "HEAD"})
LOCAL = Identity("local", Role.ADMIN)
BEARER = "bearer "
JSON = "application/json"


class Gate:
    """Lets a request in, with an identity, or refuses it."""

    def __init__(self, client: Client, options: HttpOptions, port: int, logins: Logins) -> None:
        self._client = client
        self._options = options
        self._logins = logins
        self._hosts = allowed_hosts(options, port)

    def check_host(self, raw: RawRequest) -> None:
        """Refuse a name that is not ours: a page of another site may resolve to this address."""
        if raw.headers.get("host", "").casefold() not in self._hosts:
            raise RequestRefused(
                HTTPStatus.MISDIRECTED_REQUEST, "unknown_host",
                "this server does not answer under that name",
                hint="Add the name to hosts under [http] in rota.toml.",
            )  # fmt: skip

    # -- identity --------------------------------------------------------------------------

    async def identify(self, raw: RawRequest) -> Identity:
        """Who asks: by token, by session, by proxy; on loopback anyone of this machine."""
        given = raw.headers.get("authorization", "")
        if given:
            return await self._by_token(given, raw.peer)
        identity = await self._by_session(raw) or self._by_proxy(raw)
        if identity is not None:
            return identity
        return LOCAL if self._options.is_free else NOBODY

    async def _by_token(self, given: str, peer: str) -> Identity:
        text = given[len(BEARER) :] if given[: len(BEARER)].lower() == BEARER else ""
        try:
            token = await self._client.tokens.authenticate(text.strip())
        except BadToken as error:
            self._logins.failed(peer)
            raise _no_token(error.message) from error
        return Identity(token.name, Role(token.role), token.id)

    async def _by_session(self, raw: RawRequest) -> Identity | None:
        cookies = read_cookies(raw.headers.get("cookie", ""))
        secret = cookies.get(self._logins.cookie_name)
        if not secret:
            return None
        try:
            session = await self._client.sessions.get(secret)
        except BadToken:
            return None
        session_id = hashlib.sha256(secret.encode()).hexdigest()[:16]
        return Identity(session.name, Role(session.role), session.token_id, session_id)

    def _by_proxy(self, raw: RawRequest) -> Identity | None:
        proxy = self._options.proxy
        if proxy is None or not is_proxy(proxy, raw):
            return None
        user = raw.headers.get(proxy.user_header.lower(), "")
        role = proxy.users.get(user)
        if role is None:
            raise RequestRefused(
                HTTPStatus.FORBIDDEN, "unknown_user", "the proxy's user has no role here",
                hint="Add the exact name to users under [http.proxy] in rota.toml.",
            )  # fmt: skip
        return Identity(user, role, session_id=f"proxy:{user}")

    # -- permission -------------------------------------------------------------------------

    def check_origin(self, raw: RawRequest, identity: Identity) -> None:
        """Refuse a write that a page of another site has sent with the browser's authority."""
        origin = raw.headers.get("origin")
        if origin is not None and not self._is_own(origin):
            raise _foreign(f"a page of {origin!r} may not use this server")
        is_bearer = identity.token_id is not None and identity.session_id is None
        if raw.method in SAFE or is_bearer:
            return
        site = raw.headers.get("sec-fetch-site")
        if site is not None:
            if site not in ("same-origin", "none"):
                raise _foreign("another site has sent this request")
        # No form of another site can send JSON without a preflight, and Rota allows none.
        elif origin is None and not (identity is LOCAL and media_type(raw.headers) == JSON):
            raise _foreign("the request does not say which page has sent it")

    def check_role(self, identity: Identity, role: RequiredRole) -> None:
        """Refuse an identity without the role."""
        if identity.may(role):
            return
        if identity is NOBODY:
            raise _no_token("a token is needed")
        raise RequestRefused(
            HTTPStatus.FORBIDDEN, "role_too_low",
            f"{identity.name} has the role {identity.role}; this needs {role}",
            hint="Use a token with that role.",
        )  # fmt: skip

    def _is_own(self, origin: str) -> bool:
        parts = urlsplit(origin)
        return parts.scheme in ("http", "https") and parts.netloc.casefold() in self._hosts


def is_proxy(proxy: ProxyTable, raw: RawRequest) -> bool:
    """Whether the proxy itself has sent this: its address and its secret must both fit."""
    try:
        peer = ipaddress.ip_address(raw.peer)
    except ValueError:
        return False
    known = any(peer in ipaddress.ip_network(network) for network in proxy.peers)
    given = raw.headers.get(proxy.secret_header.lower(), "")
    return (
        known and bool(proxy.secret) and hmac.compare_digest(given.encode(), proxy.secret.encode())
    )


def _no_token(detail: str) -> RequestRefused:
    return RequestRefused(
        HTTPStatus.UNAUTHORIZED, "bad_token", detail,
        hint="Send `Authorization: Bearer rota_…`; `rota token create` makes one.",
        headers={"www-authenticate": "Bearer"},
    )  # fmt: skip


def _foreign(detail: str) -> RequestRefused:
    return RequestRefused(
        HTTPStatus.FORBIDDEN, "other_origin", detail,
        hint="Use a token, or send the request as application/json from a program.",
    )  # fmt: skip


def allowed_hosts(options: HttpOptions, port: int) -> frozenset[str]:
    """Every value of the Host header that names this server."""
    names = set(options.hosts)
    if options.is_loopback or options.host in ("0.0.0.0", "::"):
        names.update(LOOPBACK_NAMES)
    else:
        names.add(f"[{options.host}]" if ":" in options.host else options.host)
    own = {f"{name}:{port}" for name in names}
    if port == 80:
        own |= names
    if options.url:
        own.add(urlsplit(options.url).netloc)
    own |= {name for name in options.hosts if ":" in name.rpartition("]")[2]}
    return frozenset(name.casefold() for name in own)
