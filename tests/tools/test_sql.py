"""SQL tools on a real SQLite file and a real PostgreSQL, with faults around the commit."""

from __future__ import annotations

import asyncio
import secrets
import signal
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.errors import (
    BadInput,
    NeedsLogin,
    NeedsPermission,
    NotSent,
    OutcomeUnknown,
    Rejected,
    UsageError,
)
from rota.tools import (
    Applied,
    Call,
    NotApplied,
    Safety,
    SqlRead,
    SqlWrite,
    Tool,
    Unknown,
    secret,
)
from tests.tools.kit import CALL, child, settle
from tests.tools.kit.broken_connection import Fault, Line

TABLE = "create table tickets (id integer primary key, title text not null, effect text unique)"
ADD = "insert into tickets (id, title) values (:id, :title)"
ADD_KEYED = "insert into tickets (id, title, effect) values (:id, :title, :key)"
FOUND = "select id, title from tickets where effect = :key"
COUNT = "select count(*) as n from tickets"
TEA = {"id": 1, "title": "tea: it's :fine"}
IN_TIME = pytest.mark.wall_clock("the statement must be sent within the seconds that the call has")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database of a user, with a table of tickets."""
    if request.param == "sqlite":
        path = tmp_path / "user.db"
        connection = sqlite3.connect(path)
        connection.execute("pragma journal_mode = wal")
        connection.execute(TABLE)
        connection.close()
        yield f"sqlite:///{path}"
        return
    yield request.getfixturevalue("postgres_user_url")


@pytest.fixture
def postgres_user_url(postgres_url: str) -> Iterator[str]:
    """The same on PostgreSQL, in a schema of its own."""
    schema = f"t_{secrets.token_hex(6)}"
    made = f"create schema {schema}; set search_path = {schema}; {TABLE}"
    asyncio.run(_execute(postgres_url, made))
    yield f"{postgres_url}{'&' if '?' in postgres_url else '?'}search_path={schema}"
    asyncio.run(_execute(postgres_url, f"drop schema {schema} cascade"))


async def _execute(url: str, sql: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(url)
    await connection.execute(sql)
    await connection.close()


def with_table(url: str) -> SqlWrite:
    return SqlWrite(url, ADD)


def with_row(url: str) -> SqlWrite:
    return SqlWrite(url, ADD_KEYED, found=FOUND)


both_keys = pytest.mark.parametrize("make", [with_table, with_row])
Make = Callable[[str], Tool]


async def count(url: str) -> int:
    result = await SqlRead(url, COUNT).call({}, CALL)
    return int(result["rows"][0]["n"])


@both_keys
async def test_a_row_is_written_once_however_often_it_is_asked_for(url: str, make: Make) -> None:
    add = make(url)
    results = await asyncio.gather(*(add.call(TEA, CALL) for _ in range(5)))
    assert sorted(each["already"] for each in results) == [False, True, True, True, True]
    assert await count(url) == 1
    with pytest.raises(Rejected, match=r"(?i)unique"):
        await add.call(TEA, Call("another", 60))
    verdict = await add.reconcile(TEA, CALL)
    assert isinstance(verdict, Applied)
    assert verdict.result["already"] is True
    assert isinstance(await add.reconcile(TEA, Call("another", 60)), NotApplied)
    read = SqlRead(url, "select title from tickets where id = :id")
    assert (await read.call({"id": 1}, CALL))["rows"] == [{"title": TEA["title"]}]


@both_keys
@pytest.mark.parametrize("moment", ["sql-before-commit", "sql-after-commit"])
async def test_a_kill_around_the_commit_leaves_an_exact_answer(
    url: str, make: Make, moment: str
) -> None:
    options = {"found": FOUND} if make is with_row else {}
    sql = ADD_KEYED if make is with_row else ADD
    spec: dict[str, Any] = {
        "tool": "sql",
        "args": [url, sql],
        "options": options,
        "params": TEA,
        "key": CALL.key,
        "moment": moment,
    }
    assert child.run(spec) == -signal.SIGKILL
    happened = moment == "sql-after-commit"
    assert await count(url) == int(happened)
    verdict = await make(url).reconcile(TEA, CALL)
    assert isinstance(verdict, Applied if happened else NotApplied)
    await settle(make(url), TEA)
    assert await count(url) == 1


async def test_several_statements_happen_together_or_not_at_all(url: str) -> None:
    both = SqlWrite(url, [ADD, "update tickets set title = :none where id = :id"])
    with pytest.raises(Rejected):
        await both.call({**TEA, "none": None}, CALL)
    assert await count(url) == 0
    assert isinstance(await both.reconcile({**TEA, "none": None}, CALL), NotApplied)
    result = await both.call({**TEA, "none": "coffee"}, CALL)
    assert result == {"rows": [], "already": False}
    assert await count(url) == 1


async def test_what_a_statement_returns_is_kept_with_the_key(url: str) -> None:
    add = SqlWrite(url, f"{ADD} returning id, title")
    first = await add.call(TEA, CALL)
    assert first == {"rows": [TEA], "already": False}
    assert await add.call(TEA, CALL) == {"rows": [TEA], "already": True}
    assert await add.reconcile(TEA, CALL) == Applied({"rows": [TEA], "already": True})


async def test_reconcile_waits_for_a_call_in_flight_and_does_not_guess(url: str) -> None:
    hold = "begin immediate" if url.startswith("sqlite") else None
    add = with_table(url)
    await add.call({"id": 9, "title": "x"}, Call("other", 60))
    if hold:
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        connection.execute(hold)
        verdict = await add.reconcile(TEA, Call("key-1", 0.2))
        connection.close()
    else:
        import asyncpg

        from rota.tools.sql_postgres import PostgresToolTx

        server = await asyncpg.connect(url)
        async with server.transaction():
            await PostgresToolTx(server).hold("key-1")
            verdict = await add.reconcile(TEA, Call("key-1", 0.3))
            with pytest.raises(NotSent):
                await add.call(TEA, Call("key-1", 0.3))
        await server.close()
    assert isinstance(verdict, Unknown)
    assert isinstance(await add.reconcile(TEA, CALL), NotApplied)


async def test_a_busy_file_is_not_written_in_time_and_not_later(tmp_path: Path) -> None:
    path = tmp_path / "user.db"
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute(TABLE)
    holder.execute("begin immediate")
    url = f"sqlite:///{path}"
    with pytest.raises(NotSent):
        await with_table(url).call(TEA, Call("key-1", 0.2))
    holder.execute("rollback")
    assert await count(url) == 0
    slow = f"insert into tickets (id, title) select n, 'x' from ({_many()}) where n = :id"
    with pytest.raises(NotSent):
        await SqlWrite(url, slow).call({"id": 1}, Call("key-1", 0.2))
    assert await count(url) == 0
    holder.close()


def _many() -> str:
    return "with recursive c(n) as (select 1 union all select n + 1 from c) select n from c"


@pytest.mark.parametrize(
    ("sql", "values"),
    [
        ("insert into nowhere (id) values (:id)", {"id": 1}),
        ("insert into tickets (id, title) values (:id, null)", {"id": 1}),
        ("not sql at all :id", {"id": 1}),
    ],
)
async def test_what_the_database_refuses_is_rejected(
    url: str, sql: str, values: dict[str, Any]
) -> None:
    with pytest.raises(Rejected):
        await SqlWrite(url, sql).call(values, CALL)
    with pytest.raises(Rejected):
        await SqlRead(url, "select * from nowhere").call({}, CALL)


async def test_a_read_changes_nothing_and_is_cut_at_its_limit(url: str) -> None:
    for number in range(3):
        await with_table(url).call({"id": number, "title": "x"}, Call(f"k{number}", 5))
    query = "select id from tickets order by id"
    assert await SqlRead(url, query, rows_max=2).call({}, CALL) == {
        "rows": [{"id": 0}, {"id": 1}],
        "cut": True,
    }
    sly = SqlRead(url, f"{ADD} returning id")
    with pytest.raises(Rejected, match="only reads"):
        await sly.call({"id": 7, "title": "x"}, CALL)
    assert await count(url) == 3
    assert sly.safety is Safety.READ
    assert with_table(url).safety is Safety.IDEMPOTENT


@pytest.mark.parametrize(
    "bad", [{}, {"id": 1}, {"id": 1, "title": "x", "more": 2}, {"id": 1, "titel": "x"}]
)
async def test_a_value_too_few_or_too_many_is_refused(url: str, bad: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="its SQL"):
        await with_table(url).call(bad, CALL)
    assert await count(url) == 0


@pytest.mark.parametrize(
    "sql",
    ["", "commit", "insert into a values (1); commit", "BEGIN", "/* x */ pragma foreign_keys = 0"],
)
def test_a_statement_may_not_touch_the_transaction(sql: str) -> None:
    with pytest.raises(UsageError):
        SqlWrite("sqlite:///x.db", sql)


def test_parameters_are_found_only_where_they_are_parameters() -> None:
    from rota.tools.statements import statement

    found = statement(
        """select ':a', "b:c", d::text, $$ :e $$ -- :f
        from t where g = :g and h = :h and i = :g /* :j */"""
    )
    assert found.names == ("g", "h")
    assert "g = $1 and h = $2 and i = $1" in found.numbered


def test_a_key_in_the_row_has_to_be_written_and_looked_for() -> None:
    with pytest.raises(UsageError, match="has to be in the row"):
        SqlWrite("sqlite:///x.db", ADD, found=FOUND)
    with pytest.raises(UsageError, match="has to be in the row"):
        SqlWrite("sqlite:///x.db", ADD_KEYED, found="select 1")
    with pytest.raises(UsageError, match="table of keys"):
        SqlWrite("sqlite:///x.db", ADD, key_table="x; drop table y")
    with pytest.raises(UsageError, match="neither"):
        SqlWrite("mysql://x", ADD)


async def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="no file"):
        await with_table(f"sqlite:///{tmp_path}/none.db").call(TEA, CALL)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "text.db").write_text("this is not a database, it only looks long enough" * 20)
    with pytest.raises(Rejected):
        await with_table(f"sqlite:///{tmp_path}/text.db").call(TEA, CALL)


async def test_the_url_may_be_a_secret(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    add = SqlWrite(secret("USER_DATABASE"), ADD)
    with pytest.raises(NeedsLogin, match="USER_DATABASE"):
        await add.call(TEA, CALL)
    monkeypatch.setenv("USER_DATABASE", "mysql://ann:s3cr3t@h/d")
    with pytest.raises(Rejected, match="neither of SQLite") as raised:
        await add.call(TEA, CALL)
    assert "s3cr3t" not in str(raised.value)
    monkeypatch.setenv("USER_DATABASE", url)
    await add.call(TEA, CALL)
    assert await count(url) == 1


@pytest.mark.pg
async def test_a_server_that_is_not_there_is_not_sent_and_the_password_not_reported() -> None:
    add = with_table("postgresql://ann:s3cr3t@127.0.0.1:1/db")
    with pytest.raises(NotSent) as raised:
        await add.call(TEA, CALL)
    assert "s3cr3t" not in str(raised.value)


@pytest.mark.pg
async def test_a_role_that_may_not_needs_a_permission(postgres_url: str) -> None:
    role = f"r_{secrets.token_hex(4)}"
    await _execute(postgres_url, f"create role {role} login")
    try:
        add = with_table(postgres_url.replace("rota@", f"{role}@"))
        with pytest.raises(NeedsPermission):
            await add.call(TEA, CALL)
    finally:
        await _execute(postgres_url, f"drop role {role}")


@pytest.mark.pg
@both_keys
@pytest.mark.parametrize(
    ("words", "fault", "error"),
    [
        (b"insert into tickets", "before", NotSent),
        (b"insert into tickets", "after", NotSent),
        pytest.param(b"insert into tickets", "silent", NotSent, marks=IN_TIME),
        (b"COMMIT", "before", OutcomeUnknown),
        (b"COMMIT", "after", OutcomeUnknown),
        pytest.param(b"COMMIT", "silent", OutcomeUnknown, marks=IN_TIME),
    ],
)
async def test_only_a_line_that_breaks_at_the_commit_leaves_a_doubt(
    postgres_user_url: str, make: Make, words: bytes, fault: Fault, error: type[Exception]
) -> None:
    async with Line(postgres_user_url, words, fault).up() as broken:
        with pytest.raises(error) as raised:
            await make(broken).call(TEA, Call("key-1", 2.0) if fault == "silent" else CALL)
        assert type(raised.value) is error
    verdict = await make(postgres_user_url).reconcile(TEA, CALL)
    assert isinstance(verdict, Applied) == (await count(postgres_user_url) == 1)
    await settle(make(postgres_user_url), TEA)
    assert await count(postgres_user_url) == 1


@pytest.mark.parametrize("port", ["x", "99999", "54 32", "-1"])
async def test_a_bad_port_is_refused_before_the_call(
    port: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"postgresql://rota:s3cr3t@db.example:{port}/shop"
    for make in (SqlRead, SqlWrite):
        with pytest.raises(UsageError, match="port") as raised:
            make(url, "select 1")
        monkeypatch.setenv("SHOP", url)
        with pytest.raises(Rejected, match="port") as late:
            await make(secret("SHOP"), "select 1").call({}, CALL)
        assert "s3cr3t" not in f"{raised.value} {late.value}"
