"""Filters that ask, and inputs that come from a command or from an AI."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import pytest

from rota.errors import BadReply, RunFailed
from rota.pipelines.run.generated_items import read_items_reply
from tests.ai.kit.model_server import Model, Say
from tests.kit import select
from tests.pipelines.kit.live_app import assert_every_page, says, world

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
    return [row["input"]["n"] for row in json.loads(output or "[]") if row["success"]]


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
        items = [each async for each in it.app.pipelines.items((await it.app.runs.list())[0].id)]
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
        [run] = await it.app.runs.list()
        assert run.label == "failed:fatal"
        assert "took longer than" in (run.error or "")
        assert kept((await it.run(RULE)).output) == [3, 4]  # The worker continues.


ASKED = "\n".join(line for line in filtered("ai").splitlines() if "rule:" not in line)
GRAPH = """
name: Graph
nodes:
  a: {kind: load, source: {type: inline, items: [{n: 1}, {n: 2}, {n: 3}, {n: 4}]}}
  keep: {kind: filter, from: a, rule: {type: ai, prompt: "Is {{n}} even?"}}
  out: {kind: reduce, from: keep, type: json}
"""


class Sulking:
    """Answers, but not about some numbers until the test allows it."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = set(numbers)

    def __call__(self, prompt: str) -> Any:
        if prompt.startswith("Is") and int(prompt.split()[1]) in self.numbers:
            return Say(status=400, raw=b'{"error": "no"}')
        return even(prompt)


async def test_an_item_that_the_filter_cannot_ask_about_has_failed(
    database_url: str, tmp_path: Path
) -> None:
    sulking = Sulking(1, 4)
    async with world(database_url, tmp_path, Model(answer=says(sulking))) as it:
        ref = await it.app.pipelines.start(it.pipeline(ASKED))
        result = await ref.result(timeout=60)
        assert (result.outcome, result.exit_code) == ("partial", 7)
        await assert_every_page(it.app, ref.id)
        counts = (result.total, result.processed, result.failed, result.filtered, result.skipped)
        assert counts == (4, 1, 2, 1, 0)
        assert kept(result.output) == [2]
        assert result.failed_by == {"Rejected": 2}
        assert "the filter could not ask" in result.errors[0].message
        asked = len(it.prompts)
        sulking.numbers.clear()
        # The retry asks about the two only: 1 is dropped now, 4 is kept.
        again = await (await it.app.pipelines.retry(ref.id)).result(timeout=60)
        counts = (again.total, again.processed, again.failed, again.filtered, again.skipped)
        assert (again.outcome, counts) == ("completed", (4, 2, 0, 2, 0))
        assert kept(again.output) == [2, 4]
        assert sorted(it.prompts[asked:]) == [
            "Is 1 even?\n\nReply with yes or no.", "Is 4 even?\n\nReply with yes or no.", "Take 4",
        ]  # fmt: skip
        items = [each async for each in it.app.pipelines.items(ref.id)]
        assert [(each.item["n"], each.status) for each in items] == [
            (2, "completed"), (4, "completed"), (1, "filtered"), (3, "filtered"),
        ]  # fmt: skip
        await assert_every_page(it.app, ref.id)


async def test_items_that_the_filter_cannot_ask_about_stay_failed_until_it_can(
    database_url: str, tmp_path: Path
) -> None:
    async with world(database_url, tmp_path, Model(answer=says(Sulking(4)))) as it:
        ref = await it.app.pipelines.start(it.pipeline(ASKED))
        first = await ref.result(timeout=60)
        again = await (await it.app.pipelines.retry(ref.id)).result(timeout=60)
        assert (first.failed, again.failed) == (1, 1)
        assert (first.outcome, again.outcome) == ("partial", "partial")


async def test_a_run_whose_filter_can_ask_about_nothing_has_failed(
    database_url: str, tmp_path: Path
) -> None:
    sulking = Sulking(1, 2, 3, 4)
    async with world(database_url, tmp_path, Model(answer=says(sulking))) as it:
        ref = await it.app.pipelines.start(it.pipeline(ASKED))
        with pytest.raises(RunFailed, match="all 4 items failed"):
            await ref.result(timeout=60)
        sulking.numbers.clear()
        result = await (await it.app.pipelines.retry(ref.id)).result(timeout=60)
        assert (result.outcome, kept(result.output)) == ("completed", [2, 4])


async def test_an_item_that_a_filter_node_cannot_ask_about_has_failed(
    database_url: str, tmp_path: Path
) -> None:
    sulking = Sulking(4)
    async with world(database_url, tmp_path, Model(answer=says(sulking))) as it:
        ref = await it.app.pipelines.start(it.pipeline(GRAPH))
        result = await ref.result(timeout=60)
        assert (result.outcome, result.failed) == ("partial", 1)
        sulking.numbers.clear()
        again = await (await it.app.pipelines.retry(ref.id)).result(timeout=60)
        assert (again.outcome, again.failed) == ("completed", 0)
        assert [row["output"]["n"] for row in json.loads(again.output or "[]")] == [2, 4]
        assert sum(prompt.startswith("Is") for prompt in it.prompts) == 5


async def test_a_failure_in_the_filter_counts_against_fail_fast(
    database_url: str, tmp_path: Path
) -> None:
    text = ASKED.replace(
        'map: {prompt: "Take {{n}}"}', 'map: {prompt: "Take {{n}}", failFast: true}'
    )
    async with world(database_url, tmp_path, Model(answer=says(Sulking(4)))) as it:
        result = await it.run(text)
        assert result.outcome == "failed"
        assert not any(prompt.startswith("Take") for prompt in it.prompts)


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


@pytest.mark.parametrize("reply", ["5", '"no items"', "true", "null", '{"a": 1}', "{}"])
def test_a_reply_without_a_list_is_no_items(reply: str) -> None:
    with pytest.raises(BadReply, match="cannot be read"):
        read_items_reply(reply, [])


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


async def test_progress_counts_a_failed_item_once(database_url: str, tmp_path: Path) -> None:
    text = f"name: n\n{ITEMS}\nmap: {{prompt: 'Take {{{{n}}}}'}}\nreduce: {{type: json}}\n"
    model = Model(answer=says(lambda prompt: Say(status=400) if "3" in prompt else "taken"))
    async with world(database_url, tmp_path, model) as it:
        result = await it.run(text)
        assert (result.processed, result.failed) == (3, 1)
        mapping = [reported for reported in it.reported if reported.phase == "mapping"]
        assert (mapping[-1].done, mapping[-1].failed, mapping[-1].total) == (4, 1, 4)


@pytest.mark.parametrize(("keys", "count"), [("", 2), ("results: {dropped: true}", 4)])
async def test_results_files_leave_dropped_items_out_by_default(
    database_url: str, tmp_path: Path, keys: str, count: int
) -> None:
    async with world(database_url, tmp_path) as it:
        result = await it.run(RULE + f"\nsettings: {{{keys}}}\n")
        [file] = tmp_path.rglob(".results/*.json")
        written = json.loads(file.read_bytes())
        assert len(written["items"]) == count
        assert written["filtered"] == result.filtered == 2


def noise(seed: int) -> str:
    """A text that hardly becomes smaller."""
    return random.Random(seed).randbytes(2000).hex()


async def test_dropped_items_are_stored_once(database_url: str, tmp_path: Path) -> None:
    """A large input of which little is kept does not grow the database twice."""
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps({"n": n, "text": noise(n)}) + "\n" for n in range(100))
    )
    source = f"input: {{from: {{type: jsonl, path: {tmp_path / 'rows.jsonl'}}}}}"
    async with world(database_url, tmp_path) as it:
        text = RULE.replace(ITEMS, source).replace("value: 2", "value: 97")
        ref = await it.app.pipelines.start(it.pipeline(text))
        result = await ref.result(timeout=60)
        assert (result.processed, result.filtered) == (2, 98)
        stored = await select(database_url, "select key, length(output) from steps")
        sizes = {key.split("/")[1]: 0 for key, _ in stored if key.startswith("in/")}
        for key, size in stored:
            if key.startswith("in/"):
                sizes[key.split("/")[1]] += size
        assert sizes["input"] > 100_000
        assert sizes["filter"] + sizes["filter:dropped"] < sizes["input"] / 8
        found = [each async for each in it.app.pipelines.items(ref.id)]
        dropped = [each for each in found if each.status == "filtered"]
        assert [each.item["n"] for each in dropped] == list(range(98))
        assert dropped[5].item["text"] == noise(5)
        assert "97" in (dropped[5].reason or "")


async def test_only_so_many_results_files_are_kept(database_url: str, tmp_path: Path) -> None:
    async with world(database_url, tmp_path) as it:
        text = RULE + "\nsettings: {results: {keep: 2}}\n"
        await it.run(text)
        await it.run(text)
        result = await it.run(text)
        left = [str(file.relative_to(file.parents[1])) for file in tmp_path.rglob(".results/*")]
        assert len(left) == 2
        assert result.result_file in left
        result = await it.run(RULE + "\nsettings: {results: {keep: 0}}\n")
        assert result.result_file is None
        assert len(list(tmp_path.rglob(".results/*"))) == 2
