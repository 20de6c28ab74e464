"""Notifications between processes: what a commit sends, and what is left to the listeners."""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

import pytest

from rota.core.runs.notified_workers import read_call
from rota.errors import UnknownRun
from rota.store.backend.database import Database
from rota.store.runs.start import start_runs
from tests.kit.builders import NOW, new_run, status


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


@pytest.mark.parametrize(
    "fields",
    [{}, {"external_id": "x"}, {"input": f'"{"x" * 5000}"'}],
    ids=["plain", "external id", "long input"],
)
async def test_the_commit_of_a_single_start_notifies(db: Database, fields: dict[str, Any]) -> None:
    listener = await listening(db)
    run = new_run(**fields)
    await db.write_and_notify(["ready"], True, start_runs, [run], now=NOW)
    assert await listener.next() == "ready"
    assert await status(db, run.id) == "pending"


async def test_a_transaction_that_fails_notifies_nobody(db: Database) -> None:
    listener = await listening(db)

    async def fail(tx: Any) -> None:
        await start_runs(tx, [new_run()], now=NOW, alone=False)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await db.write_and_notify(["timer"], False, fail)
    await db.notify(["done"])
    assert await listener.next() == "done"


async def test_a_start_that_is_stored_does_not_fail_with_its_notification(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller would start it again, and it would run twice."""
    if db.dialect.name != "postgres":
        pytest.skip("a file sends no notifications")
    module = importlib.import_module(type(db).__module__)
    notify = module.PostgresTx.notify

    async def cut(tx: Any, channel: str, topics: Any) -> None:
        tx.connection.terminate()
        await notify(tx, channel, topics)

    monkeypatch.setattr(module.PostgresTx, "notify", cut)
    run = new_run()
    started = await db.write_and_notify(["ready"], True, start_runs, [run], now=NOW)
    assert [one.id for one in started] == [run.id]
    assert await status(db, run.id) == "pending"


async def test_a_change_that_fails_with_its_notification_is_not_stored(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    if db.dialect.name != "postgres":
        pytest.skip("a file sends no notifications")
    module = importlib.import_module(type(db).__module__)

    async def fail(tx: Any, channel: str, topics: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(module.PostgresTx, "notify", fail)
    run = new_run()
    with pytest.raises(ZeroDivisionError):
        await db.write_and_notify(["ready"], False, start_runs, [run], now=NOW)
    monkeypatch.undo()
    with pytest.raises(UnknownRun):
        await status(db, run.id)


async def test_of_brief_writes_in_a_row_one_notifies_and_a_slow_one_does(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = await listening(db)
    module = importlib.import_module(type(db).__module__)
    database: Any = db
    database.report_all = lambda topic: None  # as if the event loop stopped after each

    async def slow(tx: Any) -> None:
        # As if it took longer than listeners wait before they look again.
        monkeypatch.setattr(module, "NOTIFY_EVERY_S", 0)

    async def quick(tx: Any) -> None:
        return None

    monkeypatch.setattr(module, "NOTIFY_EVERY_S", 60)
    await db.write_and_notify(["ready"], True, quick)
    await db.write_and_notify(["ready"], True, quick)
    await db.write_and_notify(["ready"], True, slow)
    await db.notify(["done"])
    assert [await listener.next() for _ in range(3)] == ["ready", "ready", "done"]
