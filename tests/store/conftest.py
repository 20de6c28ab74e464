"""The `db` fixture: an open, migrated, empty database of each kind, on the test's own loop."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from rota.settings import Settings
from rota.store.backend.database import Database, open_url


@pytest.fixture
def db(database_url: str) -> Database:
    """An empty database; `pytest_pyfunc_call` opens and closes it around the test."""
    return open_url(database_url, Settings())


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
