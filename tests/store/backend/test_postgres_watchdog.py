"""Connections that get no answer are given up, and only those. Closing leaves none open."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota.settings import Settings
from rota.store.backend.database import open_url
from rota.store.backend.postgres_watchdog import LOOKS, ConnectionWatchdog, WatchedConnection

FOR_EVER_S = 3600.0  # the tests look themselves


class Asker(WatchedConnection):
    """A transaction, and the connection it would end."""

    def __init__(self) -> None:
        super().__init__(self)
        self.ended = asyncio.Event()

    def terminate(self) -> None:
        self.ended.set()


@pytest.fixture
def watchdog() -> ConnectionWatchdog:
    return ConnectionWatchdog(FOR_EVER_S, Asker.terminate)


async def test_a_statement_without_an_answer_loses_its_connection(
    watchdog: ConnectionWatchdog,
) -> None:
    one = Asker()
    watchdog.watch(one)
    for _ in range(LOOKS):
        watchdog._look()
    assert not one.ended.is_set()
    watchdog._look()
    assert one.ended.is_set()


async def test_one_statement_after_another_may_take_as_long_as_they_like(
    watchdog: ConnectionWatchdog,
) -> None:
    one = Asker()
    watchdog.watch(one)
    for _ in range(5 * LOOKS):
        watchdog._look()
        one.looks = 0  # the next statement
    assert not one.ended.is_set()


async def test_what_has_its_answer_is_left_alone(watchdog: ConnectionWatchdog) -> None:
    done, other = Asker(), Asker()
    watchdog.watch(done)
    watchdog.watch(other)
    watchdog.forget(done)
    for _ in range(LOOKS + 1):
        watchdog._look()
    assert (done.ended.is_set(), other.ended.is_set()) == (False, True)


async def test_it_looks_by_itself_until_it_is_closed() -> None:
    watchdog = ConnectionWatchdog(0.004, Asker.terminate)
    one = Asker()
    watchdog.watch(one)
    await one.ended.wait()
    assert watchdog._timer is not None
    watchdog.close()
    assert watchdog._timer is None


@pytest.mark.pg
async def test_a_transaction_that_outlives_the_close_ends_its_connection(postgres_url: str) -> None:
    db: Any = open_url(postgres_url, Settings())
    await db.open()
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(tx: Any) -> Any:
        begun.set()
        await go_on.wait()
        return tx.connection

    writing = asyncio.ensure_future(db.write(slow))
    await begun.wait()
    await db.close()
    go_on.set()
    assert (await writing).is_closed()
