"""The errors of a graph that can be known before its first call is paid for.

Follows the fields of items from node to node, as far as the files and the definition tell them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rota.core.pipelines.templates import RESERVED
from rota.errors import BadInput
from rota.pipelines.definition.graph import order
from rota.pipelines.definition.loader import Loaded
from rota.pipelines.definition.nodes import (
    AddOp,
    AiNode,
    DropOp,
    FilterNode,
    LoadNode,
    MapNode,
    MergeNode,
    Node,
    ReduceNode,
    RenameOp,
    ScriptNode,
    SelectOp,
    TransformNode,
    TransformOp,
    parents_of,
)
from rota.pipelines.definition.placeholders import BATCH
from rota.pipelines.definition.rules import questions_of
from rota.pipelines.definition.sections import Output
from rota.pipelines.definition.sources import AiSource
from rota.pipelines.run.source_fields import Fields, field_names, fields_of_source, lacking

RESULT = "result"


def graph_obstacles(loaded: Loaded, known: Sequence[str]) -> list[str]:
    """Why a graph could not come to its end; `known` are the names of parameters."""
    nodes = loaded.pipeline.nodes or {}
    fields: dict[str, Fields] = {}
    found: list[str] = []
    for node_id in order({each: parents_of(node) for each, node in nodes.items()}):
        node = nodes[node_id]
        try:
            fields[node_id] = _after(node, [fields[each] for each in parents_of(node)], loaded)
        except BadInput as error:
            fields[node_id] = None
            found.append(f"node {node_id}: {error.message}")
        names = _names_for(node, [fields[each] for each in parents_of(node)])
        for text in [] if names is None else _prompts(node_id, node, loaded.prompts):
            found += lacking(f"node {node_id}", text, [*known, *(names or ())])
    return found


def _prompts(node_id: str, node: Node, prompts: Mapping[str, str]) -> list[str]:
    if isinstance(node, FilterNode):
        return [each.prompt for each in questions_of(node.rule)]
    source = node.source if isinstance(node, LoadNode) else None
    return [source.prompt if isinstance(source, AiSource) else prompts.get(node_id, "")]


def _names_for(node: Node, before: list[Fields]) -> Fields:
    """The names that a node's prompt may use beside parameters; None when only the run tells."""
    if isinstance(node, MapNode | FilterNode):
        incoming = _common(before)
        return None if incoming is None else [*incoming, *BATCH]
    return ["ITEMS", "COUNT"] if isinstance(node, AiNode) else list(RESERVED)


def _after(node: Node, before: list[Fields], loaded: Loaded) -> Fields:
    """The fields that every item has which comes out of a node."""
    match node:
        case LoadNode():
            return _loaded(node, loaded)
        case FilterNode() | ScriptNode(output="passthrough") | MergeNode(strategy="concat"):
            return _common(before)
        case MapNode():
            return _with(_common(before), node.output)
        case MergeNode():
            return None if None in before else [name for one in before for name in one or []]
        case TransformNode():
            return _transformed(_common(before), node.ops)
        case AiNode() | ReduceNode():
            return _with([], node.output)
        case ScriptNode():
            return [RESULT] if node.output == "text" else None


def _loaded(node: LoadNode, loaded: Loaded) -> Fields:
    """A file may still be written by a node that comes first; then only the run tells."""
    if isinstance(node.source, AiSource):
        return field_names(node.source.schema)
    warns = (node.on_error or loaded.pipeline.settings.on_error) == "warn"
    if parents_of(node) or warns:
        return None
    return fields_of_source(node.source, loaded.folder)


def _common(before: list[Fields]) -> Fields:
    if None in before:
        return None
    several = [one for one in before if one is not None]
    return [name for name in several[0] if all(name in one for one in several)] if several else []


def _with(incoming: Fields, output: Output) -> Fields:
    return None if incoming is None else [*incoming, *(field_names(output) or [RESULT])]


def _transformed(fields: Fields, ops: Sequence[TransformOp]) -> Fields:
    for op in ops:
        match op:
            case SelectOp():
                fields = None if fields is None else [each for each in fields if each in op.fields]
            case DropOp():
                fields = None if fields is None else [e for e in fields if e not in op.fields]
            case RenameOp():
                fields = None if fields is None else [op.to if e == op.old else e for e in fields]
            case AddOp():
                fields = None if fields is None else [*fields, op.field]
    return fields
