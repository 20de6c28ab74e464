"""The facts about a SQLite file for a person. Only reads."""

from __future__ import annotations

import os
from shutil import disk_usage
from typing import NamedTuple

import apsw

from rota.store.backend import sqlite_files, sqlite_wal_prealloc
from rota.store.backend.sqlite_errors import keep_errno, translate

# Report a backlog of two checkpoints: one late checkpoint is normal.
BACKLOG_PAGES = 2 * sqlite_wal_prealloc.CHECKPOINT_PAGES
# The log grows in steps of LOG_CHUNK_BYTES, up to LOG_BYTES between two checkpoints.
LOG_CHUNK_BYTES = sqlite_wal_prealloc.CHUNK_BYTES
LOG_BYTES = sqlite_wal_prealloc.CHECKPOINT_PAGES * sqlite_wal_prealloc.FRAME_BYTES_MAX


class SqliteState(NamedTuple):
    """The state of a file and its log."""

    journal_mode: str
    backlog_pages: int  # in the log, not yet in the file
    page_bytes: int
    open_to_others: list[str]


class DiskSpace(NamedTuple):
    """The bytes of the file system that holds a database."""

    folder: str
    free: int  # for this user
    total: int


def disk_space(path: str) -> DiskSpace | None:
    """The space for a database file; None if the folder does not say."""
    folder = os.path.dirname(os.path.realpath(path))
    try:
        found = disk_usage(folder)
    except OSError:
        return None
    return DiskSpace(folder, found.free, found.total)


def inspect(path: str) -> SqliteState:
    """Read through a separate apsw connection: opening and closing the file in another way would
    drop its POSIX locks."""
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return _inspect(connection, path)
    except apsw.Error as error:
        keep_errno(error, connection)
        raise translate(error, f"sqlite {path}") from error
    finally:
        connection.close()


def _inspect(connection: apsw.Connection, path: str) -> SqliteState:
    connection.set_busy_timeout(1000)
    connection.execute("select count(*) from sqlite_schema").fetchall()  # opens the log
    pages, moved = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    return SqliteState(
        journal_mode=str(connection.pragma("journal_mode")),
        backlog_pages=max(pages - moved, 0),
        page_bytes=int(connection.pragma("page_size")),
        open_to_others=sqlite_files.open_to_others(path),
    )
