"""A run with a budget is killed at one commit boundary after the other: it is never passed."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from rota.pipelines.run.call_ledger import SlotRecord
from tests.crash.kit import KillLoop, KillSlice, MakeDatabase, kill_at_each
from tests.crash.kit.budget_life import CALLS_MAX, TOKENS_MAX
from tests.kit import Effects, select
from tests.kit.children import Child

KILLS = KillLoop(least=15, most=400, at_once=2, spared=2)


def _child(url: str, folder: Path, *extra: object) -> Child:
    arguments = ["--database", url, "--effects", folder / "effects", *extra]
    return Child("tests.crash.kit.budget_life", *arguments, log=folder / "log")


class Charge(NamedTuple):
    """A call that reached the provider."""

    tokens: int
    slot: str
    answers: bool


def _charged(folder: Path) -> list[Charge]:
    """The charges of the provider, call by call."""
    labels = [effect.label.split() for effect in Effects(folder / "effects").read()]
    return [
        Charge(int(label[0]), label[1], label[2] == "answers")
        for label in labels
        if label[0].isdigit()
    ]


def kill_and_restart(url: str, folder: Path, nth: int) -> bool:
    """Kill at the nth point, restart, compare; False when nothing was left to kill."""
    code = _child(url, folder, "--kill-at", nth).wait()
    assert code in (0, -signal.SIGKILL), (folder / "log").read_text()
    second = _child(url, folder)
    assert second.wait() == 0, f"kill {nth}: {second.tail()}"
    reported: dict[str, Any] = json.loads((folder / "result.json").read_text())
    charged = _charged(folder)
    assert len(charged) <= CALLS_MAX, f"kill {nth}: {charged}"
    assert sum(one.tokens for one in charged) <= TOKENS_MAX, f"kill {nth}: {charged}"
    assert (reported["outcome"], "budget is used up" in reported["error"]) == ("failed", True), (
        reported
    )
    return code == -signal.SIGKILL


async def balanced(url: str, folder: Path) -> None:
    """The run shows each call that reached the provider: answered, or without an answer. The only
    others that it shows were killed between the commit that announces them and their arrival.
    Every answered call has its item: both are one commit."""
    reported: dict[str, Any] = json.loads((folder / "result.json").read_text())
    rows = await select(url, "select key, output from steps where key like 'us/%'")
    ledger = {key: msgspec.json.decode(text, type=SlotRecord) for key, text in rows}
    charged = _charged(folder)
    assert {one.slot for one in charged} <= set(ledger), "a call was sent before it was announced"
    never_arrived, answered, tokens = 0, 0, 0
    for key, record in ledger.items():
        here = [one for one in charged if one.slot == key]
        ended, last = here[: record.ended.calls], here[record.ended.calls :]
        assert len(ended) == record.ended.calls, (key, record, here)
        assert len(last) <= (record.under_way is not None), (key, record, here)
        never_arrived += (record.under_way is not None) - len(last)
        answered += sum(one.answers for one in ended)
        tokens += sum(one.tokens for one in ended if one.answers)
    assert reported["calls"] - reported["unanswered"] == answered
    assert len(charged) == reported["calls"] - never_arrived
    assert reported["tokens"] == tokens
    [[items]] = await select(
        url, "select count(*) from steps where key like 'at/%' and status = 'completed'"
    )
    assert items == answered


@pytest.mark.timeout(600)
@pytest.mark.slow
async def test_a_kill_at_every_commit_passes_no_budget(
    make_database: MakeDatabase, tmp_path: Path, kills: KillSlice, request: pytest.FixtureRequest
) -> None:
    # On PostgreSQL every write is a commit of its own: a part of them tells as much.
    every = 4 if "postgres" in request.node.name else 1

    async def at(nth: int, url: str, folder: Path) -> bool:
        killed = await asyncio.to_thread(kill_and_restart, url, folder, nth)
        await balanced(url, folder)
        return killed

    await kill_at_each(kills, at, make_database, tmp_path, KILLS._replace(every=every))
