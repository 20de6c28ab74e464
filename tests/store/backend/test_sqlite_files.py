"""The files of a SQLite database are checked before every answer, mostly by their folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from rota.errors import StoreGone
from rota.store.backend import sqlite_files
from rota.store.backend.sqlite_files import OpenFiles


@pytest.fixture
def files(tmp_path: Path) -> Iterator[OpenFiles]:
    connection = apsw.Connection(str(tmp_path / "rota.db"))
    connection.execute("pragma journal_mode = wal; create table t (n)").fetchall()
    yield OpenFiles(connection, "here")
    connection.close()


def settle(files: OpenFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check as long after the last change as it takes."""
    files.check()
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_files, "SETTLED_S", -1.0)
        files.check()


def refuse_a_full_look(files: OpenFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> str | None:
        raise AssertionError("both files were looked at")

    monkeypatch.setattr(files, "gone", gone)


def test_an_unchanged_folder_is_enough(files: OpenFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(files, monkeypatch)
    refuse_a_full_look(files, monkeypatch)
    files.check()


def test_a_change_that_is_too_young_is_not_trusted(
    files: OpenFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_files, "SETTLED_S", 3600.0)
    files.check()
    files.check()
    refuse_a_full_look(files, monkeypatch)
    with pytest.raises(AssertionError, match="looked at"):
        files.check()


def test_other_files_in_the_folder_do_no_harm(
    files: OpenFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(files, monkeypatch)
    (tmp_path / "notes.txt").touch()
    files.check()


@pytest.mark.parametrize("name", ["rota.db-wal", "rota.db"])
def test_a_deleted_file_is_noticed_at_every_check(
    files: OpenFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    settle(files, monkeypatch)
    (tmp_path / name).unlink()
    monkeypatch.setattr(sqlite_files, "SETTLED_S", -1.0)
    for _ in range(3):
        with pytest.raises(StoreGone):
            files.check()


def test_a_replaced_file_is_noticed(
    files: OpenFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(files, monkeypatch)
    (tmp_path / "other").write_bytes(b"")
    (tmp_path / "other").replace(tmp_path / "rota.db-wal")
    with pytest.raises(StoreGone):
        files.check()
