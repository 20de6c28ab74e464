"""Notifications between processes: what a commit sends, and what is left to the listeners."""

from __future__ import annotations

import asyncio
import importlib
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from rota.core.runs.model import NewRun
from rota.core.runs.notified_workers import read_call
from rota.engine.wakeups import Wakeups
from rota.store.backend.database import Database
from rota.store.backend.sqlite_wakeup import TOKEN_BYTES
from rota.store.runs.start import start_runs
from tests.kit.builders import NOW, new_run, opened, status


class Listener:
    """The received notifications, and waiting for them."""

    def __init__(self) -> None:
        self.notified: asyncio.Queue[str] = asyncio.Queue()

    async def next(self) -> str:
        return await asyncio.wait_for(self.notified.get(), 30)


async def listening(db: Database) -> Listener:
    """A listener that gets this process's own notifications too, as another process would."""
    if db.dialect.name != "postgres":
        pytest.skip("a file sends no notifications")
    listener = Listener()
    await db.listen(lambda payload: listener.notified.put_nowait(read_call(payload).topic))
    assert await listener.next() == "*"
    database: Any = db
    database._own.clear()
    return listener


async def start(db: Database, run: NewRun) -> None:
    await Wakeups(db).write(("ready",), start_runs, [run], now=NOW)


async def test_a_start_notifies_after_its_commit(db: Database) -> None:
    listener, run = await listening(db), new_run()
    await start(db, run)
    assert await listener.next() == "ready"
    assert await status(db, run.id) == "pending"


async def test_a_transaction_that_fails_notifies_nobody(db: Database) -> None:
    listener = await listening(db)

    async def fail(tx: Any) -> None:
        await start_runs(tx, [new_run()], now=NOW, alone=False)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await Wakeups(db).write(("timer",), fail)
    await db.notify(["done"])
    assert await listener.next() == "done"


async def test_a_change_that_is_stored_does_not_fail_with_its_notification(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller would start it again, and it would run twice."""
    if db.dialect.name != "postgres":
        pytest.skip("a file sends no notifications")
    module = importlib.import_module(type(db).__module__)

    async def cut(tx: Any, channel: str, topics: Any) -> None:
        tx.connection.terminate()
        await tx.rows("notify", alone=True, channel=channel, topics=topics)

    monkeypatch.setattr(module, "notify", cut)
    run = new_run()
    await start(db, run)
    assert await status(db, run.id) == "pending"


async def test_every_call_notifies_before_it_returns(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop of a script stops then, and a listener polls again only after seconds."""
    sent = _noted(db, monkeypatch)
    for topic in ("ready", "ready", "done"):
        await db.notify([topic])
    assert sent == [["ready"], ["ready"], ["done"]]


async def test_calls_during_a_notification_share_the_next_one(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = _noted(db, monkeypatch)
    await asyncio.gather(*(db.notify([topic]) for topic in ("ready", "timer", "done", "timer")))
    assert sent == [["ready"], ["done", "timer"]]


def _noted(db: Database, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The topics of each NOTIFY, once the server has answered it."""
    if db.dialect.name != "postgres":
        pytest.skip("a file sends no notifications")
    sent: list[list[str]] = []

    async def note(tx: Any, channel: str, topics: list[str]) -> None:
        await tx.rows("notify", alone=True, channel=channel, topics=topics)
        sent.append(topics)

    monkeypatch.setattr(importlib.import_module(type(db).__module__), "notify", note)
    return sent


async def test_every_packet_is_sent_before_the_call_returns(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'rota.db'}"
    async with opened(url) as db, opened(url) as other:
        await other.listen(lambda topic: None)
        files: Any = other
        listener = files._signal._transport.get_extra_info("socket")
        with socket.socket(fileno=os.dup(listener.fileno())) as port:  # past the event loop
            await db.notify(["ready", "ready"])
            await db.notify(["done"])
            packets = [port.recv(99)[TOKEN_BYTES:] for _ in range(4)]
    assert packets == [b"", b"ready", b"ready", b"done"]
