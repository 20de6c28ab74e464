"""Filters, transforms and merges without AI, parameters, and early stops of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota.core.pipelines.filter_rules import judge
from rota.errors import BadInput
from rota.pipelines.definition.compiler import graph_of
from rota.pipelines.definition.loader import Loaded
from rota.pipelines.definition.model import Filter, Pipeline
from rota.pipelines.definition.nodes import FilterNode, LoadNode, TransformOp
from rota.pipelines.definition.parameters import (
    check_given,
    parameters_of,
    read_given,
    values_for,
)
from rota.pipelines.definition.rules import tree_of_node
from rota.pipelines.definition.sources import InlineSource
from rota.pipelines.preview.validation import examined, models_of
from rota.pipelines.run import readiness
from rota.pipelines.run.transforms import merged, transformer
from rota.pipelines.snapshot import take
from tests.pipelines.kit import discover, load, write

RULES = {"rules": [{"field": "n", "operator": "gte", "value": 5}]}

WHERE = "Paths are relative to the pipeline's folder."


def ask(part: dict[str, Any], item: dict[str, Any], answer: bool | None = None) -> tuple[Any, Any]:
    node = graph_of(Pipeline(name="n", filter=msgspec.convert(part, Filter)))["filter"]
    assert isinstance(node, FilterNode)
    tree = tree_of_node(node.rule, [])
    verdict = judge(tree, item, {} if answer is None else {0: answer})
    return verdict.kept, verdict.asks


def test_a_hybrid_filter_asks_the_ai_only_about_open_items() -> None:
    both = {"type": "hybrid", "rule": RULES, "ai": {"prompt": "?"}}
    assert ask(both, {"n": "4"}) == (False, None)
    assert ask(both, {"n": "5"})[1] == 0
    assert ask(both, {"n": "5"}, True) == (True, None)
    either = both | {"combineMode": "or"}
    assert ask(either, {"n": "5"}) == (True, None)
    assert ask(either, {"n": "4"})[1] == 0
    assert ask(either, {"n": "4"}, False) == (False, None)


def test_the_other_filters() -> None:
    assert ask({"type": "rule", "rule": RULES | {"mode": "any"}}, {"n": 9}) == (True, None)
    assert ask({"type": "ai", "ai": {"prompt": "?"}}, {"n": 9})[1] == 0
    one = {"field": "a", "operator": "equals", "value": 1}
    other = {"not": {"field": "b", "operator": "in", "values": [1, 2]}}
    nested = {"rules": [{"any": [one, other]}]}
    assert ask({"type": "rule", "rule": nested}, {"a": 2, "b": 3}) == (True, None)
    assert ask({"type": "rule", "rule": nested}, {"a": 2, "b": 2}) == (False, None)


def ops(*written: dict[str, Any]) -> list[TransformOp]:
    return msgspec.convert(list(written), list[TransformOp])


@pytest.mark.parametrize(
    ("op", "item"),
    [
        ({"op": "select", "fields": ["b", "z"]}, {"b": 2}),
        ({"op": "drop", "fields": ["a", "z"]}, {"b": 2}),
        ({"op": "rename", "from": "a", "to": "x"}, {"x": 1, "b": 2}),
        ({"op": "rename", "from": "a", "to": "b"}, {"b": 1}),
        ({"op": "rename", "from": "z", "to": "b"}, {"a": 1, "b": 2}),
        ({"op": "add", "field": "c", "value": "{{a}}-{{p}}"}, {"a": 1, "b": 2, "c": "1-q"}),
    ],
)
def test_a_transform(op: dict[str, Any], item: dict[str, Any]) -> None:
    assert transformer(ops(op), {"p": "q"})({"a": 1, "b": 2}) == item


def test_a_transform_that_lacks_a_value_says_so() -> None:
    with pytest.raises(BadInput, match=r"\{\{z\}\}"):
        transformer(ops({"op": "add", "field": "c", "value": "{{z}}"}), {})({"a": 1})


def test_merging() -> None:
    one, two = [{"a": 1, "x": 1}, {"a": 2}], [{"b": 1, "x": 2}]
    assert list(merged([one, two], "concat")) == [*one, *two]
    assert list(merged([one, two], "zip")) == [{"a": 1, "b": 1, "x": 2}]


PARAMETERS = """
name: n
parameters: [{name: who, value: top}, {name: where, value: top}, {name: when, value: top}]
input:
  items: [{who: item}]
  parameters: {who: input, where: input}
map: {prompt: "{{who}} {{where}} {{when}}"}
reduce: {type: list}
"""


def test_the_nearest_parameter_wins_and_the_item_over_all(tmp_path: Path) -> None:
    pipeline = load(tmp_path / "p", PARAMETERS).pipeline
    assert parameters_of(pipeline) == {"who": "input", "where": "input", "when": "top"}
    merged_values = parameters_of(pipeline, {"when": "given", "where": "given"})
    assert merged_values == {"who": "input", "where": "given", "when": "given"}
    seen = values_for({"who": "item"}, merged_values, {"COUNT": 1})
    assert seen == {"who": "item", "where": "given", "when": "given", "COUNT": 1}
    assert check_given({"hwo": 1}, pipeline, []) == [
        'nothing in the pipeline uses the parameter "hwo"; did you mean "who"?'
    ]


def test_parameters_of_a_command_line() -> None:
    assert read_given(["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}
    for bad in ("a", "=1", "COUNT=3"):
        with pytest.raises(BadInput):
            read_given([bad])


CSV = """
name: n
input: {from: {type: csv, path: b.csv}}
map: {prompt: "{{title}} {{who}}"}
reduce: {type: ai, prompt: "{{RESULTS}} of {{COUNT}} for {{who}}"}
"""


def obstacles(loaded: Loaded, **start: Any) -> list[str]:
    return [each.message for each in readiness.obstacles(loaded, **start)]


def test_what_stops_a_run_is_known_before_it_begins(tmp_path: Path) -> None:
    loaded = load(tmp_path / "p", CSV)
    assert obstacles(loaded, given={"who": "me"}) == [
        f"{tmp_path / 'p' / 'b.csv'} cannot be read: No such file or directory. {WHERE}"
    ]
    (tmp_path / "p" / "b.csv").write_bytes("Größe,x\n1,2\n".encode("latin-1"))
    [said] = obstacles(loaded, given={"who": "me"})
    assert said.startswith("b.csv: not utf-8 near line 1. Save the file as UTF-8, or name its")
    (tmp_path / "p" / "b.csv").write_text("titel,x\n1,2\n")
    assert obstacles(loaded) == [
        '{{title}} in the prompt of map has no value; did you mean "titel"?',
        "{{who}} in the prompt of map has no value",
        "{{who}} in the prompt of reduce has no value",
    ]
    (tmp_path / "p" / "b.csv").write_text("title\n")
    assert obstacles(loaded, given={"who": "me"}) == []


GENERATED = """
name: n
input: {generate: {prompt: "Think of {{TOPIC}}", schema: [title]}}
map: {prompt: "{{title}}"}
reduce: {type: list}
"""


def test_a_name_without_a_value_in_the_prompt_that_generates_items_is_reported(
    tmp_path: Path,
) -> None:
    loaded = load(tmp_path / "p", GENERATED)
    assert obstacles(loaded) == ["{{TOPIC}} in the prompt of input.generate has no value"]
    assert obstacles(loaded, given={"TOPIC": "tea"}) == []
    assert obstacles(loaded, items=[{"title": "x"}]) == []
    [place] = [
        each.position for each in examined(tmp_path / "p").problems if "TOPIC" in each.message
    ]
    assert (place.line, place.column) == (2, 28)


GRAPH = """
name: n
nodes:
  idea: {kind: load, source: {type: ai, prompt: "About {{TOPIC}}", schema: [title]}}
  rows: {kind: load, source: {type: csv, path: rows.csv}}
  slim: {kind: transform, from: rows, ops: [{op: drop, fields: [b]}, {op: add, field: c, value: x}]}
  ask: {kind: map, from: slim, prompt: "{{a}} {{b}} {{c}}", output: [grade]}
  both: {kind: merge, from: [idea, ask]}
  again: {kind: map, from: ask, prompt: "{{grade}} {{title}}"}
  end: {kind: reduce, from: [both, again], type: ai, prompt: "{{RESULTS}} {{WHO}}"}
"""


def test_what_stops_a_graph_is_known_before_its_first_call_is_paid(tmp_path: Path) -> None:
    loaded = load(tmp_path / "p", GRAPH)
    missing = "node rows: " + str(tmp_path / "p" / "rows.csv")
    prompts = [
        "{{TOPIC}} in the prompt of node idea has no value",
        "{{WHO}} in the prompt of node end has no value",
    ]
    said = obstacles(loaded)
    assert [text for text in said if text not in prompts] == [
        f"{missing} cannot be read: No such file or directory. {WHERE}"
    ]
    (tmp_path / "p" / "rows.csv").write_text("a,b\n1,2\n")
    said = obstacles(loaded, given={"TOPIC": "tea", "WHO": "me"})
    assert said == [
        "{{b}} in the prompt of node ask has no value",
        "{{title}} in the prompt of node again has no value",
    ]
    lines = [
        problem.position.line for problem in examined(tmp_path / "p", {"TOPIC": "tea"}).problems
    ]
    assert lines == [6, 8, 9]


ASKING = """
name: n
nodes:
  rows: {kind: load, source: {type: csv, path: rows.csv}}
  keep:
    kind: filter
    from: rows
    rule:
      type: or
      rules:
        - {type: ai, prompt: "Is {{a}} like {{WHO}}?", model: "offline:one"}
        - {type: not, rule: {type: ai, prompt: "Is {{ITEMS}} or {{typo}} bad?"}}
  end: {kind: reduce, from: keep, type: list}
"""


def test_the_questions_of_filter_rules_are_checked_before_the_run(tmp_path: Path) -> None:
    loaded = load(tmp_path / "p", ASKING)
    (tmp_path / "p" / "rows.csv").write_text("a,b\n1,2\n")
    assert obstacles(loaded, given={"WHO": "me"}) == [
        "{{typo}} in the prompt of node keep has no value"
    ]
    assert obstacles(loaded) == [
        "{{WHO}} in the prompt of node keep has no value",
        "{{typo}} in the prompt of node keep has no value",
    ]
    reported = examined(tmp_path / "p", {"WHO": "me", "typo": "x"})
    assert reported.problems == []  # both names are asked for
    assert models_of(loaded.pipeline, loaded.prompts) == ["offline:one", ""]


def test_the_model_of_a_load_node_that_makes_items_is_checked_before_the_run(
    tmp_path: Path,
) -> None:
    text = """
name: n
nodes:
  rows: {kind: load, source: {type: ai, prompt: "Give towns", schema: [town], model: "offline:two"}}
  end: {kind: reduce, from: rows, type: list}
"""
    loaded = load(tmp_path / "p", text)
    assert models_of(loaded.pipeline, loaded.prompts) == ["offline:two"]


def test_a_file_that_a_node_before_may_write_is_left_to_the_run(tmp_path: Path) -> None:
    text = """
name: n
nodes:
  make: {kind: script, run: "echo a > rows.csv"}
  rows: {kind: load, from: make, source: {type: csv, path: rows.csv}}
  maybe: {kind: load, onError: warn, source: {type: csv, path: other.csv}}
  ask: {kind: map, from: [rows, maybe], prompt: "{{a}}"}
"""
    assert obstacles(load(tmp_path / "p", text)) == []


def test_given_items_are_looked_at_too(tmp_path: Path) -> None:
    text = CSV.replace("from: {type: csv, path: b.csv}", "items: []")
    loaded = load(tmp_path / "p", text)
    assert obstacles(loaded, given={"who": 1}, items=[{"title": 1}]) == []
    assert obstacles(loaded, given={"who": 1}, items=[{"title": 1}, {}]) == [
        "{{title}} in the prompt of map has no value"
    ]


def test_given_items_take_the_place_of_those_of_the_file(tmp_path: Path) -> None:
    for listed in ("[]", "[{title: 1}]"):
        text = CSV.replace("from: {type: csv, path: b.csv}", f"items: {listed}")
        node = take(load(tmp_path / "p", text), items=[{"b": 2}]).nodes["input"]
        assert isinstance(node, LoadNode)
        assert node.source == InlineSource(items=[{"b": 2}])


def test_pipelines_that_wait_for_nobody_or_for_each_other(tmp_path: Path) -> None:
    def waiting(name: str, after: str) -> None:
        write(
            tmp_path / name,
            f"name: {name}\nschedule: {{cron: '@daily', after: {after}}}\njob: {{prompt: x}}\n",
        )

    for name, after in (("fetch", "[]"), ("report", "fetsch"), ("a", "b"), ("b", "a")):
        waiting(name, after)
    a, b, fetch, report = discover(tmp_path)
    assert fetch.problems == []
    assert report.loaded is not None
    [unknown] = report.problems
    assert str(unknown).endswith(
        ':2:35: warning: schedule.after: no pipeline is called "fetsch"; did you mean "fetch"?'
    )
    for each in (a, b):
        assert each.loaded is None
        assert each.problems[0].message == "these pipelines wait for each other: a → b → a"
