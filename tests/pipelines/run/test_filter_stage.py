"""Filters that ask, and inputs that come from a command or from an AI."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from rota.errors import RunFailed
from tests.ai.kit.model_server import Model, Say
from tests.pipelines.kit.live_app import says, world

ITEMS = "input: {items: [{n: 1}, {n: 2}, {n: 3}, {n: 4}]}"


def filtered(kind: str, more: str = "") -> str:
    return f"""
name: Filtered
{ITEMS}
filter:
  type: {kind}
  rule: {{rules: [{{field: n, operator: greater_than, value: 2}}]}}
  ai: {{prompt: "Is {{{{n}}}} even?"}}
  {more}
map: {{prompt: "Take {{{{n}}}}"}}
reduce: {{type: json}}
"""


RULE = "\n".join(line for line in filtered("rule").splitlines() if "ai:" not in line)


def even(prompt: str) -> Any:
    if prompt.startswith("Is"):
        return "Yes." if int(prompt.split()[1]) % 2 == 0 else "no, it is odd"
    return "taken"


def kept(output: str | None) -> list[int]:
    return [row["input"]["n"] for row in json.loads(output or "[]")]


@pytest.mark.parametrize(
    ("kind", "more", "left", "asked"),
    [("rule", "", [3, 4], 0), ("ai", "", [2, 4], 4), ("hybrid", "", [4], 2),
     ("hybrid", "combineMode: or", [2, 3, 4], 2)],
)  # fmt: skip
async def test_the_ai_is_asked_only_where_rules_leave_it_open(
    database_url: str, tmp_path: Path, kind: str, more: str, left: list[int], asked: int
) -> None:
    text = filtered(kind, more)
    if kind == "ai":
        text = "\n".join(line for line in text.splitlines() if "rule:" not in line)
    if kind == "rule":
        text = "\n".join(line for line in text.splitlines() if "ai:" not in line)
    async with world(database_url, tmp_path, Model(answer=says(even))) as it:
        result = await it.run(text)
        assert kept(result.output) == left
        assert result.filtered == 4 - len(left)
        assert sum(prompt.startswith("Is") for prompt in it.prompts) == asked
        items = [each async for each in it.app.pipelines.items((await it.app.list())[0].id)]
        assert all(each.reason for each in items if each.status == "filtered")


async def test_a_pattern_that_never_ends_fails_the_run_and_not_the_worker(
    database_url: str, tmp_path: Path
) -> None:
    rule = 'rule: {rules: [{field: n, operator: matches, pattern: "^(a|aa)+$"}]}'
    text = "\n".join(
        f"  {rule}" if "rule:" in line else line
        for line in filtered("rule").replace("{n: 4}", f"{{n: {'a' * 60}b}}").splitlines()
        if "ai:" not in line
    )
    async with world(database_url, tmp_path, Model(answer=says(even))) as it:
        await it.run(text)
        [run] = await it.app.list()
        assert run.label == "failed:fatal"
        assert "took longer than" in (run.error or "")
        assert kept((await it.run(RULE)).output) == [3, 4]  # The worker goes on.


async def test_an_item_that_cannot_be_asked_about_is_dropped_and_told(
    database_url: str, tmp_path: Path
) -> None:
    def answer(prompt: str) -> Any:
        return (
            Say(status=400, raw=b'{"error": "no"}') if prompt.startswith("Is 4") else even(prompt)
        )

    text = "\n".join(line for line in filtered("ai").splitlines() if "rule:" not in line)
    async with world(database_url, tmp_path, Model(answer=says(answer))) as it:
        result = await it.run(text)
        assert kept(result.output) == [2]
        assert result.warnings == ["filter dropped 1 items about which it could not ask"]


async def test_items_are_made_by_an_ai(database_url: str, tmp_path: Path) -> None:
    text = """
name: Made
parameters: {topic: birds}
input:
  generate:
    prompt: "Three {{topic}}"
    schema: [name, {name: legs, type: integer}]
    autoApprove: true
map: {prompt: "About {{name}}"}
reduce: {type: csv}
"""

    def answer(prompt: str) -> Any:
        if prompt.startswith("Three birds"):
            return [{"name": "owl", "legs": "2"}, {"name": "crow", "legs": 2}]
        return prompt.split()[1]

    async with world(database_url, tmp_path, Model(answer=says(answer))) as it:
        result = await it.run(text)
        assert (result.processed, result.calls) == (2, 3)
        assert "owl,2,owl" in (result.output or "")
        # Items that a person has looked at take the place of generated ones.
        seen = await it.run(text, name="b", items=[{"name": "emu", "legs": 2}])
        assert (seen.processed, seen.calls) == (1, 1)


async def test_a_command_gives_the_items(database_url: str, tmp_path: Path) -> None:
    text = """
name: Lines
input: {from: {type: command, run: "printf 'a\\nb\\n'", format: lines}, limit: 5}
map: {prompt: "About {{line}}"}
reduce: {type: text}
"""
    async with world(database_url, tmp_path) as it:
        result = await it.run(text)
        assert "re: About a" in (result.output or "")
        ref = await it.app.pipelines.start(
            it.pipeline(text.replace("format: lines", "format: lines, cwd: nowhere"))
        )
        with pytest.raises(RunFailed, match="nowhere is not there"):
            await ref.result(timeout=60)


async def test_standard_input_is_read_where_there_is_one(database_url: str, tmp_path: Path) -> None:
    text = """
name: Piped
input: {from: {type: stdin, format: lines}}
map: {prompt: "About {{line}}"}
reduce: {type: text}
"""
    async with world(database_url, tmp_path) as it:
        piped = io.BytesIO(b"one\ntwo\n")
        result = await it.run(text, stdin=piped)
        assert result.processed == 2
        ref = await it.app.pipelines.start(it.pipeline(text))
        with pytest.raises(RunFailed, match="reads standard input"):
            await ref.result(timeout=60)
