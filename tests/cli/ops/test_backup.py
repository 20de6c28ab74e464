"""`rota backup FILE`: a copy of a database that workers use, also before a migration."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.cli.kit import Shell
from tests.kit import select


def test_backup_copies_the_database_to_a_file(shell: Shell, tmp_path: Path) -> None:
    shell.run("migrate")
    shell.start("add", "n=1")
    copy = tmp_path / "nightly.db"
    said = shell.run("backup", str(copy)).stdout
    assert f"copied to {copy}" in said
    assert asyncio.run(select(f"sqlite:///{copy}", "select count(*) from runs")) == [(1,)]
    assert shell.json("backup", str(tmp_path / "b.db"))["bytes"] > 0
    assert "exists already" in shell.run("backup", str(copy), code=2).stderr


def test_a_database_that_must_be_migrated_first_can_be_copied(shell: Shell, tmp_path: Path) -> None:
    shell.run("migrate")
    path = shell.url.removeprefix("sqlite:///")
    asyncio.run(select(f"sqlite:///{path}", "delete from migrations where number > 1"))
    shell.run("backup", str(tmp_path / "before.db"))
    assert (tmp_path / "before.db").is_file()
