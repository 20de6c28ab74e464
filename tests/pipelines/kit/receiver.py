"""A receiver of notifications on loopback: keeps every call, answers as the test says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import msgspec


class Call(NamedTuple):
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def message(self) -> dict[str, Any]:
        """Its body, as JSON."""
        found: dict[str, Any] = msgspec.json.decode(self.body)
        return found


class Answer(NamedTuple):
    """The answer to one request; `hang_up` instead of anything."""

    status: int = 204
    headers: tuple[tuple[str, str], ...] = ()
    hang_up: bool = False


class Receiver:
    """Answers with `answers`, one after the other, then with 204."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.calls: list[Call] = []
        self.url = ""
        self._busy: set[asyncio.Task[None]] = set()

    @property
    def events(self) -> list[str]:
        """The subjects of the calls, in their order."""
        return [call.message["event"] for call in self.calls if call.method == "POST"]

    @property
    def paths(self) -> list[str]:
        """The addresses of the calls, without the ids of executions."""
        return [call.path.partition("?")[0] for call in self.calls]

    @contextlib.asynccontextmanager
    async def up(self, port: int = 0) -> AsyncIterator[Receiver]:
        """Listen until the end of the block."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            await asyncio.gather(*self._busy)

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._busy.add(asyncio.create_task(self._visit(reader, writer)))

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            self.calls.append(await _read(reader))
            answer = self.answers.pop(0) if self.answers else Answer()
            if not answer.hang_up:
                lines = [f"HTTP/1.1 {answer.status} X", "content-length: 0", "connection: close"]
                lines += [f"{name}: {value}" for name, value in answer.headers]
                writer.write("\r\n".join([*lines, "", ""]).encode())
                await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def _read(reader: asyncio.StreamReader) -> Call:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, path, _ = head[0].split(" ", 2)
    pairs = (line.split(": ", 1) for line in head[1:] if line)
    headers = {name.lower(): value for name, value in pairs}
    return Call(
        method, path, headers, await reader.readexactly(int(headers.get("content-length", 0)))
    )
