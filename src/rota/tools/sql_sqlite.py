"""SQL tools on a SQLite file: the transaction runs in a thread, under the lock of the file."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from rota import faults
from rota.errors import NeedsPermission, NotSent, OutcomeUnknown, Rejected, StoreHeld, Transient
from rota.store.backend.sqlite_threads import drive
from rota.tools.base import Call
from rota.tools.sql import ReadLimits, Work, too_big
from rota.tools.sqlite_library import SQLITE_ERRORS, SharedConnection, primary_code
from rota.tools.statements import Statement, bindable, plain
from rota.tools.threads import in_thread

T = TypeVar("T")
# A read may compute with values that are larger than its result.
VALUE_BYTES_MAX = 16 * 1024 * 1024

_FORBIDDEN = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
_PASSING = {
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_INTERRUPT),
    *(sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOMEM),
}
# After these, a commit has left nothing in the file: SQLite keeps the transaction open, or has
# rolled it back.
_NOT_COMMITTED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CONSTRAINT}


class Sqlite:
    """A file, opened for each call; it has to be there."""

    def __init__(self, url: str, tool: str) -> None:
        self._path = url.removeprefix("sqlite:///")
        self._tool = tool

    async def read(self, work: Work[T], call: Call) -> T:
        """Run `work` in a transaction that cannot write."""
        return await self.transact(work, call, commit=False, read_only=True)

    async def transact(
        self, work: Work[T], call: Call, *, commit: bool, read_only: bool = False
    ) -> T:
        """Commit what `work` did, or roll it back."""

        def in_its_thread(late: threading.Event) -> T:
            return self._transact_in_thread(work, late, commit=commit, read_only=read_only)

        try:
            return await in_thread(
                in_its_thread,
                timeout_s=call.timeout_s,
            )
        except TimeoutError as error:
            message = f"{self._path} did not answer within {call.timeout_s:g} s"
            if not commit:
                raise Transient(message) from error
            raise OutcomeUnknown(message, tool=self._tool) from error

    def _transact_in_thread(
        self, work: Work[T], late: threading.Event, *, commit: bool, read_only: bool
    ) -> T:
        with self._opened(late) as connection:
            tx = SqliteToolTx(connection)
            if read_only:
                connection.execute("pragma query_only = on")
            with self._classified(), self._reading(read_only=read_only):
                answer = drive(work(tx))
                if not commit or late.is_set():
                    tx.end("rollback")
                if commit and late.is_set():
                    raise NotSent(f"{self._path} was not ready in time")
            if commit:
                self._commit(tx)
            return answer

    def _commit(self, tx: SqliteToolTx) -> None:
        faults.reach("sql-before-commit")
        try:
            tx.end("commit")
        except SQLITE_ERRORS as error:
            if primary_code(error) not in _NOT_COMMITTED:
                raise OutcomeUnknown(f"{self._path}: {error}", tool=self._tool) from error
            with contextlib.suppress(*SQLITE_ERRORS):
                tx.end("rollback")
            raise _meaning(error, self._path) from error
        faults.reach("sql-after-commit")

    @contextlib.contextmanager
    def _opened(self, late: threading.Event) -> Iterator[SharedConnection]:
        with self._classified():
            if not Path(self._path).exists():
                raise Rejected(f"there is no file {self._path}")
            connection = SharedConnection(self._path, late)
        try:
            yield connection
        finally:
            connection.close()

    @contextlib.contextmanager
    def _reading(self, *, read_only: bool) -> Iterator[None]:
        """A write that `query_only` refuses needs other SQL, not a permission."""
        try:
            yield
        except SQLITE_ERRORS as error:
            if read_only and primary_code(error) == sqlite3.SQLITE_READONLY:
                message = f"{self._tool} only reads, and its SQL would write: {error}"
                raise Rejected(message) from error
            raise

    @contextlib.contextmanager
    def _classified(self) -> Iterator[None]:
        """Errors in here come before the commit: nothing happened."""
        try:
            yield
        except SQLITE_ERRORS as error:
            raise _meaning(error, self._path) from error
        except (MemoryError, StoreHeld) as error:  # Rota opened the file a moment ago
            raise NotSent(f"{self._path}: {error}") from error
        except UnicodeDecodeError as error:
            raise Rejected(f"{self._path}: text that is not UTF-8: {error}") from error
        except (TypeError, ValueError, OverflowError, KeyError) as error:
            raise Rejected(f"{self._path}: a value cannot be bound: {error}") from error


def _meaning(error: Exception, path: str) -> Exception:
    message, code = f"{path}: {error}", primary_code(error)
    if code in _FORBIDDEN:
        return NeedsPermission(message, service="sqlite", account=None)
    return NotSent(message) if code in _PASSING else Rejected(message)


class SqliteToolTx:
    """Begins with the first statement that needs it; one writer at a time, so it holds any key."""

    def __init__(self, connection: SharedConnection) -> None:
        self._connection = connection

    async def hold(self, key: str) -> None:
        """The lock of the file is the lock of all keys."""
        if not self._connection.in_transaction:
            self._connection.execute("begin immediate")

    async def make(self, table: str, statement: Statement) -> None:
        """In the same transaction as everything else."""
        await self.hold(table)
        self._connection.execute(statement.sql)

    async def rows(
        self, statement: Statement, values: dict[str, Any], rows_max: int
    ) -> list[dict[str, Any]]:
        """Run to the end, and keep the first rows."""
        if not self._connection.in_transaction:
            self._connection.execute("begin")  # so that a read can always be rolled back
        bound = bindable({name: values[name] for name in statement.names})
        return [plain(row) for row in self._connection.execute(statement.sql, bound, rows_max)]

    async def read(
        self, statement: Statement, values: dict[str, Any], limits: ReadLimits
    ) -> list[dict[str, Any]]:
        """The first rows; SQLite itself refuses a value that is far too big."""
        self._connection.limit_values(max(limits.bytes, VALUE_BYTES_MAX))
        if not self._connection.in_transaction:
            self._connection.execute("begin")
        bound = bindable({name: values[name] for name in statement.names})
        rows: list[dict[str, Any]] = []
        size = 0
        try:
            for row in self._connection.each(statement.sql, bound):
                size = limits.add(rows, plain(row), size)
                if len(rows) == limits.rows:
                    break
        except SQLITE_ERRORS as error:
            if primary_code(error) == sqlite3.SQLITE_TOOBIG:
                raise too_big(limits.bytes) from error
            raise
        return rows

    def end(self, verb: str) -> None:
        """Commit or roll back, if anything was begun."""
        if self._connection.in_transaction:
            self._connection.execute(verb)
