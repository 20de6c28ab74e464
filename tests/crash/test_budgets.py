"""A run with a budget is killed at one commit boundary after the other: it is never passed."""

from __future__ import annotations

import json
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.crash.kit import SLICES, KillSlice, MakeDatabase
from tests.crash.kit.budget_life import CALLS_MAX, TOKENS_MAX
from tests.kit import Effects
from tests.kit.warm_children import WarmChild

KILLS_MAX = 200
AT_ONCE = 2
SPARED = 2


def _child(url: str, folder: Path, *extra: object) -> WarmChild:
    arguments = ["--database", url, "--effects", folder / "effects", *extra]
    return WarmChild("tests.crash.kit.budget_life", *arguments, log=folder / "log")


def _charged(folder: Path) -> list[int]:
    """What the provider charged, call by call."""
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
def test_a_kill_at_every_commit_passes_no_budget(
    make_database: MakeDatabase, tmp_path: Path, kills: KillSlice, request: pytest.FixtureRequest
) -> None:
    # On PostgreSQL every write is a commit of its own: a part of them tells as much.
    every = 4 if "postgres" in request.node.name else 1
    numbers = kills.numbers(every)
    done = threading.Event()
    struck: list[int] = []
    spared: list[int] = []

    def kill_some() -> None:
        while not done.is_set():
            nth = next(numbers)
            folder = tmp_path / f"kill-{nth}"
            folder.mkdir()
            try:
                alive = not kill_and_restart(make_database(), folder, nth)
            except BaseException:
                done.set()
                raise
            (spared if alive else struck).append(nth)
            if len(spared) >= SPARED or nth > KILLS_MAX:
                done.set()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for future in [pool.submit(kill_some) for _ in range(AT_ONCE)]:
            future.result()
    assert 15 < len(struck) * every * SLICES < KILLS_MAX
