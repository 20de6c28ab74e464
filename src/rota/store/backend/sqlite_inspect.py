"""The facts about a SQLite file for a person. Only reads."""

from __future__ import annotations

from typing import NamedTuple

import apsw

from rota.store.backend import sqlite_files, sqlite_wal_prealloc

# Two checkpoints behind: one that is late once is not reported.
BACKLOG_PAGES = 2 * sqlite_wal_prealloc.CHECKPOINT_PAGES


class SqliteState(NamedTuple):
    """The state of a file and its log."""

    journal_mode: str
    backlog_pages: int  # in the log, not yet in the file
    page_bytes: int
    open_to_others: list[str]


def inspect(path: str) -> SqliteState:
    """Look through a connection of its own: a file that is opened another way loses its locks."""
    connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_busy_timeout(1000)
        connection.execute("select count(*) from sqlite_schema").fetchall()  # opens the log
        pages, moved = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
        return SqliteState(
            journal_mode=str(connection.pragma("journal_mode")),
            backlog_pages=max(pages - moved, 0),
            page_bytes=int(connection.pragma("page_size")),
            open_to_others=sqlite_files.open_to_others(path),
        )
    finally:
        connection.close()
