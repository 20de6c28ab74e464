"""Fixtures of the command line's tests: a project on SQLite, and the same on both databases."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.kit import Daemon, Shell


@pytest.fixture(autouse=True)
def clean_slate(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No settings from outside, and no project module left over from another test."""
    for name in [name for name in os.environ if name.startswith("ROTA_")]:
        if not name.startswith("ROTA_TEST"):
            monkeypatch.delenv(name)
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if "." not in name and name in ("jobs", "other", "broken"):
            del sys.modules[name]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder a person is in."""
    home = tmp_path / "project"
    home.mkdir()
    monkeypatch.chdir(home)
    return home


@pytest.fixture
def shell(folder: Path) -> Shell:
    """A project on SQLite, its database not made yet."""
    return Shell(folder, "sqlite:///jobs.db")


@pytest.fixture
def either(folder: Path, database_url: str) -> Shell:
    """A project on SQLite, then on PostgreSQL, its database made."""
    shell = Shell(folder, database_url)
    shell.run("migrate")
    return shell


@pytest.fixture
def up(folder: Path) -> Iterator[Callable[..., Daemon]]:
    """Starts real daemons, and leaves none behind."""
    started: list[Daemon] = []

    def start(*words: str, **environ: str) -> Daemon:
        started.append(Daemon(folder, *words, **environ))
        return started[-1]

    yield start
    for daemon in started:
        daemon.end()
