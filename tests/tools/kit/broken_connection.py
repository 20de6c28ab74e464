"""A line to PostgreSQL that breaks when certain words are sent over it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

Fault = Literal["before", "after", "silent"]


class Line:
    """Breaks once: `before` the words reach the server, `after` its answer, or stays `silent`."""

    def __init__(self, url: str, words: bytes, fault: Fault) -> None:
        self._parts = urlsplit(url)
        self._words = words
        self._fault = fault
        self._used_up = False
        self._busy: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()

    @contextlib.asynccontextmanager
    async def up(self) -> AsyncIterator[str]:
        """The URL through this line."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        netloc = f"{self._parts.username}@127.0.0.1:{port}"
        try:
            yield urlunsplit(self._parts._replace(netloc=netloc))
        finally:
            self._over.set()
            server.close()
            await asyncio.gather(*self._busy)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._busy.add(asyncio.create_task(self._connect(reader, writer)))

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, out = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        broken = asyncio.Event()
        tasks = [
            asyncio.create_task(self._ask(reader, out, broken)),
            asyncio.create_task(self._answer(back, writer, broken)),
        ]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for each in (writer, out):
            each.close()
            with contextlib.suppress(OSError):
                await each.wait_closed()

    async def _ask(
        self, reader: asyncio.StreamReader, out: asyncio.StreamWriter, broken: asyncio.Event
    ) -> None:
        while piece := await reader.read(65536):
            hit = self._words in piece and not self._used_up
            if hit:
                self._used_up = True
                broken.set()
            if hit and self._fault == "before":
                break
            out.write(piece)

    async def _answer(
        self, back: asyncio.StreamReader, writer: asyncio.StreamWriter, broken: asyncio.Event
    ) -> None:
        while piece := await back.read(65536):
            if broken.is_set() and self._fault == "silent":
                await self._over.wait()
            if broken.is_set():
                break
            writer.write(piece)
