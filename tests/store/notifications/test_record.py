"""Notifications are recorded with their cause, once, and cost runs that end well nothing."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from rota.core.notifications.model import NotificationKind
from rota.core.notifications.rules import NotificationFilters, NotificationRule
from rota.core.runs.model import Outcome
from rota.core.time.instants import DAY
from rota.engine.notification_loop import DELIVERY, QUEUE, dispatch_batch
from rota.store.backend.database import Database, Tx
from rota.store.backend.postgres import PostgresTx
from rota.store.backend.sqlite_threads import SqliteTx
from rota.store.notifications import record, rules
from rota.store.runs.settle import settle_runs
from rota.store.runs.start import continuation, successor
from tests.kit.builders import NOW, SPACE, begin, claim, fresh_id, settle, sound, sql

OPS = {"ops": ("code", NotificationRule(limit=3))}


async def _fails(db: Database, count: int) -> None:
    held = [await begin(db, name=f"w{number}") for number in range(count)]
    outcomes = [Outcome(one, "fail", reason="logic") for one in held]
    await db.write(settle_runs, outcomes, now=NOW)


async def _dispatch(db: Database, now: int = NOW) -> int:
    ids = (fresh_id() for _ in itertools.count())
    return (
        await db.write(dispatch_batch, namespace=SPACE, now=now, new_ids=ids, alive_after=0)
    ).started


async def test_several_at_once_send_each_message_once(db: Database) -> None:
    await db.write(rules.put, OPS, namespace=SPACE, origins=["code"])
    await _fails(db, 3)
    counts = await asyncio.gather(*(_dispatch(db) for _ in range(8)))
    assert sum(counts) == 3
    rows = await sql(db, f"select queue, status from runs where name = '{DELIVERY}'")
    assert rows == [(QUEUE, "pending")] * 3
    assert await sound(db)


@pytest.mark.parametrize(("trigger", "count"), [("detached", 1), ("child", 0)])
async def test_a_later_run_of_a_detached_chain_sends_its_own_news(
    db: Database, trigger: str, count: int
) -> None:
    await db.write(rules.put, OPS, namespace=SPACE, origins=["code"])
    first = await begin(db, trigger=trigger, parent_id="p")
    again = successor(first, fresh_id(), trigger="retry", available_at=NOW, attempt=2)
    await db.write(settle_runs, [Outcome(first, "fail", reason="logic", retry=again)], now=NOW)
    [second] = await claim(db)
    third = continuation(second, fresh_id(), body=None, version=None, now=NOW)
    await db.write(settle_runs, [Outcome(second, "continue", "continued", retry=third)], now=NOW)
    [last] = await claim(db)
    await db.write(settle_runs, [Outcome(last, "fail", reason="logic")], now=NOW)
    assert await sql(db, "select count(*) from notifications") == [(count,)]


async def test_a_settlement_that_is_rolled_back_leaves_no_notification(db: Database) -> None:
    await db.write(rules.put, OPS, namespace=SPACE, origins=["code"])
    held = await begin(db)

    async def dies(tx: Tx) -> None:
        await settle_runs(tx, [Outcome(held, "fail", reason="logic")], now=NOW)
        assert await record.fresh(tx, namespace=SPACE, limit=10)
        raise RuntimeError("the process dies")

    with pytest.raises(RuntimeError):
        await db.write(dies)
    assert await sql(db, "select * from notifications") == []
    assert await settle(db, held, "fail", reason="logic")
    assert not await settle(db, held, "fail", reason="logic")
    assert len(await sql(db, "select * from notifications")) == 1


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the statements, in order."""
    found: list[str] = []

    def noting(ask: Callable[..., Any]) -> Callable[..., Any]:
        def note(tx: Any, query: str, *args: Any, **words: Any) -> Any:
            found.append(query)
            return ask(tx, query, *args, **words)

        return note

    for kind in (SqliteTx, PostgresTx):
        for method in ("rows", "many", "change"):
            monkeypatch.setattr(kind, method, noting(getattr(kind, method)))
    return found


async def test_a_run_that_ends_well_pays_nothing_and_a_failed_batch_one_insert(
    db: Database, asked: list[str]
) -> None:
    await db.write(rules.put, OPS, namespace=SPACE, origins=["code"])
    held = await begin(db)
    asked.clear()
    assert await settle(db, held)
    assert asked == ["complete_runs"]
    asked.clear()
    await _fails(db, 5)
    assert asked.count("record_notifications") == 1
    assert "open_troubles" not in asked
    assert "close_troubles" not in asked
    assert len(await sql(db, "select * from notifications")) == 5


async def test_only_wanted_kinds_are_recorded(db: Database) -> None:
    missed = NotificationFilters(kinds=(NotificationKind.MISSED,))
    only = {"ops": ("code", NotificationRule(filters=missed))}
    await db.write(rules.put, only, namespace=SPACE, origins=["code"])
    await _fails(db, 1)
    await db.write(rules.put, OPS, namespace="other", origins=["code"])
    await _fails(db, 1)
    assert await sql(db, "select * from notifications") == []


async def test_old_notifications_are_pruned_when_they_are_dispatched(db: Database) -> None:
    await db.write(rules.put, OPS, namespace=SPACE, origins=["code"])
    await _fails(db, 2)

    async def pruned(before: int) -> int:
        return await db.write(record.prune, namespace=SPACE, before=before, limit=100)

    assert await pruned(NOW + DAY) == 0
    await _dispatch(db)
    assert await pruned(NOW) == 0
    assert await pruned(NOW + DAY) == 2
