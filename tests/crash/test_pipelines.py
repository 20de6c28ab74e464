"""A pipeline is killed at its first commit boundary, then its second, until none is left."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from tests.crash.kit import (
    KillLoop,
    KillSlice,
    MakeDatabase,
    has_tables,
    kill_at_each,
)
from tests.crash.kit.pipeline_life import GRAPH_QUESTIONS, QUESTIONS
from tests.kit import Effects, broken, select
from tests.kit.children import Child

KILLS = KillLoop(least=40, most=800, at_once=3, spared=3)
ENOUGH = {"Join 2", QUESTIONS[-2]}  # reduces of what there was before the retry
DONE = "select key, output from steps where status = 'completed' and kind in ('item', 'call')"


def _child(url: str, folder: Path, form: str, *extra: object) -> Child:
    arguments = ["--database", url, "--effects", folder / "effects", *extra]
    if form == "graph":
        arguments.append("--graph")
    return Child("tests.crash.kit.pipeline_life", *arguments, log=folder / "log")


async def _remembered(url: str) -> set[str]:
    """The questions with a recorded answer; those of the filter are found by their position."""
    if not await has_tables(url):
        return set()
    found = set()
    for key, output in await select(url, DONE):
        if key.startswith(("at/filter:", "at/keep:")):
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


@pytest.mark.timeout(600)
@pytest.mark.slow
@pytest.mark.parametrize("form", ["linear", "graph"])
async def test_a_kill_at_every_commit_pays_for_nothing_twice(
    make_database: MakeDatabase,
    tmp_path: Path,
    form: str,
    kills: KillSlice,
    request: pytest.FixtureRequest,
) -> None:
    # On PostgreSQL every write is a commit of its own: a part of them tells as much.
    every = 4 if "postgres" in request.node.name else 1

    async def at(nth: int, url: str, folder: Path) -> bool:
        return await asyncio.to_thread(kill_and_restart, url, folder, form, nth)

    await kill_at_each(kills, at, make_database, tmp_path, KILLS._replace(every=every))
