"""`backup` copies a SQLite database in use; on PostgreSQL it names the tool that does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rota import Client
from rota.errors import StoreUnreachable, UsageError
from tests.kit import broken, select
from tests.kit.schema import SharedSchema


async def test_a_copy_holds_all_that_was_acknowledged_while_writers_go_on(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'rota.db'}"
    async with Client(url) as client:
        before = {(await client.start("work", text="x" * 2000)).id for _ in range(100)}
        done = asyncio.Event()

        async def write_on() -> set[str]:
            after = set()
            while not done.is_set():
                after.add((await client.start("work")).id)
            return after

        writing = asyncio.create_task(write_on())
        size = await client.backup(tmp_path / "copy.db")
        done.set()
        after = await writing
        assert size == (tmp_path / "copy.db").stat().st_size
    assert after, "writers are not held up"
    copy = f"sqlite:///{tmp_path / 'copy.db'}"
    kept = {row[0] for row in await select(copy, "select id from runs")}
    assert before <= kept <= before | after
    assert await broken(copy) == []
    assert sorted(each.name for each in tmp_path.glob(".*")) == [], "no partial file is left"
    async with Client(copy) as client:
        await client.start("work")
    async with Client(url) as client:
        assert await client.runs.counts() == {"pending": len(before | after)}


async def test_a_copy_is_private_and_never_overwrites(tmp_path: Path) -> None:
    async with Client(f"sqlite:///{tmp_path / 'rota.db'}") as client:
        await client.backup(tmp_path / "copy.db")
        assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600
        with pytest.raises(UsageError, match=r"copy\.db exists already"):
            await client.backup(tmp_path / "copy.db")
        with pytest.raises(StoreUnreachable, match="cannot be written"):
            await client.backup(tmp_path / "nowhere" / "copy.db")


async def test_a_database_in_memory_has_nothing_to_copy(tmp_path: Path) -> None:
    async with Client("sqlite:///:memory:") as client:
        with pytest.raises(UsageError, match="in memory"):
            await client.backup(tmp_path / "copy.db")


@pytest.mark.pg
async def test_postgres_is_copied_with_pg_dump(shared_schema: SharedSchema, tmp_path: Path) -> None:
    async with Client(shared_schema.url) as client:
        with pytest.raises(UsageError, match="pg_dump") as caught:
            await client.backup(tmp_path / "copy.dump")
    assert "pg_dump --format=custom --schema=" in caught.value.advice
