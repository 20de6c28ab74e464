"""One PostgreSQL schema for all tests here: making one per test would cost more than the tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rota import testing
from tests.kit.schema import emptied


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'rota.db'}"
        return
    url = request.getfixturevalue("shared_schema")
    yield url
    emptied(url)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow disk must not look like a run that hangs."""
    monkeypatch.setattr(testing, "GRACE_S", 0.3)
