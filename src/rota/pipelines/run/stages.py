"""The names of stages and of the lists that hold their items: those of their nodes."""

from __future__ import annotations

from collections.abc import Mapping

from rota.pipelines.definition.nodes import Node, parents_of

# The field with the error of a map node about an item. Such an item is passed on as it is, up to
# a reduce; no node asks about it again.
ERROR = "$error"
RESULT = "result"  # the field of an item that holds a reply without fields
OUTPUT = ":output"  # the text that is the result of the run; no node has such a name


def node_input(nodes: Mapping[str, Node], node_id: str) -> str:
    """The list of the items that go into a node: its parent's, or one of its own for several."""
    parents = parents_of(nodes[node_id])
    return parents[0] if len(parents) == 1 else f"{node_id}:in"


def dropped_list(node_id: str) -> str:
    """The list beside that of a filter: the positions of the items that it dropped, and reasons.
    The items themselves are on the list that came in."""
    return f"{node_id}:dropped"


def failed_list(node_id: str) -> str:
    """The list beside that of a filter: its items about which the model could not be asked."""
    return f"{node_id}:failed"
