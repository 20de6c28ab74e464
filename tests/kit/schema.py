"""Migrated, empty databases for tests, without a migration for each test.

A PostgreSQL schema costs a fifth of a second to make and to drop, more than most tests. One is
made for each test process and emptied after each test. A SQLite file is a copy of a migrated one.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from rota.store.backend import migrate
from tests.kit import own_database
from tests.kit.builders import NOW, opened

TABLES = "select relname from pg_class where relkind = 'r' and relnamespace = $1::regnamespace"
REFERENCES = """select conrelid::regclass::text, confrelid::regclass::text from pg_constraint
where contype = 'f' and conrelid <> confrelid and connamespace = $1::regnamespace"""
# All that a test could change beside the rows: objects of the schema, columns, migrations.
SHAPE = """select array[
  (select string_agg(concat_ws(' ', oid, relname, relnatts), ',' order by oid)
     from pg_class where relnamespace = $1::regnamespace),
  (select string_agg(oid::text, ',' order by oid)
     from pg_constraint where connamespace = $1::regnamespace),
  (select string_agg(oid::text, ',' order by oid)
     from pg_proc where pronamespace = $1::regnamespace),
  (select string_agg(concat_ws(' ', t.oid, tgenabled), ',' order by t.oid)
     from pg_trigger t join pg_class c on c.oid = tgrelid
    where relnamespace = $1::regnamespace),
  (select string_agg(number || checksum, ',' order by number) from migrations)]"""
# Deleted rows take up room until a vacuum; leftovers of many would slow down later tests.
EMPTY = """do $$ declare name text; begin
  foreach name in array array[{}] loop
    if pg_relation_size(name::regclass) > 262144 then
      execute 'truncate ' || name || ' cascade';
    else
      execute 'delete from ' || name;
    end if;
  end loop;
end $$"""


def migrated(url: str) -> None:
    """Make the tables of an empty database."""
    asyncio.run(_migrate(url))


def copied(template: Path, to: Path) -> None:
    """A SQLite file like `template`, as private as Rota makes it."""
    to.touch(mode=0o600)
    shutil.copyfile(template, to)


@contextmanager
def shared_schema(postgres_url: str) -> Iterator[SharedSchema]:
    """A migrated schema, dropped at the end."""
    with asyncio.Runner() as runner:
        schema = SharedSchema(Session(postgres_url, runner))
        schema.make()
        yield schema
        schema.drop()
        schema.session.close()


@contextmanager
def schema_pool(postgres_url: str) -> Iterator[SchemaPool]:
    """Migrated schemas for tests that need many. They have a database of their own: it is dropped
    at once, and the catalog of the other tests stays small."""
    # A thread with an event loop of its own: schemas are asked for inside the loops of tests.
    with (
        own_database(postgres_url) as url,
        ThreadPoolExecutor(1) as thread,
        asyncio.Runner() as runner,
    ):
        pool = SchemaPool(Session(url, runner), thread)
        yield pool
        pool.close()


class Session:
    """One connection to the server; its event loop outlives the loops of the tests."""

    def __init__(self, postgres_url: str, runner: asyncio.Runner) -> None:
        self.server = postgres_url
        self.run = runner.run
        self._connection: Any = None
        self._schema = ""

    async def of(self, schema: str) -> Any:
        """The connection, with this search path."""
        import asyncpg

        if self._connection is None or self._connection.is_closed():
            # A test that leaves a transaction open should fail here, not hang.
            settings = {"lock_timeout": "10s"}
            self._connection = await asyncpg.connect(self.server, server_settings=settings)
            self._schema = ""
        if self._schema != schema:
            await self._connection.execute(f"set search_path = {schema}")
            self._schema = schema
        return self._connection

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self.run(self._connection.close())


class SchemaPool:
    """Migrated schemas without rows, used again by one test after the other."""

    def __init__(self, session: Session, thread: ThreadPoolExecutor) -> None:
        self._session = session
        self._thread = thread
        self._free: list[SharedSchema] = []
        self._taken: list[SharedSchema] = []

    def take(self) -> str:
        """The URL of a schema that no other test uses."""
        schema = self._free.pop() if self._free else self._thread.submit(self._make).result()
        self._taken.append(schema)
        return schema.url

    def empty(self) -> None:
        """Delete the rows of all schemas that were taken."""
        for schema in self._taken:
            self._thread.submit(schema.empty).result()
        self._free += self._taken
        self._taken = []

    def close(self) -> None:
        """End the connection."""
        self._thread.submit(self._session.close).result()

    def _make(self) -> SharedSchema:
        schema = SharedSchema(self._session)
        schema.make()
        return schema


class SharedSchema:
    """One migrated PostgreSQL schema, which `empty` gives back as it was made."""

    def __init__(self, session: Session) -> None:
        self.name = f"t_{secrets.token_hex(6)}"
        self.url = f"{session.server}{'&' if '?' in session.server else '?'}schema={self.name}"
        self.session = session
        self._shape: Any = None
        self._script = ""

    def make(self) -> None:
        """Create the schema and its tables."""
        self.session.run(self._make())

    def empty(self) -> None:
        """Delete all rows; a schema that a test changed is dropped and created again."""
        self.session.run(self._empty())

    def drop(self) -> None:
        """Remove the schema."""
        self.session.run(self._drop())

    async def _make(self) -> None:
        await _migrate(self.url)
        connection = await self.session.of(self.name)
        tables = [row[0] for row in await connection.fetch(TABLES, self.name)]
        order = TopologicalSorter({name: set() for name in tables if name != "migrations"})
        for child, parent in await connection.fetch(REFERENCES, self.name):
            order.add(parent, child)
        names = ", ".join(f"'{name}'" for name in order.static_order())
        self._script = EMPTY.format(names)
        self._shape = await connection.fetchval(SHAPE, self.name)

    async def _empty(self) -> None:
        connection = await self.session.of(self.name)
        if await self._changed(connection):
            await self._drop()
            await self._make()
        else:
            await connection.execute(self._script)

    async def _changed(self, connection: Any) -> bool:
        import asyncpg

        try:
            return bool(await connection.fetchval(SHAPE, self.name) != self._shape)
        except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
            return True

    async def _drop(self) -> None:
        connection = await self.session.of(self.name)
        await connection.execute(f"drop schema if exists {self.name} cascade")


async def _migrate(url: str) -> None:
    async with opened(url, migrated=False) as database:
        await database.write(migrate.apply, now=NOW)
