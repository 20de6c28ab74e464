"""The MCP server with the official client library: both eras, over stdio and over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import mcp
import pytest

from rota import Rota
from rota.client.client import Client
from rota.http.options import HttpOptions
from rota.http.server import HttpServer

Mode = Literal["auto", "legacy"]
ERAS: dict[Mode, str] = {"auto": "2026-07-28", "legacy": "2025-11-25"}


async def called(client: mcp.Client, tool: str, **arguments: Any) -> tuple[Any, bool]:
    found = await client.call_tool(tool, arguments)
    [content] = found.content
    assert content.type == "text"
    return json.loads(content.text), bool(found.is_error)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'rota.db'}"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ERAS)
async def test_it_reads_and_explains_over_stdio(url: str, mode: Mode) -> None:
    base = ["-m", "rota", "--database", url]
    subprocess.run([sys.executable, *base, "migrate"], check=True, capture_output=True)
    async with Client(url) as client:
        run = await client.start("anything", n=1)
    server = mcp.StdioServerParameters(command=sys.executable, args=[*base, "mcp"])
    async with mcp.Client(server, mode=mode) as assistant:
        assert assistant.protocol_version == ERAS[mode]
        assert assistant.server_info is not None
        assert assistant.server_info.name == "rota"
        tools = {tool.name: tool for tool in (await assistant.list_tools()).tools}
        assert tools["show_run"].input_schema["required"] == ["run_id"]
        assert "cancel_run" not in tools
        shown, failed = await called(assistant, "show_run", run_id=run.id)
        assert (shown["input"], failed) == ({"n": 1}, False)
        unknown, failed = await called(assistant, "show_run", run_id="nope")
        assert (unknown["code"], failed) == ("unknown_run", True)
        with pytest.raises(mcp.MCPError, match="no tool 'cancel_run'"):
            await assistant.call_tool("cancel_run", {"run_id": run.id})
    async with Client(url) as client:
        verbs = [one.verb for one in await client.audit.list()]
        assert verbs.count("mcp show_run") == 2, "a call that failed is in the audit list as well"
        assert (await client.runs.get(run.id)).status == "pending"


@pytest.mark.parametrize("mode", ERAS)
async def test_it_steers_over_http_where_that_is_allowed(url: str, mode: Mode) -> None:
    app = Rota(url)
    async with app.connected():
        run = await Client.start(app, app.workflow(_work))
        server = HttpServer(app, HttpOptions(port=0, mcp="write"))
        await server.start()
        try:
            async with mcp.Client(f"{server.address}/mcp", mode=mode) as assistant:
                assert assistant.protocol_version == ERAS[mode]
                stopped, failed = await called(assistant, "cancel_run", run_id=run.id)
                assert not failed
                assert run.id in str(stopped)
        finally:
            await server.stop()
        assert (await app.runs.get(run.id)).status == "cancelled"
        assert [one.verb for one in await app.audit.list()] == ["mcp cancel_run"]


@pytest.mark.slow
async def test_declared_secret_fields_are_hidden_over_stdio(url: str, tmp_path: Path) -> None:
    (tmp_path / "rota.toml").write_text('[settings]\nsecret_fields = ["pin"]\n')
    base = ["-m", "rota", "--database", url]
    subprocess.run([sys.executable, *base, "migrate"], check=True, capture_output=True)
    async with Client(url) as client:
        run = await client.start("anything", pin="4711")
    server = mcp.StdioServerParameters(
        command=sys.executable, args=[*base, "mcp"], cwd=str(tmp_path)
    )
    async with mcp.Client(server) as assistant:
        shown, _ = await called(assistant, "show_run", run_id=run.id)
    assert shown["input"] == {"pin": "[redacted]"}


async def _work() -> None: ...
