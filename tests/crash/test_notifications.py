"""A message about an execution outlives any crash, and goes once to each receiver."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from tests.crash.kit import (
    KillLoop,
    KillSlice,
    MakeDatabase,
    kill_at_each,
)
from tests.crash.kit.notification_life import NAME, PIPELINE
from tests.kit import broken, select
from tests.kit.children import Child
from tests.pipelines.kit.receiver import Receiver

KILLS = KillLoop()


def child(url: str, root: Path, kill_at: int = 0) -> Child:
    arguments = ("--database", url, "--root", root, "--kill-at", kill_at)
    return Child("tests.crash.kit.notification_life", *arguments, log=root / "log")


async def sent(url: str) -> set[str]:
    """The messages that receivers have taken, as far as the database knows."""
    if url.startswith("sqlite") and not Path(url.removeprefix("sqlite:///")).exists():
        return set()
    rows = await select(url, "select key from steps where status = 'completed'")
    return {key for (key,) in rows if "success-" in key or "ping success-" in key}


async def at(nth: int, url: str, root: Path) -> bool:
    """Kill the first child at its nth point, let a second one end the story, then look."""
    async with Receiver().up() as receiver:
        folder = root / NAME
        folder.mkdir(parents=True)
        (folder / "pipeline.yaml").write_text(PIPELINE.format(url=receiver.url))
        code = await asyncio.to_thread(child(url, root, nth).wait)
        assert code in (0, -signal.SIGKILL), (root / "log").read_text()
        known, before = await sent(url), list(receiver.calls)
        second = child(url, root)
        assert await asyncio.to_thread(second.wait) == 0, second.tail()
        hooks = [call for call in receiver.calls if call.path == "/hook"]
        assert hooks, f"kill {nth}: nobody was told"
        assert len({call.headers["webhook-id"] for call in hooks}) == 1
        assert len({call.body for call in hooks}) == 1
        later = receiver.paths[len(before) :]
        if any("success-0" in key for key in known):
            assert "/hook" not in later, f"kill {nth}: told again after it was remembered"
        assert receiver.paths.count("/ping") >= 1
        assert (folder / "told").exists()
        assert len(receiver.calls) <= len(before) + 4
    rows = await select(url, "select status from runs where name = 'rota.notify'")
    assert {status for (status,) in rows} <= {"completed", "crashed"}
    runs = await select(url, f"select status from runs where name = 'pipeline:{NAME}'")
    assert [status for (status,) in runs].count("completed") == 1
    assert await broken(url) == [], f"kill {nth}"
    return code == -signal.SIGKILL


@pytest.mark.timeout(600)
async def test_a_message_survives_a_kill_at_every_commit(
    make_database: MakeDatabase, tmp_path: Path, kills: KillSlice
) -> None:
    await kill_at_each(kills, at, make_database, tmp_path, KILLS)
