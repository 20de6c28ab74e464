"""A PostgreSQL that accepts no writes for a while: a standby, or a server under maintenance."""

from __future__ import annotations

import contextlib
import logging
import re

import pytest

from rota import Client, Rota, Start
from rota.errors import StoreReadOnly, StoreUnreachable
from tests.engine.kit import Gate
from tests.kit import execute, select, until

pytestmark = pytest.mark.pg

RUNS = 10
# Sessions keep the default they were opened with, as they keep the server they were opened on.
READ_ONLY = """do $$ begin execute format(
    'alter database %I set default_transaction_read_only = on', current_database()); end $$"""
WRITABLE = (
    "set default_transaction_read_only = off",
    """do $$ begin execute format(
    'alter database %I reset default_transaction_read_only', current_database()); end $$""",
)
DISCONNECT = """select pg_terminate_backend(pid) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid()"""


def gated_app(url: str, gate: Gate) -> Rota:
    app = Rota(url, migrate=True, lease_s=60, heartbeat_s=0.1, poll_s=0.1)

    @app.step
    async def wait(number: int) -> int:
        await gate(number)
        return number

    @app.workflow
    async def waits(number: int) -> int:
        return await wait(number)

    return app


async def test_runs_wait_for_a_server_that_is_read_only_for_a_while(
    own_database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    app = gated_app(own_database_url, gate)
    await app.start_worker()
    try:
        runs = await app.start_many("waits", [Start(args=(n,)) for n in range(RUNS)])

        async def all_begun() -> bool:
            return len(gate.entered) == RUNS

        await until(all_begun)
        with caplog.at_level(logging.WARNING, "rota.journal"):
            await execute(own_database_url, READ_ONLY, DISCONNECT)
            gate.open.set()

            async def refused() -> bool:
                return "read-only" in caplog.text

            await until(refused)
        # Nothing ends the connections made meanwhile: Rota does.
        await execute(own_database_url, *WRITABLE)
        assert [await run.result(timeout=60) for run in runs] == list(range(RUNS))
    finally:
        await app.close()
    rows = await select(own_database_url, "select status, attempt, recoveries from runs")
    assert rows == [("completed", 1, 0)] * RUNS
    assert sorted(gate.entered) == list(range(RUNS))


async def test_a_start_on_a_read_only_server_says_what_to_do_and_the_next_one_connects_again(
    own_database_url: str,
) -> None:
    async with Client(own_database_url, migrate=True) as client:
        await execute(own_database_url, READ_ONLY, DISCONNECT)
        with pytest.raises(StoreReadOnly) as refused:
            await _start_at_last(client)
        assert re.search("read-only", refused.value.message)
        assert "target_session_attrs" in refused.value.advice
        await execute(own_database_url, *WRITABLE)
        await _start_at_last(client)
    assert await select(own_database_url, "select count(*) from runs") == [(1,)]


async def _start_at_last(client: Client) -> None:
    """Start a run, past connections that the server has ended."""
    while True:
        with contextlib.suppress(StoreUnreachable):
            await client.start("waits", number=1)
            return
