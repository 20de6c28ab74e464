"""Which stages of a pipeline go over items, and where those items stand. For all who read back."""

from __future__ import annotations

from typing import NamedTuple

from rota.pipelines.definition.nodes import FilterNode, MapNode, parents_of
from rota.pipelines.snapshot import Snapshot

INPUT, FILTER, MAP, REDUCE, JOB = "input", "filter", "map", "reduce", "job"
# The field that says why a map node failed with an item. Such an item is handed on as it is, up to
# a reduce: nobody asks about it again.
ERROR = "$error"


class Mapped(NamedTuple):
    """A stage and the shelf it goes over."""

    stage: str
    shelf: str


def mapped_stages(snapshot: Snapshot) -> list[Mapped]:
    """The stages whose items are counted: the map, or the map nodes of a graph."""
    pipeline = snapshot.pipeline
    if pipeline.mode == "map-reduce":
        return [Mapped(MAP, FILTER if pipeline.filter is not None else INPUT)]
    return [
        Mapped(node_stage(node_id), node_input(snapshot, node_id))
        for node_id, node in (pipeline.nodes or {}).items()
        if isinstance(node, MapNode)
    ]


def filter_stages(snapshot: Snapshot) -> list[str]:
    """The filters of the linear form, whose dropped items belong to the result."""
    return [FILTER] if snapshot.pipeline.filter is not None else []


def filter_nodes(snapshot: Snapshot) -> list[str]:
    """The lists that filter nodes fill."""
    nodes = (snapshot.pipeline.nodes or {}).items()
    return [node_output(node_id) for node_id, node in nodes if isinstance(node, FilterNode)]


def node_stage(node_id: str) -> str:
    """The stage of a node; apart from those of the linear form."""
    return f"node {node_id}"


def node_output(node_id: str) -> str:
    """The shelf with the items that come out of a node."""
    return f"out {node_id}"


def node_input(snapshot: Snapshot, node_id: str) -> str:
    """The shelf with the items that go into a node: its parent's, or one of its own for several."""
    node = (snapshot.pipeline.nodes or {})[node_id]
    parents = parents_of(node)
    return node_output(parents[0]) if len(parents) == 1 else f"in {node_id}"
