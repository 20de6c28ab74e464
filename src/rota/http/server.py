"""The server: its sockets, its start and its stop, beside a worker or in its own process."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib.util
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rota.client.client import Client
from rota.errors import MissingExtra, UsageError
from rota.http.options import PORTS_TRIED, HttpOptions

if TYPE_CHECKING:
    import uvicorn

    from rota.http.dispatch import Site

NEEDED = ("starlette", "uvicorn", "httptools", "minijinja")
CONNECTIONS_MAX = 500
DRAIN_S = 5
HTTP_PORT = 80
_NO_IPV6 = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def is_installed() -> bool:
    """Whether the packages of the extra `web` are there."""
    return not _missing()


def _missing() -> list[str]:
    return [name for name in NEEDED if not importlib.util.find_spec(name)]


def require_installed() -> None:
    """Raise MissingExtra without the packages of the extra `web`."""
    if missing := _missing():
        raise MissingExtra(
            f"the HTTP server needs {', '.join(missing)}", hint="pip install 'rota[web]'"
        )


class HttpServer:
    """Serves one client until it is stopped."""

    def __init__(self, client: Client, options: HttpOptions) -> None:
        self._client = client
        self._options = options
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._site: Site | None = None
        self._ready = asyncio.Event()
        self.address = ""

    async def start(self) -> None:
        """Bind and begin to answer."""
        require_installed()
        from rota.http.dispatch import Site

        await check_bind(self._client, self._options)
        sockets = bound(self._options)
        # Over a Unix socket programs name no port: their Host is `localhost`.
        port = HTTP_PORT if self._options.socket else int(sockets[0].getsockname()[1])
        self._site = Site(self._client, self._options, port=port)
        self._server = _server(self._site, self._ready)
        self.address = self._options.address(port)
        self._serving = asyncio.create_task(self._server.serve(sockets=sockets))
        ready = asyncio.create_task(self._ready.wait())
        await asyncio.wait({ready, self._serving}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        await self._client.connection.wakeups.listen()  # a process without a worker would only poll
        self._site.open()

    async def stop(self) -> None:
        """Answer what is in progress, end streams, close."""
        if self._server is None or self._serving is None:
            return
        if self._site is not None:
            self._site.close()
        self._server.should_exit = True
        await self._serving
        self._server = self._serving = None
        if self._options.socket:
            _remove(self._options.socket)


def _server(site: Site, ready: asyncio.Event) -> uvicorn.Server:
    import uvicorn

    from rota.http.starlette_adapter import asgi

    class Quiet(uvicorn.Server):
        """A server in a host process that handles the signals."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready.set()

    return Quiet(
        uvicorn.Config(
            asgi(site), http="httptools", loop="none", ws="none",
            lifespan="off", log_config=None, access_log=False, server_header=False,
            proxy_headers=False, limit_concurrency=CONNECTIONS_MAX,
            timeout_graceful_shutdown=DRAIN_S,
        )
    )  # fmt: skip


async def check_bind(client: Client, options: HttpOptions) -> None:
    """Refuse an address that others can reach before there is a token or a proxy."""
    proxied = options.proxy is not None and bool(options.proxy.secret)
    if options.is_loopback or proxied:
        return
    now = client.clock.now()
    if any(token.problem(now) is None for token in await client.tokens.list()):
        return
    raise UsageError(
        f"{options.host} can be reached from other machines, but there is no token",
        hint="Make a token first: `rota token create NAME --role admin`.",
    )


def bound(options: HttpOptions) -> list[socket.socket]:
    """Listening sockets, for IPv4 and IPv6 if the address is loopback."""
    if options.socket:
        return [_listen_at(Path(options.socket))]
    ports = [options.port]
    if not options.port_given:  # then any free port is better than none
        ports += [*range(options.port + 1, options.port + PORTS_TRIED), 0]
    for port in ports:
        with contextlib.suppress(OSError):
            return _bind(options, port)
    raise UsageError(
        f"port {options.port} of {options.host} cannot be used: another program has it",
        hint="Give another port: `--http 127.0.0.1:8421`, or `--http :0` for any free one.",
    )


def _listen_at(path: Path) -> socket.socket:
    """A Unix socket that only the user of this process can connect to."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_socket() and made.connect_ex(str(path)) == errno.ECONNREFUSED:
            path.unlink()  # left by a server that was killed
        made.close()
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.bind(str(path))
        path.chmod(0o600)  # before it listens: until then no client can connect
        made.listen(128)
        made.setblocking(False)
    except OSError as error:
        made.close()
        raise UsageError(
            f"the socket {path} cannot be used: {error.strerror or error}",
            hint="Give a path where no file is; another server may use this one.",
        ) from error
    return made


def _remove(path: str) -> None:
    Path(path).unlink(missing_ok=True)


def _bind(options: HttpOptions, port: int) -> list[socket.socket]:
    host = "127.0.0.1" if options.host == "localhost" else options.host
    first = _listen(host, port)
    if host != "127.0.0.1" or not socket.has_ipv6:
        return [first]
    try:
        return [first, _listen("::1", first.getsockname()[1])]
    except OSError as error:
        if error.errno in _NO_IPV6:
            return [first]
        first.close()
        raise


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio turns Nagle's algorithm off for the connections. Otherwise
    # each answer waits 40 ms for an acknowledgement.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind((host, port))
        made.listen(128)
        made.setblocking(False)
    except BaseException:
        made.close()
        raise
    return made
