"""Fixtures of the tests of pipelines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipelines.kit.virtual_folder import FolderWorld


@pytest.fixture
def folder_world(tmp_path: Path, database_url: str) -> FolderWorld:
    """A folder of pipelines, on SQLite and then on PostgreSQL."""
    return FolderWorld(tmp_path, database_url)


@pytest.fixture
def small(tmp_path: Path) -> FolderWorld:
    """The same on SQLite only, for what does not touch the database's side."""
    return FolderWorld(tmp_path, f"sqlite:///{tmp_path / 'rota.db'}")
