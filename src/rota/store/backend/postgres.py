"""PostgreSQL over asyncpg: a small pool, one round trip where one statement is enough.

Commits that notify wait for one another (a lock of the server). So NOTIFY follows a commit, in a
transaction that waits for no disk; calls that come during one share the next. Knows no table.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar, cast
from urllib.parse import SplitResult

try:
    import asyncpg
except ImportError as missing:
    from rota.errors import MissingExtra

    raise MissingExtra(
        "PostgreSQL needs the asyncpg package", hint="pip install 'rota[postgres]'"
    ) from missing

from rota import errors, faults
from rota.settings import Settings
from rota.store.backend.background import own_context
from rota.store.backend.batching import Batch
from rota.store.backend.call_meter import count_call, count_error
from rota.store.backend.database import Row, Taken, hosts_of, postgres_url
from rota.store.backend.dialect import POSTGRES
from rota.store.backend.postgres_abandoned import AbandonedProcesses
from rota.store.backend.postgres_connection import CONNECT_TIMEOUT_S, Connector
from rota.store.backend.postgres_errors import UNSTORABLE, ends_connection, translate
from rota.store.backend.postgres_watchdog import ConnectionWatchdog, WatchedConnection
from rota.store.backend.queries import Queries, compiled

P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger("rota.store")

# Loops of the engine notify at most this often; a verb of a client does so before it returns.
LOOPS_NOTIFY_EVERY_S = 0.015
SILENCE_S_MIN = 5.0
MIGRATION_PAUSE_S = 0.1  # between two checks whether another process still migrates
# It does not wait: an index that another migration builds would wait for this transaction.
LOCK_MIGRATIONS = "select 1 where pg_try_advisory_xact_lock(hashtext('rota'))"
SCRIPT_LOOKS = 1_000_000  # no time limit: a migration of a large table is slow
_RETRIES = 5
CLASHES = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)


class PostgresTx(WatchedConnection):
    """Begins with the first statement that is not alone; the database object commits."""

    dialect = POSTGRES

    def __init__(self, connection: Any, schema: str, queries: Queries) -> None:
        super().__init__(connection)
        self.schema = schema
        self._queries = queries
        self.begun = False

    async def rows(self, query: str, *, alone: bool = False, **parameters: Any) -> list[Row]:
        """Run one named query."""
        text, _, names, _ = self._queries[query]
        values = [parameters[name] for name in names]
        return cast(list[Row], await self._send(self.connection.fetch, text, values, alone))

    async def many(
        self, query: str, items: Sequence[Row], *, alone: bool = False, **parameters: Any
    ) -> list[Row]:
        """Run one set-based query: an array per column, one statement for all."""
        if not items:
            return []
        text, values = self._prepared(query, items, parameters)
        return cast(list[Row], await self._send(self.connection.fetch, text, values, alone))

    async def change(
        self, query: str, items: Sequence[Row], *, alone: bool = False, **parameters: Any
    ) -> int:
        """Run one set-based query without a result; returns the server's count of rows."""
        if not items:
            return 0
        text, values = self._prepared(query, items, parameters)
        status = await self._send(self.connection.execute, text, values, alone)
        return int(status.rpartition(" ")[2])

    def _prepared(
        self, query: str, items: Sequence[Row], parameters: dict[str, Any]
    ) -> tuple[str, list[Any]]:
        text, _, names, single = self._queries[query]
        shared = [parameters[name] for name in names]
        if len(items) > 1:
            return text, [*zip(*items, strict=True), *shared]
        return single, [*items[0], *shared]

    async def script(self, text: str, *, alone: bool = False) -> None:
        """Run plain statements; `alone`: one that must not be part of a transaction."""
        if not alone:
            await self.begin()
        self.looks = -SCRIPT_LOOKS
        await self.connection.execute(text)
        self.looks = 0

    async def commit(self) -> None:
        """End the transaction, if one has begun."""
        self.looks = 0
        if self.begun:
            faults.reach("before-commit")
            await self.connection.execute("commit")
            self.begun = False
            faults.reach("after-commit")

    async def rollback(self) -> None:
        """Undo the transaction, if one has begun and the connection still answers."""
        self.looks = 0
        if self.begun and not self.connection.is_closed():
            with contextlib.suppress(Exception):
                await self.connection.execute("rollback")

    async def _send(
        self, send: Callable[..., Awaitable[Any]], text: str, values: list[Any], alone: bool
    ) -> Any:
        self.looks = 0
        try:
            if alone and not self.begun:
                faults.reach("before-commit")
                answer = await send(text, *values)
                faults.reach("after-commit")
                return answer
            await self.begin()
            return await send(text, *values)
        except asyncpg.UniqueViolationError as error:
            raise Taken(str(error)) from error
        except UNSTORABLE as error:
            raise errors.Unstorable(f"PostgreSQL cannot store a value: {error}") from error

    async def begin(self) -> None:
        """Begin the transaction, unless it has begun."""
        if not self.begun:
            await self.connection.execute("begin")
            self.begun = True


async def notify(tx: PostgresTx, channel: str, topics: Sequence[str]) -> None:
    """NOTIFY at once, in a transaction of its own."""
    await tx.rows("notify", alone=True, channel=channel, topics=topics)


class PostgresDatabase:
    """One schema of one PostgreSQL database."""

    dialect = POSTGRES
    is_local = False

    def __init__(
        self, parts: SplitResult, options: dict[str, str], schema: str, settings: Settings
    ) -> None:
        self.schema = schema
        self._channel = f"rota_{schema}"
        self._queries = compiled("postgres", schema)
        self.place = f"postgresql {hosts_of(parts, options)}{parts.path} schema {schema}"
        self._connector = Connector(parts, options, schema, place=self.place)
        self._listen_connector = self._connector
        if settings.listen_url:
            listen_parts, listen_options = postgres_url(settings.listen_url)
            listen_options.pop("schema", None)
            place = f"{self.place} (listen_url)"
            self._listen_connector = Connector(listen_parts, listen_options, schema, place=place)
        self._settings = settings
        self._free: list[Any] = []
        self._places = asyncio.Semaphore(settings.connections)
        self._topics: set[str] = set()
        self._teller: asyncio.Task[None] | None = None
        self._notified_at = 0.0  # by such a loop; the clock of the event loop
        self._notifications: Batch[Sequence[str], None] = Batch(self._notify)
        self._listening: asyncio.Task[None] | None = None
        self._closed = False
        self._own: set[int] = set()  # ids of our server processes
        self._abandoned = AbandonedProcesses(self.place)
        # A connection that stopped answering must not hold a worker longer than its leases last. A
        # busy server answers late, so the limit has a minimum.
        self._watchdog = ConnectionWatchdog(max(settings.lease_s, SILENCE_S_MIN), self._abandon)

    async def open(self) -> None:
        """Connect once, to find out early whether the server answers."""
        await self.clock_us()

    async def close(self) -> None:
        """Send the notifications that are still due, then disconnect."""
        if self._teller is not None:
            with contextlib.suppress(Exception):
                await self._teller
        self._closed = True
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        self._watchdog.close()
        while self._free:
            with contextlib.suppress(Exception):
                await self._free.pop().close(timeout=2)

    def abandon(self) -> None:
        """Disconnect without the event loop in which it was opened: that one is closed."""
        self._closed = True
        while self._free:
            with contextlib.suppress(RuntimeError):  # it calls its loop, which is closed
                self._free.pop().terminate()

    async def write(
        self,
        function: Callable[Concatenate[Any, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run `function` in a transaction; a deadlock or serialisation clash is tried again."""
        return cast(T, await self._transact(function, args, kwargs))

    # PostgreSQL needs no other path for reads and brief writes.
    read = write
    write_brief = write

    # One function, although it is long: every start, step and claim passes here, and each layer of
    # coroutines costs a microsecond or two when the caches are cold (0092).
    async def _transact(self, function: Any, args: Any, kwargs: Any) -> Any:
        began, retries = time.perf_counter(), _RETRIES
        while True:
            await self._places.acquire()
            tx: PostgresTx | None = None
            try:
                connection = self._idle() or await self._connected()
                tx = PostgresTx(connection, self.schema, self._queries)
                self._watchdog.watch(tx)
                value = await function(tx, *args, **kwargs)
                if tx.begun:
                    await tx.commit()
                count_call(function, began)
                return value
            except BaseException as error:
                ours = error if tx is None else await self._undone(tx, error)
                if retries and isinstance(error, CLASHES) and isinstance(ours, errors.StoreBusy):
                    retries -= 1
                    continue
                count_error(ours)
                if ours is error:
                    raise
                raise ours from error
            finally:
                if tx is not None:
                    self._watchdog.forget(tx)
                    self._give_back(tx.connection)
                self._places.release()

    async def _undone(self, tx: PostgresTx, error: BaseException) -> BaseException:
        """Undo a failed transaction; returns its error as one of ours."""
        try:
            await tx.rollback()
        except asyncio.CancelledError as cancelled:
            error = cancelled
        if isinstance(error, asyncio.CancelledError):
            # A task was cancelled in the middle of a statement: the connection's state is unknown.
            self._abandon(tx.connection)
        if isinstance(error, errors.RotaError) or not isinstance(error, Exception):
            return error
        ours = translate(error, self.place)
        if ends_connection(error, ours):
            tx.connection.terminate()
        return ours

    def _give_back(self, connection: Any) -> None:
        if self._closed:  # closed meanwhile: no other code has this connection
            connection.terminate()
        elif not connection.is_closed():
            self._free.append(connection)

    def _idle(self) -> Any:
        while self._free:
            connection = self._free.pop()
            if not connection.is_closed():
                return connection
        return None

    async def migrating(self, work: Callable[[], Awaitable[T]]) -> T:
        """Hold a lock in a transaction of its own connection while `work` continues."""
        connection = await self._connected()
        try:
            await connection.execute("begin")
            # By `execute`, which leaves no snapshot open: index builds would wait for its end.
            while await connection.execute(LOCK_MIGRATIONS) != "SELECT 1":
                await connection.execute("rollback")
                await asyncio.sleep(MIGRATION_PAUSE_S)
                await connection.execute("begin")
            await connection.execute("set local idle_in_transaction_session_timeout = 0")
            return await work()
        finally:
            connection.terminate()

    async def backup(self, target: str, *, disarmed_at: int | None = None) -> int:
        """The server has its own tool for this, which knows its roles, versions and options."""
        raise errors.UsageError(
            f"{self.place}: a PostgreSQL database is copied with pg_dump",
            hint=f"Run pg_dump --format=custom --schema={self.schema} --file={target} DATABASE.",
        )

    async def shrink(self) -> bool:
        """The server's autovacuum does this."""
        return False

    async def clock_us(self) -> int | None:
        """The server's clock, which all machines share."""

        async def ask(tx: PostgresTx) -> int:
            return int((await tx.rows("server_clock", alone=True))[0][0])

        return await self.read(ask)

    async def notify(self, topics: Sequence[str]) -> None:
        """NOTIFY, after the commit that it is about; calls of the same moment share one."""
        await self._notifications.put(topics)

    async def _notify(self, asked: Sequence[Sequence[str]]) -> list[None]:
        """NOTIFY. If that fails, polling finds the work: a stored change does not fail with it."""
        topics = sorted({topic for one in asked for topic in one})
        try:
            await self.write(notify, self._channel, topics)
        except Exception as error:
            log.debug("notification not sent: %s", error)
        return [None] * len(asked)

    def notify_soon(self, topic: str) -> None:
        """NOTIFY by the event loop: the first at once, more of them after a moment."""
        self._topics.add(topic)
        if not self._closed and (self._teller is None or self._teller.done()):
            loop = asyncio.get_running_loop()
            self._teller = loop.create_task(self._notify_soon(), context=own_context())

    async def _notify_soon(self) -> None:
        loop = asyncio.get_running_loop()
        while self._topics:
            await asyncio.sleep(self._notified_at + LOOPS_NOTIFY_EVERY_S - loop.time())
            topics, self._topics = self._topics, set()
            self._notified_at = loop.time()
            await self.notify(sorted(topics))

    async def listen(self, notified: Callable[[str], None]) -> None:
        """Keep one connection listening, for as long as this database is open."""
        ready = asyncio.Event()
        self._listening = asyncio.create_task(self._keep_listening(notified, ready))
        await ready.wait()

    async def _keep_listening(self, notified: Callable[[str], None], ready: asyncio.Event) -> None:
        pause_s = 0.1
        while True:
            try:
                connection = await self._connect_to_listen()
            except errors.BadDatabaseUrl as error:
                log.warning("cannot listen: %s %s", error, error.advice)
            except (OSError, TimeoutError, asyncpg.PostgresError, errors.StoreError) as error:
                log.debug("cannot listen, polling meanwhile: %s", error)
            else:
                gone = asyncio.Event()
                connection.add_termination_listener(lambda *_, gone=gone: gone.set())
                try:
                    async with asyncio.timeout(CONNECT_TIMEOUT_S):
                        await connection.add_listener(self._channel, self._listener(notified))
                    ready.set()
                    notified("*")  # notifications were lost while there was no listener
                    pause_s = 0.1
                    await gone.wait()
                except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                    log.debug("listening broke: %s", error)
                finally:
                    connection.terminate()
            ready.set()
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, 5.0)

    def _listener(self, notified: Callable[[str], None]) -> Callable[..., None]:
        def listener(_: Any, pid: int, *payload: str) -> None:
            if pid not in self._own:  # this process was notified when it happened
                notified(payload[-1])

        return listener

    async def _connected(self) -> Any:
        try:
            return await self._connect()
        except Exception as error:
            ours = translate(error, self.place)
            if ours is error:
                raise
            raise ours from error

    def _abandon(self, connection: Any) -> None:
        if self._connector.pooled:  # the pooler bounds the server's processes
            connection.terminate()
        else:
            self._abandoned.abandon(connection)

    async def _connect(self) -> Any:
        if not self._abandoned:
            return await self._open_connection()
        async with self._abandoned.lock:
            connection = await self._open_connection()
            try:
                # Twice the pool: connections in use, and as many that hang.
                most = 2 * self._settings.connections + (self._listening is not None)
                await self._abandoned.admit(connection, most - len(self._own))
            except BaseException:
                connection.terminate()
                raise
            return connection

    async def _open_connection(self) -> Any:
        connection = await self._connector.connect()
        if not self._connector.pooled:  # a pooler has processes of its own
            pid = connection.get_server_pid()
            self._own.add(pid)
            connection.add_termination_listener(lambda _: self._own.discard(pid))
        return connection

    async def _connect_to_listen(self) -> Any:
        """A connection past the pooler, if the settings name one; otherwise as any other."""
        if self._listen_connector is self._connector:
            return await self._connect()

        async def identify(tx: PostgresTx) -> Any:
            return tuple((await tx.rows("server_identity", alone=True))[0])

        connection = await self._listen_connector.connect()
        try:
            query = self._queries["server_identity"].text
            if tuple(await connection.fetchrow(query)) != await self.read(identify):
                raise errors.BadDatabaseUrl(
                    f"{self.place}: listen_url leads to another database or server",
                    hint="Name the same database past the pooler; polling continues meanwhile.",
                )
        except BaseException:
            connection.terminate()
            raise
        return connection
