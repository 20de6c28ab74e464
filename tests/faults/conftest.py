"""Worker processes for fault tests, ended with the test whatever happens."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.kit import (
    Hire,
)
from tests.kit import Effects, drop_schemas
from tests.kit.children import Child, end_all


@pytest.fixture
def effects(tmp_path: Path) -> Effects:
    """The file of what user code did in this test."""
    return Effects(tmp_path / "effects")


@pytest.fixture
def server_url(postgres_url: str) -> Iterator[str]:
    """An empty PostgreSQL schema, for what SQLite, with no server, cannot suffer."""
    schema = f"t_{secrets.token_hex(6)}"
    yield f"{postgres_url}{'&' if '?' in postgres_url else '?'}schema={schema}"
    asyncio.run(drop_schemas(postgres_url, schema))


@pytest.fixture
def hire(database_url: str, tmp_path: Path, effects: Effects) -> Iterator[Hire]:
    """Starts worker processes on the test's database; `hire("--set", "slots=3")`."""
    crew: list[Child] = []

    def one_more(*arguments: object, url: str = database_url) -> Child:
        log = tmp_path / f"worker-{len(crew)}.log"
        common = ("--database", url, "--effects", effects.path)
        crew.append(Child("tests.crash.kit.worker", *common, *arguments, log=log))
        return crew[-1]

    yield one_more
    end_all(crew)
