"""The dry run of the graph form: node by node, as far as the items can be known."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeGuard

from rota.core.pipelines import filter_rules
from rota.errors import BadInput
from rota.pipelines.definition.graph import order
from rota.pipelines.definition.model import Input
from rota.pipelines.definition.nodes import (
    AiNode,
    FilterNode,
    LoadNode,
    MapNode,
    MergeNode,
    Node,
    ReduceNode,
    ScriptNode,
    TransformNode,
    parents_of,
)
from rota.pipelines.definition.rules import questions_of, tree_of_node
from rota.pipelines.definition.sections import AiSection
from rota.pipelines.definition.sources import AiSource, InlineSource
from rota.pipelines.preview.dry_run import Item, PromptPreview, known_items
from rota.pipelines.run.transforms import merged, transformed

# The result of a node: items, or only their number (at most), or None when it is unknown.
Flow = list[Item] | int | None


async def walk(preview: PromptPreview, nodes: Mapping[str, Node]) -> None:
    """Every node after its parents."""
    flows: dict[str, Flow] = {}
    for node_id in order({each: parents_of(node) for each, node in nodes.items()}):
        node = nodes[node_id]
        before = [flows[parent] for parent in parents_of(node)]
        flows[node_id] = await _after(preview, node_id, node, before)


async def _after(preview: PromptPreview, node_id: str, node: Node, before: list[Flow]) -> Flow:
    together = _together(before)
    match node:
        case LoadNode():
            return await _loaded(preview, node_id, node)
        case FilterNode():
            return _filtered(preview, node_id, node, together)
        case MapNode():
            return _mapped(preview, node_id, node, together)
        case ReduceNode() | AiNode():
            return _one(preview, node_id, node, together)
        case MergeNode(strategy=strategy):
            return _merged(before, strategy)
        case TransformNode(ops=ops):
            flow = together
            return list(transformed(flow, ops, preview.parameters)) if _is_known(flow) else flow
        case ScriptNode(output=output):
            if output != "passthrough":
                preview.forecast.note(
                    f"{node_id}: the script was not run; what it gives is not known"
                )
            return together if output == "passthrough" else None


def _is_known(flow: Flow) -> TypeGuard[list[Item]]:
    return isinstance(flow, list)


def _merged(before: list[Flow], strategy: str) -> Flow:
    known = [flow for flow in before if _is_known(flow)]
    if len(known) == len(before):
        return list(merged(known, strategy))
    return _least(before) if strategy == "zip" else _together(before)


async def _loaded(preview: PromptPreview, node_id: str, node: LoadNode) -> Flow:
    source = node.source
    if isinstance(source, AiSource):
        preview.generation(node_id, source)
        return node.limit
    if isinstance(source, InlineSource):
        part = Input(source=source.items, offset=node.offset, limit=node.limit)
    else:
        part = Input(source=source, offset=node.offset, limit=node.limit)
    items = known_items(preview, part)
    if items is None:
        return node.limit
    found = [item async for item in items]
    preview.forecast.items = (preview.forecast.items or 0) + len(found)
    return found


def _filtered(preview: PromptPreview, node_id: str, node: FilterNode, flow: Flow) -> Flow:
    questions = [
        AiSection(prompt=each.prompt, model=each.model, **each.call_options)
        for each in questions_of(node.rule)
    ]
    if not isinstance(flow, list):
        if questions:
            _open(preview, node_id)
        return flow
    tree = tree_of_node(node.rule)
    kept: list[Item] = []
    for number, item in enumerate(flow, start=1):
        verdict = filter_rules.judge(tree, item)
        if verdict.asks is not None:
            asked = questions[verdict.asks]
            preview.question(node_id, preview.asking("", asked).for_decision(item), number)
            preview.forecast.note("an AI filter is taken to keep every item it is asked about")
        if verdict.kept or verdict.asks is not None:
            kept.append(item)
    return kept


def _mapped(preview: PromptPreview, node_id: str, node: MapNode, flow: Flow) -> Flow:
    size = node.batch_size
    if not isinstance(flow, list):
        times = 1 if flow is None else -(-flow // size)
        if times:
            preview.open_question(node_id, node, times, size if size > 1 else None)
        _open(preview, node_id, known=flow is not None)
        return flow
    asking = preview.asking(node_id, node)
    for begin in range(0, len(flow), size):
        try:
            made = asking.for_item(flow[begin]) if size == 1 else asking.for_batch(
                flow[begin : begin + size])  # fmt: skip
            preview.question(node_id, made, begin + 1)
        except BadInput as error:
            preview.forecast.note(f"{node_id}, item {begin + 1}: {error.message}")
    return len(flow)  # the model decides what its fields will hold


def _one(preview: PromptPreview, node_id: str, node: ReduceNode | AiNode, flow: Flow) -> Flow:
    if isinstance(node, ReduceNode) and node.strategy != "ai":
        return 1
    count = len(flow) if isinstance(flow, list) else flow or 1
    counts: dict[str, object] = {} if flow is None else {
        "COUNT": count, "SUCCESS_COUNT": count, "FAILURE_COUNT": 0,
    }  # fmt: skip
    if isinstance(flow, list):
        listed = json.dumps(flow, ensure_ascii=False)
        filled = {**counts, "ITEMS": listed, "RESULTS": listed}
        preview.question(node_id, preview.asking(node_id, node).without_item(filled))
    else:
        preview.open_results(node_id, node, {**preview.parameters, **counts}, count)
        _open(preview, node_id, known=flow is not None)
    return 1


def _open(preview: PromptPreview, node_id: str, *, known: bool = False) -> None:
    share = preview.forecast.share(node_id)
    share.is_bound, share.is_open = known, not known
    if not known:
        preview.forecast.note(f"{node_id}: how many items reach it is not known; counted is one")


def _together(before: list[Flow]) -> Flow:
    """The items of all parents, one after the other."""
    if len(before) == 1:
        return before[0]
    if any(flow is None for flow in before):
        return None
    if all(isinstance(flow, list) for flow in before):
        return [item for flow in before if isinstance(flow, list) for item in flow]
    return sum(len(flow) if isinstance(flow, list) else flow or 0 for flow in before)


def _least(before: list[Flow]) -> Flow:
    counts = [len(flow) if isinstance(flow, list) else flow for flow in before]
    known = [each for each in counts if each is not None]
    return min(known) if len(known) == len(counts) else None
