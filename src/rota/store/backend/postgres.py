"""PostgreSQL over asyncpg: a small pool, one round trip where one statement is enough.

NOTIFY rides only in the commit of a lone start (commits that notify queue up behind a global lock);
all else `tell` sends apart, at most once per few milliseconds. Knows no table.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar, cast
from urllib.parse import SplitResult, urlunsplit

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
from rota.store.backend.database import Row, Taken
from rota.store.backend.dialect import POSTGRES
from rota.store.backend.postgres_watchdog import ConnectionWatchdog
from rota.store.backend.queries import compiled

P = ParamSpec("P")
T = TypeVar("T")
log = logging.getLogger("rota.store")

TELL_EVERY_S, TELL_ALONE_S = 0.01, 0.015
SILENCE_S_MIN = 5.0
CONNECT_TIMEOUT_S = 10.0
SCRIPT_LOOKS = 1_000_000  # a migration of a large table takes what it takes
_RETRIES = 5

_ERRORS: tuple[tuple[type[BaseException], type[errors.StoreError]], ...] = (
    (asyncpg.DiskFullError, errors.StoreFull),
    (asyncpg.ReadOnlySQLTransactionError, errors.StoreReadOnly),
    (asyncpg.InsufficientPrivilegeError, errors.StoreReadOnly),
    (asyncpg.TooManyConnectionsError, errors.StoreBusy),
    (asyncpg.LockNotAvailableError, errors.StoreBusy),
    (asyncpg.DeadlockDetectedError, errors.StoreBusy),
    (asyncpg.SerializationError, errors.StoreBusy),
    (asyncpg.InvalidCatalogNameError, errors.StoreUnreachable),
    (asyncpg.InvalidAuthorizationSpecificationError, errors.StoreUnreachable),
    (asyncpg.UndefinedTableError, errors.SchemaMissing),
    (asyncpg.PostgresConnectionError, errors.StoreUnreachable),
    (asyncpg.OperatorInterventionError, errors.StoreUnreachable),
    (asyncpg.InterfaceError, errors.StoreUnreachable),
    (asyncpg.InternalClientError, errors.StoreUnreachable),
    (OSError, errors.StoreUnreachable),
    (TimeoutError, errors.StoreUnreachable),
)


# What to do about a server that cannot be reached, by what it or the system says.
_HINTS: tuple[tuple[type[BaseException], str], ...] = (
    (asyncpg.InvalidCatalogNameError, "Correct the database name in the URL, or create it."),
    (
        asyncpg.InvalidAuthorizationSpecificationError,
        "Correct user and password in the URL: the server runs and refuses them.",
    ),
    (
        ConnectionRefusedError,
        "Start the server, or correct host and port in the URL: nothing listens there.",
    ),
    (socket.gaierror, "Correct the host name in the URL: no machine has it."),
)


def _explained(error: BaseException) -> tuple[str, str | None]:
    """What a driver error says, and what to do if that is known."""
    said = str(error) or type(error).__name__
    if isinstance(error, ConnectionRefusedError):
        said = "connection refused"
    elif isinstance(error, socket.gaierror):
        said = f"the host is unknown ({error.strerror})"
    return said, next((hint for cls, hint in _HINTS if isinstance(error, cls)), None)


def translate(error: BaseException, place: str) -> BaseException:
    """A driver error as one of ours; constraint errors and bugs stay what they are."""
    for cls, ours in _ERRORS:
        if isinstance(error, cls):
            said, hint = _explained(error)
            return ours(f"{place}: {said}", hint=hint)
    return error


class PostgresTx:
    """Begins with the first statement that is not alone; the database object commits."""

    dialect = POSTGRES

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._queries = compiled("postgres")
        self.begun = False
        self.looks = 0

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
        """Run one set-based query that answers nothing: the server counts for us."""
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

    async def script(self, text: str) -> None:
        """Run plain statements."""
        await self._begin()
        self.looks = -SCRIPT_LOOKS
        await self.connection.execute(text)
        self.looks = 0

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
            await self._begin()
            return await send(text, *values)
        except asyncpg.UniqueViolationError as error:
            raise Taken(str(error)) from error

    async def _begin(self) -> None:
        if not self.begun:
            await self.connection.execute("begin")
            self.begun = True


class PostgresDatabase:
    """One schema of one PostgreSQL database."""

    dialect = POSTGRES
    is_local = False

    def __init__(
        self, parts: SplitResult, options: dict[str, str], schema: str, settings: Settings
    ) -> None:
        cache = options.pop("statement_cache_size", None)
        if cache is not None and not cache.isdigit():
            raise errors.BadDatabaseUrl(f"statement_cache_size={cache} is not a number")
        query = "&".join(f"{key}={value}" for key, value in options.items())
        self._dsn = urlunsplit(parts._replace(scheme="postgresql", query=query))
        self._cache = {} if cache is None else {"statement_cache_size": int(cache)}
        self.schema = schema
        self.place = f"postgresql {parts.hostname or 'local'}{parts.path} schema {schema}"
        self._settings = settings
        self._free: list[Any] = []
        self._places = asyncio.Semaphore(settings.connections)
        self._topics: set[str] = set()
        self._teller: asyncio.Task[None] | None = None
        self._told_at = float("-inf")  # by the clock of the event loop
        self._ear: Any = None  # the connection that listens, while nobody speaks over it
        self._listening: asyncio.Task[None] | None = None
        self._closed = False
        self._own: set[int] = set()  # server processes that work for us
        # A connection that went silent must not hold a worker longer than its leases last; but a
        # server that has its hands full is not silent.
        self._silence = ConnectionWatchdog(max(settings.lease_s, SILENCE_S_MIN))

    async def open(self) -> None:
        """Connect once, to find out early whether the server answers."""
        await self.clock_us()

    async def close(self) -> None:
        """Tell what is still to be told, then disconnect."""
        if self._teller is not None:
            with contextlib.suppress(Exception):
                await self._teller
        self._closed = True
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        self._silence.close()
        while self._free:
            with contextlib.suppress(Exception):
                await self._free.pop().close(timeout=2)

    async def write(
        self,
        function: Callable[Concatenate[Any, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run `function` in a transaction; a deadlock or serialisation clash is tried again."""
        for left in range(_RETRIES, -1, -1):
            try:
                return cast(T, await self._transact(function, args, kwargs))
            except errors.StoreBusy as error:
                if not left or not isinstance(
                    error.__cause__, asyncpg.DeadlockDetectedError | asyncpg.SerializationError
                ):
                    raise
        raise AssertionError("unreachable")

    # A read is a transaction that writes nothing, and brief is what one statement is anyway:
    # PostgreSQL needs no other path for either.
    read = write
    write_brief = write

    async def write_told(
        self,
        function: Callable[Concatenate[Any, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """The same, over the connection that listens: the server's process behind it is awake."""
        ear, self._ear = self._ear, None
        if ear is None or ear.is_closed():
            return await PostgresDatabase.write(self, function, *args, **kwargs)
        try:
            return cast(T, await self._perform(ear, function, args, kwargs))
        except errors.StoreBusy:
            return await PostgresDatabase.write(self, function, *args, **kwargs)
        finally:
            if not ear.is_closed():  # else another one may listen by now
                self._ear = ear

    async def _transact(self, function: Any, args: Any, kwargs: Any) -> Any:
        async with self._places:
            connection = self._idle() or await self._connected()
            try:
                return await self._perform(connection, function, args, kwargs)
            finally:
                if not connection.is_closed() and not self._closed:
                    self._free.append(connection)

    async def _perform(self, connection: Any, function: Any, args: Any, kwargs: Any) -> Any:
        tx = PostgresTx(connection)
        self._silence.watch(tx)
        try:
            return await _in_transaction(tx, function, args, kwargs)
        except asyncio.CancelledError:
            # Cancelled in the middle of a statement: the connection's state is unknown.
            connection.terminate()
            raise
        except errors.RotaError:
            raise
        except Exception as error:
            ours = translate(error, self.place)
            if isinstance(ours, errors.StoreUnreachable):
                connection.terminate()
            if ours is error:
                raise
            raise ours from error
        finally:
            self._silence.forget(tx)

    def _idle(self) -> Any:
        while self._free:
            connection = self._free.pop()
            if not connection.is_closed():
                return connection
        return None

    async def clock_us(self) -> int | None:
        """The server's clock, which all machines share."""

        async def ask(tx: PostgresTx) -> int:
            return int((await tx.rows("server_clock", alone=True))[0][0])

        return await self.read(ask)

    def carry(self, topic: str) -> str | None:
        """A lone start notifies in its own commit, for those before it too, unless words come thick
        and fast: commits that notify queue up behind each other."""
        now = asyncio.get_running_loop().time()
        if topic != "ready" or self._closed or now < self._told_at + TELL_EVERY_S:
            return None
        self._told_at = now
        self._topics.discard(topic)
        return self._channel()

    def tell(self, topic: str) -> None:
        """NOTIFY soon, on its own, once for all that happened meanwhile."""
        self._topics.add(topic)
        if not self._closed and (self._teller is None or self._teller.done()):
            loop = asyncio.get_running_loop()
            self._teller = loop.create_task(self._tell(), context=own_context())

    async def _tell(self) -> None:
        channel = self._channel()
        loop = asyncio.get_running_loop()

        async def notify(tx: PostgresTx, topics: list[str]) -> None:
            await tx.rows("notify", alone=True, channel=channel, topics=topics)

        while self._topics:
            # A little later than a start would: it carries the word for less than this costs.
            await asyncio.sleep(self._told_at + TELL_ALONE_S - loop.time())
            if loop.time() < self._told_at + TELL_ALONE_S:
                continue  # one has carried it meanwhile
            topics, self._topics = sorted(self._topics), set()
            self._told_at = loop.time()
            try:
                await self.write(notify, topics)
            except errors.StoreError as error:  # only a hint: polling finds the work
                log.debug("wake-up not sent: %s", error)

    async def listen(self, heard: Callable[[str], None]) -> None:
        """Keep one connection listening, for as long as this database is open."""
        ready = asyncio.Event()
        self._listening = asyncio.create_task(self._keep_listening(heard, ready))
        await ready.wait()

    async def _keep_listening(self, heard: Callable[[str], None], ready: asyncio.Event) -> None:
        pause_s = 0.1
        while True:
            try:
                connection = await self._connect()
            except (OSError, TimeoutError, asyncpg.PostgresError, errors.StoreError) as error:
                log.debug("cannot listen, polling meanwhile: %s", error)
            else:
                gone = asyncio.Event()
                connection.add_termination_listener(lambda *_, gone=gone: gone.set())
                try:
                    async with asyncio.timeout(CONNECT_TIMEOUT_S):
                        await connection.add_listener(self._channel(), self._ear_of(heard))
                    self._ear = connection
                    ready.set()
                    heard("*")  # whatever was told while nobody listened
                    pause_s = 0.1
                    await gone.wait()
                except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                    log.debug("listening broke: %s", error)
                finally:
                    self._ear = None
                    connection.terminate()
            ready.set()
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, 5.0)

    def _ear_of(self, heard: Callable[[str], None]) -> Callable[..., None]:
        def listener(_: Any, pid: int, *told: str) -> None:
            if pid not in self._own:  # here everybody was told when it happened
                heard(told[-1])

        return listener

    def _channel(self) -> str:
        return f"rota_{self.schema}"

    async def _connected(self) -> Any:
        try:
            return await self._connect()
        except Exception as error:
            ours = translate(error, self.place)
            if ours is error:
                raise
            raise ours from error

    async def _connect(self) -> Any:
        try:
            connection = await asyncpg.connect(
                self._dsn,
                timeout=CONNECT_TIMEOUT_S,
                server_settings={
                    "search_path": self.schema,
                    "application_name": "rota",
                    # Our statements are few and simple; planning them anew costs more than they do.
                    "plan_cache_mode": "force_generic_plan",
                },
                **self._cache,
            )
        except (
            ValueError,
            asyncpg.ClientConfigurationError,
            asyncpg.UndefinedObjectError,
            asyncpg.CantChangeRuntimeParamError,
        ) as error:
            raise errors.BadDatabaseUrl(f"{self.place}: {error}") from error
        pid = connection.get_server_pid()
        self._own.add(pid)
        connection.add_termination_listener(lambda _: self._own.discard(pid))
        return connection


async def _in_transaction(tx: PostgresTx, function: Any, args: Any, kwargs: Any) -> Any:
    connection = tx.connection
    try:
        value = await function(tx, *args, **kwargs)
        tx.looks = 0
        if tx.begun:
            faults.reach("before-commit")
            await connection.execute("commit")
            faults.reach("after-commit")
        return value
    except BaseException:
        tx.looks = 0
        if tx.begun and not connection.is_closed():
            with contextlib.suppress(Exception):
                await connection.execute("rollback")
        raise
