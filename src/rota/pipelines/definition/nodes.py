"""The graph form: eight kinds of nodes, each with what comes before it."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from rota.net.subprocesses import PassEnv
from rota.pipelines.definition.rules import NodeRule
from rota.pipelines.definition.sections import (
    Job,
    MapStep,
    Natural,
    OnError,
    Positive,
    ReduceStep,
    Sample,
    Section,
)
from rota.pipelines.definition.sources import LoadSource

Meta = msgspec.Meta

Parents: TypeAlias = Annotated[
    list[str] | str, Meta(description="The nodes that pass their items to this one, in this order.")
]
Label: TypeAlias = Annotated[str | None, Meta(description="The display name instead of the id.")]
Failing: TypeAlias = Annotated[
    OnError | None,
    Meta(
        description="abort ends the run, warn continues without items; default: settings.onError."
    ),
]


class GraphNode(Section, frozen=True, kw_only=True):
    """The place in the graph of a node without an AI."""

    parents: Parents = msgspec.field(default_factory=list, name="from")
    label: Label = None
    on_error: Failing = None


class LoadNode(GraphNode, frozen=True, kw_only=True, tag="load", tag_field="kind"):
    """Reads items."""

    source: Annotated[LoadSource, Meta(description="The source of items.")]
    offset: Annotated[Natural, Meta(description="Skip this many items at the start.")] = 0
    limit: Annotated[Natural | None, Meta(description="Take at most this many items.")] = None
    sample: Annotated[
        Sample | None, Meta(description="A seeded random choice, after offset and limit.")
    ] = None


class ScriptNode(GraphNode, frozen=True, kw_only=True, tag="script", tag_field="kind"):
    """Runs a command over the items."""

    run: Annotated[str, Meta(min_length=1, description="The command line, for the shell.")]
    args: Annotated[list[str], Meta(description="Further arguments, passed unchanged.")] = (
        msgspec.field(default_factory=list)
    )
    env: Annotated[dict[str, str], Meta(description="Variables for its environment.")] = (
        msgspec.field(default_factory=dict)
    )
    pass_env: PassEnv = msgspec.field(default_factory=list)
    cwd: Annotated[str | None, Meta(description="Its folder; relative to the pipeline's.")] = None
    timeout_ms: Annotated[Positive, Meta(description="Milliseconds until it is killed.")] = 60_000
    input: Annotated[
        Literal["json", "csv", "none"],
        Meta(description="Format of the items on its standard input."),
    ] = "none"
    output: Annotated[
        Literal["json", "csv", "text", "passthrough"],
        Meta(description="How to read its output. json: one list; passthrough: the same items."),
    ] = "passthrough"
    shell: Annotated[
        Literal["default", "powershell", "bash"], Meta(description="The shell to use.")
    ] = "default"


class FilterNode(GraphNode, frozen=True, kw_only=True, tag="filter", tag_field="kind"):
    """Keeps the items that a rule is true for."""

    rule: Annotated[NodeRule, Meta(description="The rule; and, or, not and ai may be nested.")]


# A section of the file with a place in the graph. (A struct has one base only, so the three keys of
# `GraphNode` are declared again.)


class MapNode(MapStep, frozen=True, kw_only=True, tag="map", tag_field="kind"):
    """One AI call for each item or batch; its fields (or `result`), or `$error`, join the item."""

    parents: Parents = msgspec.field(default_factory=list, name="from")
    label: Label = None
    on_error: Failing = None


class ReduceNode(ReduceStep, frozen=True, kw_only=True, tag="reduce", tag_field="kind"):
    """All items into one, with the text in `result`; alone at the end, its text is the output."""

    parents: Parents = msgspec.field(default_factory=list, name="from")
    label: Label = None
    on_error: Failing = None


class AiNode(Job, frozen=True, kw_only=True, tag="ai", tag_field="kind"):
    """One AI call over all items ({{ITEMS}}); one item comes out, with its fields or `result`."""

    parents: Parents = msgspec.field(default_factory=list, name="from")
    label: Label = None
    on_error: Failing = None


class MergeNode(GraphNode, frozen=True, kw_only=True, tag="merge", tag_field="kind"):
    """The items of several nodes as one list."""

    strategy: Annotated[
        Literal["concat", "zip"],
        Meta(
            description="One after the other; or side by side, as far as the shortest (a longer one"
            " is a warning). Later parents override fields."
        ),
    ] = "concat"


class SelectOp(Section, frozen=True, kw_only=True, tag="select", tag_field="op"):
    """Keeps only these fields."""

    fields: Annotated[list[str], Meta(min_length=1, description="The fields to keep.")]


class DropOp(Section, frozen=True, kw_only=True, tag="drop", tag_field="op"):
    """Removes these fields."""

    fields: Annotated[list[str], Meta(min_length=1, description="The fields to remove.")]


class RenameOp(Section, frozen=True, kw_only=True, tag="rename", tag_field="op"):
    """Gives a field another name."""

    old: Annotated[str, Meta(min_length=1, description="The field.")] = msgspec.field(name="from")
    to: Annotated[str, Meta(min_length=1, description="Its new name.")]


class AddOp(Section, frozen=True, kw_only=True, tag="add", tag_field="op"):
    """Adds a field, or replaces it."""

    field: Annotated[str, Meta(min_length=1, description="The field.")]
    value: Annotated[str, Meta(description="Its value, with {{placeholders}}.")]


TransformOp: TypeAlias = SelectOp | DropOp | RenameOp | AddOp


class TransformNode(GraphNode, frozen=True, kw_only=True, tag="transform", tag_field="kind"):
    """Changes the fields of each item."""

    ops: Annotated[
        list[TransformOp], Meta(min_length=1, description="The operations, in this order.")
    ]


Node: TypeAlias = (
    LoadNode | ScriptNode | FilterNode | MapNode | ReduceNode | MergeNode | TransformNode | AiNode
)


def parents_of(node: Node) -> list[str]:
    """The ids of the nodes before this one."""
    return [node.parents] if isinstance(node.parents, str) else list(node.parents)
