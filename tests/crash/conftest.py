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
)
from tests.kit import drop_schemas


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
