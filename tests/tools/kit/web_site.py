"""A web site on loopback that counts its effects and misbehaves on demand."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from typing import NamedTuple
from urllib.parse import unquote

import msgspec


class Asked(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Site:
    """POST anywhere has an effect, named by the field `id` of its JSON; GET /effects/ID tells.

    `faults` are used up one by one, by requests that are no GET:
      drop        hang up without the effect       applied-drop   hang up after it
      hang        never answer, no effect          applied-hang   never answer, after it
      half        the head of an answer, then hang up, after the effect
      lie         200 with an error in the body, no effect
      NNN         that status, no effect           applied-NNN    that status, after the effect
    """

    def __init__(self, address: str = "127.0.0.1", *, honours_key: bool = False) -> None:
        self.address = address
        self.honours_key = honours_key
        self.effects: Counter[str] = Counter()
        self.asked: list[Asked] = []
        self.faults: list[str] = []
        self.pages: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.url = ""
        self._by_key: dict[str, str] = {}
        self._gone = asyncio.Event()
        self._busy: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def up(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[Site]:
        server = await asyncio.start_server(self._serve, self.address, 0, ssl=tls)
        self.url = (
            f"{'https' if tls else 'http'}://{self.address}:{server.sockets[0].getsockname()[1]}"
        )
        try:
            yield self
        finally:
            self._gone.set()
            server.close()
            await asyncio.gather(*self._busy)

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._busy.add(asyncio.create_task(self._visit(reader, writer)))

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            asked = await _read(reader)
            self.asked.append(asked)
            answer = await self._answer(asked)
            if answer is not None:
                writer.write(answer)
                await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def _answer(self, asked: Asked) -> bytes | None:
        if asked.path in self.pages:
            status, headers, body = self.pages[asked.path]
            return _written(status, body, headers)
        if asked.path == "/hang":
            await self._gone.wait()
        if asked.method == "GET":
            return self._look(asked)
        fault = self.faults.pop(0) if self.faults else "200"
        kind = fault.removeprefix("applied-")
        name = self._apply(asked) if fault.startswith(("applied", "half")) or kind == "200" else ""
        if kind == "hang":
            await self._gone.wait()
        if kind in ("drop", "hang"):
            return None
        if kind == "half":
            return (
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"
            )
        if kind == "lie":
            return _json(200, {"ok": False, "error": "out of stock"})
        return _json(int(kind), {"ok": kind[0] == "2", "id": name})

    def _look(self, asked: Asked) -> bytes:
        name = unquote(asked.path.rpartition("/")[2].rpartition("=")[2])
        seen = self.effects[name] > 0
        if "?" in asked.path:
            return _json(200, {"items": [{"id": name}] if seen else []})
        return _json(200 if seen else 404, {"id": name})

    def _apply(self, asked: Asked) -> str:
        name = str(msgspec.json.decode(asked.body)["id"])
        key = asked.headers.get("idempotency-key")
        if not (self.honours_key and key in self._by_key):
            self.effects[name] += 1
        if key:
            self._by_key[key] = name
        return name


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, path, _ = head[0].split(" ", 2)
    pairs = (line.split(": ", 1) for line in head[1:] if line)
    headers = {name.lower(): value for name, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(method, path, headers, body)


def _json(status: int, value: object) -> bytes:
    return _written(status, msgspec.json.encode(value), {"content-type": "application/json"})


def _written(status: int, body: bytes, headers: dict[str, str]) -> bytes:
    lines = {"content-length": str(len(body)), "connection": "close", **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + body
