"""Fresh databases in any number, for tests that need one per kill."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.kit import (
    MakeDatabase,
    slices_of,
)
from tests.kit import drop_schemas, schema


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One id for each slice of a loop of kills, so that they can be spread over processes."""
    if "kills" in metafunc.fixturenames:
        metafunc.parametrize("kills", slices_of(metafunc.function.__name__), ids=str)


@pytest.fixture(scope="session")
def schema_pool(postgres_url: str) -> Iterator[schema.SchemaPool]:
    """Migrated PostgreSQL schemas of the process; a test that used some empties them."""
    with schema.schema_pool(postgres_url) as pool:
        yield pool


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def make_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeDatabase]:
    """Makes URLs of migrated databases without rows: SQLite files, then PostgreSQL schemas."""
    if request.param == "postgres":
        pool = request.getfixturevalue("schema_pool")
        yield pool.take
        pool.empty()
        return
    template, number = request.getfixturevalue("sqlite_template"), itertools.count()

    def copy() -> str:
        path = tmp_path / f"{next(number)}.db"
        schema.copied(template, path)
        return f"sqlite:///{path}"

    yield copy


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def make_new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeDatabase]:
    """The same before the first migration, for kills in a migration too."""
    number = itertools.count()
    if request.param == "sqlite":
        yield lambda: f"sqlite:///{tmp_path / f'{next(number)}.db'}"
        return
    base = request.getfixturevalue("postgres_url")
    prefix = f"t_{secrets.token_hex(6)}"
    yield lambda: f"{base}{'&' if '?' in base else '?'}schema={prefix}_{next(number)}"
    asyncio.run(drop_schemas(base, prefix))
