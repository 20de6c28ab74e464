"""Writes right after a word was heard: over the connection that brought it, where there is one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota.errors import StoreUnreachable
from rota.store.backend.database import Database
from rota.store.runs import transitions
from tests.kit.builders import NOW, new_run, status


class Ear:
    """What was heard, and waiting for it."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[str] = asyncio.Queue()

    async def next(self) -> str:
        return await asyncio.wait_for(self.heard.get(), 30)


async def listening(db: Database) -> Ear:
    ear = Ear()
    await db.listen(ear.heard.put_nowait)
    return ear


async def process_of(tx: Any) -> int:
    """The server process that does the work."""
    return int(await tx.connection.fetchval("select pg_backend_pid()"))


def postgres(db: Database) -> Any:
    if db.dialect.name != "postgres":
        pytest.skip("a file has no connections that listen")
    return db


async def test_it_writes_whether_somebody_listens_or_not(db: Database) -> None:
    first, second = new_run(), new_run()
    await db.write_told(transitions.start, [first], now=NOW)
    await listening(db)
    await db.write_told(transitions.start, [second], now=NOW)
    assert [await status(db, one.id) for one in (first, second)] == ["pending", "pending"]


async def test_it_goes_over_the_connection_that_listens_which_listens_on(db: Database) -> None:
    database = postgres(db)
    ear = await listening(db)
    assert await ear.next() == "*"
    listener = database._ear.get_server_pid()
    assert await db.write_told(process_of) == listener
    assert await db.write(process_of) != listener

    async def tell(tx: Any) -> None:
        await tx.connection.execute(f"notify {database._channel()}, 'ready'")

    database._own.clear()  # as if somebody else told it
    await db.write(tell)
    assert await ear.next() == "ready"


@pytest.mark.parametrize(
    ("fields", "brings_id"),
    [({}, True), ({"external_id": "x"}, False), ({"input": f'"{"x" * 5000}"'}, False)],
    ids=["plain", "external id", "long input"],
)
async def test_a_lone_start_tells_its_id_where_its_row_is_all_of_it(
    db: Database, fields: dict[str, Any], brings_id: bool
) -> None:
    database = postgres(db)
    ear = await listening(db)
    assert await ear.next() == "*"
    database._own.clear()  # as if somebody else told it
    run = new_run(**fields)
    await db.write(transitions.start, [run], now=NOW, told_to=db.carry("ready"))
    assert await ear.next() == (f"ready {run.id}" if brings_id else "ready")


async def test_two_at_once_do_not_share_it(db: Database) -> None:
    postgres(db)
    await listening(db)
    one, other = await asyncio.gather(db.write_told(process_of), db.write_told(process_of))
    assert one != other


async def test_it_listens_again_after_the_connection_broke_under_it(db: Database) -> None:
    postgres(db)
    ear = await listening(db)
    assert await ear.next() == "*"

    async def end(tx: Any) -> None:
        await tx.connection.execute("select pg_terminate_backend(pg_backend_pid())")

    with pytest.raises(StoreUnreachable):
        await db.write_told(end)
    assert await ear.next() == "*"  # whatever was told while nobody listened
    run = new_run()
    await db.write_told(transitions.start, [run], now=NOW)
    assert await status(db, run.id) == "pending"
