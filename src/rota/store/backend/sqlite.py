"""SQLite: one writer thread per process, group commit, a reader thread beside it.

The writer takes every function that waits, runs each under its own savepoint inside one
transaction, commits once, and answers all of them. A brief write that finds nobody at work is done
on the spot: two thread switches cost more than it does. apsw brings its own SQLite, so the version
(and its fixes) is ours. Knows no table.
"""

from __future__ import annotations

import asyncio
import os
import queue
import random
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar, cast

import apsw
import msgspec

from rota import errors, faults
from rota.settings import Settings
from rota.store.backend import sqlite_backup, sqlite_guard
from rota.store.backend.database import Row, Taken
from rota.store.backend.dialect import SQLITE
from rota.store.backend.queries import compiled
from rota.store.backend.sqlite_errors import keep_errno, translate
from rota.store.backend.sqlite_files import Identity, OpenFiles, create_private
from rota.store.backend.sqlite_wakeup import LocalSignal
from rota.store.backend.sqlite_wal_prealloc import WalPreallocation

P = ParamSpec("P")
T = TypeVar("T")

# More than this in one commit only adds latency: the sync is shared well before.
GROUP_MAX = 1000
# SQLite's own 2 MiB hold the hot pages of some thousand runs; beyond, each write would read first.
CACHE_KIB = 32 * 1024
# A commit on the spot holds up the event loop, so only a disk that answers within this gets one.
QUICK_COMMIT_S = 0.002
# Free pages that stay in the file: at least so many, or a tenth of it, for the runs to come.
SPARE_PAGES_MIN = 256
SHRINK_PAGES = 500  # moved in one commit
_INCREMENTAL = 2  # `auto_vacuum`
# WAL-reset race: two writing processes may corrupt the file before this version.
SAFE_SQLITE = (3, 51, 3)

# Raised by the driver, or by the JSON that carries a batch, for a value that SQLite cannot hold.
_UNSTORABLE = (OverflowError, ValueError, apsw.TooBigError)
_TAKEN = (apsw.SQLITE_CONSTRAINT_UNIQUE, apsw.SQLITE_CONSTRAINT_PRIMARYKEY)


class SqliteTx:
    """Runs statements on the connection it is given. Its awaits never suspend."""

    dialect = SQLITE

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self.commit_s = 0.0  # what the last commit took
        self.patient = True  # whether to wait for another process
        self.log_room: WalPreallocation | None = None
        self.files: OpenFiles | None = None  # None for a database in memory
        self._cursor = connection.cursor()
        self._queries = compiled("sqlite")

    async def rows(self, query: str, *, alone: bool = False, **parameters: Any) -> list[Row]:
        """Run one named query."""
        text, _, names, _ = self._queries[query]
        return self._execute(text, tuple(_plain([parameters[name] for name in names])))

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
        shared = _plain([parameters[name] for name in names])
        if len(items) == 1:
            return single, (*_plain(items[0]), *shared)
        return text, (_json(items), *shared)

    def _execute(self, text: str, values: tuple[Any, ...]) -> list[Row]:
        try:
            return cast(list[Row], self._cursor.execute(text, values).fetchall())
        except apsw.ConstraintError as error:
            kind = getattr(error, "extendedresult", None)
            if kind in _TAKEN:
                raise Taken(str(error)) from error
            if kind == apsw.SQLITE_CONSTRAINT_DATATYPE:  # such as an integer that JSON made a float
                raise errors.Unstorable(f"SQLite cannot store a value: {error}") from error
            raise
        except _UNSTORABLE as error:
            raise errors.Unstorable(f"SQLite cannot store a value: {error}") from error

    def take_notification(self, topic: str) -> str | None:
        """A file sends no notifications; `SqliteDatabase.write_and_notify` sends them."""
        return None

    async def script(self, text: str) -> None:
        """Run plain statements."""
        self._cursor.execute(text).fetchall()

    def begin(self) -> None:
        """Take the write lock."""
        self.check_files()
        self._cursor.execute("begin immediate")
        if self.log_room is not None:
            self.log_room.make()

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
        if self.log_room is not None:
            self.log_room.close()

    def wait_for_lock(self, tries: int, busy_s: float) -> bool:
        """Short random naps: SQLite's own growing ones starve a process beside a busy writer."""
        if not self.patient or tries * 0.001 > busy_s:
            return False
        time.sleep(random.uniform(0.0002, 0.0018))
        return True


def _json(values: Sequence[Any]) -> str:
    try:
        return msgspec.json.encode(values).decode()
    except _UNSTORABLE as error:
        raise errors.Unstorable(f"SQLite cannot store a value: {error}") from error


def _plain(values: Sequence[Any]) -> list[Any]:
    """Lists as JSON, everything else as it is."""
    return [_json(value) if isinstance(value, (list, tuple)) else value for value in values]


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a store function to its end in one go: on SQLite nothing in it may suspend."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return cast(T, stop.value)
    coroutine.close()
    raise RuntimeError("a store function awaited something that is not its transaction")


class _Call(NamedTuple):
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class _Answer(NamedTuple):
    future: asyncio.Future[Any]
    value: Any
    error: BaseException | None


def _deliver(answers: list[_Answer]) -> None:
    for future, value, error in answers:
        if future.done():  # the caller was cancelled meanwhile
            continue
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)


# A fork copies SQLite's own locks as they are, and one that is held stays held in the child for
# ever. So a fork waits until no thread of ours is inside SQLite.
_threads: weakref.WeakSet[_Thread] = weakref.WeakSet()


def _hold_all() -> None:
    for thread in _threads:
        thread.pause()


def _let_go() -> None:
    for thread in _threads:
        thread.resume()


os.register_at_fork(before=_hold_all, after_in_parent=_let_go, after_in_child=_threads.clear)


class _Thread:
    """A thread that owns one connection and serves calls from any event loop."""

    def __init__(self, name: str, connect: Callable[[], SqliteTx], writes: bool) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._connect = connect
        self._serve_group = _write_group if writes else _read_group
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._opened: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._tx: SqliteTx | None = None
        # Who holds it may use the connection.
        self._turn = threading.Lock()
        self._took_s = 0.0
        _threads.add(self)

    async def open(self) -> None:
        self._thread.start()
        problem = await asyncio.to_thread(self._opened.get)
        if problem is not None:
            raise problem

    async def close(self) -> None:
        await asyncio.to_thread(self.end)

    def end(self) -> None:
        """Finish what was submitted, then close the connection."""
        if self._thread.is_alive():
            self._calls.put(None)
            self._thread.join()

    def pause(self) -> None:
        """Let nobody use the connection; waits for whoever does."""
        self._turn.acquire()

    def resume(self) -> None:
        """The connection may be used again."""
        self._turn.release()

    async def call_brief(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Serve the call here and now, unless somebody is being served or the disk is slow."""
        tx = self._tx
        if tx is None or self._took_s > QUICK_COMMIT_S or not self._calls.empty():
            return await self.call(function, args, kwargs)
        if not self._turn.acquire(blocking=False):
            return await self.call(function, args, kwargs)
        loop = asyncio.get_running_loop()
        call = _Call(function, args, kwargs, loop, loop.create_future())
        try:
            tx.patient = False
            [answer] = self._timed(tx, [call])
        finally:
            tx.patient = True
            self._turn.release()
        if isinstance(answer.error, apsw.BusyError):  # another process: wait for it off the loop
            return await self.call(function, args, kwargs)
        # A caller that writes in a loop must let others have the event loop in between.
        await asyncio.sleep(0)
        if answer.error is not None:
            raise answer.error
        return answer.value

    async def call(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._calls.put(_Call(function, args, kwargs, loop, future))
        return await future

    def _serve(self) -> None:
        try:
            with self._turn:
                tx = self._tx = self._connect()
        except BaseException as error:
            self._opened.put(error)
            return
        self._opened.put(None)
        closing = False
        while not closing:
            group, closing = self._take()
            if group:
                with self._turn:
                    answers = self._timed(tx, group)
                self._answer(group, answers)
        with self._turn:
            self._tx = None
            tx.close()

    def _timed(self, tx: SqliteTx, group: list[_Call]) -> list[_Answer]:
        answers = self._serve_group(tx, group)
        self._took_s = tx.commit_s
        return answers

    def _take(self) -> tuple[list[_Call], bool]:
        """Wait for one call, then take whatever else is there already."""
        call = self._calls.get()
        group: list[_Call] = []
        while call is not None:
            group.append(call)
            if len(group) >= GROUP_MAX:
                return group, False
            try:
                call = self._calls.get_nowait()
            except queue.Empty:
                return group, False
        return group, True

    def _answer(self, group: list[_Call], answers: list[_Answer]) -> None:
        loops = {id(call.loop): call.loop for call in group}
        for key, loop in loops.items():
            mine = (
                answers
                if len(loops) == 1
                else [a for c, a in zip(group, answers, strict=True) if id(c.loop) == key]
            )
            try:
                loop.call_soon_threadsafe(_deliver, mine)
            except RuntimeError:  # that loop is closed: nobody is waiting any more
                continue


def _write_group(tx: SqliteTx, group: list[_Call]) -> list[_Answer]:
    """One transaction for all; a function that fails takes only its own savepoint with it."""
    connection = tx.connection
    try:
        tx.begin()
        answers = [_guarded(tx, call, len(group) > 1) for call in group]
        faults.reach("before-commit")
        tx.commit()
        faults.reach("after-commit")
        return answers
    except BaseException as error:
        keep_errno(error, connection)
        if connection.in_transaction:
            connection.execute("rollback")
        return [_Answer(call.future, None, error) for call in group]


def _guarded(tx: SqliteTx, call: _Call, shared: bool) -> _Answer:
    connection = tx.connection
    if shared:
        connection.execute("savepoint call")
    try:
        value = drive(call.function(tx, *call.args, **call.kwargs))
    except (apsw.FullError, apsw.IOError, apsw.CorruptError):
        raise  # these end the whole transaction
    except BaseException as error:
        if not shared:
            connection.execute("rollback")
            tx.begin()
        else:
            connection.execute("rollback to call")
            connection.execute("release call")
        return _Answer(call.future, None, error)
    if shared:
        connection.execute("release call")
    return _Answer(call.future, value, None)


def _read_group(tx: SqliteTx, group: list[_Call]) -> list[_Answer]:
    connection = tx.connection
    answers = []
    for call in group:
        try:
            tx.check_files()
            connection.execute("begin")
            try:
                value = drive(call.function(tx, *call.args, **call.kwargs))
            finally:
                connection.execute("rollback")
            answers.append(_Answer(call.future, value, None))
        except BaseException as error:
            keep_errno(error, connection)
            answers.append(_Answer(call.future, None, error))
    return answers


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
        self._writer = _Thread("rota-writer", lambda: self._connect(write=True), True)
        self._reader = (
            None
            if self._memory
            else _Thread("rota-reader", lambda: self._connect(write=False), False)
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
            raise translate(error, self.place) from error

    async def close(self) -> None:
        """Finish what was submitted, then let go of the file."""
        if self._signal is not None:
            self._signal.close()
        if self._reader is not None:
            await self._reader.close()
        await self._writer.close()
        sqlite_guard.release(self._held)
        self._held = []

    def abandon(self) -> None:
        """Let go of the file without the event loop in which it was opened: that one is closed."""
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
        try:
            return cast(T, await self._writer.call(function, args, kwargs))
        except apsw.Error as error:
            raise translate(error, self.place) from error

    async def write_brief(
        self,
        function: Callable[Concatenate[Any, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """The same, at once where that is possible."""
        try:
            return cast(T, await self._writer.call_brief(function, args, kwargs))
        except apsw.Error as error:
            raise translate(error, self.place) from error

    async def write_and_notify(
        self,
        topics: Sequence[str],
        brief: bool,
        function: Callable[Concatenate[Any, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Commit, then wake the other processes on this file."""
        write = self.write_brief if brief else self.write
        value = await write(function, *args, **kwargs)
        await self.notify(topics)
        return value

    async def read(
        self,
        function: Callable[Concatenate[Any, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run `function` on a snapshot; in-memory databases have but one connection."""
        thread = self._reader or self._writer
        try:
            return cast(T, await thread.call(function, args, kwargs))
        except apsw.Error as error:
            raise translate(error, self.place) from error

    async def backup(self, target: str) -> int:
        """Copy the database as it is at one moment; readers and writers go on meanwhile."""
        if self._memory:
            raise errors.UsageError(
                "a database in memory has no file to copy", hint="Use sqlite:///path/to/rota.db."
            )
        try:
            return await asyncio.to_thread(
                sqlite_backup.backup, self.path, target, self._settings.busy_s
            )
        except apsw.Error as error:
            raise translate(error, self.place) from error

    async def shrink(self) -> bool:
        """Cut some free pages off the file, if it has more than new runs will soon use."""
        return not self._memory and await self.write(_shrink)

    async def clock_us(self) -> int | None:
        """The file lives on this machine, and so does its clock."""
        return None

    async def notify(self, topics: Sequence[str], *, often: bool = False) -> None:
        """Wake the other processes on this file."""
        for topic in topics:
            self.tell(topic)

    def tell(self, topic: str) -> None:
        """Wake the other processes on this file."""
        if self._signal is not None:
            self._signal.tell(topic)

    async def listen(self, heard: Callable[[str], None]) -> None:
        """Hear the other processes on this file."""
        if self._signal is not None:
            await self._signal.listen(heard)

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
        # Plans that do not depend on values. Otherwise SQLite compiles a statement anew whenever it
        # gets other values that might decide about a partial index, which is nearly always here.
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
            connection.execute("pragma schema_version").fetchall()  # a first look opens the log
            tx.files = OpenFiles(connection, self.place)
            tx.log_room = WalPreallocation(connection, tx.files) if write else None
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
