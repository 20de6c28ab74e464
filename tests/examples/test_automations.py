"""The examples of automations really work, offline: on virtual time, and one with a real daemon."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.testing import virtual
from tests.cli.kit import Daemon
from tests.kit import until
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.slow

MADE = shutil.ignore_patterns("*.db*", "__pycache__", "digests", "received.jsonl")


def copied(name: str, tmp_path: Path) -> Path:
    """A copy of an example, without what earlier runs left in it."""
    folder = tmp_path / name
    shutil.copytree(ROOT / "examples" / name, folder, ignore=MADE)
    return folder


def imported(path: Path) -> Any:
    """A module of a copied example."""
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# -- a folder to a table -----------------------------------------------------------------------


def rows_of(path: Path) -> list[tuple[Any, ...]]:
    """The table, in order."""
    db = sqlite3.connect(path)
    try:
        return db.execute("select file, item, count from stock order by file, item").fetchall()
    finally:
        db.close()


async def test_files_become_rows_once_and_a_changed_file_replaces_its_own(tmp_path: Path) -> None:
    watcher = imported(copied("folder-to-table", tmp_path) / "watcher.py")
    inbox = watcher.HERE / "inbox"
    async with virtual(watcher.app) as world:
        await world.advance("1m")
        shipped = [
            ("monday.csv", "jam", 3), ("monday.csv", "tea", 12),
            ("tuesday.csv", "sugar", 20), ("tuesday.csv", "tea", 7),
        ]  # fmt: skip
        assert rows_of(watcher.STOCK) == shipped
        await world.advance("5m")
        assert rows_of(watcher.STOCK) == shipped
        (inbox / "monday.csv").write_text("item,count\njam,4\n")
        (inbox / "tuesday.csv").unlink()
        await world.advance("1m")
        assert rows_of(watcher.STOCK) == [("monday.csv", "jam", 4), *shipped[2:]]
        outputs = await watcher.app.automations.outputs("stock")
        assert [row.status for row in outputs] == ["applied"] * 3
        assert outputs[0].title == "Load 1 rows of monday.csv"
        view = await watcher.app.automations.show("stock")
        assert view.status == "Idle"


async def test_a_file_that_is_gone_before_it_is_read_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = imported(copied("folder-to-table", tmp_path) / "watcher.py")
    real = watcher.list_files.perform
    looks = []

    async def listed(params: Any, call: Any) -> Any:
        """The second poll of the producer still sees the file, and none after it."""
        found = await real(params, call)
        looks.append(params.glob)
        if looks == ["*.csv", "*.csv"]:
            (watcher.HERE / "inbox" / "monday.csv").unlink()
        return found

    monkeypatch.setattr(watcher.list_files, "perform", listed)
    async with virtual(watcher.app) as world:
        await world.advance("1m")
        assert "monday.csv" in looks
        assert rows_of(watcher.STOCK) == [("tuesday.csv", "sugar", 20), ("tuesday.csv", "tea", 7)]
        assert (await watcher.app.automations.show("stock")).status == "Idle"
        events = await watcher.app.automations.events("stock")
        assert {event.status for event in events} == {"consumed"}


# -- a feed to a daily digest ------------------------------------------------------------------


async def test_the_news_of_a_day_is_one_file_in_the_morning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = imported(copied("feed-to-digest", tmp_path) / "digest.py")
    server = digest.serve(0)
    monkeypatch.setattr(digest, "FEED", f"http://127.0.0.1:{server.server_address[1]}/feed.xml")
    written = digest.HERE / "digests"
    try:
        async with virtual(digest.app) as world:
            await world.advance("6h59m")
            assert not written.exists()
            pending = await digest.app.automations.pending("news")
            assert [one.input.title for one in pending] == [
                "Kettle boils by itself",
                "Jam shortage is over",
            ]
            await world.advance("1m")
            [first] = sorted(written.iterdir())
            assert first.name == "2030-01-01.md"
            assert first.read_text().count("## [") == 2
            assert await digest.app.automations.pending("news") == []
            await world.advance("24h")
            assert len(list(written.iterdir())) == 1
    finally:
        server.shutdown()
        server.server_close()


def test_the_demonstration_of_two_days_prints_the_digest(tmp_path: Path) -> None:
    folder = copied("feed-to-digest", tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    child = subprocess.run(
        [sys.executable, "digest.py"], cwd=folder, capture_output=True, text=True, timeout=90,
        env=os.environ | {"PORT": port},
    )  # fmt: skip
    assert child.returncode == 0, child.stderr
    assert "2030-01-03 00:00  Idle: " in child.stdout
    assert "# The morning of 2030-01-01" in child.stdout


# -- an inbox to a webhook ---------------------------------------------------------------------


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Any]:
    """The counterpart, open on a port of its own."""
    folder = copied("inbox-to-webhook", tmp_path)
    shop = imported(folder / "counterpart.py").Shop(0, folder)
    thread = threading.Thread(target=shop.serve_forever)
    thread.start()
    yield shop
    shop.shutdown()
    thread.join()
    shop.server_close()


async def test_each_message_arrives_once_though_answers_are_lost(
    shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SITE", shop.url)
    bridge = imported(shop.book.parent / "bridge.py")
    async with virtual(bridge.app) as world:
        await world.advance("5m")
        assert shop.taken() == ["m-1", "m-2", "m-3", "m-4", "m-5"]
        seen = await bridge.app.automations.inputs("bridge")
        assert [one.status for one in seen] == ["done"] * 5
        outputs = await bridge.app.automations.outputs("bridge")
        applied = [row.resolved_by for row in outputs if row.status == "applied"]
        assert len(applied) == 5
        assert {"tool", "reconcile"} == set(applied)
        assert any(row.status == "failed" for row in outputs)  # refused, found out, sent again
        shop.messages.append({"number": 6, "id": "m-6", "from": "Flo", "text": "One more."})
        await world.advance("1m")
        assert shop.taken()[-1] == "m-6"


async def test_a_delivery_waits_for_a_person_who_wants_to_be_asked(
    shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SITE", shop.url)
    monkeypatch.setenv("ASK_FIRST", "1")
    bridge = imported(shop.book.parent / "bridge.py")
    async with virtual(bridge.app) as world:
        await world.advance("1m")
        assert shop.taken() == []
        view = await bridge.app.automations.show("bridge")
        assert view.sentence == "Waiting for your approval: Deliver m-1"
        assert view.mutation is not None
        sent = json.loads(view.mutation.params)
        assert (sent["url"], sent["json"]["id"]) == ("/hook", "m-1")
        await bridge.app.automations.approve("bridge")
        await world.advance("1m")
        assert shop.taken() == ["m-1"]


def test_a_killed_daemon_delivers_nothing_twice(shop: Any) -> None:
    folder = shop.book.parent
    first = Daemon(folder, SITE=shop.url)
    try:
        asyncio.run(until(lambda: taken(shop, 2), timeout_s=40))
    finally:
        first.end()
    second = Daemon(folder, SITE=shop.url)
    try:
        asyncio.run(until(lambda: taken(shop, 5), timeout_s=60))
    finally:
        second.end()
    assert sorted(shop.taken()) == ["m-1", "m-2", "m-3", "m-4", "m-5"]


async def taken(shop: Any, count: int) -> bool:
    """Whether the shop has so many messages."""
    return len(shop.taken()) >= count
