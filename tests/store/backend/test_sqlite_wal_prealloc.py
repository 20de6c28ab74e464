"""The write-ahead log is lengthened ahead of small commits, and what it says stays the same."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import apsw
import pytest

from rota.store.backend import sqlite_wal_prealloc
from rota.store.backend.database import Database
from tests.kit.builders import new_run, opened
from tests.kit.builders import start as start_runs

CHUNK_BYTES = sqlite_wal_prealloc.CHUNK_BYTES
ALL_WRITES = [64 * 1024] * 16  # of a mebibyte (0100)


async def _start(db: Database, count: int) -> None:
    for _ in range(count):
        await start_runs(db, new_run())


def _log(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _writes_before_full(monkeypatch: pytest.MonkeyPatch, count: int) -> list[int]:
    """The bytes of each write of zeros; the disk is full after so many."""
    written: list[int] = []
    write = os.pwrite

    def limited(file: int, zeros: bytes, at: int) -> int:
        if len(written) == count:
            raise OSError(28, "No space left on device")
        written.append(write(file, zeros, at))
        return written[-1]

    monkeypatch.setattr(os, "pwrite", limited)
    return written


def _count(path: Path) -> int:
    connection = apsw.Connection(str(path))
    try:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
        return len(connection.execute("select id from runs").fetchall())
    finally:
        connection.close()


async def test_small_commits_find_space_in_the_log(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with opened(f"sqlite:///{path}") as db:
        await _start(db, 3)
        before = _log(path).stat().st_size
        await _start(db, 20)
        assert _log(path).stat().st_size == before
        await _start(db, 300)
        longer = _log(path).stat().st_size - before
        assert longer > 0
        assert longer % CHUNK_BYTES == 0


async def test_zeros_at_the_end_are_no_part_of_the_log_after_a_power_cut(tmp_path: Path) -> None:
    path, copy = tmp_path / "a.db", tmp_path / "b.db"
    async with opened(f"sqlite:///{path}") as db:
        await _start(db, 40)
        assert _log(path).read_bytes()[-4096:] == bytes(4096)
        # As the disk looks when the machine goes out now. A copy made in here would drop locks.
        subprocess.run(["cp", path, copy], check=True)
        subprocess.run(["cp", _log(path), _log(copy)], check=True)
    assert _count(copy) == _count(path) == 40


async def test_two_writers_lengthen_one_log(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    url = f"sqlite:///{path}"
    async with opened(url) as one, opened(url) as other:
        for _ in range(60):
            await _start(one, 3)
            await _start(other, 3)
        assert _count(path) == 360


async def test_a_long_log_is_carried_over_and_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_wal_prealloc, "CHECKPOINT_PAGES", 100)
    path = tmp_path / "a.db"
    async with opened(f"sqlite:///{path}") as db:
        await _start(db, 300)
        assert _log(path).stat().st_size <= 2 * CHUNK_BYTES
        assert path.stat().st_size > 300 * 100
    assert _count(path) == 300


async def test_zeros_go_in_small_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = _writes_before_full(monkeypatch, len(ALL_WRITES))
    async with opened(f"sqlite:///{tmp_path}/a.db") as db:
        await _start(db, 3)
    assert written == ALL_WRITES


@pytest.mark.parametrize("before_full", [0, 2])
async def test_a_disk_without_space_for_zeros_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before_full: int
) -> None:
    written = _writes_before_full(monkeypatch, before_full)
    path = tmp_path / "a.db"
    async with opened(f"sqlite:///{path}") as db:
        await _start(db, 30)
        assert len(written) == before_full
    assert _count(path) == 30
