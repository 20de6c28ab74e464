"""The home of a side: an empty SQLite file, or an empty schema on a durable PostgreSQL."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Literal, Protocol

import apsw

from bench import raw_postgres, raw_sqlite
from bench.ours import Ours
from bench.raw_postgres import RawPostgres
from bench.raw_sqlite import RawSqlite
from bench.sides import Side
from tests.kit.postgres import PostgresServer

DATABASES = ("sqlite", "postgres")
COMMITS, COMMITS_WARM_UP = 500, 20
_numbers = itertools.count(1)


class Place(Protocol):
    """One database engine with room for many empty databases."""

    name: str
    scratch: Path

    def url(self) -> str:
        """A new place."""
        ...

    def raw(self) -> Side:
        """The limit, on an empty database."""
        ...

    async def drop(self, url: str) -> None:
        """Remove what was made there."""
        ...

    async def version(self) -> str:
        """For the report."""
        ...


class SqlitePlace:
    """Files in one folder."""

    name = "sqlite"

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch

    def url(self) -> str:
        """A file that does not exist yet."""
        return f"sqlite:///{self.scratch / f'{next(_numbers)}.db'}"

    def raw(self) -> Side:
        """The limit, on an empty file."""
        return RawSqlite(self.url())

    async def drop(self, url: str) -> None:
        """Remove the file and what is beside it."""
        path = raw_sqlite.path_of(url)
        for beside in self.scratch.glob(f"{path.name}*"):
            if beside.is_file():
                beside.unlink()

    async def version(self) -> str:
        """Rota's own, bundled with apsw; the raw side has the standard library's."""
        return f"SQLite {apsw.sqlite_lib_version()} (synchronous=FULL)"


class PostgresPlace:
    """Schemas in one database of a server of our own, with default settings."""

    name = "postgres"

    def __init__(self, scratch: Path, server: PostgresServer) -> None:
        self.scratch = scratch
        self.server = server
        self._base = server.create_database("bench")

    def url(self) -> str:
        """A schema that does not exist yet."""
        return f"{self._base}?schema=bench_{next(_numbers)}"

    def raw(self) -> Side:
        """The limit, in an empty schema."""
        return RawPostgres(self.url())

    async def drop(self, url: str) -> None:
        """Drop the schema."""
        connection = await raw_postgres.connect(url)
        schema = raw_postgres.schema_of(url)
        await connection.execute(f"drop schema if exists {schema} cascade")
        await connection.close()

    async def version(self) -> str:
        """As the server says it."""
        connection = await raw_postgres.connect(self.url())
        version: str = await connection.fetchval("show server_version")
        fsync: str = await connection.fetchval("show fsync")
        await connection.close()
        return f"PostgreSQL {version} (fsync {fsync})"


@contextlib.contextmanager
def open_places(names: Sequence[str]) -> Iterator[list[Place]]:
    """The chosen engines, with all they wrote removed in the end."""
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rota-bench-")))
        places: list[Place] = []
        if "sqlite" in names:
            places.append(SqlitePlace(scratch))
        if "postgres" in names:
            server = stack.enter_context(PostgresServer(durable=True))
            places.append(PostgresPlace(scratch, server))
        yield places


@contextlib.asynccontextmanager
async def a_side(place: Place, kind: Literal["raw", "ours"]) -> AsyncIterator[Side]:
    """A side on an empty database; closed and dropped afterwards."""
    side: Side = place.raw() if kind == "raw" else Ours(place.url())
    async with opened(place, side):
        yield side


class Commits:
    """Rows that the raw limit inserts, a durable commit each."""

    def __init__(self) -> None:
        self._count = 0
        self._took_s = 0.0

    async def measure(self, raw: Side) -> None:
        """Insert some."""
        await raw.start_one_by_one(COMMITS_WARM_UP)
        began = time.perf_counter()
        await raw.start_one_by_one(COMMITS)
        self._took_s += time.perf_counter() - began
        self._count += COMMITS

    @property
    def a_second(self) -> float:
        """Their rate over all measurements."""
        return self._count / self._took_s


@contextlib.asynccontextmanager
async def commits_around(place: Place) -> AsyncIterator[Commits]:
    """The commits of the raw limit before and after the block, which is too long to be sliced."""
    commits = Commits()
    async with a_side(place, "raw") as raw:
        await commits.measure(raw)
        yield commits
        await commits.measure(raw)


@contextlib.asynccontextmanager
async def opened(place: Place, side: Side) -> AsyncIterator[None]:
    """Open, then close and drop."""
    await side.open()
    try:
        yield
    finally:
        await side.close()
        await place.drop(side.url)
