"""Rota through a real pgbouncer: schemas stay apart, statements work, a second URL listens."""

from __future__ import annotations

import logging

import pytest

from rota import Client, Rota, Start
from rota.errors import StoreError, StoreReadOnly
from rota.settings import Settings
from rota.store.backend.database import open_url
from tests.kit import execute, select, until
from tests.kit.pgbouncer import pgbouncer

pytestmark = [pytest.mark.pg, pytest.mark.slow]

IGNORE = (
    "ignore_startup_parameters = search_path,plan_cache_mode,default_transaction_isolation,options"
)
MODES = [(mode, more) for mode in ("session", "transaction") for more in ("", IGNORE)]


def adding_app(url: str, **settings: float | str) -> Rota:
    app = Rota(url, migrate=True, **({"poll_s": 0.2, "heartbeat_s": 0.2} | settings))  # type: ignore[arg-type]

    @app.step
    async def twice(n: int) -> int:
        return 2 * n

    @app.workflow
    async def add(n: int) -> int:
        return await twice(n) + await twice(n)

    return app


@pytest.mark.parametrize(
    ("mode", "more"), MODES, ids=["session", "session-ignore", "transaction", "transaction-ignore"]
)
async def test_two_schemas_behind_pgbouncer_are_two_installations(
    own_database_url: str, mode: str, more: str
) -> None:
    with pgbouncer(own_database_url, mode, more) as url:
        app = adding_app(f"{url}?schema=prod")
        async with Client(f"{url}?schema=staging", migrate=True) as staging:
            await app.start_worker()
            try:
                items = [Start(args=(n,)) for n in range(40)]
                runs = await app.start_many("add", items)
                assert [await run.result(timeout=60) for run in runs] == [4 * n for n in range(40)]
                left = await staging.start("add", n=1)
                assert [run.id for run in await staging.runs.list()] == [left.id]
            finally:
                await app.close()
    text = "select table_schema, count(*) from information_schema.tables group by 1"
    found = dict(await select(own_database_url, text))
    assert found["prod"] == found["staging"]
    assert "public" not in found
    name = "select nspname from pg_namespace where nspname like '%user%'"
    assert await select(own_database_url, name) == []


async def test_a_second_url_listens_past_a_pooler_in_transaction_mode(
    own_database_url: str,
) -> None:
    """Polling alone would take a minute."""
    with pgbouncer(own_database_url, "transaction") as url:
        slow = {"poll_s": 60.0, "heartbeat_s": 60.0}
        app = adding_app(url, listen_url=own_database_url, **slow)
        await app.start_worker()
        try:
            async with Client(url) as client:
                run = await client.start("add", n=1)

                async def done() -> bool:
                    return (await client.runs.get(run.id)).status == "completed"

                await until(done)
        finally:
            await app.close()


async def test_a_second_url_that_leads_to_another_database_is_not_used(
    own_database_url: str, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    database = open_url(own_database_url, Settings(listen_url=postgres_url))
    await database.open()
    try:
        with caplog.at_level(logging.WARNING, "rota.store"):
            await database.listen(lambda topic: None)
        assert "listen_url leads to another database or server" in caplog.text
    finally:
        await database.close()


async def test_a_role_with_another_isolation_level_is_set_right_or_refused(
    own_database_url: str,
) -> None:
    serializable = """do $$ begin execute format('alter database %I set
        default_transaction_isolation = serializable', current_database()); end $$"""
    await execute(own_database_url, serializable)
    async with Client(own_database_url, migrate=True) as client:
        await client.start("add", n=1)
    with (
        pgbouncer(own_database_url, "transaction") as url,
        pytest.raises(StoreError, match="are serializable") as refused,
    ):
        await _connect(url)
    assert refused.value.advice.startswith("alter role rota set default_transaction_isolation")


async def test_a_role_that_may_not_use_the_schema_is_reported_what_to_grant(
    own_database_url: str,
) -> None:
    async with Client(own_database_url, migrate=True):
        pass
    await execute(own_database_url, "drop role if exists stranger", "create role stranger login")
    try:
        url = own_database_url.replace("//rota@", "//stranger@")
        with pytest.raises(StoreReadOnly, match="stranger may not use the schema rota") as refused:
            await _connect(url)
        assert "grant usage on schema rota to stranger" in refused.value.advice
    finally:
        await execute(own_database_url, "drop role stranger")


async def _connect(url: str) -> None:
    async with Client(url):
        pass
