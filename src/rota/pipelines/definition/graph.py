"""The graph form: parents that exist, no cycles, what each kind of node needs. And its order."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from rota.core.suggest import did_you_mean
from rota.pipelines.definition.checks import (
    check_asking,
    check_call_options,
    check_fields,
    check_mapping,
    check_operand,
    check_question,
    check_reduce,
)
from rota.pipelines.definition.nodes import (
    AiNode,
    FilterNode,
    LoadNode,
    MapNode,
    MergeNode,
    Node,
    ReduceNode,
    ScriptNode,
    parents_of,
)
from rota.pipelines.definition.problems import Path, ProblemReport
from rota.pipelines.definition.rules import AiRule, AndRule, FieldRule, NodeRule, NotRule, OrRule
from rota.pipelines.definition.sources import AiSource

_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def check_graph(nodes: Mapping[str, Node], ids: Collection[str], report: ProblemReport) -> None:
    """Check the nodes that could be read; `ids` are all that the file has, also broken ones."""
    if not ids:
        report.error(("nodes",), "nodes is empty: a graph has at least one node", at_key=True)
    for node_id, node in nodes.items():
        if not _ID.fullmatch(node_id):
            report.error(
                ("nodes", node_id), f'"{node_id}" is not an id: use letters, digits, _ . -'
            )
        _check_parents(node_id, node, ids, report)
        _check_node(node, ("nodes", node_id), report)
    for cycle in cycles({each: parents_of(node) for each, node in nodes.items()}):
        detail = " → ".join([*cycle, cycle[0]])
        report.error(("nodes", cycle[0]), f"these nodes wait for each other: {detail}", at_key=True)


def _check_parents(node_id: str, node: Node, ids: Collection[str], report: ProblemReport) -> None:
    parents = parents_of(node)
    path: Path = ("nodes", node_id, "from")
    for index, parent in enumerate(parents):
        where = path if isinstance(node.parents, str) else (*path, index)
        if parent not in ids:
            report.error(where, f'no node is called "{parent}"{did_you_mean(parent, ids)}')
        elif parent in parents[:index]:
            report.error(where, f'"{parent}" is here twice')
    if isinstance(node, LoadNode):
        if parents:
            report.warning(path, "a load node takes no items; from only delays it")
    elif isinstance(node, MergeNode):
        if len(parents) < 2:
            report.error(("nodes", node_id), "a merge node needs two nodes or more in from")
    elif not parents and not isinstance(node, ScriptNode | AiNode):
        report.error(
            ("nodes", node_id), f'"{node_id}" takes items: say in from which node has them'
        )


def _check_node(node: Node, path: Path, report: ProblemReport) -> None:
    match node:
        case MapNode():
            check_mapping(node, path, report)
        case AiNode():
            check_asking(node, path, report)
        case ReduceNode():
            check_reduce(node, path, report)
        case FilterNode():
            _check_rule(node.rule, (*path, "rule"), report)
        case LoadNode(source=AiSource() as source):
            check_fields(source.schema, (*path, "source", "schema"), report, identifiers=True)
            check_call_options(source, (*path, "source"), report)
        case _:
            pass


def _check_rule(rule: NodeRule, path: Path, report: ProblemReport) -> None:
    if isinstance(rule, FieldRule):
        check_operand(rule, rule.op, path, report)
    elif isinstance(rule, AndRule | OrRule):
        if not rule.rules:
            report.error(path, "this rule holds no rules")
        for index, inner in enumerate(rule.rules):
            _check_rule(inner, (*path, "rules", index), report)
    elif isinstance(rule, NotRule):
        _check_rule(rule.rule, (*path, "rule"), report)
    elif isinstance(rule, AiRule):
        check_question(rule, path, report)


def cycles(parents: Mapping[str, list[str]]) -> list[list[str]]:
    """Every group of nodes that wait for each other, each as one path, in the order of the file."""
    groups: list[list[str]] = []
    done: set[str] = set()
    for start in parents:
        # The nodes on the way from the start, each with those of its parents that are left.
        trail = {} if start in done else {start: iter(parents[start])}
        while trail:
            node_id, rest = next(reversed(trail.items()))
            parent = next((each for each in rest if each in parents), None)
            if parent is None:
                done.add(node_id)
                del trail[node_id]
            elif parent in trail:
                way = list(trail)
                groups.append(_from_first(way[way.index(parent) :], list(parents)))
            elif parent not in done:
                trail[parent] = iter(parents[parent])
    return groups


def _from_first(trail: list[str], ids: list[str]) -> list[str]:
    """A cycle in the direction of the items, from the node that is first in the file."""
    cycle = trail[::-1]
    first = cycle.index(min(cycle, key=ids.index))
    return cycle[first:] + cycle[:first]


def order(parents: Mapping[str, list[str]]) -> list[str]:
    """The nodes so that each comes after its parents; the order of the file where it is free."""
    placed: dict[str, None] = {}
    waiting = dict(parents)
    while waiting:
        ready = [each for each, before in waiting.items() if all(p in placed for p in before)]
        if not ready:
            raise ValueError("the graph has a cycle")  # refused long before
        for each in ready:
            placed[each] = None
            del waiting[each]
    return list(placed)


def leaves(parents: Mapping[str, list[str]]) -> list[str]:
    """The nodes that no other takes items from: their items are the result."""
    used = {parent for before in parents.values() for parent in before}
    return [each for each in parents if each not in used]


def end_of(nodes: Mapping[str, Node]) -> str | None:
    """The single node at the end of a graph, or None where several are."""
    ends = leaves({node_id: parents_of(node) for node_id, node in nodes.items()})
    return ends[0] if len(ends) == 1 else None
