"""The files of a SQLite database are looked at before every answer, mostly by a look at their folder."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from rota.errors import StoreGone
from rota.store.backend.sqlite_files import SETTLED_NS, OpenFiles

HOUR_NS = 3_600_000_000_000


@pytest.fixture
def files(tmp_path: Path) -> Iterator[OpenFiles]:
    connection = apsw.Connection(str(tmp_path / "rota.db"))
    connection.execute("pragma journal_mode = wal; create table t (n)").fetchall()
    yield OpenFiles(connection, "here")
    connection.close()


def settle(folder: Path) -> None:
    """As if the last change of the folder were an hour ago."""
    at = time.time_ns() - HOUR_NS
    os.utime(folder, ns=(at, at))


def refuse_a_full_look(files: OpenFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> str | None:
        raise AssertionError("both files were looked at")

    monkeypatch.setattr(files, "gone", gone)


def test_an_unchanged_folder_is_looked_at_once(
    files: OpenFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(tmp_path)
    files.check()
    refuse_a_full_look(files, monkeypatch)
    files.check()


def test_a_change_that_is_too_young_is_not_trusted(
    files: OpenFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = time.time_ns() + HOUR_NS  # young for as long as the test lasts
    os.utime(tmp_path, ns=(soon, soon))
    files.check()
    refuse_a_full_look(files, monkeypatch)
    with pytest.raises(AssertionError, match="looked at"):
        files.check()
    assert SETTLED_NS < HOUR_NS


def test_other_files_in_the_folder_do_no_harm(files: OpenFiles, tmp_path: Path) -> None:
    settle(tmp_path)
    files.check()
    (tmp_path / "notes.txt").touch()
    files.check()


@pytest.mark.parametrize("name", ["rota.db-wal", "rota.db"])
def test_a_deleted_file_is_noticed_at_every_check(
    files: OpenFiles, tmp_path: Path, name: str
) -> None:
    settle(tmp_path)
    files.check()
    (tmp_path / name).unlink()
    for _ in range(2):
        with pytest.raises(StoreGone):
            files.check()
        settle(tmp_path)  # nor does it pass for unchanged later


def test_a_replaced_file_is_noticed(files: OpenFiles, tmp_path: Path) -> None:
    settle(tmp_path)
    files.check()
    (tmp_path / "other").write_bytes(b"")
    (tmp_path / "other").replace(tmp_path / "rota.db-wal")
    with pytest.raises(StoreGone):
        files.check()
