"""The MCP server: both eras of the protocol, what tools may do, and what they leave to a person."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rota.client.client import Client
from rota.core.access.model import Role
from rota.http.mcp.protocol import HANDSHAKE_VERSIONS, STATELESS_VERSIONS, VERSION_KEY, McpServer
from rota.http.mcp.tool import ANSWER_BYTES_MAX
from rota.http.mcp.tools import TOOLS
from rota.http.request import Identity, SiteState, WebRequest
from tests.http.kit import app_on, browsing, seed
from tests.http.kit.office import Office

PAGE = "http://127.0.0.1:8420"


def server_for(client: Client, *, writes: bool = False) -> McpServer:
    who = Identity("ann", Role.OPERATE if writes else Role.READ)
    request = WebRequest("POST", "/mcp", client, who, site=SiteState(url=PAGE))
    return McpServer(request, writes=writes)


async def ask(server: McpServer, method: str, /, **params: Any) -> Any:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = await server.answer(json.dumps(message).encode())
    assert answer is not None
    return json.loads(answer)


async def called(server: McpServer, tool: str, /, **arguments: Any) -> tuple[str, bool]:
    """The text of a tool's answer, and whether it failed."""
    found = (await ask(server, "tools/call", name=tool, arguments=arguments))["result"]
    return found["content"][0]["text"], found["isError"]


async def call(server: McpServer, tool: str, /, **arguments: Any) -> tuple[Any, bool]:
    """The answer of a tool, and whether it failed."""
    text, failed = await called(server, tool, **arguments)
    return (json.loads(text) if text.startswith(("{", "[")) else text), failed


@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
async def test_a_client_of_the_handshake_era_gets_the_version_it_asked_for(version: str) -> None:
    server = server_for(Client("sqlite:///:memory:"))
    found = (await ask(server, "initialize", protocolVersion=version))["result"]
    assert found["protocolVersion"] == version
    assert found["serverInfo"]["name"] == "rota"
    assert await server.answer(b'{"jsonrpc":"2.0","method":"notifications/initialized"}') is None


async def test_a_client_of_the_stateless_era_discovers_the_server_without_a_handshake() -> None:
    server = server_for(Client("sqlite:///:memory:"))
    meta = {VERSION_KEY: STATELESS_VERSIONS[-1]}
    found = (await ask(server, "server/discover", _meta=meta))["result"]
    assert found["supportedVersions"] == list(STATELESS_VERSIONS)
    assert (found["resultType"], found["ttlMs"]) == ("complete", 0)
    refused = (await ask(server, "tools/list", _meta={VERSION_KEY: "1999-01-01"}))["error"]
    assert refused["code"] == -32022
    assert refused["data"]["supported"] == list(STATELESS_VERSIONS)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"{", -32700), (b"[]", -32600), (b'"x"', -32600), (b"[" * 2000, -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"drop"}', -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":["why"]}}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"cancel_run"}}', -32602),
    ],
)  # fmt: skip
async def test_a_bad_message_gets_an_error_of_the_protocol(text: bytes, code: int) -> None:
    answer = await server_for(Client("sqlite:///:memory:")).answer(text)
    assert answer is not None
    assert json.loads(answer)["error"]["code"] == code


async def test_tools_that_change_something_exist_only_where_writing_is_allowed() -> None:
    client = Client("sqlite:///:memory:")
    read = (await ask(server_for(client), "tools/list"))["result"]["tools"]
    both = (await ask(server_for(client, writes=True), "tools/list"))["result"]["tools"]
    assert all(tool["annotations"]["readOnlyHint"] for tool in read)
    writing = {tool["name"] for tool in both} - {tool["name"] for tool in read}
    assert writing == {
        "trigger_schedule", "pause_schedule", "resume_schedule", "retry_run", "cancel_run",
        "retry_failed_items", "pause_automation", "resume_automation", "run_automation",
    }  # fmt: skip


def test_no_tool_answers_for_a_person_or_touches_tokens() -> None:
    taken = {tool.route.client for tool in TOOLS}
    forbidden = {"approve", "reject", "resolve", "tokens", "deploy", "rollback", "delete"}
    assert not {verb for verb in taken for word in forbidden if word in verb}


async def test_an_assistant_reads_explains_and_steers_and_every_call_is_audited(
    database_url: str,
) -> None:
    async with app_on(database_url).connected() as app:
        await seed(app)
        server = server_for(app, writes=True)
        listed, _ = await call(server, "list_runs", status="cancelled")
        [run] = listed["runs"]
        explained, failed = await call(server, "why", name="daily")
        assert (explained["verdict"], failed) == ("not_yet", False)
        started, failed = await call(server, "trigger_schedule", name="daily")
        assert not failed
        assert (await app.runs.get(started["id"])).name == "add"
        page, _ = await call(server, "answer_page", name="inbox")
        assert page["url"] == f"{PAGE}/automations/inbox"
        shown, _ = await call(server, "show_run", run_id=run["id"])
        assert shown["input"] == {"a": 8}
        entries = await app.audit.list()
        assert [(one.who, one.verb, one.target) for one in entries][-3:] == [
            ("ann", "mcp trigger_schedule", "daily"), ("ann", "mcp why", "daily"),
            ("ann", "mcp list_runs", ""),
        ]  # fmt: skip


async def test_a_wrong_call_is_an_answer_that_the_assistant_can_correct(database_url: str) -> None:
    async with app_on(database_url).connected() as app:
        server = server_for(app)
        unknown, failed = await call(server, "show_run", run_id="nope")
        assert (unknown["code"], failed) == ("unknown_run", True)
        misspelt, failed = await call(server, "list_runs", statsu="failed")
        assert failed
        assert "did you mean" in misspelt["detail"]
        typed, failed = await call(server, "list_runs", limit="many")
        assert (typed["code"], failed) == ("bad_input", True)
        missing, failed = await call(server, "show_run")
        assert (missing["code"], failed) == ("bad_input", True)


async def test_a_long_list_is_cut_to_a_page_with_a_cursor_that_fits(database_url: str) -> None:
    async with app_on(database_url).connected() as app:
        await app.start_many("add", [(number,) for number in range(150)])
        server = server_for(app)
        found, failed = await call(server, "list_runs", limit=200)
        assert not failed
        assert len(json.dumps(found)) < 1.3 * ANSWER_BYTES_MAX
        rest, _ = await call(server, "list_runs", limit=len(found["runs"]), cursor=found["next"])
        assert rest["runs"][0]["id"] < found["runs"][-1]["id"]


async def test_a_long_document_is_read_on_where_it_was_cut(database_url: str) -> None:
    app = app_on(database_url)

    @app.workflow
    async def keep(text: str) -> str:
        return text

    async with app.connected():
        text = "é" * ANSWER_BYTES_MAX
        run = await app.start(keep, text)
        server = server_for(app)
        whole, offset, parts = "", 0, 0
        while True:
            part, failed = await called(server, "show_run", run_id=run.id, offset=offset)
            assert not failed
            assert len(part.encode()) < ANSWER_BYTES_MAX + 200
            parts += 1
            kept, cut, note = part.rpartition("\n[cut at ")
            whole += kept if cut else part
            if not cut:
                break
            offset = int(note.partition("offset=")[2].rstrip("]"))
        assert (json.loads(whole)["input"], parts) == ({"text": text}, 3)
        for odd in (-1, "x", True, None):
            _, failed = await called(server, "show_run", run_id=run.id, offset=odd)
            assert failed


async def test_the_overview_and_the_cost_of_a_run_are_tools(
    database_url: str, tmp_path: Path
) -> None:
    office = Office(database_url, tmp_path)
    async with office.connected():
        await office.fill()
        server = server_for(office)
        found, _ = await call(server, "overview")
        assert found["counts"]["ended"]["failed"] >= 1
        assert found["workers"] == {"alive": 1}
        assert [queue["name"] for queue in found["queues"]] == ["default"]
        assert found["needs_attention"] == len((await call(server, "needs_attention"))[0])
        cost, _ = await call(server, "cost", run_id=office.run_ids["triage"], by="day")
        assert [share["items"] for share in cost["shares"]] == [2]


async def test_the_endpoint_is_off_by_default_and_needs_a_role_to_write(database_url: str) -> None:
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with app_on(database_url).connected() as app:
        async with browsing(app) as http:
            assert (await http.post("/mcp", json=listing)).status_code == 404
        reader = (await app.tokens.create("reader", role="read")).text
        async with browsing(app, mcp="write", require_login=True) as http:
            assert (await http.post("/mcp", json=listing)).status_code == 401
            held = {"authorization": f"Bearer {reader}"}
            found = await http.post("/mcp", json=listing, headers=held)
            names = {tool["name"] for tool in found.json()["result"]["tools"]}
            assert "why" in names
            assert "cancel_run" not in names
            note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            assert (await http.post("/mcp", json=note, headers=held)).status_code == 202


@pytest.mark.slow
def test_rota_mcp_answers_on_standard_output(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'rota.db'}"
    base = [sys.executable, "-m", "rota", "--database", url]
    subprocess.run([*base, "migrate"], check=True, capture_output=True)
    listing = '{"jsonrpc":"2.0","id":7,"method":"tools/list"}\n'
    done = subprocess.run([*base, "mcp"], input=listing, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["id"] == 7
