"""A model on loopback that speaks like OpenAI and like Anthropic, counts, and misbehaves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

EXACT: Any = "exact"


class Asked(NamedTuple):
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Say(NamedTuple):
    """How to answer one question.

    `way`: answer · wait (for `go`) · hang (never) · stall (in a stream) · drop (at once). Also
    cut (in the middle) · linger (complete, stream open).
    """

    way: str = "answer"
    text: str = "Hello, world."
    status: int = 200
    headers: Mapping[str, str] = MappingProxyType({})
    raw: bytes | None = None  # instead of an answer
    finish: str = ""
    usage: bool = True
    reported: Any = EXACT  # instead of the tokens below, as usage
    more: Mapping[str, Any] = MappingProxyType({})  # fields beside the answer
    works: bool = False  # and charges, though the status says otherwise
    tokens_in: int = 11
    tokens_out: int = 7
    events: list[Any] | None = None  # instead of those of an answer


class ModelUsage(NamedTuple):
    """The calls that the model charges for: every question that it did not refuse with a status."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0

    def plus(self, say: Say) -> ModelUsage:
        return ModelUsage(
            self.calls + 1, self.tokens_in + say.tokens_in, self.tokens_out + say.tokens_out
        )

    def cost_usd(self) -> float:
        """At one dollar a million in and two out, as `ai_settings` says."""
        return (self.tokens_in + 2 * self.tokens_out) / 1_000_000


class Model:
    """Answers with `said`, one after the other, then by `answer`; counts `asked` and `usage`."""

    def __init__(self, *said: Say, answer: Callable[[Asked], Say] | None = None) -> None:
        self.said = list(said)
        self.answer = answer or (lambda asked: Say())
        self.asked: list[Asked] = []
        self.usage = ModelUsage()
        self.connections = 0
        self.hung_up = asyncio.Event()  # the other side closed while we were at work
        self.reached = asyncio.Event()
        self.go = asyncio.Event()
        self.url = ""
        self._gone = asyncio.Event()
        self._busy: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def up(self) -> AsyncIterator[Model]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            self._gone.set()
            server.close()
            for task in self._busy:
                task.cancel()
            await asyncio.gather(*self._busy, return_exceptions=True)

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._busy.add(asyncio.create_task(self._visit(reader, writer)))

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        asked = await _read(reader)
        self.asked.append(asked)
        self.reached.set()
        say = self.said.pop(0) if self.said else self.answer(asked)
        if say.status == 200 or say.works:
            self.usage = self.usage.plus(say)
        if say.way == "drop":
            return False
        if say.way == "hang":
            return await self._wait(reader)
        if say.way == "wait":
            await self.go.wait()
        if say.raw is not None or say.status != 200:
            writer.write(_page(say))
        elif asked.body.get("stream") or asked.path.endswith("alt=sse"):
            return await self._stream(asked, say, reader, writer)
        else:
            writer.write(_page(say._replace(raw=msgspec.json.encode(_whole(asked, say)))))
        await writer.drain()
        return True

    async def _stream(
        self, asked: Asked, say: Say, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        kind = "content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write(f"HTTP/1.1 200 OK\r\n{kind}".encode())
        events = _events(asked, say) if say.events is None else [_line(e) for e in say.events]
        half = len(events) // 2 if say.way in ("stall", "cut") else len(events)
        for event in events[:half]:
            writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            await writer.drain()
        if say.way in ("stall", "linger"):
            return await self._wait(reader)
        if say.way == "cut":
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _wait(self, reader: asyncio.StreamReader) -> bool:
        """Until the other side hangs up, or the test is over."""
        with contextlib.suppress(ConnectionError):
            await reader.read(1)
        self.hung_up.set()
        return False


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    _, path, _ = head[0].split(" ", 2)
    pairs = (line.split(": ", 1) for line in head[1:] if line)
    headers = {name.lower(): value for name, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(path, headers, msgspec.json.decode(body))


def bound_of(asked: Asked) -> int | None:
    """The longest answer that was asked for."""
    found = asked.body.get("max_tokens") or asked.body.get("max_completion_tokens")
    return found if isinstance(found, int) else None


def long_answer(asked: Asked, tokens: int, **more: Any) -> Say:
    """An answer of so many tokens, cut at the bound as a provider does."""
    bound = bound_of(asked)
    if bound is not None and tokens > bound:
        finish = "length" if asked.path.endswith("/chat/completions") else "max_tokens"
        return Say(text="cut", tokens_out=bound, finish=finish, **more)
    return Say(text="whole", tokens_out=tokens, **more)


def _page(say: Say) -> bytes:
    body = say.raw or b""
    lines = {
        "content-type": "application/json", "content-length": str(len(body)), **say.headers
    }  # fmt: skip
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {say.status} X\r\n{head}\r\n".encode() + body


def _whole(asked: Asked, say: Say) -> dict[str, Any]:
    model = asked.body["model"] + "-2025-01-01"
    if asked.path.endswith("/chat/completions"):
        message = {"role": "assistant", "content": say.text}
        choice = {"index": 0, "message": message, "finish_reason": say.finish or "stop"}
        return {
            "model": model,
            "choices": [choice],
            **say.more,
            **({"usage": _used(say)} if say.usage else {}),
        }
    return {
        "type": "message",
        "model": model,
        "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": say.text}],
        "stop_reason": say.finish or "end_turn",
        "usage": {"output_tokens": say.tokens_out, **_read_in(say)},
    }


def _used(say: Say) -> Any:
    if say.reported != EXACT:
        return say.reported
    return {"prompt_tokens": say.tokens_in, "completion_tokens": say.tokens_out}


def _said(say: Say) -> Any:
    return say.tokens_out if say.reported == EXACT else say.reported.get("output_tokens")


def _read_in(say: Say) -> Any:
    """Some of it from a cache, which is counted apart."""
    if say.reported != EXACT:
        return say.reported
    return {"input_tokens": say.tokens_in - 2, "cache_read_input_tokens": 2}


def _events(asked: Asked, say: Say) -> list[bytes]:
    model = asked.body["model"] + "-2025-01-01"
    parts = [say.text[at : at + 5] for at in range(0, len(say.text), 5)]
    if asked.path.endswith("/chat/completions"):
        return _chunks(model, parts, say)
    begin = {"model": model, "usage": _read_in(say)}
    stop = {"stop_reason": say.finish or "end_turn"}
    events: list[Any] = [
        {"type": "message_start", "message": begin},
        {"type": "ping"},
        *({"type": "content_block_delta", "delta": {"type": "text_delta", "text": part}}
          for part in parts),
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": _said(say)}},
        {"type": "message_stop"},
    ]  # fmt: skip
    return [f"event: {event['type']}\r\n".encode() + _line(event, b"\r\n") for event in events]


def _chunks(model: str, parts: list[str], say: Say) -> list[bytes]:
    choices: list[Any] = [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]
    choices += [{"delta": {"content": part}, "finish_reason": None} for part in parts]
    choices += [{"delta": {}, "finish_reason": say.finish or "stop"}]
    events: list[Any] = [{"model": model, "choices": [choice]} for choice in choices]
    if say.usage:
        events.append({"model": model, "choices": [], **say.more, "usage": _used(say)})
    return [b": a comment\n\n", *(_line(event) for event in events), b"data: [DONE]\n\n"]


def _line(event: Any, end: bytes = b"\n") -> bytes:
    text = event if isinstance(event, bytes) else msgspec.json.encode(event)
    return b"data: " + text + end + end
