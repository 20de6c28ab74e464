"""A run that continues as new is killed at its first commit boundary, then at each other one."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import msgspec
import pytest

from tests.crash.kit import KillLoop, KillSlice, MakeDatabase, has_tables, kill_at_each
from tests.crash.kit.continuing_life import SEGMENTS
from tests.kit import Effects, broken, select
from tests.kit.children import Child

KILLS = KillLoop(least=40, most=400, at_once=3, spared=1)

COMPLETED_STEPS = """
select runs.input, steps.key from steps join runs on runs.id = steps.root_id
where steps.status = 'completed' and steps.kind = 'step'
"""
SUCCESSORS = "select name, trigger, status, reason from runs where retry_of is not null"
LAST = """
select name, status from runs
where not exists (select 1 from runs as later where later.retry_of = runs.id)
order by name
"""


def _child(url: str, folder: Path, *extra: object) -> Child:
    arguments = ("--database", url, "--effects", folder / "effects", *extra)
    return Child("tests.crash.kit.continuing_life", *arguments, log=folder / "log")


async def _recorded(url: str) -> set[str]:
    """Labels of the steps that the database remembers as completed."""
    if not await has_tables(url):
        return set()
    rows = await select(url, COMPLETED_STEPS)
    return {f"count/{msgspec.json.decode(given)['n']}/{key}" for given, key in rows}


def kill_and_restart(url: str, folder: Path, nth: int) -> bool:
    """Kill at the nth point, restart, check everything; False when nothing was left to kill."""
    effects = Effects(folder / "effects")
    code = _child(url, folder, "--kill-at", nth).wait()
    assert code in (0, -signal.SIGKILL), (folder / "log").read_text()
    recorded = asyncio.run(_recorded(url))
    before = len(effects.read())
    second = _child(url, folder)
    assert second.wait() == 0, f"kill {nth}: {second.tail()}"
    again = [effect.label for effect in effects.read()[before:] if effect.label in recorded]
    assert again == [], f"kill {nth}: executed after they were recorded: {again}"
    asyncio.run(_check(url, effects, nth))
    return code == -signal.SIGKILL


async def _check(url: str, effects: Effects, nth: int) -> None:
    assert await broken(url) == [], f"kill {nth}"
    assert await select(url, LAST) == [("count", "completed"), ("elder", "completed")], nth
    continued = [row for row in await select(url, SUCCESSORS) if row[1] == "continue"]
    assert len(continued) == SEGMENTS - 1, f"kill {nth}: {continued}"
    labels = {effect.label for effect in effects.read()}
    assert labels == {f"count/{n}/note#0" for n in range(SEGMENTS)}, f"kill {nth}"


@pytest.mark.timeout(600)
async def test_a_kill_at_every_commit_loses_no_segment_and_begins_none_twice(
    make_new_database: MakeDatabase, tmp_path: Path, kills: KillSlice
) -> None:
    async def at(nth: int, url: str, folder: Path) -> bool:
        return await asyncio.to_thread(kill_and_restart, url, folder, nth)

    await kill_at_each(kills, at, make_new_database, tmp_path, KILLS)
