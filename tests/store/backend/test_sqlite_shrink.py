"""SQLite gives the space of deleted runs back: the file shrinks, except for a reserve."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from rota.core.time.instants import DAY
from rota.store.backend import sqlite
from rota.store.backend.database import Database
from rota.store.runs import retention
from tests.kit.builders import NOW, SPACE, new_run, opened, sql, start

CUT = f"{(NOW + DAY) // 1000:012x}"
PAGE = 4096


async def _fill_and_prune(db: Database, count: int) -> None:
    for _ in range(count // 100):
        await start(db, *(new_run(input="x" * 3000) for _ in range(100)))
    await sql(db, f"update runs set status = 'completed', finished_at = {NOW}")
    done = await db.write(retention.prune, namespace=SPACE, before_id=CUT, limit=count + 1)
    assert done.chains == count


async def _shrunk(db: Database) -> int:
    rounds = 1
    while await db.shrink():
        rounds += 1
    return rounds


async def test_the_file_shrinks_after_old_runs_were_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "SHRINK_PAGES", 100)
    path = tmp_path / "rota.db"
    async with opened(f"sqlite:///{path}") as db:
        await _fill_and_prune(db, 1000)
        assert await _shrunk(db) > 3, "a little at a time"
        assert not await db.shrink()
    assert path.stat().st_size < (sqlite.SPARE_PAGES_MIN + 150) * PAGE
    async with opened(f"sqlite:///{path}") as db:
        assert await sql(db, "pragma integrity_check") == [("ok",)]


async def test_a_file_of_an_older_version_works_on_and_keeps_its_size(tmp_path: Path) -> None:
    path = tmp_path / "rota.db"
    old = apsw.Connection(str(path))
    old.execute("create table t (a); drop table t")
    old.close()
    async with opened(f"sqlite:///{path}") as db:
        await _fill_and_prune(db, 1000)
        assert not await db.shrink()
        assert await sql(db, "pragma auto_vacuum") == [(0,)]
    size = path.stat().st_size
    assert size > 1000 * PAGE
    async with opened(f"sqlite:///{path}") as db:
        await start(db, *(new_run(input="x" * 3000) for _ in range(100)))
    assert path.stat().st_size == size, "free pages are used again"


async def test_a_copy_of_an_older_file_can_shrink(tmp_path: Path) -> None:
    old = apsw.Connection(str(tmp_path / "rota.db"))
    old.execute("create table t (a); drop table t")
    old.close()
    async with opened(f"sqlite:///{tmp_path / 'rota.db'}") as db:
        await _fill_and_prune(db, 300)
        await db.backup(str(tmp_path / "copy.db"))
    assert (tmp_path / "copy.db").stat().st_size < 150 * PAGE
    async with opened(f"sqlite:///{tmp_path / 'copy.db'}") as db:
        assert await sql(db, "pragma auto_vacuum") == [(2,)]


async def test_memory_and_small_files_have_nothing_to_give(tmp_path: Path) -> None:
    for url in ("sqlite:///:memory:", f"sqlite:///{tmp_path / 'rota.db'}"):
        async with opened(url) as db:
            await start(db, new_run())
            assert not await db.shrink()
