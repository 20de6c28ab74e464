"""SqlRead: rows, bytes and time are bounded, and it changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sqlite3
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from rota.errors import PayloadTooBig, Rejected, UsageError
from rota.tools import SqlRead
from tests.tools.kit import CALL, same

MIB = 1024 * 1024


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database of a user, with a table of two letters."""
    made = "create table letters (id int, body text); insert into letters values (1, 'a'), (2, 'b')"
    if request.param == "sqlite":
        with contextlib.closing(sqlite3.connect(tmp_path / "user.db")) as connection:
            connection.executescript(f"{made};")
        yield f"sqlite:///{tmp_path}/user.db"
        return
    server: str = request.getfixturevalue("postgres_url")
    schema = f"t_{secrets.token_hex(6)}"
    asyncio.run(execute(server, f"create schema {schema}; set search_path = {schema}; {made}"))
    yield f"{server}{'&' if '?' in server else '?'}search_path={schema}"
    asyncio.run(execute(server, f"drop schema {schema} cascade"))


async def execute(url: str, sql: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(url)
    await connection.execute(sql)
    await connection.close()


def text_of(url: str, size: int) -> str:
    """SQL of a text of so many bytes that the database makes."""
    if url.startswith("sqlite"):
        return f"replace(hex(zeroblob({size // 2})), '0', 'x')"
    return f"repeat('x', {size})"


def many(url: str, count: int) -> str:
    """SQL of a table with so many rows."""
    if url.startswith("postgres"):
        return f"generate_series(1, {count}) as t(n)"
    return (
        f"(with recursive t(n) as (select 1 union all select n + 1 from t where n < {count}) "
        "select n from t) t"
    )


async def test_a_read_of_too_many_bytes_is_refused(url: str) -> None:
    for sql in (
        f"select {text_of(url, MIB + 2)} as a",
        f"select n, {text_of(url, 2000)} as a from {many(url, 600)}",
    ):
        with pytest.raises(PayloadTooBig, match="1,048,576 bytes") as raised:
            await SqlRead(url, sql).call({}, CALL)
        assert "bytes_max" in raised.value.advice
        page = await SqlRead(url, sql, bytes_max=4 * MIB).call({}, CALL)
        assert len(page["rows"]) in (1, 600)


async def test_one_huge_value_fills_no_memory(url: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(PayloadTooBig):
            await SqlRead(url, f"select {text_of(url, 200 * MIB)} as a").call({}, CALL)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20 * MIB


async def test_rows_behind_the_limit_are_not_read(url: str) -> None:
    tracemalloc.start()
    try:
        sql = f"select n, {text_of(url, 5000)} as a from {many(url, 100_000)}"
        page = await SqlRead(url, sql, rows_max=3).call({}, CALL)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert ([row["n"] for row in page["rows"]], page["cut"]) == ([1, 2, 3], True)
    assert peak < 20 * MIB


@pytest.mark.parametrize("sql", [
    "insert into letters values (3, 'c')",
    "update letters set body = 'never' returning id, body",
    "delete from letters returning *",
    "create table made (a int)",
])  # fmt: skip
async def test_a_read_that_would_write_is_refused(url: str, sql: str) -> None:
    with pytest.raises(Rejected, match="only reads"):
        await SqlRead(url, sql).call({}, CALL)
    rows = (await SqlRead(url, "select id, body from letters order by id").call({}, CALL))["rows"]
    assert same(rows, [{"id": 1, "body": "a"}, {"id": 2, "body": "b"}])


@pytest.mark.parametrize("sql", [
    "select id from letters order by id desc; -- the last ones first",
    "select id from letters order by id desc -- no semicolon",
    "/* a */ with q as (select id from letters) select id from q order by id desc ; /* b */ ",
    "SELECT id FROM letters ORDER BY id DESC",
    "values (2), (1)",
    "select id from (select * from letters order by id desc) as q union all select 0 where 1 = 2",
    "select id, id as id2, body as rota_row from letters order by 1 desc",
])  # fmt: skip
async def test_each_form_of_a_query_keeps_its_order(url: str, sql: str) -> None:
    rows = (await SqlRead(url, sql).call({}, CALL))["rows"]
    assert [next(iter(row.values())) for row in rows] == [2, 1]


async def test_a_query_with_parameters_is_read_whole(url: str) -> None:
    sql = f"select n, :a as a from {many(url, 500)} where n > :least order by n"
    sql = sql.replace(":least", "cast(:least as integer)").replace(":a as", "cast(:a as text) as")
    page = await SqlRead(url, sql).call({"a": "x", "least": 10}, CALL)
    assert [row["n"] for row in page["rows"]] == list(range(11, 501))
    assert page["cut"] is False


@pytest.mark.pg
async def test_a_statement_that_is_no_query_may_show_something(postgres_url: str) -> None:
    page = await SqlRead(postgres_url, "show server_encoding").call({}, CALL)
    assert page == {"rows": [{"server_encoding": "UTF8"}], "cut": False}


@pytest.mark.parametrize("options", [{"rows_max": 0}, {"bytes_max": 0}, {"rows_max": -1}], ids=str)
def test_a_limit_is_at_least_one(options: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        SqlRead("sqlite:///x.db", "select 1", **cast(Any, options))
