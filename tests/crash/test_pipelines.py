"""A pipeline is killed at its first commit boundary, then its second, until none is left."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.crash.kit import (
    SLICES,
    KillSlice,
    MakeDatabase,
    has_tables,
)
from tests.crash.kit.pipeline_life import GRAPH_QUESTIONS, QUESTIONS
from tests.kit import Effects, broken, select
from tests.kit.warm_children import WarmChild

KILLS_MAX = 500
ENOUGH = {"Join 2", QUESTIONS[-2]}  # reduces of what there was before the retry
AT_ONCE = 3
SPARED = 3
DONE = "select key, output from steps where status = 'completed' and kind in ('item', 'call')"


def _child(url: str, folder: Path, form: str, *extra: object) -> WarmChild:
    arguments = ["--database", url, "--effects", folder / "effects", *extra]
    if form == "graph":
        arguments.append("--graph")
    return WarmChild("tests.crash.kit.pipeline_life", *arguments, log=folder / "log")


async def _remembered(url: str) -> set[str]:
    """The questions whose answers are recorded; those of the filter are told by their place."""
    if not await has_tables(url):
        return set()
    found = set()
    for key, output in await select(url, DONE):
        if key.startswith(("at/filter", "at/node keep")):
            found.add(f"Keep {'abcd'[int(key.split('/')[2])]}?")
        else:
            found.add(json.loads(output)["text"])
    return found


def kill_and_restart(url: str, folder: Path, form: str, nth: int) -> bool:
    """Kill at the nth point, restart, check everything; False when nothing was left to kill."""
    effects = Effects(folder / "effects")
    code = _child(url, folder, form, "--kill-at", nth).wait()
    assert code in (0, -signal.SIGKILL), (folder / "log").read_text()
    remembered = asyncio.run(_remembered(url))
    before = len(effects.read())
    second = _child(url, folder, form)
    assert second.wait() == 0, f"kill {nth}: {second.tail()}"
    asked = [effect.label for effect in effects.read()]
    again = [label for label in asked[before:] if label in remembered]
    assert again == [], f"kill {nth}: asked after they were recorded: {again}"
    questions = GRAPH_QUESTIONS if form == "graph" else QUESTIONS
    assert set(asked) | ENOUGH == set(questions) | ENOUGH, f"kill {nth}: {asked}"
    # One question was perhaps in progress; the rejected one is asked twice in any case.
    assert len(asked) <= len(questions) + 3, f"kill {nth}: {asked}"
    assert asyncio.run(broken(url)) == [], f"kill {nth}"
    return code == -signal.SIGKILL


@pytest.mark.timeout(240)
@pytest.mark.slow
@pytest.mark.parametrize("form", ["linear", "graph"])
def test_a_kill_at_every_commit_pays_for_nothing_twice(
    make_database: MakeDatabase,
    tmp_path: Path,
    form: str,
    kills: KillSlice,
    request: pytest.FixtureRequest,
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
                alive = not kill_and_restart(make_database(), folder, form, nth)
            except BaseException:
                done.set()
                raise
            (spared if alive else struck).append(nth)
            # The number of commits differs from life to life, as writes share them or not.
            if len(spared) >= SPARED or nth > KILLS_MAX:
                done.set()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for future in [pool.submit(kill_some) for _ in range(AT_ONCE)]:
            future.result()
    assert 40 < len(struck) * every * SLICES < KILLS_MAX
