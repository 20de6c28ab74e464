"""SQL tools on a SQLite file: the transaction runs in a thread, under the lock of the file."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import apsw

from rota import faults
from rota.errors import NeedsPermission, NotSent, OutcomeUnknown, Rejected, Transient
from rota.tools.base import Call
from rota.tools.sql import ToolTx
from rota.tools.statements import Statement, bindable, plain
from rota.tools.threads import in_thread

T = TypeVar("T")
BUSY_EVERY_S = 0.005
STEPS = 1000  # of SQLite's machine, between two looks at the time

_FORBIDDEN = (apsw.ReadOnlyError, apsw.PermissionsError, apsw.AuthError)
_PASSING = (
    *(apsw.BusyError, apsw.LockedError, apsw.FullError, apsw.InterruptError),
    *(apsw.IOError, apsw.ProtocolError, apsw.NoMemError),
)


class Sqlite:
    """A file, opened for each call; it has to be there."""

    def __init__(self, url: str, tool: str) -> None:
        self._path = url.removeprefix("sqlite:///")
        self._tool = tool

    async def write(self, work: Callable[[ToolTx], Awaitable[T]], call: Call) -> T:
        """Commit what `work` did."""
        try:
            return await in_thread(
                lambda left: self._transact(work, left, commit=True), timeout_s=call.timeout_s
            )
        except TimeoutError as error:
            said = f"{self._path} did not answer within {call.timeout_s:g} s"
            raise OutcomeUnknown(said, tool=self._tool) from error

    async def look(self, work: Callable[[ToolTx], Awaitable[T]], call: Call) -> T:
        """Change nothing: all is rolled back."""
        try:
            return await in_thread(
                lambda left: self._transact(work, left, commit=False), timeout_s=call.timeout_s
            )
        except TimeoutError as error:
            raise Transient(f"{self._path}: {error}") from error

    def _transact(
        self, work: Callable[[ToolTx], Awaitable[T]], left: threading.Event, *, commit: bool
    ) -> T:
        with self._opened(left) as connection:
            tx = SqliteToolTx(connection)
            with self._classified():
                answer = drive(work(tx))
                if not commit or left.is_set():
                    tx.end("rollback")
                if commit and left.is_set():
                    raise NotSent(f"{self._path} was not ready in time")
            if commit:
                self._commit(tx)
            return answer

    def _commit(self, tx: SqliteToolTx) -> None:
        faults.reach("sql-before-commit")
        try:
            tx.end("commit")
        except (apsw.BusyError, apsw.FullError, apsw.ConstraintError) as error:
            # SQLite keeps the transaction open, or has rolled it back: nothing is in the file.
            with contextlib.suppress(apsw.Error):
                tx.end("rollback")
            raise _meaning(error, self._path) from error
        except apsw.Error as error:
            raise OutcomeUnknown(f"{self._path}: {error}", tool=self._tool) from error
        faults.reach("sql-after-commit")

    @contextlib.contextmanager
    def _opened(self, left: threading.Event) -> Iterator[apsw.Connection]:
        with self._classified():
            if not Path(self._path).exists():
                raise Rejected(f"there is no file {self._path}")
            connection = apsw.Connection(self._path, flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            # It waits for others in place, and stops waiting when its time is over.
            connection.set_busy_handler(lambda _: not left.wait(BUSY_EVERY_S))
            connection.set_progress_handler(left.is_set, STEPS)
            yield connection
        finally:
            connection.close()  # an open transaction is rolled back

    @contextlib.contextmanager
    def _classified(self) -> Iterator[None]:
        """What is raised in here comes before the commit: nothing happened."""
        try:
            yield
        except apsw.Error as error:
            raise _meaning(error, self._path) from error
        except (TypeError, OverflowError, KeyError) as error:
            raise Rejected(f"{self._path}: a value cannot be bound: {error}") from error


def _meaning(error: apsw.Error, path: str) -> Exception:
    said = f"{path}: {error}"
    if isinstance(error, _FORBIDDEN):
        return NeedsPermission(said, service="sqlite", account=None)
    return NotSent(said) if isinstance(error, _PASSING) else Rejected(said)


class SqliteToolTx:
    """Begins with the first statement that needs it; one writer at a time, so it holds any key."""

    def __init__(self, connection: apsw.Connection) -> None:
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
            self._connection.execute("begin")  # so that a look can always be rolled back
        bound = bindable({name: values[name] for name in statement.names})
        found: list[dict[str, Any]] = []
        cursor = self._connection.cursor()
        for row in cursor.execute(statement.sql, bound):
            if len(found) < rows_max:
                names = [column[0] for column in cursor.get_description()]
                found.append(plain(dict(zip(names, row, strict=True))))
        return found

    def end(self, verb: str) -> None:
        """Commit or roll back, if anything was begun."""
        if self._connection.in_transaction:
            self._connection.execute(verb)


def drive(work: Awaitable[T]) -> T:
    """Run a function over a SqliteTx to its end: nothing in it ever suspends."""
    try:
        cast(Coroutine[Any, Any, T], work).send(None)
    except StopIteration as done:
        return cast(T, done.value)
    raise RuntimeError("a transaction on SQLite waited for something else")
