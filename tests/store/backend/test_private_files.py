"""The files of a SQLite database are for its owner, and so are its wake-ups."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from rota.store.backend.database import Database
from tests.kit.builders import new_run, opened, start


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def _listeners(folder: Path) -> list[str]:
    return os.listdir(folder)


async def _listening(db: Database) -> asyncio.Queue[str]:
    notified: asyncio.Queue[str] = asyncio.Queue()
    await db.listen(notified.put_nowait)
    return notified


async def test_new_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        async with opened(f"sqlite:///{tmp_path / 'a.db'}") as db:
            await start(db, new_run())
            await _listening(db)
            modes = {path.name: _mode(path) for path in tmp_path.iterdir()}
            [listener] = (tmp_path / "a.db-wake").iterdir()
            assert _mode(listener) == 0o600
    finally:
        os.umask(before)
    assert modes == {"a.db": 0o600, "a.db-wal": 0o600, "a.db-shm": 0o600, "a.db-wake": 0o700}


async def test_a_file_that_is_shared_on_purpose_stays_shared(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.touch()
    path.chmod(0o660)
    async with opened(f"sqlite:///{path}") as db:
        await start(db, new_run())
        assert _mode(path) == _mode(tmp_path / "a.db-wal") == 0o660


async def test_a_packet_without_the_token_is_not_received(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    async with opened(url) as one, opened(url) as other:
        notified = await _listening(one)
        [name] = _listeners(tmp_path / "a.db-wake")
        port, _, token = name.partition("-")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            out.connect(("127.0.0.1", int(port)))
            for forged in (b"*", b"forged", token.encode() + b"forged", b"\0" * 8 + b"forged"):
                out.send(forged)
        other.notify_soon("ready")
        # Packets arrive in order: if this one is received first, the other was dropped.
        assert await asyncio.wait_for(notified.get(), 10) == "ready"


@pytest.mark.parametrize(
    "name", ["99999", "²", "99999-0123456789abcdef", "70000-0123456789abcdef", "1-²", "0-00", "a b"]
)
async def test_an_odd_name_in_the_wake_folder_does_not_stop_a_start(
    tmp_path: Path, name: str
) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    async with opened(url) as one, opened(url) as other:
        notified = await _listening(one)
        (tmp_path / "a.db-wake" / name).touch()
        other.notify_soon("ready")
        assert await asyncio.wait_for(notified.get(), 10) == "ready"
