"""Live events: epochs, resume, reset, limits, readers that are gone or too many, the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest

from rota.client.client import Client
from rota.http import events, starlette_adapter
from rota.http.events import EventHub
from rota.http.options import HttpOptions
from rota.http.problems import RequestRefused
from rota.http.server import HttpServer
from tests.http.kit import API, app_on

ALL = frozenset(events.TOPICS)


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(f"sqlite:///{tmp_path}/rota.db")


async def reported(hub: EventHub, last_id: str = "", count: int = 1) -> list[tuple[str, str]]:
    """Id and event of the next events; comments are skipped."""
    found: list[tuple[str, str]] = []
    stream = cast(Any, hub.stream(ALL, last_id, hub.reserve("me")))
    async with aclosing(stream), asyncio.timeout(20):
        async for text in stream:
            fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
            if "event" in fields:
                assert json.loads(fields["data"]) == {"ids": [], "more": True}
                found.append((fields["id"], fields["event"]))
                if len(found) == count:
                    break
    return found


async def test_a_reader_resumes_where_it_was_and_reports_when_that_is_not_known(
    client: Client,
) -> None:
    async with client:
        hub = EventHub(client)
        hub.open()
        first = await reported(hub, count=5)
        assert {event for _, event in first} == ALL
        client.connection.wakeups.notified("schedule")
        [(newest, _)] = await reported(hub, last_id=first[-1][0])
        assert await reported(hub, last_id=first[0][0]) == [first[1]]
        epoch = newest.partition("-")[0]
        for unknown in (f"{epoch}-999999", "0badf00d-1", "nonsense", f"{epoch}-x"):
            assert (await reported(hub, last_id=unknown))[0][1] == "reset"
        hub.close()


async def test_wake_ups_of_one_moment_are_one_hint(client: Client) -> None:
    async with client:
        hub = EventHub(client)
        hub.open()
        first = await reported(hub, count=5)
        for _ in range(100):
            client.connection.wakeups.notified("schedule")
        await client.start("add", a=1)
        later = await reported(hub, last_id=first[-1][0], count=4)
        hub.close()
    assert [event for _, event in later] == ["automation", "pipeline", "run", "schedule"]


async def test_an_old_id_that_left_the_ring_is_reset(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "RING", 3)
    async with client:
        hub = EventHub(client)
        hub.open()
        first = await reported(hub, count=3)
        epoch = first[0][0].partition("-")[0]
        assert (await reported(hub, last_id=f"{epoch}-1"))[0][1] == "reset"
        hub.close()


async def test_streams_are_bounded_and_a_reader_that_is_gone_frees_its_slot(
    client: Client,
) -> None:
    async with client:
        hub = EventHub(client)
        hub.open()
        open_ones = [hub.stream(ALL, "", hub.reserve("me")) for _ in range(4)]
        for stream in open_ones:
            await anext(stream)
        with pytest.raises(RequestRefused) as refused:
            hub.reserve("me")
        assert (refused.value.status, refused.value.headers["retry-after"]) == (429, "5")
        hub.reserve("somebody else")
        await cast(Any, open_ones[0]).aclose()
        assert len(await reported(hub)) == 1
        hub.close()
        for stream in open_ones[1:]:
            assert all("reset" not in text for text in [text async for text in stream])


async def test_requests_of_one_moment_share_the_slots_that_are_left(client: Client) -> None:
    async with client:
        hub = EventHub(client)
        hub.open()
        promised = [hub.reserve("me") for _ in range(10)]
        streams = [hub.stream(ALL, "", slot) for slot in promised]
        begun = [[text async for text in _first(stream)] for stream in streams]
        hub.close()
    assert [len(texts) for texts in begun] == [1] * 4 + [0] * 6


async def _first(stream: AsyncIterator[str]) -> AsyncIterator[str]:
    """The first text of a stream, which stays open."""
    with contextlib.suppress(StopAsyncIteration):
        yield await anext(stream)


async def test_a_reader_that_vanishes_or_only_asks_for_headers_frees_its_slot(
    client: Client,
) -> None:
    async with client:
        server = HttpServer(client, HttpOptions(port=0))
        await server.start()
        port = int(server.address.rpartition(":")[2])
        hub = server._site._hub  # type: ignore[union-attr]
        async with httpx2.AsyncClient(base_url=server.address, timeout=10) as http:
            for _ in range(6):
                heads = await http.head(f"{API}/events")
                assert (heads.status_code, heads.text) == (200, "")
        for _ in range(6):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET {API}/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            await reader.readuntil(b"retry: 2000")
            assert hub._readers.total() == 1
            writer.transport.abort()
            await until_true(lambda: hub._readers.total() == 0)
        await server.stop()


async def until_true(holds: Callable[[], bool]) -> None:
    """Wait until something holds, up to 20 s."""
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.02)


async def test_a_reader_that_does_not_read_is_dropped(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starlette_adapter, "SLOW_S", 0.5)
    monkeypatch.setattr(events, "COALESCE_S", 0.0)
    async with client:
        server = HttpServer(client, HttpOptions(port=0))
        await server.start()
        port = int(server.address.rpartition(":")[2])
        hub = server._site._hub  # type: ignore[union-attr]
        monkeypatch.setattr(hub, "_line", lambda event, number: f": {'x' * 1_000_000}\n\n")
        with socket.create_connection(("127.0.0.1", port)) as lazy:
            lazy.sendall(f"GET {API}/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            await until_true(lambda: hub._readers.total() == 1)
            async with asyncio.timeout(20):
                while hub._readers.total():
                    client.connection.wakeups.notified("schedule")
                    await asyncio.sleep(0.02)
        await server.stop()


async def test_a_run_is_followed_to_its_end_and_resumed_by_any_process(database_url: str) -> None:
    app = app_on(database_url)
    async with app.connected():
        server = HttpServer(app, HttpOptions(port=0))
        await server.start()
        run = await app.start("add", 1)
        path = f"{API}/runs/{run.id}/events"
        async with httpx2.AsyncClient(base_url=server.address, timeout=30) as http:
            async with http.stream("GET", path) as stream:
                lines = stream.aiter_lines()
                pending = await until(lines, "event")
                await app.start_worker()
                ended = await until(lines, "event", "end")
            resumed = await http.get(path, headers={"last-event-id": ended["id"]})
            hints = asyncio.create_task(http.get(f"{API}/events"))
            await asyncio.sleep(0)
            await server.stop()
            await asyncio.wait({hints}, timeout=20)
    assert json.loads(pending["data"])["run"]["status"] == "pending"
    assert json.loads(ended["data"])["run"]["status"] == "completed"
    assert "event:" not in resumed.text, "it knows the end already"
    assert hints.done()
    hints.cancel()


async def until(lines: AsyncIterator[str], name: str, value: str = "") -> dict[str, str]:
    """The fields of the next event with that field."""
    fields: dict[str, str] = {}
    async for line in lines:
        if line:
            key, _, text = line.partition(": ")
            fields[key] = text
        elif name in fields and value in ("", fields[name]):
            return fields
        else:
            fields = {}
    raise AssertionError("the stream has ended")
