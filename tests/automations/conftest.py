"""One PostgreSQL schema for all tests here: making one per test would cost more than the tests."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from rota import testing
from rota.store.backend import migrate
from tests.kit.builders import NOW, opened, raw

TABLES = (
    "reservations", "causes", "mutations", "handler_runs", "events", "inputs", "topics", "handlers",
    "definitions", "automations", "signals", "payloads", "steps", "runs", "queues", "workers",
)  # fmt: skip


@pytest.fixture(scope="session")
def automations_schema(postgres_url: str) -> Iterator[str]:
    """A migrated schema, dropped at the end of the run."""
    schema = f"t_{secrets.token_hex(6)}"
    url = f"{postgres_url}{'&' if '?' in postgres_url else '?'}schema={schema}"
    asyncio.run(_migrate(url))
    yield url
    asyncio.run(_script(url, f"drop schema {schema} cascade"))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'rota.db'}"
        return
    url = request.getfixturevalue("automations_schema")
    yield url
    asyncio.run(_script(url, ";".join(f"delete from {table}" for table in TABLES)))


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow disk must not look like a run that hangs."""
    monkeypatch.setattr(testing, "GRACE_S", 0.3)


async def _migrate(url: str) -> None:
    async with opened(url, migrated=False) as database:
        await database.write(migrate.apply, now=NOW)


async def _script(url: str, text: str) -> None:
    async with opened(url, migrated=False) as database:
        for statement in text.split(";"):
            await database.write(raw, statement)
