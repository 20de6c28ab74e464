"""A run that undoes its work is killed at each commit boundary: it ends as it should, every undo
step was called, in reverse order, and none that was recorded is called again."""

from __future__ import annotations

import asyncio
import signal
from itertools import pairwise
from pathlib import Path

import pytest

from tests.crash.kit import KillLoop, KillSlice, MakeDatabase, kill_at_each
from tests.crash.kit.saga_life import LABELS
from tests.kit import Effects, broken, select
from tests.kit.children import Child

KILLS = KillLoop(least=15, most=200, at_once=2, spared=1)
# Each step notes one argument, and its order among calls of its name follows from the code.
RECORDED = """
select key from steps where status = 'completed' and kind = 'step'
"""


def _child(url: str, folder: Path, end: str, *extra: object) -> Child:
    arguments = ("--database", url, "--effects", folder / "effects", "--end", end, *extra)
    return Child("tests.crash.kit.saga_life", *arguments, log=folder / "log")


def _label(key: str) -> str:
    """The effect of a recorded call. Undo steps are called last to first."""
    name, _, number = key.removesuffix(" (attempt 1)").rpartition("#")
    names = {"book": "book", "note": "clean", "undo undo": "undo"}
    return f"{names[name]}/{1 - int(number) if name == 'undo undo' else number}"


def kill_and_restart(url: str, folder: Path, end: str, nth: int) -> bool:
    """Kill at the nth point, restart, check everything; False when nothing was left to kill."""
    effects = Effects(folder / "effects")
    code = _child(url, folder, end, "--kill-at", nth).wait()
    assert code in (0, -signal.SIGKILL), (folder / "log").read_text()
    recorded = {_label(key) for (key,) in asyncio.run(select(url, RECORDED))}
    before = len(effects.read())
    second = _child(url, folder, end)
    assert second.wait() == 0, f"kill {nth}: {second.tail()}"
    labels = [effect.label for effect in effects.read()]
    if end != "timeout":  # it may end before all is booked: then the undo steps count otherwise
        again = [label for label in labels[before:] if label in recorded]
        assert again == [], f"kill {nth}: executed after they were recorded: {again}"
        assert {"undo/0", "undo/1", "book/0", "book/1"} <= set(labels), f"kill {nth}: {labels}"
    booked = {label[-1] for label in labels if label.startswith("book")}
    undone = [label[-1] for label in labels if label.startswith("undo")]
    assert booked <= set(undone), f"kill {nth}: {labels}"
    assert all(a >= b for a, b in pairwise(undone)), f"kill {nth}: {labels}"
    assert asyncio.run(broken(url)) == [], f"kill {nth}"
    return code == -signal.SIGKILL


@pytest.mark.timeout(600)
@pytest.mark.parametrize("end", sorted(LABELS))
async def test_a_kill_at_every_commit_of_a_saga(
    make_database: MakeDatabase, tmp_path: Path, kills: KillSlice, end: str
) -> None:
    async def at(nth: int, url: str, folder: Path) -> bool:
        return await asyncio.to_thread(kill_and_restart, url, folder, end, nth)

    await kill_at_each(kills, at, make_database, tmp_path, KILLS)
