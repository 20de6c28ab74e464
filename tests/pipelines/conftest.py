"""Fixtures of the tests of pipelines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipelines.kit.virtual_folder import House


@pytest.fixture
def house(tmp_path: Path, database_url: str) -> House:
    """A folder of pipelines, on SQLite and then on PostgreSQL."""
    return House(tmp_path, database_url)


@pytest.fixture
def small(tmp_path: Path) -> House:
    """The same on SQLite only, for what does not touch the database's side."""
    return House(tmp_path, f"sqlite:///{tmp_path / 'rota.db'}")
