"""The linear form as a graph: input, filter, map and reduce, or a job, are nodes like others.

Everything that reads or executes a pipeline sees nodes only, so both forms do the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from rota.pipelines.definition.model import Filter, Input, Pipeline
from rota.pipelines.definition.nodes import (
    AiNode,
    FilterNode,
    LoadNode,
    MapNode,
    Node,
    ReduceNode,
    parents_of,
)
from rota.pipelines.definition.problems import Path
from rota.pipelines.definition.rules import (
    AiRule,
    AndRule,
    FieldRule,
    NodeRule,
    NotRule,
    OrRule,
    Rule,
)
from rota.pipelines.definition.sources import AiSource, InlineSource, LoadSource

INPUT, FILTER, MAP, REDUCE, JOB = "input", "filter", "map", "reduce", "job"
T = TypeVar("T", bound=msgspec.Struct)


def graph_of(pipeline: Pipeline) -> dict[str, Node]:
    """The nodes of a pipeline in either form; those of the linear form have the names of its keys.

    A part that the file lacks, or that is broken there, is not among them.
    """
    if pipeline.nodes is not None:
        return pipeline.nodes
    nodes: dict[str, Node] = {}
    if pipeline.job is not None:
        nodes[JOB] = _placed(AiNode, pipeline.job, [])
    if pipeline.input is not None:
        nodes[INPUT] = _load(pipeline.input)
    if pipeline.filter is not None:
        rule = _rule(pipeline.filter)
        if rule is not None:
            nodes[FILTER] = FilterNode(parents=_last(nodes), on_error="abort", rule=rule)
    if pipeline.map is not None:
        nodes[MAP] = _placed(MapNode, pipeline.map, _last(nodes))
    if pipeline.reduce is not None:
        nodes[REDUCE] = _placed(ReduceNode, pipeline.reduce, _last(nodes))
    return nodes


def place_of(pipeline: Pipeline, node_id: str) -> str:
    """The words for a node in messages: `map`, or `node looked`."""
    return node_id if pipeline.nodes is None else f"node {node_id}"


def prompt_path(pipeline: Pipeline, node_id: str) -> Path:
    """The keys of the file under which the prompt of a node is written."""
    if pipeline.nodes is not None:
        return ("nodes", node_id)
    inner: dict[str, Path] = {INPUT: (INPUT, "generate"), FILTER: (FILTER, "ai")}
    return inner.get(node_id, (node_id,))


def question_key(node_id: str, number: int) -> str:
    """The place of the prompt of a filter's question: the first one has that of its node."""
    return node_id if number == 0 else f"{node_id}:{number}"


def reduced_in_place(nodes: Mapping[str, Node], node_id: str) -> bool:
    """Whether only reduces take the results of a map, each from it alone. They read its records, so
    that no list holds the results again."""
    after = [parents_of(node) for node in nodes.values() if node_id in parents_of(node)]
    only_reduces = all(
        isinstance(node, ReduceNode) for node in nodes.values() if node_id in parents_of(node)
    )
    return bool(after) and only_reduces and all(len(parents) == 1 for parents in after)


def asked_before(nodes: Mapping[str, Node], node_id: str) -> bool:
    """Whether a map, or another call over items, comes before a node."""
    return any(
        isinstance(nodes[parent], MapNode | AiNode | ReduceNode) or asked_before(nodes, parent)
        for parent in parents_of(nodes[node_id])
    )


# -- the parts of the linear form ----------------------------------------------------------


def _last(nodes: Mapping[str, Node]) -> list[str]:
    return list(nodes)[-1:]


def _fields(section: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(section, name) for name in section.__struct_fields__}


def _placed(kind: type[T], section: msgspec.Struct, parents: list[str]) -> T:
    """A section as a node. `settings.onError` is for graphs: a failed part ends the run."""
    return kind(**_fields(section), parents=parents, on_error="abort")


def _load(section: Input) -> LoadNode:
    source: LoadSource
    if section.generate is not None:
        source = AiSource(**{n: getattr(section.generate, n) for n in AiSource.__struct_fields__})
    elif section.source is not None and not isinstance(section.source, list):
        source = section.source
    else:
        listed = section.source if isinstance(section.source, list) else section.items
        source = InlineSource(items=listed or [])
    return LoadNode(
        source=source, offset=section.offset, limit=section.limit, sample=section.sample,
        on_error="abort",
    )  # fmt: skip


def _rule(section: Filter) -> NodeRule | None:
    """A filter as one rule. The rules are looked at before the AI is asked, and paid."""
    parts: list[NodeRule] = []
    if section.rule is not None and section.type != "ai":
        inner = [_node_rule(each) for each in section.rule.rules]
        parts.append(AndRule(rules=inner) if section.rule.mode == "all" else OrRule(rules=inner))
    if section.ai is not None and section.type != "rule":
        parts.append(AiRule(**_fields(section.ai)))
    if len(parts) < 2:
        return parts[0] if parts else None
    return AndRule(rules=parts) if section.combine_mode == "and" else OrRule(rules=parts)


def _node_rule(rule: Rule) -> NodeRule:
    if rule.all is not None:
        return AndRule(rules=[_node_rule(each) for each in rule.all])
    if rule.any is not None:
        return OrRule(rules=[_node_rule(each) for each in rule.any])
    if rule.negated is not None:
        return NotRule(rule=_node_rule(rule.negated))
    return FieldRule(
        field=rule.field or "?", op=rule.operator or "equals", value=rule.value,
        values=rule.values, pattern=rule.pattern,
    )  # fmt: skip
