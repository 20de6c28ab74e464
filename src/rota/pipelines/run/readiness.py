"""The errors of a run that can be known before the first call is paid for.

The fields of items are followed from node to node, as far as the files and the definition show
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from rota.core.pipelines.templates import RESERVED, Template
from rota.errors import BadInput
from rota.pipelines.definition.compiler import INPUT, place_of, prompt_path, question_key
from rota.pipelines.definition.graph import order
from rota.pipelines.definition.loader import Loaded
from rota.pipelines.definition.model import Pipeline
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
from rota.pipelines.definition.parameters import parameters_of
from rota.pipelines.definition.placeholders import BATCH
from rota.pipelines.definition.problems import Path as KeyPath
from rota.pipelines.definition.rules import questions_of
from rota.pipelines.definition.sections import Output, OutputField
from rota.pipelines.definition.sources import (
    AiSource,
    CommandSource,
    CsvSource,
    GlobSource,
    InlineSource,
    JsonlSource,
    JsonSource,
    ParquetSource,
    SqliteSource,
    XlsxSource,
)
from rota.pipelines.run.inputs import lines_of, opened, read_items
from rota.pipelines.run.stages import RESULT
from rota.pipelines.run.tables import columns_of
from rota.pipelines.snapshot import take

Item = Mapping[str, Any]
Fields: TypeAlias = list[str] | None  # None: only the run finds them


class Obstacle(NamedTuple):
    """A reason why a run could not finish, in one sentence."""

    keys: KeyPath  # the part of the file that it is about
    message: str
    placeholder: str | None = None  # the name without a value, if that is the reason


def obstacles(
    loaded: Loaded, *, given: Mapping[str, Any] | None = None, items: Sequence[Item] | None = None
) -> list[Obstacle]:
    """The reasons why a run could not finish; empty when there is none.

    `given` and `items` are the parameters and items of the start.
    """
    pipeline = loaded.pipeline
    known = list(parameters_of(pipeline, given))
    nodes = take(loaded, items=items).nodes
    fields: dict[str, Fields] = {}
    reasons: list[Obstacle] = []
    for node_id in order({each: parents_of(node) for each, node in nodes.items()}):
        node, before = nodes[node_id], [fields[each] for each in parents_of(nodes[node_id])]
        path = prompt_path(pipeline, node_id)
        try:
            fields[node_id] = _after(node, before, loaded)
        except BadInput as error:
            fields[node_id] = None
            reasons.append(_unreadable(pipeline, node_id, error))
        place = place_of(pipeline, node_id)
        if place == INPUT:
            place = ".".join(map(str, path))  # the prompt of input.generate
        names = _names_for(node, before)
        for text in [] if names is None else _prompts(node_id, node, loaded.prompts):
            reasons += _lacking(place, path, text, [*known, *(names or ())])
    return reasons


def _unreadable(pipeline: Pipeline, node_id: str, error: BadInput) -> Obstacle:
    """A source with items that cannot be read."""
    if pipeline.nodes is None:
        return Obstacle((INPUT, "from", "path"), error.explained)
    return Obstacle(("nodes", node_id, "source", "path"), f"node {node_id}: {error.explained}")


def _prompts(node_id: str, node: Node, prompts: Mapping[str, str]) -> list[str]:
    """The prompts of a node."""
    if isinstance(node, FilterNode):
        count = len(questions_of(node.rule))
        return [prompts.get(question_key(node_id, number), "") for number in range(count)]
    source = node.source if isinstance(node, LoadNode) else None
    return [source.prompt if isinstance(source, AiSource) else prompts.get(node_id, "")]


def _names_for(node: Node, before: list[Fields]) -> Fields:
    """The names for a node's prompt beside parameters; None when only the run finds them."""
    match node:
        case MapNode() | FilterNode():
            incoming = _common(before)
            return None if incoming is None else [*incoming, *BATCH]
        case AiNode() if before:
            return ["ITEMS", "COUNT"]
        case ReduceNode():
            return list(RESERVED)
        case _:
            return []


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
            return None if None in before else [name for fields in before for name in fields or []]
        case TransformNode():
            return _transformed(_common(before), node.ops)
        case AiNode() | ReduceNode():
            return _with([], node.output)
        case ScriptNode():
            return [RESULT] if node.output == "text" else None


def _loaded(node: LoadNode, loaded: Loaded) -> Fields:
    """The fields of a source. A node that comes first may still write the file: None then."""
    if isinstance(node.source, AiSource):
        return _field_names(node.source.schema)
    warns = (node.on_error or loaded.pipeline.settings.on_error) == "warn"
    if parents_of(node) or warns:
        return None
    return _fields_of_source(node.source, loaded.folder)


def _common(before: list[Fields]) -> Fields:
    """The fields that the items of all these nodes have."""
    known = [fields for fields in before if fields is not None]
    if len(known) < len(before):
        return None
    first = known[0] if known else []
    return [name for name in first if all(name in fields for fields in known)]


def _with(incoming: Fields, output: Output) -> Fields:
    return None if incoming is None else [*incoming, *(_field_names(output) or [RESULT])]


def _transformed(fields: Fields, ops: Sequence[TransformOp]) -> Fields:
    if fields is None:
        return None
    for op in ops:
        match op:
            case SelectOp():
                fields = [each for each in fields if each in op.fields]
            case DropOp():
                fields = [each for each in fields if each not in op.fields]
            case RenameOp():
                fields = [op.to if each == op.old else each for each in fields]
            case AddOp():
                fields = [*fields, op.field]
    return fields


# -- sources ---------------------------------------------------------------------------------


def _fields_of_source(source: object, folder: Path) -> Fields:
    """The fields that every item has; BadInput when its file cannot be read."""
    match source:
        case InlineSource():
            return _common_fields(source.items) if source.items else None
        case CsvSource(has_headers=True):
            with opened(folder / source.path) as raw:
                lines = lines_of(raw, source.path, source.encoding)
                return columns_of(lines, name=source.path, delimiter=source.delimiter)
        case (
            JsonSource() | JsonlSource() | CsvSource() | XlsxSource() | ParquetSource()
            | SqliteSource()
        ):  # fmt: skip
            first = next(read_items(source, folder), None)
            return None if first is None else list(first)
        case GlobSource(content=content):
            return ["path", "name", "stem", "folder", *(["content"] if content else [])]
        case CommandSource(format="lines"):
            return ["line"]
        case _:
            return None


def _common_fields(items: Sequence[Mapping[str, Any]]) -> list[str]:
    """The fields that all of these items have."""
    return list(set.intersection(*(set(item) for item in items)))


def _field_names(fields: Sequence[str | OutputField]) -> list[str]:
    """The names of fields that are declared by name or with a type."""
    return [each if isinstance(each, str) else each.name for each in fields]


def _lacking(part: str, keys: KeyPath, prompt: str, known: Sequence[str]) -> list[Obstacle]:
    """The names without a value in the prompt of a part, which is at `keys` in the file."""
    return [
        Obstacle(
            (*keys, "prompt"),
            f"{{{{{absent.name}}}}} in the prompt of {part} has no value{absent.advice}",
            absent.name,
        )
        for absent in Template(prompt).missing(known)
    ]
