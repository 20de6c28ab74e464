"""Builders that crash, fault and load tests share: effects, child processes, plain looks.

An effect is one line appended to a file by user code, so that what really happened can be held
against what the database remembers. Appending with O_APPEND is atomic and outlives any kill.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit, urlunsplit

from rota.settings import Settings
from rota.store import invariants
from rota.store.backend.database import open_url
from rota.store.invariants import BrokenInvariant

ROOT = Path(__file__).resolve().parents[2]
T = TypeVar("T")
# A real process has so long for its work: a busy machine is not a failure.
PATIENCE_S = 180.0


class Effect(NamedTuple):
    """One line of the effects file: the executions, with worker and time (monotonic, ns)."""

    label: str
    mark: str
    pid: int
    at: int

    @property
    def token(self) -> str:
        """Tells this execution from every other one."""
        return f"{self.pid}-{self.at}"


class Effects:
    """An append-only file of what user code did."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def add(self, label: str, mark: str = "") -> str:
        """Append one line and return its token; it is there now, whatever becomes of us."""
        effect = Effect(label, mark, os.getpid(), time.monotonic_ns())
        line = json.dumps(effect) + "\n"
        out = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(out, line.encode())
        finally:
            os.close(out)
        return effect.token

    def read(self) -> list[Effect]:
        """All lines, in the order in which they were written."""
        if not self.path.exists():
            return []
        return [Effect(*json.loads(line)) for line in self.path.read_text().splitlines()]

    def count(self, label: str) -> int:
        """How often something was done."""
        return sum(effect.label == label for effect in self.read())


async def until(
    condition: Callable[[], Awaitable[T]], *, timeout_s: float = PATIENCE_S, every_s: float = 0.02
) -> T:
    """Wait until `condition` holds and return what it said; AssertionError at the deadline."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = await condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"still {found!r} after {timeout_s} s"
        await asyncio.sleep(every_s)


def pause(seconds: float) -> None:
    """Let a moment pass before the next check of something that cannot call back."""
    threading.Event().wait(seconds)


async def select(url: str, query: str) -> list[tuple[Any, ...]]:
    """Rows of a plain query, past Rota: what is really there."""
    if url.startswith("sqlite"):
        import apsw

        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        try:
            connection.set_busy_timeout(10_000)
            return list(connection.execute(query))
        finally:
            connection.close()
    import asyncpg

    dsn, schema = split_schema(url)
    connection = await asyncpg.connect(dsn, server_settings={"search_path": schema})
    try:
        return [tuple(row) for row in await connection.fetch(query)]
    finally:
        await connection.close()


def split_schema(url: str) -> tuple[str, str]:
    """A PostgreSQL URL without `schema=`, and the schema."""
    parts = urlsplit(url)
    pairs = [pair.partition("=") for pair in parts.query.split("&") if pair]
    schema = next((value for name, _, value in pairs if name == "schema"), "rota")
    query = "&".join("".join(pair) for pair in pairs if pair[0] != "schema")
    return urlunsplit(parts._replace(query=query)), schema


async def broken(url: str) -> list[BrokenInvariant]:
    """The invariants that do not hold in a database."""
    database = open_url(url, Settings())
    await database.open()
    try:
        return await database.read(invariants.broken)
    finally:
        await database.close()


async def drop_schemas(url: str, prefix: str) -> None:
    """Drop every schema of a PostgreSQL database with a name that begins so."""
    import asyncpg

    connection = await asyncpg.connect(
        split_schema(url)[0], server_settings={"lock_timeout": "10s"}
    )
    try:
        for row in await connection.fetch("select nspname from pg_namespace"):
            if row["nspname"].startswith(prefix):
                await connection.execute(f'drop schema "{row["nspname"]}" cascade')
    finally:
        await connection.close()


async def execute(url: str, *statements: str) -> None:
    """Run statements on PostgreSQL past Rota, each in a transaction of its own."""
    import asyncpg

    connection = await asyncpg.connect(split_schema(url)[0])
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


@contextlib.contextmanager
def own_database(server_url: str, options: str = "") -> Iterator[str]:
    """A new, empty database on a server, dropped at the end with all its connections."""
    name = f"d_{secrets.token_hex(6)}"
    asyncio.run(execute(server_url, f"create database {name} {options}"))
    try:
        yield urlunsplit(urlsplit(server_url)._replace(path=f"/{name}"))
    finally:
        asyncio.run(execute(server_url, f"drop database {name} with (force)"))
