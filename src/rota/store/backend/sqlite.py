"""SQLite: one writer thread per process, group commit, a reader thread beside it.

The writer takes every function that waits, runs each under its own savepoint inside one
transaction, commits once, and answers all of them. A brief write that finds the writer idle is done
on the spot: two thread switches cost more than it does. apsw brings its own SQLite, so Rota chooses
the version (and its fixes). Knows no table.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import apsw

from rota import errors
from rota.settings import Settings
from rota.store.backend import sqlite_backup, sqlite_guard
from rota.store.backend.call_meter import count_call, count_error
from rota.store.backend.dialect import SQLITE
from rota.store.backend.sqlite_errors import keep_errno, note_read_only_mount, translate
from rota.store.backend.sqlite_files import Identity, OpenFiles, create_private
from rota.store.backend.sqlite_threads import SqliteThread, SqliteTx
from rota.store.backend.sqlite_wakeup import LocalSignal
from rota.store.backend.sqlite_wal_prealloc import WalPreallocation

P = ParamSpec("P")
T = TypeVar("T")

# SQLite's own 2 MiB hold the hot pages of some thousand runs; beyond, each write would read first.
CACHE_KIB = 32 * 1024
# Free pages that stay in the file: at least so many, or a tenth of it, for the runs to come.
SPARE_PAGES_MIN = 256
SHRINK_PAGES = 500  # moved in one commit
_INCREMENTAL = 2  # `auto_vacuum`
# WAL-reset race: two writing processes may corrupt the file before this version.
SAFE_SQLITE = (3, 51, 3)


async def _shrink(tx: SqliteTx) -> bool:
    connection = tx.connection
    if connection.pragma("auto_vacuum") != _INCREMENTAL:
        return False
    spare = max(SPARE_PAGES_MIN, int(connection.pragma("page_count")) // 10)
    excess = int(connection.pragma("freelist_count")) - spare
    if excess > 0:
        connection.execute(f"pragma incremental_vacuum({min(excess, SHRINK_PAGES)})").fetchall()
    return excess > SHRINK_PAGES


class SqliteDatabase:
    """A SQLite file (or `:memory:`), safe for several processes."""

    dialect = SQLITE
    is_local = True

    def __init__(self, path: str, settings: Settings) -> None:
        # Absolute: the program may change its folder, and errors should say which file they mean.
        self.path = path if path == ":memory:" else os.path.abspath(path)
        self.place = f"sqlite {self.path}"
        self._settings = settings
        self._memory = path == ":memory:"
        self._writer = SqliteThread("rota-writer", lambda: self._connect(write=True), True)
        self._reader = (
            None
            if self._memory
            else SqliteThread("rota-reader", lambda: self._connect(write=False), False)
        )
        self._signal = None if self._memory else LocalSignal(os.path.realpath(self.path))
        self._held: list[Identity] = []

    async def open(self) -> None:
        """Open the file, creating it (never its folder) when missing."""
        try:
            await self._writer.open()
            if self._reader is not None:
                await self._reader.open()
                self._held = sqlite_guard.hold(self.path)
        except apsw.Error as error:
            note_read_only_mount(error, self.path)
            raise translate(error, self.place) from error

    async def close(self) -> None:
        """Finish what was submitted, then close the file."""
        if self._signal is not None:
            self._signal.close()
        if self._reader is not None:
            await self._reader.close()
        await self._writer.close()
        sqlite_guard.release(self._held)
        self._held = []

    def abandon(self) -> None:
        """Close the file without the event loop in which it was opened: that one is closed."""
        if self._signal is not None:
            self._signal.close()
        for thread in (self._reader, self._writer):
            if thread is not None:
                thread.end()
        sqlite_guard.release(self._held)
        self._held = []

    async def write(
        self,
        function: Callable[Concatenate[Any, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run `function` in the writer's next transaction."""
        value: T = await self._call(self._writer.call, function, args, kwargs)
        return value

    async def write_brief(
        self,
        function: Callable[Concatenate[Any, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """The same, at once where that is possible."""
        value: T = await self._call(self._writer.call_brief, function, args, kwargs)
        return value

    async def read(
        self,
        function: Callable[Concatenate[Any, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run `function` on a snapshot; a database in memory has only one connection."""
        thread = self._reader or self._writer
        value: T = await self._call(thread.call, function, args, kwargs)
        return value

    async def _call(
        self, call: Callable[..., Awaitable[Any]], function: Any, args: Any, kwargs: Any
    ) -> Any:
        began = time.perf_counter()
        try:
            value = await call(function, args, kwargs)
        except apsw.Error as error:
            problem = translate(error, self.place)
            count_error(problem)
            raise problem from error
        except errors.StoreError as error:
            count_error(error)
            raise
        count_call(function, began)
        return value

    async def migrating(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run `work`: one transaction migrates a file, and its lock is enough."""
        return await work()

    async def backup(self, target: str, *, disarmed_at: int | None = None) -> int:
        """Copy the database as it is at one moment; readers and writers continue meanwhile."""
        if self._memory:
            raise errors.UsageError(
                "a database in memory has no file to copy", hint="Use sqlite:///path/to/rota.db."
            )
        try:
            return await asyncio.to_thread(
                sqlite_backup.backup,
                self.path,
                target,
                self._settings.busy_s,
                disarmed_at=disarmed_at,
            )
        except apsw.Error as error:
            raise translate(error, self.place) from error

    async def shrink(self) -> bool:
        """Cut some free pages off the file, if it has more than new runs will soon use."""
        return not self._memory and await self.write(_shrink)

    async def clock_us(self) -> int | None:
        """None: the file is on this machine and shares its clock."""
        return None

    async def notify(self, topics: Sequence[str]) -> None:
        """Wake the other processes on this file."""
        if self._signal is not None:
            for topic in topics:
                self._signal.notify(topic)

    def notify_soon(self, topic: str) -> None:
        """Wake the other processes on this file, by the event loop."""
        if self._signal is not None:
            self._signal.notify_soon(topic)

    async def listen(self, notified: Callable[[str], None]) -> None:
        """Listen to the other processes on this file."""
        if self._signal is not None:
            await self._signal.listen(notified)

    def _connect(self, *, write: bool) -> SqliteTx:
        if not self._memory and not os.path.isdir(os.path.dirname(self.path) or "."):
            raise errors.StoreUnreachable(
                f"{self.place}: its folder does not exist", hint="Create the folder first."
            )
        if not self._memory and write:
            self._create()
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if write else 0)
        connection = apsw.Connection(self.path, flags=flags)
        try:
            return self._prepared(connection, write)
        except BaseException as error:
            keep_errno(error, connection)
            connection.close()
            raise

    def _create(self) -> None:
        try:
            create_private(self.path)
        except OSError as error:
            raise errors.StoreUnreachable(
                f"{self.place}: the file cannot be created ({error.strerror})",
                hint="Check the path and its permissions; this user must be able to write it.",
            ) from error

    def _prepared(self, connection: apsw.Connection, write: bool) -> SqliteTx:
        tx = SqliteTx(connection)
        busy_s = self._settings.busy_s
        connection.set_busy_handler(lambda tries: tx.wait_for_lock(tries, busy_s))
        # Plans that do not depend on values. Otherwise SQLite compiles a statement again whenever
        # it gets other values that might decide about a partial index, which is nearly always here.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        if not self._memory and write:
            self._use_log(connection)
        connection.execute(f"pragma synchronous = {self._settings.synchronous}")
        connection.execute("pragma foreign_keys = on")
        connection.execute(f"pragma cache_size = -{CACHE_KIB}")
        connection.execute("pragma temp_store = memory")
        if not write:
            connection.execute("pragma query_only = on")
        if not self._memory:
            connection.execute("pragma schema_version").fetchall()  # a first read opens the log
            tx.files = OpenFiles(connection, self.place)
            tx.wal_space = WalPreallocation(connection, tx.files) if write else None
        return tx

    def _use_log(self, connection: apsw.Connection) -> None:
        """Switch to WAL. SQLite stays in another mode without an error where it must."""
        if not connection.pragma("page_count"):
            # Only in a new file: its free pages can then be given back to the system.
            connection.execute("pragma auto_vacuum = incremental")
        [(mode,)] = connection.execute("pragma journal_mode = wal").fetchall()
        if mode != "wal":
            raise errors.StoreNoSharedMemory(
                f"{self.place}: SQLite stays in journal mode {mode!r} instead of 'wal'"
            )
