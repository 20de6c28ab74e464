"""Databases that cannot be used: a sentence, a hint, exit code 3, and nothing made or changed."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from tests.cli.kit import Shell

NOBODY = 65534


def _unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("rota.db", "'rota.db' is not a database URL Rota knows"),
        ("mysql://host/db", "'mysql://host/db' is not a database URL Rota knows"),
        ("postgresql://h/db?schema=a-b", "schema 'a-b' is not lower-case letters"),
        ("sqlite:////nowhere/rota.db", "there is no database file /nowhere/rota.db"),
    ],
)
def test_a_bad_url_is_refused(shell: Shell, url: str, says: str) -> None:
    assert says in shell.error("run", "list", "--database", url, code=3)


def test_a_folder_that_is_missing_is_not_made(shell: Shell) -> None:
    said = shell.error("migrate", "--database", "sqlite:///nowhere/rota.db", code=3)
    assert "its folder does not exist" in said
    assert not Path("nowhere").exists()


def test_a_server_that_does_not_answer_is_named(shell: Shell) -> None:
    url = f"postgresql://ann@127.0.0.1:{_unused_port()}/db"
    for words in (["run", "list"], ["migrate"], ["worker", "list"], ["up"]):
        said = shell.error(*words, "--database", url, code=3)
        assert "postgresql 127.0.0.1/db schema rota" in said
        assert "connection refused" in said
        assert "Start the server, or correct host and port" in said


def test_looking_creates_nothing(shell: Shell) -> None:
    for words in (["run", "list"], ["run", "show", "x"], ["worker", "list"], ["doctor"]):
        assert "there is no database file" in shell.error(*words, code=3)
    assert not list(shell.folder.glob("*.db*"))


def test_looking_migrates_nothing(shell: Shell) -> None:
    apsw.Connection("other.db").execute("create table mine (x)").fetchall()
    said = shell.error("run", "list", "--database", "sqlite:///other.db", code=3)
    assert "lacks migration 0001" in said
    assert "`rota migrate`" in said
    tables = apsw.Connection("other.db").execute("select name from sqlite_master").fetchall()
    assert tables == [("mine",)]


@pytest.mark.parametrize("words", [["run", "list"], ["run", "start", "add", "n=1"], ["migrate"]])
def test_a_file_that_is_no_database_is_left_alone(shell: Shell, words: list[str]) -> None:
    Path("jobs.db").write_text("this is a letter, not a database\n" * 100)
    assert "is not a SQLite database" in shell.error(*words, code=3)
    assert Path("jobs.db").read_text().startswith("this is a letter")


def test_a_damaged_file_is_called_damaged(shell: Shell) -> None:
    shell.run("migrate")
    for n in range(50):
        shell.start("add", f"n={n}")
    body = bytearray(Path("jobs.db").read_bytes())
    for page in range(1, len(body) // 4096):
        body[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    Path("jobs.db").write_bytes(body)
    assert "damaged" in shell.error("run", "list", code=3)


def test_a_newer_schema_is_not_touched(either: Shell) -> None:
    either.run("migrate")
    _pretend_newer(either.url)
    for words in (["run", "list"], ["migrate"], ["run", "start", "add", "n=1"], ["up"]):
        said = either.error(*words, code=3)
        assert "has migration 9999; this Rota knows up to" in said
        assert "Upgrade Rota" in said


def _pretend_newer(url: str) -> None:
    row = "insert into migrations values (9999, 'future', 'x', 0)"
    if url.startswith("sqlite"):
        apsw.Connection(url.removeprefix("sqlite:///")).execute(row).fetchall()
        return
    import asyncio

    import asyncpg

    from tests.kit import split_schema

    async def write() -> None:
        dsn, schema = split_schema(url)
        connection = await asyncpg.connect(dsn, server_settings={"search_path": schema})
        await connection.execute(row)
        await connection.close()

    asyncio.run(write())


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    connection = apsw.Connection(path)
    connection.execute("begin immediate")
    yield
    connection.close()


def test_a_locked_file_is_waited_for_then_given_up(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.run("migrate")
    monkeypatch.setenv("ROTA_BUSY_S", "0.1")
    with _locked("jobs.db"):
        said = shell.error("run", "start", "add", "n=1", code=3)
        assert "another process holds the database" in said
        assert shell.json("run", "list") == [], "readers do not wait for a writer"
    shell.start("add", "n=1")


@contextlib.contextmanager
def _without_power(folder: Path) -> Iterator[None]:
    """As a user who may read the folder but not write to it; root becomes the user `nobody`
    meanwhile.
    """
    modes = {path: path.stat().st_mode for path in (folder, *folder.iterdir()) if path.exists()}
    root = os.geteuid() == 0
    for path, mode in modes.items():
        path.chmod(mode & ~0o222)
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        for path, mode in modes.items():
            path.chmod(mode)


@pytest.fixture
def open_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that every user can reach, which those of pytest are not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        monkeypatch.chdir(name)
        yield Path(name)


def test_a_file_that_may_not_be_written_is_called_so(open_folder: Path) -> None:
    shell = Shell(open_folder, "sqlite:///jobs.db")
    shell.start("add", "n=1")  # also loads everything while it can be loaded
    (open_folder / "jobs.db").chmod(0o644)
    with _without_power(open_folder):
        said = shell.error("run", "start", "add", "n=1", code=3)
    assert "may not be" in said
    assert "Check the permissions" in said
    assert len(shell.json("run", "list")) == 1
