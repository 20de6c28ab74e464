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
from tests.kit import drop_schemas


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One id for each slice of a loop of kills, so that they can be spread over processes."""
    if "kills" in metafunc.fixturenames:
        metafunc.parametrize("kills", slices_of(metafunc.function.__name__), ids=str)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def make_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeDatabase]:
    """Makes URLs of empty databases: SQLite files, then PostgreSQL schemas, dropped afterwards."""
    number = itertools.count()
    if request.param == "sqlite":
        yield lambda: f"sqlite:///{tmp_path / f'{next(number)}.db'}"
        return
    base = request.getfixturevalue("postgres_url")
    prefix = f"t_{secrets.token_hex(6)}"
    yield lambda: f"{base}{'&' if '?' in base else '?'}schema={prefix}_{next(number)}"
    asyncio.run(drop_schemas(base, prefix))
