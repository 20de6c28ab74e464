"""The work of transform and merge nodes on items. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rota.core.pipelines.templates import Template
from rota.pipelines.definition.nodes import AddOp, DropOp, RenameOp, SelectOp, TransformOp

Item = dict[str, Any]


def transformer(
    ops: Sequence[TransformOp], parameters: Mapping[str, Any]
) -> Callable[[Item], Item]:
    """A function that applies all operations to an item, in their order."""
    steps = [_operation(op, parameters) for op in ops]

    def transform(item: Item) -> Item:
        for step in steps:
            item = step(item)
        return item

    return transform


def _operation(op: TransformOp, parameters: Mapping[str, Any]) -> Callable[[Item], Item]:
    match op:
        case SelectOp(fields=fields):
            return lambda item: {name: item[name] for name in fields if name in item}
        case DropOp(fields=fields):
            return lambda item: {name: item[name] for name in item if name not in fields}
        case RenameOp(old=old, to=to):
            return lambda item: _renamed(item, old, to)
        case AddOp(field=field, value=value):
            template = Template(value)
            return lambda item: {**item, field: template.render({**parameters, **item})}


def _renamed(item: Item, old: str, to: str) -> Item:
    if old not in item:
        return item
    kept = [name for name in item if name != to or name == old]
    return {(to if name == old else name): item[name] for name in kept}


def merged(parents: Sequence[Iterable[Item]], strategy: str) -> Iterator[Item]:
    """The items of several nodes: one after the other, or side by side as far as the shortest."""
    if strategy == "concat":
        for items in parents:
            yield from items
        return
    for row in zip(*parents, strict=False):
        together: Item = {}
        for item in row:
            together |= item
        yield together
