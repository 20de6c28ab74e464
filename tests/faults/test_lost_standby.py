"""A synchronous standby that is gone: commits hang, and their server processes are not replaced
without end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from rota import errors
from rota.settings import Settings
from rota.store.backend import migrate
from rota.store.backend.database import open_url
from rota.store.runs import history
from rota.store.runs.start import start_runs
from tests.kit import execute, select
from tests.kit.builders import NOW, SPACE, new_run
from tests.kit.postgres import PostgresServer

pytestmark = [
    pytest.mark.pg,
    pytest.mark.slow,
    pytest.mark.wall_clock("commits hang until timeouts of real seconds"),
]

CONNECTIONS = 3
LIMIT = 2 * CONNECTIONS + 1  # those in use, those that hang, one that looks
PROCESSES = "select count(*) from pg_stat_activity where application_name = 'rota'"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresServer]:
    monkeypatch.setattr("rota.store.backend.postgres.SILENCE_S_MIN", 0.2)
    with PostgresServer(durable=True) as server:
        yield server


async def synchronous(server: PostgresServer, names: str) -> None:
    change = f"alter system set synchronous_standby_names = '{names}'"
    await execute(server.url(), change, "select pg_reload_conf()")


async def processes(server: PostgresServer) -> int:
    return int((await select(server.url(), PROCESSES))[0][0])


async def start_until(db: Any, over: asyncio.Event, refusals: list[errors.StoreError]) -> int:
    """Start runs one after another; how many were acknowledged."""
    count = 0
    while not over.is_set():
        try:
            await db.write(start_runs, [new_run()], now=NOW)
            count += 1
        except errors.StoreError as error:
            refusals.append(error)
            await asyncio.sleep(0.02)
    return count


async def test_server_processes_that_hang_are_not_replaced_without_end(
    server: PostgresServer,
) -> None:
    db = open_url(server.url(), Settings(connections=CONNECTIONS, lease_s=1))
    await db.open()
    await migrate.prepare(db, migrate=True, now=NOW)
    over, refusals = asyncio.Event(), list[errors.StoreError]()
    callers = [asyncio.create_task(start_until(db, over, refusals)) for _ in range(CONNECTIONS)]
    await synchronous(server, "gone")
    most = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(4):
            while True:
                most = max(most, await processes(server))
                await asyncio.sleep(0.1)
    assert CONNECTIONS < most <= LIMIT
    seen = [error for error in refusals if "do not answer" in error.message]
    assert isinstance(seen[-1], errors.StoreUnreachable)
    assert "SyncRep" in seen[-1].message
    assert "synchronous_standby_names" in seen[-1].advice

    await synchronous(server, "")
    refusals.clear()
    await asyncio.sleep(1.5)
    over.set()
    acknowledged = sum(await asyncio.gather(*callers))
    counts = await db.read(history.counts, namespace=SPACE)
    assert 0 < acknowledged <= counts["pending"]
    refusals.clear()
    await db.write(start_runs, [new_run()], now=NOW)
    assert await processes(server) <= CONNECTIONS
    await db.close()


async def test_callers_that_give_up_leave_few_server_processes(server: PostgresServer) -> None:
    db = open_url(server.url(), Settings(connections=CONNECTIONS))
    await db.open()
    await migrate.prepare(db, migrate=True, now=NOW)
    await synchronous(server, "gone")
    for _ in range(3 * CONNECTIONS):
        with contextlib.suppress(TimeoutError, errors.StoreUnreachable):
            async with asyncio.timeout(0.3):
                await db.write(start_runs, [new_run()], now=NOW)
    assert await processes(server) <= LIMIT
    await synchronous(server, "")
    await db.close()
