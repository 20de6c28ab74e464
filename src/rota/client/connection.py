"""The connection of a client: its database, its listeners, and the worker of its process.

A connection belongs to the process and the event loop that opened it. A forked child does not have
its threads and sockets, and one event loop cannot wake a task of another.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from rota.client import caller
from rota.core import typed
from rota.engine.clock import Clock, SystemClock
from rota.engine.results import Results
from rota.engine.wakeups import Wakeups
from rota.errors import UsageError
from rota.store.backend import migrate
from rota.store.backend.database import Database, open_url

if TYPE_CHECKING:
    from rota.client.client import Client
    from rota.engine.worker import Worker


class ClientHome(NamedTuple):
    """The process and the event loop of a connection."""

    pid: int
    loop: asyncio.AbstractEventLoop

    @classmethod
    def here(cls) -> ClientHome:
        """This process and the loop that runs now."""
        return cls(os.getpid(), asyncio.get_running_loop())

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that connected."""
        return os.getpid() != self.pid

    @property
    def is_here(self) -> bool:
        """Whether the caller can use the connection."""
        return os.getpid() == self.pid and running_loop() in (None, self.loop)

    def refuse(self) -> NoReturn:
        """Say why the caller cannot use the connection."""
        if self.forked:
            raise UsageError(
                f"this client was connected in process {self.pid}, before a fork",
                hint="Call `await client.connect()` in this process; it then has its own"
                " connection.",
            )
        if caller.current_run() is not None:
            raise UsageError(
                "a client was used in a workflow, where every replay would repeat the call",
                hint="Call it in a step: its result is recorded.",
            )
        if self.loop.is_closed():
            raise UsageError(
                "this client was connected in another event loop, which is closed",
                hint="Call `await client.connect()` in this loop. `async with` closes a client"
                " with its loop.",
            )
        raise UsageError(
            "this client was connected in another event loop, which still runs",
            hint="Make a client for each event loop, or use rota.blocking.BlockingClient.",
        )


class Connection:
    """The open database of a client. Other modules of the package use it; users do not."""

    def __init__(self) -> None:
        self.worker: Worker | None = None  # of this process, if it has one
        self._home: ClientHome | None = None
        self._database: Database | None = None
        self._wakeups: Wakeups | None = None
        self._results: Results | None = None
        self._opening = asyncio.Lock()

    @property
    def is_open(self) -> bool:
        """Whether there is a database to use or to close."""
        return self._database is not None

    @property
    def is_elsewhere(self) -> bool:
        """Whether another process or event loop has opened it."""
        return self._home is not None and not self._home.is_here

    async def open(self, client: Client) -> None:
        """Open the client's database, unless it is open; migrate it where that is automatic."""
        async with self._opening:
            if self._database is None:
                await self._open(client)

    async def _open(self, client: Client) -> None:
        database = open_url(client.url, client.settings)
        await database.open()
        try:
            await _follow(client.clock, database)
            await migrate.prepare(database, migrate=client.migrates, now=client.clock.now())
        except BaseException:
            await database.close()
            raise
        self._database = database
        self._home = ClientHome.here()
        self._wakeups = Wakeups(database)
        self._results = Results(database, client.clock, self._wakeups)

    async def close(self) -> None:
        """Close the database."""
        database, self._database = self._database, None
        self._home = None
        if self._results is not None:
            self._results.close()
        if database is not None:
            await database.close()

    def leave(self) -> None:
        """Drop a connection that a fork or a closed event loop has made unusable."""
        home, database = self._home, self._database
        if home is None or database is None:
            return
        if home.forked:
            never_delete(database, self._results, home.loop)
        elif home.loop.is_closed():
            database.abandon()
        elif not home.is_here:
            home.refuse()
        self._home = self._database = self._wakeups = self._results = None
        self._opening = asyncio.Lock()

    def check(self) -> None:
        """Raise where the connection cannot be used."""
        if self._home is not None and not self._home.is_here:
            self._home.refuse()

    @property
    def database(self) -> Database:
        """The open database."""
        if self._database is None:
            raise UsageError(
                "the app is not connected to its database",
                hint="Use `async with app:` or `await app.connect()`.",
            )
        self.check()
        return self._database

    @property
    def wakeups(self) -> Wakeups:
        """The wake-ups of this process."""
        assert self._wakeups is not None, "not connected"
        return self._wakeups

    @property
    def results(self) -> Results:
        """The callers that wait for results in this process."""
        assert self._results is not None, "not connected"
        return self._results


class SharedUse:
    """Something that several `async with` blocks use at once: the first one opens it, the last one
    closes it. If it was open before the first block, it stays open after the last."""

    def __init__(
        self,
        opens: Callable[[], Awaitable[object]],
        closes: Callable[[], Awaitable[object]],
        is_open: Callable[[], bool],
    ) -> None:
        self._opens = opens
        self._closes = closes
        self._is_open = is_open
        self.forget()

    def forget(self) -> None:
        """Begin again after a fork or in another event loop: the blocks of before do not count."""
        self._count = 0
        self._changing = asyncio.Lock()
        self.is_ours = False  # whether a block has opened it, and the last one has to close it

    async def enter(self) -> None:
        """Begin a block. If this fails, the block does not count."""
        async with self._changing:
            if not self._is_open():
                await self._opens()
                self.is_ours = True
            self._count += 1

    async def leave(self) -> None:
        """End a block."""
        self._count = max(0, self._count - 1)  # before anything that may be cancelled
        async with self._changing:
            if not self._count and self.is_ours:
                self.is_ours = False
                await self._closes()


class ClientPart:
    """One noun of a client, such as `app.runs`, with its short ways to the open connection."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def _database(self) -> Database:
        return self._client.connection.database

    @property
    def _wakeups(self) -> Wakeups:
        return self._client.connection.wakeups

    @property
    def _namespace(self) -> str:
        return self._client.settings.namespace

    def _now(self) -> int:
        return self._client.clock.now()

    def _json(self, value: Any, what: str) -> str:
        limit = self._client.settings.payload_bytes_max
        return typed.encode(value, what=what, bytes_max=limit)


async def _follow(clock: Clock, database: Database) -> None:
    if isinstance(clock, SystemClock):
        sent = clock.local_us()
        server = await database.clock_us()
        if server is not None:
            clock.follow(server, sent=sent, received=clock.local_us())


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop of this thread, if one runs."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def never_delete(*things: object) -> None:
    """Keep a parent's connections from ending in a forked child. Python would close them when it
    deletes them, and would take their sockets from the parent's selector, which both share."""
    for thing in things:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
