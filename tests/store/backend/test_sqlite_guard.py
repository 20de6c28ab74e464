"""A file that Rota holds is refused to Python's own SQLite in the same process, and only there."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from rota.errors import StoreHeld
from tests.kit.builders import opened


@pytest.mark.parametrize("spelling", ["{path}", "{folder}/./a.db", "file:{path}?mode=ro"])
async def test_the_other_library_is_refused_a_file_that_is_open(
    tmp_path: Path, spelling: str
) -> None:
    path = tmp_path / "a.db"
    database = spelling.format(path=path, folder=tmp_path)
    async with opened(f"sqlite:///{path}"):
        with pytest.raises(StoreHeld, match=r"sqlite3 cannot open .*a\.db: Rota has the file open"):
            sqlite3.connect(database, uri=True)
    sqlite3.connect(database, uri=True).close()


async def test_a_link_to_the_file_is_refused_too(tmp_path: Path) -> None:
    (tmp_path / "b.db").symlink_to(tmp_path / "a.db")
    async with opened(f"sqlite:///{tmp_path / 'a.db'}"):
        with pytest.raises(StoreHeld):
            sqlite3.connect(tmp_path / "b.db")


async def test_it_stays_refused_until_the_last_of_two_stores_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with opened(f"sqlite:///{path}"):
        async with opened(f"sqlite:///{path}"):
            pass
        with pytest.raises(StoreHeld):
            sqlite3.connect(path)


@pytest.mark.parametrize("ending", ["", "-shm"])
async def test_a_copy_inside_the_process_is_refused_and_names_rota_backup(
    tmp_path: Path, ending: str
) -> None:
    path = tmp_path / "a.db"
    async with opened(f"sqlite:///{path}"):
        with pytest.raises(StoreHeld, match="would drop its locks") as caught:
            shutil.copy(f"{path}{ending}", tmp_path / "copy")
        assert "rota backup" in caught.value.advice
        with pytest.raises(StoreHeld):
            os.open(f"{path}{ending}", os.O_RDONLY)
    shutil.copy(path, tmp_path / "copy")


async def test_a_file_that_got_the_inode_of_deleted_shared_memory_may_be_opened(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.db"
    async with opened(f"sqlite:///{path}"):
        # As after the last close, which deletes it: the inode belongs to a file of other code.
        os.rename(f"{path}-shm", tmp_path / "notes.txt")
        (tmp_path / "notes.txt").read_bytes()
        with pytest.raises(StoreHeld):
            path.read_bytes()


async def test_the_log_and_new_files_may_be_opened(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with opened(f"sqlite:///{path}"):
        assert (tmp_path / "a.db-wal").read_bytes()
        (tmp_path / "b.db").write_bytes(b"new")
        with pytest.raises(FileExistsError), path.open("xb"):
            pass
        with open(os.dup(0)):
            pass


async def test_other_files_memory_and_the_same_library_are_let_through(tmp_path: Path) -> None:
    async with opened(f"sqlite:///{tmp_path / 'a.db'}"):
        sqlite3.connect(tmp_path / "b.db").close()
        sqlite3.connect(":memory:").close()
        apsw.Connection(str(tmp_path / "a.db")).close()


async def test_another_process_may_look_with_any_library(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    look = "import sqlite3, sys; [row] = sqlite3.connect(sys.argv[1]).execute(sys.argv[2])"
    async with opened(f"sqlite:///{path}"):
        asked = subprocess.run(
            [sys.executable, "-c", f"{look}; print(*row)", str(path), "select count(*) from runs"],
            capture_output=True,
            text=True,
            check=True,
        )
    assert asked.stdout == "0\n"
