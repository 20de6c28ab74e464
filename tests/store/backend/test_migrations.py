"""Migrations: forward only, in one transaction, found out when changed; and their snapshot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rota.core.runs.model import Schedule
from rota.errors import BadDatabaseUrl, SchemaMissing, SchemaTooNew, StoreCorrupt
from rota.settings import Settings
from rota.store.backend import migrate
from rota.store.backend.database import Database, open_url
from rota.store.backend.migrate import Migration
from rota.store.schedules import templates
from scripts.schema import FOLDER, postgres_snapshot, sqlite_snapshot
from tests.kit.builders import NOW, SPACE, begin, claim, new_run, opened, settle, sound, sql, start

NAMES = [f"{one.number:04d}_{one.name}" for one in migrate.shipped()]
NEXT = max(one.number for one in migrate.shipped()) + 1
NEW_COLUMNS = ("segment_id", "pinned_version", "refused_versions")


async def _tables(db: Database) -> list[str]:
    text = (
        "select name from sqlite_master where type = 'table'"
        if db.dialect.name == "sqlite"
        else "select tablename from pg_tables where schemaname = current_schema()"
    )
    return sorted(row[0] for row in await sql(db, text))


async def _views(db: Database) -> list[str]:
    text = (
        "select name from sqlite_master where type = 'view'"
        if db.dialect.name == "sqlite"
        else "select viewname from pg_views where schemaname = current_schema()"
    )
    return sorted(row[0] for row in await sql(db, text))


def _ship(monkeypatch: pytest.MonkeyPatch, *more: str) -> None:
    """Pretend that this version ships further migrations."""
    extra = [Migration(NEXT + n, f"more{n}", text) for n, text in enumerate(more)]
    listed = [*migrate.shipped(), *extra]
    monkeypatch.setattr(migrate, "shipped", lambda: listed)


@asynccontextmanager
async def _columns_of_today(db: Database) -> AsyncIterator[None]:
    """Columns that the statements of today name and the runs of an earlier version lack."""
    lacking = [name for name in NEW_COLUMNS if name not in await _columns(db)]
    for name in lacking:
        await sql(db, f"alter table runs add column {name} text")
    yield
    for name in lacking:
        await sql(db, f"alter table runs drop column {name}")


async def _columns(db: Database) -> list[str]:
    text = (
        "select name from pragma_table_info('runs')"
        if db.dialect.name == "sqlite"
        else "select column_name from information_schema.columns"
        " where table_name = 'runs' and table_schema = current_schema()"
    )
    return [row[0] for row in await sql(db, text)]


async def test_a_fresh_database_gets_every_migration_once(new_database_url: str) -> None:
    async with opened(new_database_url, migrated=False) as db:
        assert await migrate.prepare(db, migrate=True, now=NOW) == NAMES
        assert await migrate.prepare(db, migrate=True, now=NOW) == []
        assert await migrate.prepare(db, migrate=False, now=NOW) == []
        found = await sql(db, "select number, checksum, applied_at from migrations")
        assert found == [(one.number, one.checksum, NOW) for one in migrate.shipped()]


async def test_a_database_that_was_not_migrated_is_refused_and_left_alone(
    new_database_url: str,
) -> None:
    async with opened(new_database_url, migrated=False) as db:
        with pytest.raises(SchemaMissing) as caught:
            await migrate.prepare(db, migrate=False, now=NOW)
        assert "rota migrate" in caught.value.advice
        assert await _tables(db) == []


async def test_a_newer_schema_is_refused_and_left_alone(new_database_url: str) -> None:
    async with opened(new_database_url) as db:
        await sql(db, f"insert into migrations values ({NEXT}, 'newer', 'x', 0)")
        before = await _tables(db)
        for allowed in (True, False):
            with pytest.raises(SchemaTooNew, match=f"{NEXT:04d}") as caught:
                await migrate.prepare(db, migrate=allowed, now=NOW)
            assert "Upgrade" in caught.value.advice
        assert await _tables(db) == before


async def test_a_changed_migration_is_found_out(new_database_url: str) -> None:
    async with opened(new_database_url) as db:
        await sql(db, "update migrations set checksum = 'other' where number = 1")
        for allowed in (True, False):
            with pytest.raises(StoreCorrupt, match="0001"):
                await migrate.prepare(db, migrate=allowed, now=NOW)


async def test_a_later_version_adds_to_what_is_there(
    new_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(new_database_url) as db:
        await start(db, new_run())
        _ship(monkeypatch, "create table novel (id {key} primary key) {strict};")
        with pytest.raises(SchemaMissing, match=f"{NEXT:04d}"):
            await db.read(migrate.check)
        assert await db.write(migrate.apply, now=NOW) == [f"{NEXT:04d}_more0"]
        assert "novel" in await _tables(db)
        assert await sql(db, "select count(*) from runs") == [(1,)]


# A column of a later migration: the statements of this version, which write the old rows, name it.
@pytest.mark.parametrize("known", range(1, len(NAMES)))
async def test_a_database_of_any_earlier_version_comes_along_with_its_runs(
    new_database_url: str, monkeypatch: pytest.MonkeyPatch, known: int
) -> None:
    async with opened(new_database_url, migrated=False) as db:
        kept = migrate.shipped()[:known]
        monkeypatch.setattr(migrate, "shipped", lambda: kept)
        monkeypatch.setattr(migrate, "_views", lambda dialect: "select 1")
        assert await db.write(migrate.apply, now=NOW) == NAMES[:known]
        async with _columns_of_today(db):
            held = await begin(db, serial_key="one")
            ended = await begin(db, limit_key="k")
            await settle(db, ended, "complete", output="1")
            await start(db, new_run(limit_key="k"), new_run(available_at=NOW + 1))
        before = await sql(db, "select id, status, claim_count, output from runs order by id")
        monkeypatch.undo()
        assert await migrate.prepare(db, migrate=True, now=NOW) == NAMES[known:]
        after = await sql(db, "select id, status, claim_count, output from runs order by id")
        assert after == before
        assert await sound(db)
        await settle(db, held, "complete")
        assert len(await claim(db)) == 1


async def test_schedules_of_pipelines_learn_the_kind_of_their_runs(
    new_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(new_database_url, migrated=False) as db:
        kept = migrate.shipped()[: NAMES.index("0021_kinds")]
        monkeypatch.setattr(migrate, "shipped", lambda: kept)
        await db.write(migrate.apply, now=NOW)
        for name in ("pipeline:words", "report"):
            row = Schedule(
                name, SPACE, name, "default", 0, "scheduled", None, NOW, NOW, "* * * * *",
                f'{{"workflow":"{name}","text":"* * * * *"}}', None, None, NOW,
            )  # fmt: skip
            await db.write(templates.put, row, trigger="deploy", now=NOW)
        monkeypatch.undo()
        await migrate.prepare(db, migrate=True, now=NOW)
        assert await sql(db, "select spec from runs order by name") == [
            ('{"kind":"pipeline","workflow":"pipeline:words","text":"* * * * *"}',),
            ('{"workflow":"report","text":"* * * * *"}',),
        ]


@pytest.mark.parametrize(
    ("ended", "troubled"),
    [
        (["failed"], True),
        (["completed", "crashed"], True),
        (["failed", "completed:partial"], True),
        (["failed", "completed"], False),
        (["failed", "skipped:missed"], True),
        ([], False),
    ],
)
async def test_a_failure_of_the_version_before_is_trouble_that_recovers(
    new_database_url: str,
    monkeypatch: pytest.MonkeyPatch,
    ended: list[str],
    troubled: bool,
) -> None:
    async with opened(new_database_url, migrated=False) as db:
        kept = migrate.shipped()[: NAMES.index("0023_recipients")]
        monkeypatch.setattr(migrate, "shipped", lambda: kept)
        await db.write(migrate.apply, now=NOW)
        row = Schedule(
            "s", SPACE, "words-1", "default", 0, "scheduled", None, NOW, NOW, "* * * * *", "{}",
            None, None, NOW,
        )  # fmt: skip
        await db.write(templates.put, row, trigger="deploy", now=NOW)
        await sql(db, "insert into notices (schedule_id, body) values ('s', '{}')")
        for at, label in enumerate(ended):
            status, _, reason = label.partition(":")
            why = f"'{reason}'" if reason else "null"
            run = new_run(name="pipeline:words", kind="pipeline", schedule_id="s", due_at=NOW + at)
            async with _columns_of_today(db):
                await start(db, run)
            await sql(
                db,
                f"update runs set status = '{status}', finished_at = {NOW + at},"
                f" available_at = null, reason = {why} where id = '{run.id}'",
            )
        monkeypatch.undo()
        await migrate.prepare(db, migrate=True, now=NOW)
        rows = await sql(
            db, "select kind, name, schedule, subject from notifications where is_open = 1"
        )
        assert rows == ([("failed", "words", "words-1", "s")] if troubled else [])
        held = await begin(db, name="pipeline:words", kind="pipeline", schedule_id="s",
            due_at=NOW + 9)  # fmt: skip
        assert await settle(db, held)
        [(kind,)] = await sql(db, f"select kind from notifications where run_id = '{held.id}'")
        assert kind == ("recovered" if troubled else "succeeded")


GOOD = "create table good (id {key} primary key) {strict};"
BROKEN = "create table novel (id {key} primary key) {strict}; insert into nobody values (1);"


@pytest.mark.parametrize("fresh", [True, False])
async def test_a_migration_that_fails_leaves_nothing(
    new_database_url: str, monkeypatch: pytest.MonkeyPatch, fresh: bool
) -> None:
    async with opened(new_database_url, migrated=not fresh) as db:
        before, views = await _tables(db), await _views(db)
        one_by_one = db.dialect.concurrent and not fresh
        _ship(monkeypatch, *[GOOD][one_by_one:], BROKEN)
        with pytest.raises(Exception, match="nobody"):
            await db.write(migrate.apply, now=NOW)
        assert await _tables(db) == before
        assert await _views(db) == views
        monkeypatch.undo()
        assert await db.write(migrate.apply, now=NOW) == (NAMES if fresh else [])


@pytest.mark.pg
async def test_the_migrations_before_one_that_fails_stay_on_a_database_in_use(
    own_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(own_database_url) as db:
        before, views = await _tables(db), await _views(db)
        with monkeypatch.context() as patch:
            _ship(patch, GOOD, BROKEN)
            with pytest.raises(Exception, match="nobody"):
                await migrate.prepare(db, migrate=True, now=NOW)
        assert await _tables(db) == sorted([*before, "good"])
        _ship(monkeypatch, GOOD, "select 1;")
        assert await migrate.prepare(db, migrate=True, now=NOW) == [f"{NEXT + 1:04d}_more1"]
        assert await _views(db) == views


async def test_views_may_need_what_a_later_migration_adds(
    new_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The views are those of today; on a fresh database every migration must come before them."""
    _ship(monkeypatch, "alter table runs add column novel {text};")
    views = "drop view if exists seen; create view seen as select novel from runs;"
    monkeypatch.setattr(migrate, "_views", lambda dialect: views)
    async with opened(new_database_url, migrated=False) as db:
        assert len(await db.write(migrate.apply, now=NOW)) == len(NAMES) + 1
        assert await sql(db, "select novel from seen") == []


async def test_a_migration_may_change_what_a_view_reads(
    new_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(new_database_url) as db:
        _ship(monkeypatch, "alter table steps drop column error;")
        views = "drop view if exists seen; create view seen as select key from steps;"
        monkeypatch.setattr(migrate, "_views", lambda dialect: views)
        assert await db.write(migrate.apply, now=NOW) == [f"{NEXT:04d}_more0"]


async def test_migrators_at_once_migrate_once(new_database_url: str) -> None:
    async def one() -> list[str]:
        async with opened(new_database_url, migrated=False) as db:
            return await migrate.prepare(db, migrate=True, now=NOW)

    answers = await asyncio.gather(*(one() for _ in range(5)))
    assert sorted(answers) == [[], [], [], [], NAMES]


@pytest.mark.pg
async def test_two_schemas_of_one_server_are_two_databases(postgres_url: str) -> None:
    join = "&" if "?" in postgres_url else "?"
    urls = [f"{postgres_url}{join}schema=t_two_{which}" for which in ("a", "b")]
    async with opened(urls[0]) as first, opened(urls[1]) as second:
        await start(first, new_run())
        assert await sql(second, "select count(*) from runs") == [(0,)]
        for which in ("a", "b"):
            await sql(first, f"drop schema t_two_{which} cascade")


def test_a_schema_with_capitals_is_refused_before_anything_is_made() -> None:
    with pytest.raises(BadDatabaseUrl, match="t_Capital"):
        open_url("postgresql://localhost/rota?schema=t_Capital", Settings())


async def test_the_snapshot_of_the_schema_is_current(new_database_url: str) -> None:
    async with opened(new_database_url) as db:
        name = db.dialect.name
    if name == "sqlite":
        made = sqlite_snapshot(Path(new_database_url.removeprefix("sqlite:///")))
    else:
        base, _, schema = new_database_url.partition("schema=")
        made = await postgres_snapshot(base.rstrip("?&"), schema)
    written = (FOLDER / f"schema.{name}.sql").read_text(encoding="utf-8")
    assert made == written, "run `make docs`"
