"""Disk errors on SQLite: a durable commit is acknowledged, every other error says what it is."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import apsw
import pytest

from rota import Client, Rota
from rota.errors import (
    StoreError,
    StoreFull,
    StoreIOError,
    StoreNoSharedMemory,
    StoreReadOnly,
)
from rota.store.backend import sqlite_inspect, sqlite_wal_prealloc
from rota.store.backend.sqlite_errors import translate
from tests.kit import broken, select
from tests.kit.sqlite_faults import Fault, faulty_disk, file_size_limit, io_error

MIB = 1 << 20


def _app(url: str) -> Rota:
    app = Rota(url, keep_days=0)

    @app.workflow
    async def keeps(text: str) -> None: ...

    return app


async def _start(app: Rota, count: int, size: int = 3000) -> None:
    for _ in range(count):
        await app.start("keeps", "x" * size)


async def test_a_commit_is_acknowledged_though_the_checkpoint_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path / 'rota.db'}"
    async with _app(url).connected() as app:
        await _start(app, 30, 200_000)  # the file is longer than the limit below
    monkeypatch.setattr(sqlite_wal_prealloc, "CHECKPOINT_PAGES", 100)
    with caplog.at_level(logging.WARNING, "rota.store"):
        async with _app(url).connected() as app:
            with file_size_limit(4 * MIB):
                await _start(app, 80)
            assert await app.runs.counts() == {"pending": 110}
    warnings = [r.getMessage() for r in caplog.records if "cannot be moved" in r.getMessage()]
    assert len(warnings) == 1, "the warning is rate-limited"
    assert "Commits are durable" in warnings[0]
    assert f"errno {errno.EFBIG}" in warnings[0]
    assert await select(url, "select count(*) from runs") == [(110,)]
    assert await broken(url) == []


async def test_a_failed_checkpoint_is_repeated_when_the_disk_has_space_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_wal_prealloc, "CHECKPOINT_PAGES", 100)
    monkeypatch.setattr(sqlite_wal_prealloc, "RETRY_S", 0.0)
    path = tmp_path / "rota.db"
    with faulty_disk() as disk:
        async with _app(f"sqlite:///{path}").connected() as app:
            disk.errno, disk.ending = errno.ENOSPC, "rota.db"
            await _start(app, 150)
            assert sqlite_inspect.inspect(str(path)).backlog_pages > 150
            disk.ending = None
            await _start(app, 1)
            assert sqlite_inspect.inspect(str(path)).backlog_pages == 0


@pytest.mark.parametrize(
    ("number", "expected", "advice"),
    [
        (errno.EROFS, StoreReadOnly, "Mount it for writing"),
        (errno.EIO, StoreIOError, "Check the disk"),
        (errno.EDQUOT, StoreFull, "Free some space"),
    ],
)
@pytest.mark.parametrize("operation", ["xWrite", "xSync"])
async def test_each_disk_error_has_its_own_class_and_advice(
    tmp_path: Path, number: int, expected: type[StoreError], advice: str, operation: str
) -> None:
    with faulty_disk() as disk:
        async with _app(f"sqlite:///{tmp_path / 'rota.db'}").connected() as app:
            await _start(app, 1)
            _set(disk, number, operation)
            with pytest.raises(expected) as caught:
                await _start(app, 1)
            disk.ending = None
            await _start(app, 1)
    assert type(caught.value) is expected
    assert advice in caught.value.advice
    assert "nothing was written" not in f"{caught.value} {caught.value.advice}".lower()


def _set(disk: Fault, number: int, operation: str) -> None:
    disk.errno, disk.operation, disk.ending = number, operation, "-wal"
    disk.code = apsw.SQLITE_IOERR_WRITE if operation == "xWrite" else apsw.SQLITE_IOERR_FSYNC


async def test_a_file_system_that_sqlite_cannot_use_a_log_on_is_refused(tmp_path: Path) -> None:
    # This VFS of SQLite's own has no shared memory, as some network file systems.
    apsw.set_default_vfs("unix-dotfile")
    try:
        with pytest.raises(StoreNoSharedMemory, match="journal mode 'delete'") as caught:
            await Client(f"sqlite:///{tmp_path / 'rota.db'}").connect()
    finally:
        apsw.set_default_vfs("unix")
    assert "PostgreSQL" in caught.value.advice


@pytest.mark.parametrize(
    "code",
    [apsw.SQLITE_IOERR_SHMOPEN, apsw.SQLITE_IOERR_SHMSIZE, apsw.SQLITE_IOERR_SHMMAP],
)
def test_missing_shared_memory_is_not_called_a_full_disk(code: int) -> None:
    ours = translate(io_error(code), "sqlite a.db")
    assert isinstance(ours, StoreNoSharedMemory)
    assert "local disk" in ours.advice


async def test_the_log_behind_a_link_is_lengthened_too(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "rota.db")
    async with _app(f"sqlite:///{tmp_path / 'link.db'}").connected() as app:
        await _start(app, 40, 10)
        log = tmp_path / "real" / "rota.db-wal"
        assert log.read_bytes()[-4096:] == bytes(4096)
