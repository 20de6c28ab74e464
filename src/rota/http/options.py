"""The `[http]` table of `rota.toml`: where the surface listens, and who may use it."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec

from rota.core.access.model import Role
from rota.core.suggest import did_you_mean
from rota.errors import BadSetting

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8420
PORTS_TRIED = 20  # from the usual port on, if none is given


class ProxyTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[http.proxy]`: a proxy that authenticates people (Authelia, oauth2-proxy)."""

    user_header: str
    secret_header: str
    peers: list[str]  # networks the proxy connects from
    users: dict[str, Role]  # exact names
    secret_env: str = "ROTA_PROXY_SECRET"  # the variable that holds the shared secret

    @property
    def secret(self) -> str:
        """The secret that the proxy sends along."""
        return os.environ.get(self.secret_env, "")


class HttpOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The address to listen on, and the trusted hosts."""

    host: str = DEFAULT_HOST
    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = DEFAULT_PORT
    url: str = ""  # the address people use, if a proxy is in front: https://rota.example.org
    hosts: list[str] = []  # further names under which the server is reached
    require_login: bool = False  # on loopback too
    proxy: ProxyTable | None = None
    mcp: Literal["off", "read", "write"] = "off"  # POST /mcp, for assistants
    socket: str = ""  # the path of a Unix socket to listen on instead of host and port
    port_given: bool = False  # a given port is not replaced by the next free one

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        if self.socket or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False

    @property
    def is_free(self) -> bool:
        """Whether anyone of this machine may do everything. Behind a proxy everyone would be."""
        behind_proxy = bool(self.url or self.hosts or self.proxy)
        return self.is_loopback and not self.require_login and not behind_proxy

    def address(self, port: int) -> str:
        """The address that people type; `unix:PATH` for a socket, which no browser opens."""
        if self.socket:
            return self.url.rstrip("/") or f"unix:{self.socket}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.url.rstrip("/") or f"http://{host}:{port}"

    @property
    def is_https(self) -> bool:
        """Whether people use https."""
        return urlsplit(self.url).scheme == "https"


def load(raw: Mapping[str, Any], *, source: str) -> HttpOptions:
    """The options of a table; every problem names its key and source."""
    known = tuple(name for name in HttpOptions.__struct_fields__ if name != "port_given")
    for key in raw:
        if key not in known:
            raise BadSetting(
                f'{source} [http]: unknown key "{key}"{did_you_mean(key, known)}',
                hint=f"Use one of: {', '.join(known)}.",
            )
    try:
        options = msgspec.convert(raw, HttpOptions)
        for network in options.proxy.peers if options.proxy else ():
            ipaddress.ip_network(network)
    except (msgspec.ValidationError, ValueError) as error:
        raise BadSetting(f"{source} [http]: {error}", hint="See docs/guides/http.md.") from error
    return msgspec.structs.replace(options, port_given="port" in raw)


def at(options: HttpOptions, address: str) -> HttpOptions:
    """The options with an address from the command line: HOST:PORT, HOST or :PORT."""
    host, colon, port = address.rpartition(":")
    is_bare_ipv6 = address.count(":") > 1 and "]" not in address
    if not colon or is_bare_ipv6 or address.endswith("]"):
        host, port = address, ""
    if port and not (port.isdecimal() and int(port) <= 65_535):
        raise BadSetting(f"{address!r} is not an address", hint="Write HOST:PORT, or :PORT.")
    return msgspec.structs.replace(
        options, host=host.strip("[]") or options.host,
        port=int(port) if port else options.port, port_given=bool(port) or options.port_given,
        socket="",
    )  # fmt: skip
