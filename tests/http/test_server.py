"""Sockets, ports and the life of the server."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import httpx2
import pytest

from rota.client.client import Client
from rota.errors import BadSetting, UsageError
from rota.http import address, options
from rota.http.options import HttpOptions
from rota.http.server import HttpServer, bound


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(f"sqlite:///{tmp_path}/rota.db")


def taken() -> socket.socket:
    """A listening socket on a free port."""
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    held.listen()
    return held


async def test_a_busy_default_port_is_replaced_by_the_next_free_one(client: Client) -> None:
    async with client:
        with taken() as held:
            port = held.getsockname()[1]
            server = HttpServer(client, HttpOptions(port=port))
            await server.start()
            async with httpx2.AsyncClient(base_url=server.address) as http:
                answer = await http.get("/static/none")
            await server.stop()
    assert answer.status_code == 404
    assert server.address != f"http://127.0.0.1:{port}"
    with socket.socket() as again, pytest.raises(OSError, match="refused"):
        again.connect(("127.0.0.1", int(server.address.rpartition(":")[2])))


async def test_a_port_that_was_given_is_not_replaced(client: Client) -> None:
    async with client:
        with taken() as held:
            given = options.at(HttpOptions(), f":{held.getsockname()[1]}")
            with pytest.raises(UsageError, match="another program has it"):
                await HttpServer(client, given).start()


async def test_connections_send_their_answers_without_delay() -> None:
    seen: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        seen.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    for listening in bound(HttpOptions(port=0)):
        async with await asyncio.start_server(serve, sock=listening):
            reader, writer = await asyncio.open_connection(*listening.getsockname()[:2])
            await reader.read()
            writer.close()
    assert seen
    assert all(seen), "an answer would wait for the acknowledgement of the last one"


async def test_an_address_that_others_reach_needs_tokens(client: Client) -> None:
    async with client:
        for host in ("0.0.0.0", "::", "192.0.2.1", "rota.example.org"):
            with pytest.raises(UsageError, match="there is no token") as refused:
                await HttpServer(client, HttpOptions(host=host, port=0)).start()
            assert "rota token create" in refused.value.advice


def test_an_address_of_the_command_line_beats_the_file() -> None:
    table = options.load({"host": "127.0.0.2", "port": 9000}, source="rota.toml")
    assert options.at(table, ":0").port == 0
    assert options.at(table, "::1").host == "::1"
    assert options.at(table, "[::1]:81").port == 81
    assert options.at(table, "localhost").port == 9000
    with pytest.raises(BadSetting):
        options.at(table, "localhost:http")
    with pytest.raises(BadSetting, match=r"\[http\]: unknown key \"hots\"; did you mean"):
        options.load({"hots": []}, source="rota.toml")


async def test_the_server_of_a_database_is_found_among_others(tmp_path: Path) -> None:
    ours, theirs = (Client(f"sqlite:///{tmp_path}/{name}.db") for name in ("ours", "theirs"))
    async with ours, theirs:
        other = HttpServer(theirs, HttpOptions(port=0))
        await other.start()
        port = int(other.address.rpartition(":")[2])
        own = HttpServer(ours, HttpOptions(port=port))
        await own.start()
        near = HttpOptions(port=port)
        found = await asyncio.to_thread(address.find, near, address.store_key(ours))
        only = HttpOptions(port=port, port_given=True)
        nowhere = await asyncio.to_thread(address.find, only, address.store_key(ours))
        await own.stop()
        await other.stop()
    assert found == own.address
    assert nowhere is None


async def test_a_server_without_a_worker_is_notified_by_other_processes(database_url: str) -> None:
    topics: list[str] = []
    async with Client(database_url, migrate=True) as own, Client(database_url) as other:
        server = HttpServer(own, HttpOptions(port=0))
        await server.start()
        own.connection.wakeups.subscribe(topics.append)
        try:
            async with asyncio.timeout(10):
                while "ready" not in topics:
                    await other.start("anything")
                    await asyncio.sleep(0.05)
        finally:
            await server.stop()


def over(path: Path, **headers: str) -> httpx2.AsyncClient:
    """A program that connects to a Unix socket."""
    return httpx2.AsyncClient(
        transport=httpx2.AsyncHTTPTransport(uds=str(path)), base_url="http://localhost",
        headers=headers,
    )  # fmt: skip


async def test_a_unix_socket_is_as_free_as_loopback_for_its_user_only(
    client: Client, tmp_path: Path
) -> None:
    path = tmp_path / "rota.sock"
    async with client:
        server = HttpServer(client, HttpOptions(socket=str(path)))
        await server.start()
        mode = path.stat().st_mode & 0o777
        async with over(path) as http:
            me = await http.get("/api/v1/me")
            written = await http.post("/api/v1/queues/default/pause", json={})
            form = await http.post("/queues/default/pause", data={"a": "b"})
            page = await http.get("/runs", headers={"accept": "text/html"})
            foreign = await http.get("/api/v1/me", headers={"origin": "http://evil.example"})
            rebound = await http.get("/api/v1/me", headers={"host": "evil.example"})
        with pytest.raises(UsageError, match="cannot be used"):
            await HttpServer(client, HttpOptions(socket=str(path))).start()
        await server.stop()
    assert (server.address, mode) == (f"unix:{path}", 0o600)
    assert (me.json()["name"], me.json()["role"]) == ("local", "admin")
    assert [one.status_code for one in (written, form, page, foreign, rebound)] == [
        204, 403, 200, 403, 421,
    ]  # fmt: skip
    assert not path.exists()


async def test_a_socket_of_a_dead_server_is_replaced_and_a_file_is_not(
    client: Client, tmp_path: Path
) -> None:
    left, file = tmp_path / "left.sock", tmp_path / "file"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(left))
    file.write_text("mine")
    async with client:
        server = HttpServer(client, HttpOptions(socket=str(left)))
        await server.start()
        async with over(left) as http:
            assert (await http.get("/health/live")).text == "ok\n"
        await server.stop()
        for path in (file, tmp_path / ("x" * 120), tmp_path / "none" / "s"):
            with pytest.raises(UsageError, match="cannot be used"):
                await HttpServer(client, HttpOptions(socket=str(path))).start()
    assert file.read_text() == "mine"


def test_a_socket_is_named_by_the_file_and_an_address_beats_it() -> None:
    found = options.load({"socket": "run/rota.sock"}, source="rota.toml")
    assert (found.is_free, found.address(80)) == (True, "unix:run/rota.sock")
    assert options.at(found, ":9000").socket == ""
    behind = options.load({"socket": "s", "url": "https://rota.example.org"}, source="rota.toml")
    assert (behind.is_free, behind.address(80)) == (False, "https://rota.example.org")
    with pytest.raises(UsageError, match="no browser opens"):
        address.find(found, "key")
