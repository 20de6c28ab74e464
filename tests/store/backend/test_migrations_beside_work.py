"""Migrations of a PostgreSQL that others use: their views stay, and so does the flow of runs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from rota.errors import SchemaMissing, StoreBusy, StoreError
from rota.store.backend import migrate, queries
from rota.store.backend.database import Database
from rota.store.backend.dialect import POSTGRES
from rota.store.backend.migrate import Migration
from rota.store.backend.migration_plan import THROUGHOUT, planned, statements
from tests.kit import execute, select, split_schema, until
from tests.kit.builders import NOW, new_run, opened, sql, start
from tests.kit.tables import for_each

NEXT = max(one.number for one in migrate.shipped()) + 1
# Slow changes of a big table: a checked constraint, a new index, one that replaces a unique one.
MORE = """
alter table runs add column novel {int};
alter table runs add constraint runs_novel check (novel is null or novel > 0);
create index runs_novel_index on runs (novel) where novel is not null;
drop index runs_external;
create unique index runs_external on runs (namespace, name, external_id, novel)
    where external_id is not null;
"""
MORE_NAME = f"{NEXT:04d}_more"


def _ship(monkeypatch: pytest.MonkeyPatch, text: str = MORE) -> None:
    listed = [*migrate.shipped(), Migration(NEXT, "more", text)]
    monkeypatch.setattr(migrate, "shipped", lambda: listed)


async def _indexes(db: Database) -> dict[str, bool]:
    text = """select c.relname, i.indisvalid from pg_index i join pg_class c on c.oid = i.indexrelid
        where c.relnamespace = 'rota'::regnamespace and c.relname like 'runs%'"""
    return {row[0]: row[1] for row in await sql(db, text)}


@asynccontextmanager
async def _session(url: str, *texts: str) -> AsyncIterator[None]:
    """Another session with an open transaction in which it has run these statements."""
    dsn, schema = split_schema(url)
    connection = await asyncpg.connect(dsn, server_settings={"search_path": schema})
    try:
        for text in texts:
            await connection.execute(text)
        yield
    finally:
        await connection.close()


@asynccontextmanager
async def _building(url: str, db: Database) -> AsyncIterator[asyncio.Task[list[str]]]:
    """A migration that builds an index for as long as an old snapshot is open."""
    async with _session(url, "begin isolation level repeatable read", "select 1"):
        migrating = asyncio.create_task(migrate.prepare(db, migrate=True, now=NOW))
        await until(lambda: _waits(db, "create % concurrently "))
        yield migrating


async def _waits(db: Database, beginning: str) -> bool:
    text = f"""select 1 from pg_stat_activity where datname = current_database()
        and query like '{beginning}%' and wait_event_type = 'Lock'"""
    return bool(await sql(db, text))


@pytest.mark.pg
async def test_views_of_others_in_the_same_schema_stay(own_database_url: str) -> None:
    await execute(
        own_database_url,
        "create table customers (id int)",
        "create view customers_v as select * from customers",
        'create view "Report" as select 1 as one',
    )
    async with opened(f"{own_database_url}?schema=public"):
        pass
    found = await select(
        own_database_url, "select viewname from pg_views where schemaname='public'"
    )
    assert {row[0] for row in found} == {"customers_v", "Report", *migrate.VIEWS}


async def test_every_view_that_rota_ships_is_known_by_its_name(new_database_url: str) -> None:
    async with opened(new_database_url) as db:
        text = migrate._views(db.dialect)
    created = {one.split()[2] for one in statements(text) if one.startswith("create view")}
    assert created <= set(migrate.VIEWS)


@pytest.mark.pg
async def test_a_view_that_reads_ours_is_named_and_nothing_changes(
    own_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(own_database_url) as db:
        await execute(own_database_url, "create view mine as select id from rota.readable_runs")
        _ship(monkeypatch)
        with pytest.raises(StoreError, match="view mine depends on view readable_runs"):
            await migrate.prepare(db, migrate=True, now=NOW)
        assert "runs_novel_index" not in await _indexes(db)


@pytest.mark.pg
async def test_runs_start_while_an_index_of_their_table_is_built(
    own_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(own_database_url) as db:
        await start(db, new_run(external_id="one"))
        _ship(monkeypatch)
        async with _building(own_database_url, db) as migrating:
            await start(db, new_run())
            assert (await start(db, new_run(external_id="one")))[0].existed
            with pytest.raises(SchemaMissing, match=f"{MORE_NAME} is not finished"):
                await db.read(migrate.check)
            assert not migrating.done()
        assert await asyncio.wait_for(migrating, 20) == [MORE_NAME]
        await _check_done(db)


async def _check_done(db: Database) -> None:
    indexes = await _indexes(db)
    assert indexes["runs_novel_index"]
    assert indexes["runs_external"]
    assert not any(name.endswith("_new") for name in indexes)
    text = "select convalidated from pg_constraint where conname = 'runs_novel'"
    assert await sql(db, text) == [(True,)]
    assert await migrate.prepare(db, migrate=True, now=NOW) == []


@pytest.mark.pg
async def test_a_migration_that_was_interrupted_continues(
    own_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(own_database_url) as db:
        await start(db, new_run())
        _ship(monkeypatch)
        async with _building(own_database_url, db) as migrating:
            migrating.cancel()
            await asyncio.wait([migrating])
        [half, *rest] = await db.read(migrate.plan)
        assert (half.migration.title, rest) == (MORE_NAME, [])
        assert await migrate.prepare(db, migrate=True, now=NOW) == []
        await _check_done(db)


@pytest.mark.pg
async def test_migrators_at_once_share_the_work_on_a_table_with_rows(
    own_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(own_database_url) as db, opened(own_database_url) as other:
        await start(db, new_run())
        _ship(monkeypatch)
        async with _building(own_database_url, db) as first:
            second = asyncio.create_task(migrate.prepare(other, migrate=True, now=NOW))
        async with asyncio.timeout(20):
            assert (await first, await second) == ([MORE_NAME], [])
        await _check_done(db)


@pytest.mark.pg
async def test_a_migration_gives_up_when_a_table_stays_locked(
    own_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting longer would hold up every writer that comes after it."""
    async with opened(own_database_url) as db:
        _ship(monkeypatch)
        monkeypatch.setattr(migrate, "LOCK_TIMEOUT", "50ms")
        async with _session(own_database_url, "begin", "lock table runs in share mode"):
            with pytest.raises(StoreBusy, match="lock timeout"):
                await migrate.prepare(db, migrate=True, now=NOW)
        assert await migrate.prepare(db, migrate=True, now=NOW) == [MORE_NAME]


SCAN = "update runs set tags = tags where (select count(*) from pg_advisory_xact_lock(77)) = 1"


@pytest.mark.pg
async def test_the_lock_of_one_migration_ends_before_the_next_begins(
    own_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a long scan keeps a table locked that an earlier migration altered."""
    async with opened(own_database_url) as db:
        await start(db, new_run())
        texts = ("alter table runs add column novel {int}", SCAN)
        extra = [Migration(NEXT + n, f"more{n}", text) for n, text in enumerate(texts)]
        listed = [*migrate.shipped(), *extra]
        monkeypatch.setattr(migrate, "shipped", lambda: listed)
        async with _session(own_database_url, "select pg_advisory_lock(77)"):
            migrating = asyncio.create_task(migrate.prepare(db, migrate=True, now=NOW))
            await until(lambda: _waits(db, SCAN[:20]))
            async with asyncio.timeout(3):
                await start(db, new_run())
            assert not migrating.done()
        assert await asyncio.wait_for(migrating, 20) == [one.title for one in extra]


# Columns that no code has read since an earlier migration, by the migration that drops them.
UNREAD = {"0026_no_phase": ("runs", "phase")}


def test_no_shipped_migration_takes_away_what_running_workers_read() -> None:
    """Workers of the version before continue on the new schema, so columns that they read stay."""
    for one in migrate.shipped():
        found = re.findall(r"(?:drop (?:column|table)|rename).*", POSTGRES.render(one.text))
        unread = [f"drop column {UNREAD[one.title][1]};"] if one.title in UNREAD else []
        assert found == unread, one.title


@pytest.mark.parametrize(("table", "column"), UNREAD.values(), ids=UNREAD)
def test_no_query_and_no_record_names_a_dropped_column(table: str, column: str) -> None:
    records = [record for record, of in queries._RECORDS.values() if of == table]
    assert records
    assert [one for one in records if column in one.__struct_fields__] == []
    naming = [
        name
        for dialect in ("sqlite", "postgres")
        for name, text in queries.texts(dialect).items()
        if _names(text, table, column)
    ]
    assert naming == []


def _names(text: str, table: str, column: str) -> bool:
    """Whether a query reads or writes the column; other tables have one of that name."""
    aliases = {table, *re.findall(rf"\b{table} as (\w+)", text)}
    bare = re.search(rf"(?<![.:\w]){column}\b", text) and re.search(rf"\b{table}\b(?!\.)", text)
    return bool(bare) or any(re.search(rf"\b{alias}\.{column}\b", text) for alias in aliases)


# They write a row for a schedule, which are few beside runs: no run and no table is locked.
FEW_ROWS = {"0021_kinds", "0022_quarantined", "0023_recipients"}


def test_no_shipped_migration_locks_a_table_with_rows_for_long() -> None:
    existing: set[str] = set()
    for one in migrate.shipped():
        for each in planned(POSTGRES.render(one.text), existing=existing, concurrent=True):
            assert "unknown" not in each.locks, (one.title, each)
            if one.title not in FEW_ROWS:
                assert THROUGHOUT not in each.locks, (one.title, each)
            if each.does.startswith("create the table "):
                existing.add(each.does.split()[-1])


PLANS = {
    "a table": ("create table x (id text)", "create the table x", "nothing"),
    "a column": ("alter table runs add column y int", "add column y (runs)", "runs for a moment"),
    "rows": ("update runs set y = 1", "change rows of runs (update)",
        "these rows of runs until it is done"),
    "an index": ("create index i on runs (y)", "build the index i on runs, while work continues",
        "runs for a moment"),
    "a function": ("create function f() returns int as $$select 1;$$", "create the function f",
        "nothing"),
    "a column less": ("alter table runs drop column y", "drop column y (runs)",
        "runs for a moment"),
    "another": ("vacuum full", "run vacuum full", "unknown"),
}  # fmt: skip
# SQLite builds and checks, and rewrites the table, while the write lock is held.
PLANS_ONE_WRITER = {
    "a column": ("alter table runs add column y int", "add column y (runs)", "runs for a moment"),
    "a column less": ("alter table runs drop column y", "drop column y (runs)",
        "runs until it is done"),
    "an index": ("create index i on runs (y)", "build the index i on runs",
        "runs until it is done"),
    "a check": ("alter table runs add constraint c check (y > 0)", "add constraint c (runs)",
        "runs until it is done"),
}  # fmt: skip


@for_each(PLANS)
def test_a_plan_says_what_a_statement_does_and_locks(which: str) -> None:
    text, does, locks = PLANS[which]
    [found] = planned(text, existing={"runs"}, concurrent=True)
    assert (found.does, found.locks) == (does, locks)


@for_each(PLANS_ONE_WRITER)
def test_a_plan_of_sqlite_says_which_table_is_locked_throughout(which: str) -> None:
    text, does, locks = PLANS_ONE_WRITER[which]
    [found] = planned(text, existing={"runs"}, concurrent=False)
    assert (found.does, found.locks) == (does, locks)


def test_commas_and_semicolons_in_values_split_no_statement() -> None:
    change = "add constraint c check (s in ('a,b', 'c;d')), drop column x"
    text = f"-- a; remark\nalter table runs {change};"
    [found] = planned(text, existing={"runs"}, concurrent=True)
    assert found.brief == (
        "alter table runs add constraint c check (s in ('a,b', 'c;d')) not valid, drop column x"
    )
    assert found.long == ("alter table {schema}.runs validate constraint c",)
