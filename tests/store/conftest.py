"""The `db` fixture: an open, migrated, empty database of each kind, on the test's own loop."""

from __future__ import annotations

import asyncio
import inspect
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rota.settings import Settings
from rota.store import migrate
from rota.store.database import Database, open_url
from tests.builders import NOW, opened, raw

TABLES = ("signals", "payloads", "steps", "runs", "queues", "workers")


@pytest.fixture(scope="session")
def store_schema(postgres_url: str) -> Iterator[str]:
    """One migrated PostgreSQL schema for the run: making one per test costs a sixth of a second."""
    schema = f"t_{secrets.token_hex(6)}"
    url = f"{postgres_url}{'&' if '?' in postgres_url else '?'}schema={schema}"
    asyncio.run(_migrate(url))
    yield url
    asyncio.run(_script(url, f"drop schema {schema} cascade"))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An empty database; `pytest_pyfunc_call` opens and closes it around the test."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'rota.db'}"
        asyncio.run(_migrate(url))
        yield open_url(url, Settings())
    else:
        url = request.getfixturevalue("store_schema")
        yield open_url(url, Settings())
        asyncio.run(_script(url, ";".join(f"delete from {table}" for table in TABLES)))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Connections belong to an event loop, so the database opens on the test's own."""
    if "db" not in pyfuncitem.funcargs or not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(_run(pyfuncitem.obj, {name: pyfuncitem.funcargs[name] for name in names}))
    return True


async def _run(test: Any, arguments: dict[str, Any]) -> None:
    database: Database = arguments["db"]
    await database.open()
    try:
        await test(**arguments)
    finally:
        await database.close()


async def _migrate(url: str) -> None:
    async with opened(url, migrated=False) as database:
        await database.write(migrate.apply, now=NOW)


async def _script(url: str, text: str) -> None:
    async with opened(url, migrated=False) as database:
        for statement in text.split(";"):
            await database.write(raw, statement)
