"""`POST /mcp`: the MCP server behind the gate of all pages and routes."""

from __future__ import annotations

from http import HTTPStatus
from typing import Literal

from rota.http.mcp.protocol import McpServer
from rota.http.request import Answer, Empty, Text, WebRequest
from rota.http.table import Page


def mcp_page(allows: Literal["read", "write"]) -> Page:
    """The entry of the table; tools that change something need `write` and the role `operate`."""

    async def answer(request: WebRequest) -> Answer:
        writes = allows == "write" and request.identity.may("operate")
        reply = await McpServer(request, writes=writes).answer(request.body)
        if reply is None:
            return Empty(status=HTTPStatus.ACCEPTED)
        return Text(reply.decode(), "application/json")

    return Page("POST", "/mcp", "read", answer, audits=True)
