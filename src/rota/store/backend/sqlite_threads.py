"""The threads that own SQLite connections: one writer with group commit, one reader. Each runs
transactions: statements, commit, and the files of the database checked."""

from __future__ import annotations

import asyncio
import os
import queue
import random
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

import apsw
import msgspec

from rota import errors, faults
from rota.store.backend.database import Row, Taken
from rota.store.backend.dialect import SQLITE
from rota.store.backend.queries import compiled
from rota.store.backend.sqlite_errors import keep_errno
from rota.store.backend.sqlite_files import OpenFiles
from rota.store.backend.sqlite_wal_prealloc import WalPreallocation

T = TypeVar("T")

# More than this in one commit only adds latency: the sync is shared well before.
GROUP_MAX = 1000
# A commit on the spot holds up the event loop, so only a disk that answers within this gets one.
QUICK_COMMIT_S = 0.002
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
_threads: weakref.WeakSet[SqliteThread] = weakref.WeakSet()


def _hold_all() -> None:
    for thread in _threads:
        thread.pause()


def _let_go() -> None:
    for thread in _threads:
        thread.resume()


os.register_at_fork(before=_hold_all, after_in_parent=_let_go, after_in_child=_threads.clear)


class SqliteThread:
    """A thread that owns one connection and serves calls from any event loop."""

    def __init__(self, name: str, connect: Callable[[], SqliteTx], writes: bool) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._connect = connect
        self._serve_group = _write_group if writes else _read_group
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._opened: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._tx: SqliteTx | None = None
        # Its holder may use the connection.
        self._writer_lock = threading.Lock()
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
        """Wait until the connection is free, and keep others from using it."""
        self._writer_lock.acquire()

    def resume(self) -> None:
        """The connection may be used again."""
        self._writer_lock.release()

    async def call_brief(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Serve the call on this thread, unless another is being served or the disk is slow."""
        tx = self._tx
        if tx is None or self._took_s > QUICK_COMMIT_S or not self._calls.empty():
            return await self.call(function, args, kwargs)
        if not self._writer_lock.acquire(blocking=False):
            return await self.call(function, args, kwargs)
        value, problem = None, None
        try:
            tx.patient = False
            value = _write_one(tx, function, args, kwargs)
        except BaseException as error:
            problem = error
        finally:
            tx.patient = True
            self._took_s = tx.commit_s
            self._writer_lock.release()
        if isinstance(problem, apsw.BusyError):  # another process: wait for it off the loop
            return await self.call(function, args, kwargs)
        # A caller that writes in a loop must let others have the event loop in between.
        await asyncio.sleep(0)
        if problem is not None:
            raise problem
        return value

    async def call(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._calls.put(_Call(function, args, kwargs, loop, future))
        return await future

    def _serve(self) -> None:
        try:
            with self._writer_lock:
                tx = self._tx = self._connect()
        except BaseException as error:
            self._opened.put(error)
            return
        self._opened.put(None)
        closing = False
        while not closing:
            group, closing = self._take()
            if group:
                with self._writer_lock:
                    answers = self._serve_group(tx, group)
                    self._took_s = tx.commit_s
                self._answer(group, answers)
        with self._writer_lock:
            self._tx = None
            tx.close()

    def _take(self) -> tuple[list[_Call], bool]:
        """Wait for one call, then take all that wait already."""
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
            except RuntimeError:  # that loop is closed: no caller waits any more
                continue


def _write_one(tx: SqliteTx, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """One transaction for one function."""
    try:
        tx.begin()
        value = drive(function(tx, *args, **kwargs))
        faults.reach("before-commit")
        tx.commit()
        faults.reach("after-commit")
        return value
    except BaseException as error:
        keep_errno(error, tx.connection)
        if tx.connection.in_transaction:
            tx.connection.execute("rollback")
        raise


def _write_group(tx: SqliteTx, group: list[_Call]) -> list[_Answer]:
    """One transaction for all; a function that fails rolls back only its own savepoint."""
    try:
        if len(group) == 1:
            [(function, args, kwargs, _, future)] = group
            return [_Answer(future, _write_one(tx, function, args, kwargs), None)]
        answers: list[_Answer] = _write_one(tx, _all_guarded, (group,), {})
        return answers
    except BaseException as error:
        return [_Answer(call.future, None, error) for call in group]


async def _all_guarded(tx: SqliteTx, group: list[_Call]) -> list[_Answer]:
    return [_guarded(tx, call) for call in group]


def _guarded(tx: SqliteTx, call: _Call) -> _Answer:
    connection = tx.connection
    connection.execute("savepoint call")
    try:
        value = drive(call.function(tx, *call.args, **call.kwargs))
    except (apsw.FullError, apsw.IOError, apsw.CorruptError):
        raise  # these end the whole transaction
    except BaseException as error:
        connection.execute("rollback to call")
        connection.execute("release call")
        return _Answer(call.future, None, error)
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
