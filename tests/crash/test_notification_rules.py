"""A notification is recorded once with its cause and sent at least once, whatever dies when."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import msgspec
import pytest

from tests.crash.kit import KillLoop, KillSlice, MakeDatabase, kill_at_each
from tests.kit import broken, select
from tests.kit.children import Child

KILLS = KillLoop()


def child(url: str, root: Path, kill_at: int = 0) -> Child:
    arguments = ("--database", url, "--root", root, "--kill-at", kill_at)
    return Child("tests.crash.kit.failing_life", *arguments, log=root / "log")


def sent(root: Path) -> list[str]:
    """The ids of the messages that were sent."""
    path = root / "sent"
    lines = path.read_text().splitlines() if path.exists() else []
    return [msgspec.json.decode(line)["id"] for line in lines if line]


async def remembered(url: str) -> bool:
    """Whether the database knows that the message was taken."""
    rows = await select(url, "select key from steps where status = 'completed'")
    return any("deliver" in key for (key,) in rows)


async def at(nth: int, url: str, root: Path) -> bool:
    """Kill the first child at its nth point, let a second one end the story, then look."""
    code = await asyncio.to_thread(child(url, root, nth).wait)
    assert code in (0, -signal.SIGKILL), (root / "log").read_text()
    known, before = await remembered(url), sent(root)
    second = child(url, root)
    assert await asyncio.to_thread(second.wait) == 0, second.tail()
    ids = sent(root)
    assert ids, f"kill {nth}: nobody was told"
    assert len(set(ids)) == 1, f"kill {nth}: {ids}"
    if known:
        assert ids == before, f"kill {nth}: sent again after it was remembered"
    rows = await select(url, "select kind, sent_to from notifications")
    assert rows == [("failed", "file")], f"kill {nth}"
    runs = await select(url, "select count(*) from runs where name = 'order' and status = 'failed'")
    assert runs == [(1,)], f"kill {nth}"
    assert await broken(url) == [], f"kill {nth}"
    return code == -signal.SIGKILL


@pytest.mark.timeout(600)
async def test_a_failure_and_its_notification_survive_a_kill_at_every_commit(
    make_database: MakeDatabase, tmp_path: Path, kills: KillSlice
) -> None:
    await kill_at_each(kills, at, make_database, tmp_path, KILLS)
