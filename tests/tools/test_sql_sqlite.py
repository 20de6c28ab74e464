"""SQL tools on a SQLite file that other code of the same process has open.

Two SQLite libraries in one process do not see each other's locks: they damage the file. So tools
open users' files with Python's `sqlite3`, as SQLAlchemy, aiosqlite and Django do.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest
import sqlalchemy

from rota.errors import NotSent, Rejected
from rota.tools import Call, SqlRead, SqlWrite
from tests.kit.builders import opened
from tests.tools.kit import CALL, settle

ADD = "insert into tickets (owner, number) values (:owner, :number)"
COUNT = "select owner, count(*) as n from tickets group by owner order by owner"
USER_COMMITS = 150
TOOL_CALLS = 40

Insert = Callable[[str, int], None]


def make(path: Path, journal: str) -> str:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(f"pragma journal_mode = {journal}")
        connection.execute("create table tickets (owner text, number int, unique (owner, number))")
        connection.commit()
    return f"sqlite:///{path}"


@contextlib.contextmanager
def by_sqlite3(path: Path) -> Iterator[Insert]:
    """A user with a connection of `sqlite3` that stays open."""
    connection = sqlite3.connect(path, timeout=60, check_same_thread=False)

    def insert(owner: str, number: int) -> None:
        with connection:
            connection.execute("insert into tickets values (?, ?)", (owner, number))

    yield insert
    connection.close()


@contextlib.contextmanager
def by_sqlalchemy(path: Path) -> Iterator[Insert]:
    """A user with an engine of SQLAlchemy, which pools its connections."""
    engine = sqlalchemy.create_engine(f"sqlite:///{path}", connect_args={"timeout": 60})
    text = sqlalchemy.text(ADD)

    def insert(owner: str, number: int) -> None:
        with engine.begin() as connection:
            connection.execute(text, {"owner": owner, "number": number})

    yield insert
    engine.dispose()


USERS = {"sqlite3": by_sqlite3, "sqlalchemy": by_sqlalchemy}


@pytest.mark.parametrize("journal", ["wal", "delete"])
@pytest.mark.parametrize(
    "users", [["sqlite3"], ["sqlalchemy"], ["sqlite3", "sqlalchemy"]], ids="+".join
)
async def test_a_file_that_the_same_process_writes_with_sqlite3_or_sqlalchemy_is_not_corrupted(
    tmp_path: Path, users: list[str], journal: str
) -> None:
    url = make(tmp_path / "user.db", journal)
    begun = threading.Event()

    def work(name: str) -> None:
        with USERS[name](tmp_path / "user.db") as insert:
            for number in range(USER_COMMITS):
                insert(name, number)
                begun.set()

    async def call() -> None:
        add, look = SqlWrite(url, ADD, name="tool"), SqlRead(url, COUNT)
        await asyncio.to_thread(begun.wait)
        for number in range(TOOL_CALLS):
            await add.call({"owner": "tool", "number": number}, Call(f"key-{number}", 60))
            await look.call({}, Call("look", 60))

    await asyncio.gather(call(), *(asyncio.to_thread(work, name) for name in users))
    with contextlib.closing(sqlite3.connect(tmp_path / "user.db")) as connection:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
        found = dict(connection.execute(COUNT).fetchall())
        keys = connection.execute("select count(*) from rota_effects").fetchone()
    assert found == dict.fromkeys(users, USER_COMMITS) | {"tool": TOOL_CALLS}
    assert keys == (TOOL_CALLS,)


@pytest.mark.parametrize("journal", ["wal", "delete"])
async def test_a_write_lock_held_by_sqlite3_in_the_same_process_is_respected(
    tmp_path: Path, journal: str
) -> None:
    url = make(tmp_path / "user.db", journal)
    add = SqlWrite(url, ADD)
    params = {"owner": "tool", "number": 1}
    with contextlib.closing(sqlite3.connect(tmp_path / "user.db", isolation_level=None)) as holder:
        holder.execute("begin immediate")
        holder.execute("insert into tickets values ('user', 1)")
        with pytest.raises(NotSent, match="locked"):
            await add.call(params, Call("key-1", 0.2))
        holder.execute("commit")
        await settle(add, params)
    found = await SqlRead(url, COUNT).call({}, CALL)
    assert found["rows"] == [{"owner": "tool", "n": 1}, {"owner": "user", "n": 1}]


async def test_a_call_waits_for_a_lock_that_is_released_in_time(tmp_path: Path) -> None:
    url = make(tmp_path / "user.db", "delete")
    with contextlib.closing(sqlite3.connect(tmp_path / "user.db", isolation_level=None)) as holder:
        holder.execute("begin exclusive")
        reading = asyncio.create_task(SqlRead(url, COUNT).call({}, Call("look", 30)))
        writing = asyncio.create_task(
            SqlWrite(url, ADD).call({"owner": "tool", "number": 1}, Call("key-1", 30))
        )
        done, _ = await asyncio.wait({reading, writing}, timeout=0.1)
        assert not done
        holder.execute("rollback")
        assert (await writing)["already"] is False
        assert (await reading)["cut"] is False


async def test_a_reader_that_holds_up_the_commit_is_waited_for(tmp_path: Path) -> None:
    """Without a WAL, a commit needs all readers to be gone."""
    url = make(tmp_path / "user.db", "delete")
    add, params = SqlWrite(url, ADD), {"owner": "tool", "number": 1}
    with contextlib.closing(sqlite3.connect(tmp_path / "user.db", isolation_level=None)) as reader:
        reader.execute("begin")
        reader.execute("select * from tickets").fetchall()
        with pytest.raises(NotSent):
            await add.call(params, Call("key-1", 0.2))
        writing = asyncio.create_task(add.call(params, Call("key-1", 30)))
        done, _ = await asyncio.wait({writing}, timeout=0.1)
        assert not done
        reader.execute("rollback")
        assert (await writing)["already"] is False


async def test_a_table_in_the_file_that_rota_itself_has_open_can_be_written(tmp_path: Path) -> None:
    """There the tool uses Rota's library: the other one is refused the file."""
    path = tmp_path / "rota.db"
    async with opened(f"sqlite:///{path}"):
        connection = apsw.Connection(str(path))
        connection.execute("create table tickets (owner text, number int)")
        connection.close()
        add = SqlWrite(f"sqlite:///{path}", ADD)
        for number in range(3):
            await add.call({"owner": "tool", "number": number}, Call(f"key-{number}", 20))
        found = await SqlRead(f"sqlite:///{path}", COUNT).call({}, CALL)
        assert found["rows"] == [{"owner": "tool", "n": 3}]
        with pytest.raises(Rejected, match="no such table"):
            await SqlRead(f"sqlite:///{path}", "select * from nowhere").call({}, CALL)


async def test_values_and_text_that_cannot_be_stored_or_read_are_rejected(tmp_path: Path) -> None:
    url = make(tmp_path / "user.db", "wal")
    with pytest.raises(Rejected, match="cannot be bound"):
        await SqlWrite(url, ADD).call({"owner": "tool", "number": 2**80}, CALL)
    with contextlib.closing(sqlite3.connect(tmp_path / "user.db")) as connection:
        connection.execute("insert into tickets values (cast(x'ff' as text), 1)")
        connection.commit()
    with pytest.raises(Rejected, match="UTF-8"):
        await SqlRead(url, "select owner from tickets").call({}, CALL)


async def test_a_path_with_characters_of_a_uri_is_a_plain_path(tmp_path: Path) -> None:
    path = tmp_path / "a file?mode=ro#100%25.db"
    url = make(path, "wal")
    await SqlWrite(url, ADD).call({"owner": "tool", "number": 1}, CALL)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("select owner from tickets").fetchall() == [("tool",)]
