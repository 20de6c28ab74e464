"""HTTP, MCP and the dashboard follow a chain that continues as new to its newest run."""

from __future__ import annotations

import json
from typing import Any

import rota
from rota import Rota, wait_for
from rota.client.client import Client
from rota.core.access.model import Role
from rota.http.mcp.protocol import McpServer
from rota.http.request import Identity, SiteState, WebRequest
from rota.testing import virtual
from tests.http.kit import API, BASE, browsing


def chatting() -> tuple[Rota, Any]:
    app = Rota()

    @app.workflow
    async def chat(n: int = 0) -> int:
        said = await wait_for("say", type=int)
        if n < 2:
            raise rota.continue_as_new(n + said)
        return n

    return app, chat


async def tool(client: Client, name: str, **arguments: Any) -> Any:
    """The answer of a tool of the MCP server."""
    who = Identity("ann", Role.READ)
    server = McpServer(WebRequest("POST", "/mcp", client, who, site=SiteState(url=BASE)))
    params = {"name": name, "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = await server.answer(json.dumps(message).encode())
    assert answer is not None
    return json.loads(json.loads(answer)["result"]["content"][0]["text"])


async def test_the_api_shows_the_newest_run(database_url: str) -> None:
    app, chat = chatting()
    async with virtual(app, url=database_url) as world, browsing(app) as http:
        run = await chat.options(external_id="c").start()
        for _ in range(2):
            await world.settle()
            sent = await http.post(f"{API}/runs/c/signals/say", json={"value": 1})
            assert sent.status_code < 300, sent.text
        await world.settle()
        chain = await app.runs.chain(run.id)
        for name in (run.id, "c", chain[1].id):
            shown = (await http.get(f"{API}/runs/{name}")).json()
            assert (shown["id"], shown["input"], shown["status"]) == (
                chain[2].id, {"n": 2}, "sleeping",
            )  # fmt: skip
            assert shown["segment_id"] == chain[2].id
            assert (await tool(app, "show_run", run_id=name))["id"] == chain[2].id
        attempts = (await http.get(f"{API}/runs/{run.id}/attempts")).json()
        assert [one["label"] for one in attempts] == [
            "completed:continued", "completed:continued", "sleeping:signal",
        ]  # fmt: skip
        assert [one["input"] for one in attempts] == [None, {"n": 1}, {"n": 2}]
        why = (await http.get(f"{API}/runs/{run.id}/why")).json()
        assert why["verdict"] == "waits_signal"
        early = await http.get(f"{API}/runs/{run.id}/result")
        assert early.status_code == 202
        steps = (await http.get(f"{API}/runs/{run.id}/steps")).json()
        assert [step["status"] for step in steps] == ["waiting"]
        old = (await http.get(f"{API}/runs/{chain[1].id}/steps")).json()
        assert [step["status"] for step in old] == ["completed"]
        await run.signal("say", 0)
        await world.drain()
        ended = await http.get(f"{API}/runs/c/result")
        assert (ended.status_code, ended.json()["output"]) == (200, 2)


async def test_the_pages_link_the_runs_of_a_chain(database_url: str) -> None:
    app, chat = chatting()
    async with virtual(app, url=database_url) as world, browsing(app) as http:
        run = await chat.start()
        await run.signal("say", 2)
        await world.settle()
        first, last = await app.runs.chain(run.id)
        before = (await http.get(f"/runs/{first.id}")).text
        assert "It continued as new" in before
        assert "Continued as" in before
        assert f"/runs/{last.id}" in before
        after = (await http.get(f"/runs/{last.id}")).text
        assert "Continues" in after
        assert f"/runs/{first.id}" in after


async def test_the_stream_of_events_follows(database_url: str) -> None:
    app, chat = chatting()
    async with virtual(app, url=database_url) as world, browsing(app) as http:
        run = await chat.start()
        for said in (2, 0):
            await run.signal("say", said)
            await world.settle()
        await world.drain()
        text = (await http.get(f"{API}/runs/{run.id}/events")).text
        assert "event: end" in text
        assert '"label":"completed"' in text.replace(" ", "")
