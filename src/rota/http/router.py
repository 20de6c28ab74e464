"""The table of pages for people and routes for programs, and the router that searches it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias
from urllib.parse import unquote

from rota.http.request import Answer, RequiredRole, WebRequest

PageHandler: TypeAlias = Callable[[WebRequest], Awaitable[Answer]]


@dataclass(frozen=True)
class Page:
    """A page or a form's target. `{name}` in the path is a parameter, one segment long."""

    method: str
    path: str
    role: RequiredRole
    handler: PageHandler
    verb: str = ""  # for the audit list; without one, method and path
    audits: bool = False  # the handler writes to the audit list, or changes nothing
    is_signed: bool = False  # its handler checks a secret, so the page that sent it does not matter
    audits_body: bool = False  # the audit list keeps the JSON body
    limit_s: float | None = None  # the longest time for an answer; None is the usual one


class Match(NamedTuple):
    """The pattern of a path, its entries by method, and its parameters."""

    path: str
    methods: Mapping[str, Page]
    parameters: dict[str, str]

    @property
    def allow(self) -> str:
        """The value of the `Allow` header."""
        names = {*self.methods, *(("HEAD",) if "GET" in self.methods else ())}
        return ", ".join(sorted(names))


class _Node:
    def __init__(self) -> None:
        self.literal: dict[str, _Node] = {}
        self.any: _Node | None = None
        self.methods: dict[str, Page] = {}


class Router:
    """A tree of path segments. A literal segment wins over a parameter."""

    def __init__(self, entries: Iterable[Page]) -> None:
        self._root = _Node()
        for entry in entries:
            self._add(entry)

    def _add(self, entry: Page) -> None:
        node = self._root
        for segment in _segments(entry.path):
            if segment.startswith("{"):
                node.any = node.any or _Node()
                node = node.any
            else:
                node = node.literal.setdefault(segment, _Node())
        if entry.method in node.methods:
            raise ValueError(f"{entry.method} {entry.path} is in the table twice")
        node.methods[entry.method] = entry

    def match(self, raw_path: str) -> Match | None:
        """The entries of a percent-encoded path; None if it does not fit or is not UTF-8."""
        values: list[str] = []
        node = self._walk(self._root, _segments(raw_path), values)
        if node is None:
            return None
        try:
            decoded = [unquote(value, errors="strict") for value in values]
        except UnicodeDecodeError:
            return None
        path = next(iter(node.methods.values())).path
        return Match(path, node.methods, dict(zip(path_names(path), decoded, strict=True)))

    def _walk(self, node: _Node, rest: list[str], values: list[str]) -> _Node | None:
        if not rest:
            return node if node.methods else None
        here, *further = rest
        if here in node.literal:
            match = self._walk(node.literal[here], further, values)
            if match is not None:
                return match
        if node.any is None or not here:
            return None
        values.append(here)
        match = self._walk(node.any, further, values)
        if match is None:
            values.pop()
        return match


def path_names(path: str) -> list[str]:
    """The names of the parameters in the pattern of a path."""
    return [part.strip("{}") for part in path.split("/") if part.startswith("{")]


def _segments(path: str) -> list[str]:
    return path.strip("/").split("/") if path != "/" else []
