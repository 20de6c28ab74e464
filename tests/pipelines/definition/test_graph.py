"""The graph form: what is refused, and the order in which its nodes come."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.pipelines.filter_rules import judge
from rota.pipelines.definition.graph import cycles, leaves, order
from rota.pipelines.definition.nodes import FilterNode, MapNode, parents_of
from rota.pipelines.definition.rules import AiRule, tree_of_node
from tests.pipelines.kit import load, problem_lines
from tests.pipelines.kit.documents import (
    WHOLE,
)


def test_a_graph_with_every_kind_of_node_loads(tmp_path: Path) -> None:
    loaded = load(tmp_path / "p", WHOLE)
    assert loaded.warnings == []
    nodes = loaded.pipeline.nodes
    assert nodes is not None
    assert loaded.pipeline.mode == "graph"
    assert isinstance(nodes["looked"], MapNode)
    parents = {each: parents_of(node) for each, node in nodes.items()}
    assert order(parents) == [
        "commits", "rows", "kept", "looked", "both", "plain", "listed", "said",
    ]  # fmt: skip
    assert leaves(parents) == ["listed", "said"]
    assert loaded.prompts == {
        "kept": "Is {{name}} nice?", "looked": "Look at {{name}}", "said": "Sum up {{ITEMS}}",
    }  # fmt: skip


CASES = {
    "no nodes": ("nodes: {}\n", ["2:1 nodes is empty: a graph has at least one node"]),
    "nodes beside a map": (
        "map: {prompt: '{{x}}'}\nnodes: {a: {kind: script, run: ls}}\n",
        ["2:1 map and nodes exclude each other; choose one"],
    ),
    "an unknown type": (
        "nodes: {a: {kind: laod}}\n",
        [
            (
                '2:19 nodes.a.kind: "laod" is not one of load, script, filter, map, reduce, merge, '
                'transform, ai; did you mean "load"?'
            )
        ],
    ),
    "no type": (
        "nodes: {a: {run: ls}}\n",
        [
            (
                '2:12 nodes.a: "kind" is missing; one of load, script, filter, map, reduce, merge, '
                "transform, ai"
            )
        ],
    ),
    "an unknown parent": (
        "nodes: {rows: {kind: script, run: ls}, b: {kind: map, prompt: x, from: [rosw]}}\n",
        ['2:73 no node is called "rosw"; did you mean "rows"?'],
    ),
    "a merge of one": (
        "nodes: {a: {kind: script, run: ls}, b: {kind: merge, from: [a]}}\n",
        ["2:40 a merge node needs two nodes or more in from"],
    ),
    "a map without items": (
        "nodes: {b: {kind: map, prompt: x}}\n",
        ['2:12 "b" takes items: say in from which node has them'],
    ),
    "a load after something": (
        (
            "nodes:\n  a: {kind: script, run: ls}\n"
            "  b: {kind: load, from: a, source: {type: inline, items: []}}\n"
        ),
        ["warning 4:25 a load node takes no items; from only delays it"],
    ),
    "a cycle, a stranger and a promptless node, all at once": (
        (
            "nodes:\n  a: {kind: map, from: c, prompt: x}\n  b: {kind: map, from: a, prompt: x}\n"
            "  c: {kind: map, from: b}\n  d: {kind: reduce, type: json, from: z}\n"
        ),
        [
            "3:3 these nodes wait for each other: a → b → c → a",
            "5:3 nodes.c has no prompt: give prompt or promptFile",
            '6:39 no node is called "z"',
        ],
    ),
    "a node that waits for itself": (
        "nodes: {a: {kind: map, from: a, prompt: x}}\n",
        ["2:9 these nodes wait for each other: a → a"],
    ),
    "a broken node does not make its children strange": (
        "nodes: {a: {kind: script, rnu: ls}, b: {kind: map, from: a, prompt: x}}\n",
        ['2:27 nodes.a: unknown key "rnu"; did you mean "run"?'],
    ),
    "a rule without rules": (
        (
            "nodes: {a: {kind: script, run: ls}, "
            "b: {kind: filter, from: a, rule: {type: or, rules: []}}}\n"
        ),
        ["2:70 this rule holds no rules"],
    ),
}


@pytest.mark.parametrize("what", CASES)
def test_a_graph_is_reported_about(tmp_path: Path, what: str) -> None:
    text, said = CASES[what]
    assert problem_lines(tmp_path / "p", f"name: n\n{text}") == said


def test_the_questions_of_a_rule_are_numbered(tmp_path: Path) -> None:
    nodes = load(tmp_path / "p", WHOLE).pipeline.nodes
    assert nodes is not None
    node = nodes["kept"]
    assert isinstance(node, FilterNode)
    asked: list[AiRule] = []
    tree = tree_of_node(node.rule, asked)
    assert [each.prompt for each in asked] == ["Is {{name}} nice?"]
    assert judge(tree, {"size": "2", "name": "a"}).asks is None  # nothing is paid for it
    assert judge(tree, {"size": "4", "name": "a"}).asks == 0
    assert judge(tree, {"size": "4", "name": "a"}, {0: True}).kept


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from("abcdefg"), st.lists(st.sampled_from("abcdefg"))))
def test_a_graph_has_an_order_exactly_when_it_has_no_cycle(parents: dict[str, list[str]]) -> None:
    known = {each: [p for p in before if p in parents] for each, before in parents.items()}
    found = cycles(known)
    for cycle in found:
        for one, after in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
            assert one in known[after]
    if found:
        with pytest.raises(ValueError, match="cycle"):
            order(known)
        return
    placed = order(known)
    for each, before in known.items():
        assert all(placed.index(parent) < placed.index(each) for parent in before)
