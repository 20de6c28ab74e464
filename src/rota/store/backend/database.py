"""The interface of a database: submit a function, await its result.

Callers borrow no connection. `write` runs a store function in a transaction that is durable when
the call returns; `read` runs one that only reads. Knows no table.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar
from urllib.parse import SplitResult, parse_qsl, urlsplit

from rota.errors import BadDatabaseUrl
from rota.settings import Settings
from rota.store.backend.dialect import Dialect

_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
P = ParamSpec("P")
T = TypeVar("T")
Row = Sequence[Any]

# As many rows as `write_brief` is meant for.
BRIEF = 64
# The notification that tells workers to claim; `rota.engine.wakeups` lists all topics.
READY = "ready"


class Taken(Exception):
    """A unique key exists already, and the statement has no `on conflict`; nothing was written.

    An insert without `on conflict` is faster where conflicts are rare. On SQLite, or if it was the
    only statement, the caller can continue with another one."""


class Tx(Protocol):
    """A transaction. `alone` says that the statement is the whole of it (one round trip)."""

    dialect: Dialect
    schema: str  # where its tables are

    async def rows(self, query: str, *, alone: bool = False, **parameters: Any) -> list[Row]:
        """Run one named query."""
        ...

    async def many(
        self, query: str, items: Sequence[Row], *, alone: bool = False, **parameters: Any
    ) -> list[Row]:
        """Run one set-based query over `items`; answers come in any order."""
        ...

    async def change(
        self, query: str, items: Sequence[Row], *, alone: bool = False, **parameters: Any
    ) -> int:
        """Run one set-based query that answers nothing; returns how many rows it wrote."""
        ...

    async def script(self, text: str, *, alone: bool = False) -> None:
        """Run plain statements (migrations only). `alone`: one, in no transaction."""
        ...


class Database(Protocol):
    """A database that is open for this process."""

    dialect: Dialect
    place: str  # for people: where it is, without secrets
    is_local: bool  # a statement costs no round trip

    async def open(self) -> None:
        """Connect, and check that it can be used."""
        ...

    async def close(self) -> None:
        """Finish what was submitted and disconnect."""
        ...

    def abandon(self) -> None:
        """Disconnect without the event loop in which it was opened: that one is closed."""
        ...

    async def write(
        self,
        function: Callable[Concatenate[Tx, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run `function` in a transaction; durable when this returns, or nothing happened."""
        ...

    async def write_brief(
        self,
        function: Callable[Concatenate[Tx, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """The same for a few rows: SQLite may run it on the caller's thread."""
        ...

    async def read(
        self,
        function: Callable[Concatenate[Tx, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run `function` on a snapshot."""
        ...

    async def migrating(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run `work`, which may be many transactions, while no other process migrates."""
        ...

    async def backup(self, target: str, *, disarmed_at: int | None = None) -> int:
        """Copy one moment of the database to a new file; returns the bytes of the copy. With
        `disarmed_at` the copy is disarmed."""
        ...

    async def shrink(self) -> bool:
        """Return some free space to the file system; True while there is more."""
        ...

    async def clock_us(self) -> int | None:
        """The database's own time, or None when it shares this machine's clock."""
        ...

    async def notify(self, topics: Sequence[str]) -> None:
        """Wake other processes that listen. When this returns, the notification has been sent."""
        ...

    def notify_soon(self, topic: str) -> None:
        """Wake other processes soon, at most once per few milliseconds, by the event loop."""
        ...

    async def listen(self, notified: Callable[[str], None]) -> None:
        """Call `notified` with each notification of another process. Notifications may be lost."""
        ...


def open_url(url: str, settings: Settings) -> Database:
    """The database behind a URL, not yet open."""
    if any("\ud800" <= each <= "\udfff" for each in url):  # how Python holds such bytes of a path
        raise BadDatabaseUrl(f"{_without_secret(url)!a} has bytes that are not UTF-8")
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme = ""
    if scheme == "sqlite":
        # Imported late: a program that only talks to PostgreSQL needs no SQLite, and vice versa.
        from rota.store.backend.sqlite import SqliteDatabase

        if rest and not rest.startswith(("/", ":memory:")):
            raise BadDatabaseUrl(
                f"{url!r} has two slashes, so {rest.partition('/')[0]!r} would be a host",
                hint=f"Write three: sqlite:///{rest}, or four for an absolute path.",
            )
        path = rest.removeprefix("/") if not rest.startswith("//") else rest[1:]
        path, _, query = path.partition("?")
        if not path or query:
            raise BadDatabaseUrl(f"{url!r} names no SQLite file")
        return SqliteDatabase(path, settings)
    if scheme in ("postgresql", "postgres"):
        from rota.store.backend.postgres import PostgresDatabase

        parts, options = postgres_url(url)
        schema = options.pop("schema", "rota")
        if not _PLAIN_NAME.fullmatch(schema):
            raise BadDatabaseUrl(
                f"schema {schema!r} is not lower-case letters, digits and underscores"
            )
        return PostgresDatabase(parts, options, schema, settings)
    base, plus, driver = scheme.partition("+")
    if plus and base in ("sqlite", "postgresql", "postgres"):
        raise BadDatabaseUrl(
            f"{_without_secret(url)!r} names the driver {driver}, as SQLAlchemy does",
            hint=f"Write {base}:// and the rest: Rota brings its own driver.",
        )
    raise BadDatabaseUrl(f"{_without_secret(url)!r} is not a database URL Rota knows")


def postgres_url(url: str) -> tuple[SplitResult, dict[str, str]]:
    """The parts of a PostgreSQL URL, and the options of its query."""
    try:
        parts = urlsplit(url)
        for each in _addresses(parts):
            _ = each.port
    except ValueError as error:
        raise BadDatabaseUrl(f"the database URL cannot be read: {error}") from error
    if parts.scheme not in ("postgresql", "postgres"):
        raise BadDatabaseUrl(f"{_without_secret(url)!r} is not a PostgreSQL URL")
    options = dict(parse_qsl(parts.query))
    if "," in hosts_of(parts, options):
        # Only the primary accepts writes; its standbys do not.
        options.setdefault("target_session_attrs", "read-write")
    return parts, options


def hosts_of(parts: SplitResult, options: Mapping[str, str]) -> str:
    """The hosts of a PostgreSQL URL, which may have several, for messages."""
    named = ",".join(each.hostname or "" for each in _addresses(parts))
    return named or options.get("host", "local")


def _addresses(parts: SplitResult) -> list[SplitResult]:
    """Host and port of each server that a URL names."""
    return [urlsplit(f"//{one}") for one in parts.netloc.rpartition("@")[2].split(",")]


def _without_secret(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.partition("://")[0]
    return url.replace(f":{parts.password}@", ":***@") if parts.password else url
