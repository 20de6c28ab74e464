"""A database with a log that was deleted under Rota: no write is acknowledged that would be
lost.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rota import Client
from rota.errors import StoreGone
from tests.kit import ROOT, broken, select

# Python's own `open` is refused; a C library is not asked. It represents any of those here.
CHILD = """
import asyncio, ctypes, os, signal, sys
from rota import Client
from rota.errors import StoreGone

async def main(path):
    client = await Client(f"sqlite:///{path}").connect()
    for _ in range(20):
        print("acknowledged", (await client.start("work")).id, flush=True)
    libc = ctypes.CDLL(None)
    libc.close(libc.open(path.encode(), os.O_RDONLY))
    print("closed", flush=True)
    sys.stdin.readline()
    for _ in range(20):
        try:
            print("acknowledged", (await client.start("work")).id, flush=True)
        except StoreGone as error:
            print("refused", error, error.advice, flush=True)
    try:
        await client.runs.counts()
    except StoreGone:
        print("read refused", flush=True)
    if sys.argv[2] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    await client.close()

asyncio.run(main(sys.argv[1]))
"""
LOOK = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('select count(*) from runs')"


@pytest.mark.parametrize("end", ["kill", "close"])
async def test_nothing_acknowledged_is_lost_when_a_copy_drops_the_locks(
    tmp_path: Path, end: str
) -> None:
    path = tmp_path / "rota.db"
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path), end],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    before = [child.stdout.readline() for _ in range(21)]
    assert before[-1] == "closed\n"
    # A program that takes itself for the last user moves the log into the file and deletes it.
    subprocess.run([sys.executable, "-c", LOOK, str(path)], check=True)
    assert not Path(f"{path}-wal").exists()
    # The file continues without the child.
    async with Client(f"sqlite:///{path}") as other:
        mine = {(await other.start("other")).id for _ in range(5)}
        rest, _ = child.communicate("go on\n", timeout=60)
    said = rest.splitlines()
    assert [line.split()[0] for line in said] == ["refused"] * 20 + ["read"]
    assert "was deleted or replaced" in said[0]
    assert "Restart this process" in said[0]
    acknowledged = {line.split()[1] for line in before[:-1]} | mine
    kept = {row[0] for row in await select(f"sqlite:///{path}", "select id from runs")}
    assert kept == acknowledged
    assert await select(f"sqlite:///{path}", "pragma integrity_check") == [("ok",)]
    assert await broken(f"sqlite:///{path}") == []


@pytest.mark.parametrize("ending", ["", "-wal"])
@pytest.mark.parametrize("way", ["deleted", "replaced"])
async def test_a_file_that_is_deleted_or_replaced_refuses_writes_and_reads(
    tmp_path: Path, ending: str, way: str
) -> None:
    path = tmp_path / "rota.db"
    async with Client(f"sqlite:///{path}") as client:
        await client.start("work")
        victim = tmp_path / f"rota.db{ending}"
        if way == "deleted":
            victim.unlink()
        else:
            (tmp_path / "new").touch()
            os.replace(tmp_path / "new", victim)
        with pytest.raises(StoreGone, match=f"rota.db{ending} was deleted or replaced"):
            await client.start("work")
        with pytest.raises(StoreGone):
            await client.runs.counts()


async def test_a_link_that_leads_elsewhere_meanwhile_does_not_matter(tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "rota.db")
    async with Client(f"sqlite:///{link}") as client:
        await client.start("work")
        link.unlink()
        await client.start("work")
    assert await select(f"sqlite:///{tmp_path / 'rota.db'}", "select count(*) from runs") == [(2,)]
