"""Snapshots of the schema as each database holds it after all migrations, for people to read.

`python -m scripts.schema` writes `schema.sqlite.sql` and `schema.postgres.sql` beside the
migrations; a test finds snapshots that are behind. PostgreSQL's is drawn from its catalogue in a
form that does not differ between server versions.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import apsw

from rota.settings import Settings
from rota.store.backend import migrate
from rota.store.backend.database import open_url

FOLDER = Path(__file__).resolve().parents[1] / "src" / "rota" / "store" / "migrations"
HEAD = "-- The whole schema on {name}, after all migrations. Made by `python -m scripts.schema`.\n"

_COLUMNS = """
select format('    %s %s%s%s%s', a.attname, format_type(a.atttypid, a.atttypmod),
    case when c.collname = 'C' then ' collate "C"' else '' end,
    case when a.attnotnull then ' not null' else '' end,
    coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), ''))
from pg_attribute a
left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
left join pg_collation c on c.oid = a.attcollation
where a.attrelid = $1 and a.attnum > 0 and not a.attisdropped
order by a.attnum
"""
_CONSTRAINTS = """
select format('    constraint %s %s', conname, pg_get_constraintdef(oid)) from pg_constraint
where conrelid = $1 and contype in ('p', 'u', 'c', 'f') order by contype, conname
"""
_INDEXES = """
select pg_get_indexdef(i.indexrelid) from pg_index i
where i.indrelid = $1 and not exists (
    select 1 from pg_constraint where conindid = i.indexrelid and contype in ('p', 'u'))
order by 1
"""
_FUNCTIONS = """
select format(E'\ncreate function %s(%s) returns %s language plpgsql as $$%s$$;\n', proname,
    pg_get_function_identity_arguments(oid), pg_get_function_result(oid), prosrc)
from pg_proc where pronamespace = current_schema()::regnamespace order by proname
"""
_RELATIONS = """
select oid, relname, relkind::text from pg_class
where relnamespace = current_schema()::regnamespace and relkind in ('r', 'p', 'v')
order by relkind, relname
"""


def sqlite_snapshot(path: Path) -> str:
    """The schema of a migrated SQLite file."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    rows = connection.execute(
        "select sql from sqlite_master where sql is not null order by"
        " case type when 'table' then 0 when 'index' then 1 else 2 end, tbl_name, name"
    ).fetchall()
    connection.close()
    return HEAD.format(name="SQLite") + "".join(f"\n{row[0]};\n" for row in rows)


async def postgres_snapshot(url: str, schema: str) -> str:
    """The schema of a migrated PostgreSQL schema."""
    import asyncpg

    connection = await asyncpg.connect(url, server_settings={"search_path": schema})
    try:
        parts = [HEAD.format(name="PostgreSQL")]
        for oid, name, kind in await connection.fetch(_RELATIONS):
            parts.append(await _relation(connection, oid, name, kind))
        parts += [row[0] for row in await connection.fetch(_FUNCTIONS)]
        return "".join(parts).replace(f"{schema}.", "")
    finally:
        await connection.close()


async def _relation(connection: Any, oid: int, name: str, kind: str) -> str:
    columns = [row[0] for row in await connection.fetch(_COLUMNS, oid)]
    if kind == "v":  # how a view's text is printed differs between versions; its columns do not
        return f"\n-- view {name}\n" + "".join(f"--{column[3:]}\n" for column in columns)
    columns += [row[0] for row in await connection.fetch(_CONSTRAINTS, oid)]
    indexes = "".join(f"{row[0]};\n" for row in await connection.fetch(_INDEXES, oid))
    return f"\ncreate table {name} (\n" + ",\n".join(columns) + f"\n);\n{indexes}"


async def _migrated(url: str) -> None:
    database = open_url(url, Settings())
    await database.open()
    try:
        await migrate.prepare(database, migrate=True, now=0)
    finally:
        await database.close()


def main() -> None:
    """Write both snapshots."""
    from tests.kit.postgres import PostgresServer

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rota.db")
        asyncio.run(_migrated(f"sqlite:///{path}"))
        (FOLDER / "schema.sqlite.sql").write_text(sqlite_snapshot(path), encoding="utf-8")
    with PostgresServer(durable=False) as server:
        url = server.create_database("snapshot")
        asyncio.run(_migrated(url))
        text = asyncio.run(postgres_snapshot(url, "rota"))
        (FOLDER / "schema.postgres.sql").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
