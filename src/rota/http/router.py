"""Finds the entry of the table for a method and a path."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote


class Entry(Protocol):
    """An entry of the table."""

    @property
    def method(self) -> str:
        """GET, POST, PUT, PATCH or DELETE."""
        ...

    @property
    def path(self) -> str:
        """Literal segments and `{name}`."""
        ...


E = TypeVar("E", bound=Entry)


class Match(NamedTuple, Generic[E]):
    """The entries of a path by method, and its parameters."""

    methods: dict[str, E]
    parameters: dict[str, str]

    @property
    def allow(self) -> str:
        """The value of the `Allow` header."""
        names = {*self.methods, *(("HEAD",) if "GET" in self.methods else ())}
        return ", ".join(sorted(names))


class _Node(Generic[E]):
    def __init__(self) -> None:
        self.literal: dict[str, _Node[E]] = {}
        self.any: _Node[E] | None = None
        self.methods: dict[str, tuple[E, tuple[str, ...]]] = {}


class Router(Generic[E]):
    """A tree of path segments. A literal segment wins over a parameter."""

    def __init__(self, entries: Iterable[E]) -> None:
        self._root: _Node[E] = _Node()
        for entry in entries:
            self._add(entry)

    def _add(self, entry: E) -> None:
        node, names = self._root, []
        for segment in _segments(entry.path):
            if segment.startswith("{"):
                names.append(segment.strip("{}"))
                node.any = node.any or _Node()
                node = node.any
            else:
                node = node.literal.setdefault(segment, _Node())
        if entry.method in node.methods:
            raise ValueError(f"{entry.method} {entry.path} is in the table twice")
        node.methods[entry.method] = (entry, tuple(names))

    def match(self, raw_path: str) -> Match[E] | None:
        """The entries of a path that is still percent-encoded, or None."""
        values: list[str] = []
        node = self._walk(self._root, _segments(raw_path), values)
        if node is None:
            return None
        first = next(iter(node.methods.values()))
        decoded = [unquote(value, errors="strict") for value in values]
        parameters = dict(zip(first[1], decoded, strict=True))
        return Match({method: entry for method, (entry, _) in node.methods.items()}, parameters)

    def _walk(self, node: _Node[E], rest: list[str], values: list[str]) -> _Node[E] | None:
        if not rest:
            return node if node.methods else None
        here, *further = rest
        if here in node.literal:
            found = self._walk(node.literal[here], further, values)
            if found is not None:
                return found
        if node.any is None or not here:
            return None
        values.append(here)
        found = self._walk(node.any, further, values)
        if found is None:
            values.pop()
        return found


def _segments(path: str) -> list[str]:
    return path.strip("/").split("/") if path != "/" else []
