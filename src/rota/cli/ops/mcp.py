"""`rota mcp`: an MCP server for an assistant, on standard input and output."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from rota.cli import complete, connect, exit_codes
from rota.cli.base import BaseCommand, CommonOptions
from rota.client.answers import user_name
from rota.client.client import Client
from rota.core.access.model import Role

if TYPE_CHECKING:
    from rota.http.mcp.protocol import McpServer

MESSAGE_BYTES_MAX = 4 * 1024 * 1024


@click.command(cls=BaseCommand)
@click.argument("target", required=False, shell_complete=complete.files)
@click.option("--write", is_flag=True, help="Offer trigger, pause, resume, retry and cancel.")
@click.pass_obj
def mcp(call: CommonOptions, target: str | None, write: bool) -> int:
    """Serve an AI assistant over MCP on stdin and stdout.

    Tools read runs, schedules, automations and pipelines, and explain them. Without --write nothing
    can be changed. No tool approves or answers: the assistant gets the address of the page where
    you do. Each call is in `rota audit`.
    """
    from rota.http.mcp.protocol import McpServer
    from rota.http.request import Identity, SiteState, WebRequest

    call.project = target or call.project
    client = connect.client_of(call)
    options = connect.http_options(connect.project_of(call), None)
    who = Identity(f"{user_name()} (mcp)", Role.OPERATE if write else Role.READ)
    state = SiteState(url=options.address(options.port))
    request = WebRequest("POST", "/mcp", client, who, site=state)
    return asyncio.run(_serve(client, McpServer(request, writes=write)))


async def _serve(client: Client, server: McpServer) -> int:
    reader = asyncio.StreamReader(limit=MESSAGE_BYTES_MAX)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await client.connect()
    try:
        while line := await reader.readline():
            if line.strip() and (answer := await server.answer(line)) is not None:
                sys.stdout.buffer.write(answer + b"\n")
                sys.stdout.buffer.flush()
    finally:
        await client.close()
    return exit_codes.OK
