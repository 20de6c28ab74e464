"""A TCP proxy between Rota and PostgreSQL that can delay, cut and swallow."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

from tests.kit.children import Child


class Proxy:
    """Forwards connections to a server until it is made to misbehave."""

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        self._server: asyncio.Server | None = None
        self._lines: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._silent: set[asyncio.StreamWriter] = set()
        self.delay_s = 0.0
        self.port = 0
        self.cut_count = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for line in self._lines:
            line.cancel()
        await asyncio.gather(*self._lines, return_exceptions=True)

    @property
    def url(self) -> str:
        """The database's URL, through this proxy."""
        user = f"{self._url.username}@" if self._url.username else ""
        return urlunsplit(self._url._replace(netloc=f"{user}127.0.0.1:{self.port}"))

    def cut(self) -> None:
        """Reset every connection at once."""
        for writer in self._writers:
            self.cut_count += 1
            writer.transport.abort()
        self._writers.clear()

    def swallow(self) -> None:
        """Connections that exist now go silent for ever, as behind a firewall that forgot them."""
        self._silent |= self._writers

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._url.hostname is not None
        try:
            back, out = await asyncio.open_connection(self._url.hostname, self._url.port or 5432)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, out}
        for source, target in ((reader, out), (back, writer)):
            line = asyncio.create_task(self._forward(source, target, (writer, out)))
            self._lines.add(line)
            line.add_done_callback(self._lines.discard)

    async def _forward(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        both: tuple[asyncio.StreamWriter, asyncio.StreamWriter],
    ) -> None:
        with contextlib.suppress(OSError):
            while piece := await source.read(65536):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                if target not in self._silent:
                    target.write(piece)
                    await target.drain()
        if target in self._silent:
            return  # The other side must not learn that this one is gone.
        for writer in both:
            self._writers.discard(writer)
            writer.transport.abort()


Hire = Callable[..., Child]
