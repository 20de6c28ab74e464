"""Sessions on PostgreSQL: no setting of the role or the server slows down or ends a statement."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from rota.client.doctor import examine
from rota.client.findings import Finding
from rota.settings import Settings
from tests.kit import execute, select
from tests.kit.builders import opened, sql
from tests.kit.pgbouncer import pgbouncer
from tests.kit.plans import all_plans
from tests.kit.postgres import PostgresServer, PostgresUnavailable, distribution_binaries

pytestmark = pytest.mark.pg

HOSTILE = {
    "statement_timeout": "1ms",
    "lock_timeout": "1ms",
    "idle_in_transaction_session_timeout": "1ms",
}


async def _set(url: str, settings: dict[str, str]) -> None:
    [(name,)] = await select(url, "select current_database()::text")
    await execute(
        url, *(f"alter database {name} set {key} = '{settings[key]}'" for key in settings)
    )


async def _session_findings(url: str) -> list[Finding]:
    report = await examine(url, Settings())
    return [one for one in report.findings if one.what == "session"]


async def test_timeouts_of_the_role_do_not_reach_the_engine(own_database_url: str) -> None:
    await _set(own_database_url, HOSTILE)
    async with opened(own_database_url) as db:
        await sql(db, "select pg_sleep(0.01)")
        names = ", ".join(f"'{name}'" for name in HOSTILE)
        text = f"select name, setting from pg_settings where name in ({names}) order by name"
        assert await sql(db, text) == [
            ("idle_in_transaction_session_timeout", "60000"),
            ("lock_timeout", "0"),
            ("statement_timeout", "0"),
        ]


async def test_a_timeout_in_the_url_is_kept(own_database_url: str) -> None:
    async with opened(f"{own_database_url}?lock_timeout=70") as db:
        assert await sql(db, "show lock_timeout") == [("70ms",)]


async def test_the_doctor_finds_nothing_in_a_session_of_its_own(own_database_url: str) -> None:
    await _set(own_database_url, HOSTILE | {"jit": "on"})
    async with opened(own_database_url):
        assert await _session_findings(own_database_url) == []


@pytest.mark.slow
async def test_the_doctor_names_the_settings_that_a_pooler_does_not_pass_on(
    own_database_url: str,
) -> None:
    await _set(own_database_url, {"jit": "on", "lock_timeout": "2s"})
    with pgbouncer(own_database_url, "transaction") as url:
        async with opened(url):
            [found] = await _session_findings(url)
    assert (found.level, found.says) == (
        "warn", "role rota has JIT compilation, a short lock_timeout"
    )  # fmt: skip
    assert found.hint == "alter role rota set jit = off; alter role rota set lock_timeout = 0;"


@pytest.fixture(scope="module")
def compiling_url() -> Iterator[str]:
    """A database on the distribution's build of PostgreSQL, which compiles statements (JIT)."""
    binaries = distribution_binaries()
    if binaries is None:
        pytest.skip("there is no PostgreSQL of the distribution: apt-get install postgresql")
    with PostgresServer(durable=False, binaries=binaries) as server:
        url = server.create_database("jit")
        if asyncio.run(select(url, "select pg_jit_available()")) != [(True,)]:
            pytest.skip(f"the build in {binaries} has no JIT")
        yield url


async def test_the_server_compiles_no_statement(compiling_url: str) -> None:
    """At 1e10 for a read of a whole table, one row of `workers` would cost 48 ms of CPU."""
    await execute(compiling_url, "alter database jit set jit_above_cost = 0")
    async with opened(compiling_url) as db:
        plans = await db.read(all_plans)
    assert len(plans) > 300
    assert [name for name, plan in plans.items() if "JIT" in plan] == []


def test_the_distribution_is_named_by_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_TEST_POSTGRES_BIN", "system")
    if (found := distribution_binaries()) is None:
        with pytest.raises(PostgresUnavailable, match="apt-get install postgresql"):
            _ = PostgresServer().binaries
    else:
        assert PostgresServer().binaries == found
