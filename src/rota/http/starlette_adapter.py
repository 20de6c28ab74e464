"""The only file that knows a web framework: Starlette's requests in, its responses out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from functools import partial
from http import HTTPStatus
from typing import cast

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rota.http import problems
from rota.http.dispatch import Site
from rota.http.problems import ProblemAnswer, RequestRefused
from rota.http.request import Answer, Download, Json, RawRequest, Redirect, Text

JSON = "application/json"
SLOW_S = 30.0


def asgi(site: Site) -> ASGIApp:
    """The site as an ASGI application."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # no WebSocket, no lifespan
            return
        request = Request(scope, receive)
        answer = await site.answer(_raw_request(request))
        try:
            await _response(answer)(scope, receive, send)
        except (ClientDisconnect, TimeoutError):  # gone, or too slow
            return

    return app


def _raw_request(request: Request) -> RawRequest:
    raw = request.scope["headers"]
    headers: dict[str, str] = {}
    for name, value in raw:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        # A second Host or Authorization makes one that matches nothing.
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    path: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    return RawRequest(
        request.method, path.partition(b"?")[0].decode("latin-1"),
        request.scope["query_string"].decode("latin-1"), headers,
        sum(len(name) + len(value) for name, value in raw),
        request.client.host if request.client else "", partial(_read_body, request),
    )  # fmt: skip


async def _read_body(request: Request, limit: int) -> bytes:
    """Read the body, counting as it comes."""
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > limit:
        raise _too_big(limit)
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise _too_big(limit)
        chunks.append(chunk)
    return b"".join(chunks)


def _too_big(limit: int) -> RequestRefused:
    return RequestRefused(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "payload_too_big",
        f"the body is larger than {limit} bytes",
        hint="Store the bulk elsewhere and pass a reference, or raise `payload_bytes_max`.",
        headers={"connection": "close"},
    )  # fmt: skip


def _response(answer: Answer) -> Response:
    response = _body(answer)
    for name, value in answer.headers.items():
        response.headers[name] = value
    for cookie in answer.cookies:
        response.headers.append("set-cookie", cookie)
    return response


def _body(answer: Answer) -> Response:
    status = answer.status
    match answer:
        case Json(value=value):
            return Response(msgspec.json.encode(value, enc_hook=str), status, media_type=JSON)
        case ProblemAnswer(document=document):
            return Response(msgspec.json.encode(document), status, media_type=problems.MEDIA)
        case Text(text=content, media=media):
            return Response(content, status, {"content-type": media})
        case Redirect(location=location):
            return Response(b"", status, {"location": location})
        case Download(chunks=chunks, media=media):
            return TimedStream(_bytes(chunks), status, {"content-type": media})
        case _:
            return Response(status_code=status)


class TimedStream(StreamingResponse):
    """A stream that ends when its reader does not read."""

    async def stream_response(self, send: Send) -> None:
        """Send chunk after chunk; each must leave within its time."""

        async def timed(message: Message) -> None:
            async with asyncio.timeout(SLOW_S):
                await send(message)

        try:
            await super().stream_response(timed)
        finally:
            await cast(AsyncGenerator[bytes, None], self.body_iterator).aclose()


async def _bytes(chunks: AsyncIterator[str]) -> AsyncGenerator[bytes, None]:
    async with aclosing(cast(AsyncGenerator[str, None], chunks)):
        async for chunk in chunks:
            yield chunk.encode()
