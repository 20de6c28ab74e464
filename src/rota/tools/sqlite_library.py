"""A connection to a SQLite file that other code of the same process may have open.

Two SQLite libraries in one process do not see each other's locks, and each drops the locks of the
other when it closes the file: the file gets damaged. Users' code has the library of Python's
`sqlite3` (so do SQLAlchemy, aiosqlite and Django), and so has this connection. A file that Rota
itself has open is opened with apsw, Rota's library, which is the only one allowed there.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import apsw

from rota.store.backend import sqlite_guard

BUSY_S = 0.05  # how long SQLite waits for a lock before the time of the call is looked at
STEPS = 1000  # of SQLite's machine, between two looks at the time
SQLITE_ERRORS = (sqlite3.Error, apsw.Error)
# The transaction has read what another has changed since: to wait does not help.
_STALE = sqlite3.SQLITE_BUSY_SNAPSHOT


class SharedConnection:
    """Waits for locks until `late` is set; a statement that runs then is interrupted."""

    def __init__(self, path: str, late: threading.Event) -> None:
        self._late = late
        self._raw = _connect(path)
        self._raw.set_progress_handler(late.is_set, STEPS)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return bool(self._raw.in_transaction)

    def execute(
        self, sql: str, bound: Mapping[str, Any] | None = None, rows_max: int = 0
    ) -> list[dict[str, Any]]:
        """Run one statement to its end, and keep the first rows. A statement that found a lock
        changed nothing, so it is run again, unless SQLite has ended its transaction."""
        before = self.in_transaction
        while True:
            try:
                return self._execute(sql, bound or {}, rows_max)
            except SQLITE_ERRORS as error:
                waits = primary_code(error) == sqlite3.SQLITE_BUSY and _code(error) != _STALE
                if not waits or self._late.is_set() or self.in_transaction != before:
                    raise

    def each(self, sql: str, bound: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The rows of one query, each as it is read. A lock is waited for before the first."""
        while True:
            with contextlib.closing(self._raw.cursor()) as cursor:
                try:
                    found = iter(cursor.execute(sql, bound))
                    row = next(found, None)
                except SQLITE_ERRORS as error:
                    if primary_code(error) != sqlite3.SQLITE_BUSY or self._late.is_set():
                        raise
                    continue
                while row is not None:
                    names = [column[0] for column in cursor.description]
                    yield dict(zip(names, row, strict=True))
                    row = next(found, None)
                return

    def limit_values(self, bytes_max: int) -> None:
        """Refuse values and rows of more bytes, before they are made."""
        if isinstance(self._raw, sqlite3.Connection):
            self._raw.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, bytes_max)
        else:
            self._raw.limit(apsw.SQLITE_LIMIT_LENGTH, bytes_max)

    def _execute(self, sql: str, bound: Mapping[str, Any], rows_max: int) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        # A cursor that an exception keeps alive would keep the file locked, so it is closed.
        with contextlib.closing(self._raw.cursor()) as cursor:
            for row in cursor.execute(sql, bound):
                if len(rows) < rows_max:
                    names = [column[0] for column in cursor.description]
                    rows.append(dict(zip(names, row, strict=True)))
        return rows

    def close(self) -> None:
        """Roll back an open transaction, and close."""
        with contextlib.suppress(*SQLITE_ERRORS):
            if self.in_transaction:
                self._raw.execute("rollback")
        self._raw.close()


def _connect(path: str) -> Any:
    if sqlite_guard.is_held(path):
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
        connection.set_busy_timeout(int(BUSY_S * 1000))
        return connection
    uri = f"file:{quote(os.path.abspath(path))}?mode=rw"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)


def primary_code(error: Exception) -> int | None:
    """SQLite's result code without its details; None for an error of the Python module."""
    code = _code(error)
    return None if code is None else code & 0xFF


def _code(error: Exception) -> int | None:
    code = getattr(error, "sqlite_errorcode", None) or getattr(error, "extendedresult", None)
    return code if isinstance(code, int) and code > 0 else None
