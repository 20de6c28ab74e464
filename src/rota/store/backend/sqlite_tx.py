"""One transaction on a SQLite connection: statements, commit, and its files checked."""

from __future__ import annotations

import random
import time
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import apsw
import msgspec

from rota import errors
from rota.store.backend.database import Row, Taken
from rota.store.backend.dialect import SQLITE
from rota.store.backend.queries import compiled
from rota.store.backend.sqlite_files import OpenFiles
from rota.store.backend.sqlite_wal_prealloc import WalPreallocation

T = TypeVar("T")

# The driver, or the JSON that carries a batch, raises them for a value that SQLite cannot hold.
_UNSTORABLE = (OverflowError, ValueError, apsw.TooBigError)
_LISTS = frozenset((list, tuple))
_TAKEN = (apsw.SQLITE_CONSTRAINT_UNIQUE, apsw.SQLITE_CONSTRAINT_PRIMARYKEY)


class SqliteTx:
    """Runs statements on the connection it is given. Its awaits never suspend."""

    dialect = SQLITE
    schema = "main"

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self.commit_s = 0.0  # seconds of the last commit
        self.patient = True  # whether to wait for another process
        self.wal_space: WalPreallocation | None = None
        self.files: OpenFiles | None = None  # None for a database in memory
        self._cursor = connection.cursor()
        self._queries = compiled("sqlite")

    async def rows(self, query: str, *, alone: bool = False, **parameters: Any) -> list[Row]:
        """Run one named query."""
        text, _, names, _ = self._queries[query]
        return self._execute(text, _plain([parameters[name] for name in names]))

    async def many(
        self, query: str, items: Sequence[Row], *, alone: bool = False, **parameters: Any
    ) -> list[Row]:
        """Run one set-based query: all items travel as one JSON array."""
        return self._execute(*self._prepared(query, items, parameters)) if items else []

    async def change(
        self, query: str, items: Sequence[Row], *, alone: bool = False, **parameters: Any
    ) -> int:
        """Run one set-based query that answers nothing."""
        if not items:
            return 0
        self._execute(*self._prepared(query, items, parameters))
        return self.connection.changes()

    def _prepared(
        self, query: str, items: Sequence[Row], parameters: dict[str, Any]
    ) -> tuple[str, tuple[Any, ...]]:
        text, _, names, single = self._queries[query]
        shared = map(parameters.__getitem__, names)
        if len(items) == 1:
            return single, _plain([*items[0], *shared])
        return text, _plain([_json(items), *shared])

    def _execute(self, text: str, values: tuple[Any, ...]) -> list[Row]:
        try:
            rows: Any = self._cursor.execute(text, values).fetchall()
        except apsw.ConstraintError as error:
            kind = getattr(error, "extendedresult", None)
            if kind in _TAKEN:
                raise Taken(str(error)) from error
            if kind == apsw.SQLITE_CONSTRAINT_DATATYPE:  # such as an integer that JSON made a float
                raise errors.Unstorable(f"SQLite cannot store a value: {error}") from error
            raise
        except _UNSTORABLE as error:
            raise errors.Unstorable(f"SQLite cannot store a value: {error}") from error
        found: list[Row] = rows
        return found

    async def script(self, text: str, *, alone: bool = False) -> None:
        """Run plain statements; SQLite runs none outside of a transaction."""
        self._cursor.execute(text).fetchall()

    def begin(self) -> None:
        """Take the write lock."""
        self._cursor.execute("begin immediate")
        if self.wal_space is not None:
            self.wal_space.make()

    def commit(self) -> None:
        """Make it durable, and note how long the disk took."""
        began = time.perf_counter()
        self._cursor.execute("commit")
        self.commit_s = time.perf_counter() - began
        # Only now is it known that the commit went into a log that the next process will read.
        self.check_files()

    def check_files(self) -> None:
        """Refuse to answer from files that are no longer those of the database."""
        if self.files is not None:
            self.files.check()

    def close(self) -> None:
        """Disconnect."""
        if self.files is not None:
            self.files.keep_from_checkpoint_if_gone()
        self.connection.close()
        if self.wal_space is not None:
            self.wal_space.close()

    def wait_for_lock(self, tries: int, busy_s: float) -> bool:
        """Sleep for a short random time: with SQLite's growing sleeps a process starves beside a
        busy one."""
        if not self.patient or tries * 0.001 > busy_s:
            return False
        time.sleep(random.uniform(0.0002, 0.0018))
        return True


def _json(values: Sequence[Any]) -> str:
    try:
        return msgspec.json.encode(values).decode()
    except _UNSTORABLE as error:
        raise errors.Unstorable(f"SQLite cannot store a value: {error}") from error


def _plain(values: list[Any]) -> tuple[Any, ...]:
    """Lists as JSON, everything else as it is."""
    if not _LISTS.isdisjoint(map(type, values)):
        values = [_json(value) if isinstance(value, (list, tuple)) else value for value in values]
    return tuple(values)


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a store function to its end in one go: on SQLite nothing in it may suspend."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        value: T = stop.value
        return value
    coroutine.close()
    raise RuntimeError("a store function awaited something that is not its transaction")
