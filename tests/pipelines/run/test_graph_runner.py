"""The graph form: eight kinds of nodes, what fails and what that does, and doing it again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota.errors import BadInput, RunFailed
from rota.pipelines.definition.nodes import ScriptNode
from rota.pipelines.run.inputs import stream
from rota.pipelines.run.script import script_items
from tests.ai.kit.model_server import Model, Say
from tests.kit import until
from tests.pipelines.kit.live_app import assert_every_page, says, world

ALL = """
name: Everything
parameters: {unit: kg}
settings: {retry: {maxRetries: 0}}
nodes:
  fruit: {kind: load, source: {type: inline, items: [{name: fig, w: 1}, {name: pear, w: 5}]}}
  nuts: {kind: load, source: {type: csv, path: nuts.csv, types: {w: integer}}}
  both: {kind: merge, from: [fruit, nuts]}
  heavy:
    kind: filter
    from: both
    rule:
      type: and
      rules: [{type: field, field: w, op: gt, value: 1}, {type: ai, prompt: "Is {{name}} food?"}]
  same: {kind: script, from: heavy, run: "tr a-z A-Z | tr A-Z a-z", input: json, output: json}
  colours: {kind: map, from: same, prompt: "Colour of {{name}}", output: [colour]}
  labels:
    kind: transform
    from: colours
    ops:
      - {op: add, field: label, value: "{{colour}} {{name}} {{w}} {{unit}}"}
      - {op: select, fields: [label]}
  summary: {kind: ai, from: labels, prompt: "Sum up {{COUNT}}: {{ITEMS}}", output: [text]}
  page: {kind: reduce, from: labels, type: list}
"""


def wise(prompt: str) -> Any:
    if prompt.startswith("Is"):
        return "no" if "stone" in prompt else "yes"
    if prompt.startswith("Colour"):
        return {"colour": "green" if "pear" in prompt else "brown"}
    return {"text": "all " + prompt.split()[2]}


def put_nuts(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nuts.csv").write_text("name,w\nwalnut,3\nstone,9\n")


async def test_all_kinds_of_nodes_work_together(database_url: str, tmp_path: Path) -> None:
    put_nuts(tmp_path / "work")
    async with world(database_url, tmp_path, Model(answer=says(wise))) as it:
        result = await it.run(ALL)
        assert result.outcome == "completed", result
        [summary, page] = json.loads(result.output or "")
        assert summary == {"text": "all 2:"}
        assert "green pear 5 kg" in page["result"]
        assert "brown walnut 3 kg" in page["result"]
        assert (result.total, result.processed, result.filtered) == (4, 2, 2)
        await assert_every_page(it.app, (await it.app.runs.list())[0].id, 1)
        # 3 questions of the filter (fig is too light to be asked about), 2 colours, 1 summary.
        assert result.calls == len(it.prompts) == 6
        nodes = {each.node for each in it.reported if each.phase == "node"}
        assert nodes == {
            "fruit", "nuts", "both", "heavy", "same", "colours", "labels", "summary", "page",
        }  # fmt: skip


ZIP = """
name: Zip
nodes:
  a: {kind: load, source: {type: inline, items: [{x: 1}, {x: 2}, {x: 3}]}}
  b: {kind: load, source: {type: inline, items: [{y: 10}, {y: 20}]}}
  z: {kind: merge, from: [a, b], strategy: zip}
  out: {kind: reduce, from: z, type: csv}
"""


async def test_a_reduce_at_the_end_is_the_output_as_it_is(
    database_url: str, tmp_path: Path
) -> None:
    async with world(database_url, tmp_path) as it:
        result = await it.run(ZIP)
        assert result.warnings == [
            "node z: its parents have 3, 2 items; zip omits those beyond number 2"
        ]
        lines = (result.output or "").splitlines()
        assert lines[0].startswith("out_x,out_y")
        assert lines[1].startswith("1,10")
        assert len(lines) == 3


BROKEN = """
name: Broken
nodes:
  a: {kind: load, source: {type: inline, items: [{x: 1}]}}
  s: {kind: script, from: a, run: "echo oh no >&2; exit 3"%s}
  out: {kind: reduce, from: [a, s], type: json}
"""


async def test_a_failed_node_aborts_or_warns(database_url: str, tmp_path: Path) -> None:
    async with world(database_url, tmp_path) as it:
        ref = await it.app.pipelines.start(it.pipeline(BROKEN % ""))
        with pytest.raises(RunFailed, match="exit code 3: oh no"):
            await ref.result(timeout=60)
        result = await it.run(BROKEN % ", onError: warn", name="b")
        assert result.outcome == "completed"
        assert "exit code 3" in result.warnings[0]
        assert len(json.loads(result.output or "")) == 1
        everywhere = (BROKEN % "").replace("nodes:", "settings: {onError: warn}\nnodes:")
        assert (await it.run(everywhere, name="c")).outcome == "completed"


@pytest.mark.parametrize("printed", ['{"x": 1}\\n{"x": 2}', '[{"x": 1}, {"x": 2}, {"x'])
async def test_a_script_that_prints_no_single_json_value_fails(
    tmp_path: Path, printed: str
) -> None:
    node = msgspec.convert(
        {"kind": "script", "run": f"printf '{printed}'", "output": "json"}, ScriptNode
    )
    with pytest.raises(BadInput, match="did not print one JSON list or object"):
        [item async for item in script_items(node, tmp_path, stream([]))]


async def test_a_shell_that_is_not_installed_is_named(tmp_path: Path) -> None:
    node = msgspec.convert(
        {"kind": "script", "from": "a", "run": "Get-Date", "shell": "powershell",
         "env": {"PATH": str(tmp_path)}},
        ScriptNode,
    )  # fmt: skip
    with pytest.raises(BadInput, match="`Get-Date` cannot run: its shell pwsh is not installed"):
        [item async for item in script_items(node, tmp_path, stream([]))]


async def test_a_script_that_hangs_is_killed(database_url: str, tmp_path: Path) -> None:
    text = (BROKEN % ", timeoutMs: 100").replace("echo oh no >&2; exit 3", "sleep 60 | cat")
    async with world(database_url, tmp_path) as it:
        result = await it.run(text)
        assert "did not end within 100 ms" in (result.error or "")


CHAIN = """
name: Chain
settings: {retry: {maxRetries: 0}}
nodes:
  a: {kind: load, source: {type: inline, items: [{x: a}, {x: b}, {x: c}]}}
  first: {kind: map, from: a, prompt: "First {{x}}", output: [one]}
  good: {kind: filter, from: first, rule: {type: field, field: one, op: contains, value: "1"}}
  second: {kind: map, from: good, prompt: "Second {{one}}"}
  out: {kind: reduce, from: second, type: ai, prompt: "Join {{RESULTS}}"}
"""


async def test_a_retry_does_again_what_failed_and_what_came_of_it(
    database_url: str, tmp_path: Path
) -> None:
    broken = {"a"}

    def answer(prompt: str) -> Any:
        word, rest = prompt.split(" ", 1)
        if word == "First":
            bad = rest[0] in broken
            return Say(status=400, raw=b'{"error": "no"}') if bad else {"one": rest[0] + "1"}
        if word == "Second":
            return f"<{rest}>"
        return rest

    async with world(database_url, tmp_path, Model(answer=says(answer))) as it:
        ref = await it.app.pipelines.start(it.pipeline(CHAIN))
        first = await ref.result(timeout=60)
        assert (first.outcome, first.failed) == ("partial", 1)
        output = first.output or ""
        assert "<b1>" in output
        assert "<a1>" not in output
        assert len(it.prompts) == 3 + 2 + 1
        broken.clear()
        result = await (await it.app.pipelines.retry(ref.id)).result(timeout=60)
        assert result.outcome == "completed"
        assert [word in (result.output or "") for word in ("<a1>", "<b1>", "<c1>")] == [True] * 3
        # First a, Second a1 and the reduce; what was known of b and c is not asked again.
        assert len(it.prompts) == 6 + 3


async def test_a_load_node_may_ask_for_its_items(database_url: str, tmp_path: Path) -> None:
    text = """
name: Made
nodes:
  a: {kind: load, source: {type: ai, prompt: "Two birds", schema: [name]}}
  b: {kind: transform, from: a, ops: [{op: rename, from: name, to: bird}]}
"""
    birds = Model(answer=says(lambda prompt: [{"name": "owl"}, {"name": "emu"}]))
    async with world(database_url, tmp_path, birds) as it:
        result = await it.run(text)
        assert json.loads(result.output or "") == [{"bird": "owl"}, {"bird": "emu"}]


FAILING = """
name: Failing
settings: {retry: {maxRetries: 0}}
nodes:
  a: {kind: load, source: {type: inline, items: [{x: a}, {x: b}]}}
  first: {kind: map, from: a, prompt: "First {{x}}", output: [one]}
  asked: {kind: filter, from: first, rule: {type: ai, prompt: "Is {{one}} good?"}}
  named: {kind: transform, from: asked, ops: [{op: add, field: name, value: "<{{one}}>"}]}
  out: {kind: reduce, from: named, type: table}
"""


async def test_an_item_that_failed_is_handed_on_to_the_end(
    database_url: str, tmp_path: Path
) -> None:
    def answer(prompt: str) -> Any:
        if prompt.startswith("First a"):
            return Say(status=400, raw=b'{"error": {"message": "no a"}}')
        return {"one": "b1"} if prompt.startswith("First") else "yes"

    async with world(database_url, tmp_path, Model(answer=says(answer))) as it:
        result = await it.run(FAILING)
        assert (result.outcome, result.failed) == ("partial", 1)
        rows = (result.output or "").splitlines()[2:]
        assert len(rows) == 2
        assert "no a" in rows[0]
        assert "<b1>" in rows[1]
        assert sorted(prompt.split("\n")[0] for prompt in it.prompts) == [
            "First a", "First b", "Is b1 good?",
        ]  # fmt: skip


MOVING = """
name: Moving
settings: {retry: {maxRetries: 0}}
nodes:
  rows: {kind: load, source: {type: inline, items: [{w: x}, {w: y}, {w: z}]}}
  keep: {kind: filter, from: rows, rule: {type: ai, prompt: "Keep {{w}}?"}}
  ask: {kind: map, from: keep, prompt: "About {{w}}"}
  end: {kind: reduce, from: ask, type: json}
"""


async def test_a_retry_reads_results_by_content_where_items_have_moved(
    database_url: str, tmp_path: Path
) -> None:
    """The filter fails with x, then drops it: y and z are one place nearer to the front."""
    broken = {"Keep x", "About z"}

    def answer(prompt: str) -> Any:
        if any(prompt.startswith(each) for each in broken):
            return Say(status=400)
        if prompt.startswith("Keep"):
            return "no" if "x" in prompt else "yes"
        return prompt.replace("About", "told")

    def reported(output: str | None) -> dict[str, Any]:
        rows = json.loads(output or "[]")
        return {row["input"]["w"]: row["output"] for row in rows if row["success"]}

    async with world(database_url, tmp_path, Model(answer=says(answer))) as it:
        ref = await it.app.pipelines.start(it.pipeline(MOVING))
        await it.app.runs.wait(ref.id, timeout=60)
        assert (await it.app.pipelines.result(ref.id)).failed == 2
        broken.remove("Keep x")
        await it.app.pipelines.retry(ref.id)
        await it.app.runs.wait(ref.id, timeout=60)
        second = await it.app.pipelines.result(ref.id)
        assert reported(second.output) == {"y": "told y"}
        assert (second.outcome, second.processed, second.failed) == ("partial", 1, 1)
        items = {each.item["w"]: each async for each in it.app.pipelines.items(ref.id)}
        assert (items["y"].text, items["z"].status) == ("told y", "failed")
        broken.clear()
        await it.app.pipelines.retry(ref.id)
        await it.app.runs.wait(ref.id, timeout=60)
        third = await it.app.pipelines.result(ref.id)
        assert reported(third.output) == {"y": "told y", "z": "told z"}
        assert third.outcome == "completed"
        assert [each for each in it.prompts if each == "About y"] == ["About y"]


async def test_two_reduces_at_the_same_time_have_a_results_file_each(
    database_url: str, tmp_path: Path
) -> None:
    text = """
name: Two
nodes:
  left: {kind: load, source: {type: inline, items: [{a: 1}]}}
  right: {kind: load, source: {type: inline, items: [{b: 2}]}}
  l: {kind: reduce, from: left, type: ai, prompt: "Left {{RESULTS_FILE}}"}
  r: {kind: reduce, from: right, type: ai, prompt: "Right {{RESULTS_FILE}}"}
"""
    model = Model(answer=lambda asked: Say(way="wait", text="ok"))
    async with world(database_url, tmp_path, model) as it:
        ref = await it.app.pipelines.start(it.pipeline(text))

        async def both_asked() -> bool:
            return len(it.prompts) == 2

        await until(both_asked)
        paths = dict(prompt.split() for prompt in it.prompts)
        shown = {which: json.loads(Path(path).read_text()) for which, path in paths.items()}
        model.go.set()
        result = await ref.result(timeout=60)
        assert result.outcome == "completed"
        assert shown == {"Left": [{"a": 1}], "Right": [{"b": 2}]}
        assert not any(Path(path).exists() for path in paths.values())
