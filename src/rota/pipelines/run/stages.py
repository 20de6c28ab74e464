"""The names of stages and of the lists that hold their items."""

from __future__ import annotations

from rota.pipelines.definition.nodes import parents_of
from rota.pipelines.snapshot import Snapshot

INPUT, FILTER, MAP, REDUCE, JOB = "input", "filter", "map", "reduce", "job"
# The field with the error of a map node about an item. Such an item is passed on as it is, up to
# a reduce; no node asks about it again.
ERROR = "$error"
RESULT = "result"  # the field of an item that holds a reply without fields


def mapped_list(snapshot: Snapshot) -> str:
    """The list of the items that the map of the linear form maps."""
    return FILTER if snapshot.pipeline.filter is not None else INPUT


def node_stage(node_id: str) -> str:
    """The stage of a node; apart from those of the linear form."""
    return f"node {node_id}"


def node_output(node_id: str) -> str:
    """The list of the items that come out of a node."""
    return f"out {node_id}"


def node_input(snapshot: Snapshot, node_id: str) -> str:
    """The list of the items that go into a node: its parent's, or one of its own for several."""
    node = (snapshot.pipeline.nodes or {})[node_id]
    parents = parents_of(node)
    return node_output(parents[0]) if len(parents) == 1 else f"in {node_id}"
