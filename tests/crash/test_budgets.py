"""A run with a budget is killed at one commit boundary after the other: it is never passed."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.crash.kit import KillLoop, KillSlice, MakeDatabase, kill_at_each
from tests.crash.kit.budget_life import CALLS_MAX, TOKENS_MAX
from tests.kit import Effects
from tests.kit.warm_children import WarmChild

KILLS = KillLoop(least=15, most=400, at_once=2, spared=2)


def _child(url: str, folder: Path, *extra: object) -> WarmChild:
    arguments = ["--database", url, "--effects", folder / "effects", *extra]
    return WarmChild("tests.crash.kit.budget_life", *arguments, log=folder / "log")


def _charged(folder: Path) -> list[int]:
    """The charges of the provider, call by call."""
    labels = [effect.label for effect in Effects(folder / "effects").read()]
    return [int(label) for label in labels if label.isdigit()]


def kill_and_restart(url: str, folder: Path, nth: int) -> bool:
    """Kill at the nth point, restart, compare; False when nothing was left to kill."""
    code = _child(url, folder, "--kill-at", nth).wait()
    assert code in (0, -signal.SIGKILL), (folder / "log").read_text()
    second = _child(url, folder)
    assert second.wait() == 0, f"kill {nth}: {second.tail()}"
    reported: dict[str, Any] = json.loads((folder / "result.json").read_text())
    charged = _charged(folder)
    assert len(charged) <= CALLS_MAX, f"kill {nth}: {charged}"
    assert sum(charged) <= TOKENS_MAX, f"kill {nth}: {charged}"
    assert (reported["outcome"], "budget is used up" in reported["error"]) == ("failed", True), (
        reported
    )
    # The run tells what the provider charged, but for calls that a kill or a failure cut short.
    assert reported["calls"] - reported["unanswered"] <= len(charged) <= reported["calls"], (
        f"kill {nth}: {reported}"
    )
    assert reported["tokens"] <= sum(charged), f"kill {nth}: {reported}"
    return code == -signal.SIGKILL


@pytest.mark.timeout(240)
@pytest.mark.slow
async def test_a_kill_at_every_commit_passes_no_budget(
    make_database: MakeDatabase, tmp_path: Path, kills: KillSlice, request: pytest.FixtureRequest
) -> None:
    # On PostgreSQL every write is a commit of its own: a part of them tells as much.
    every = 4 if "postgres" in request.node.name else 1

    async def at(nth: int, url: str, folder: Path) -> bool:
        return await asyncio.to_thread(kill_and_restart, url, folder, nth)

    await kill_at_each(kills, at, make_database, tmp_path, KILLS._replace(every=every))
