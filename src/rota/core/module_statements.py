"""The assignments and imports of a module, read from its text. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple, TypeAlias

Path: TypeAlias = tuple[str, ...]  # a name, and the attributes taken of it


class Assignment(NamedTuple):
    """A statement that gives a module-level name its value; comments and lines do not count."""

    text: str
    paths: tuple[Path, ...]  # what its expressions use


class ModuleStatements(NamedTuple):
    """By name: the statements that assign it; the module and name that it is imported from."""

    assignments: dict[str, tuple[Assignment, ...]]
    imports: dict[str, tuple[str, str]]


@lru_cache(256)
def read_statements(text: str) -> ModuleStatements:
    """Read a module's text; one that cannot be parsed has no statements."""
    found = ModuleStatements({}, {})
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return found
    for one in _top_level(tree.body):
        if isinstance(one, ast.ImportFrom):
            source = "." * one.level + (one.module or "")
            found.imports.update(
                {alias.asname or alias.name: (source, alias.name) for alias in one.names}
            )
            continue
        for name in _assigned_names(one):
            before = found.assignments.get(name, ())
            found.assignments[name] = (*before, Assignment(ast.dump(one), tuple(_paths(one, name))))
    return found


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, with those inside of `if`, `try`, `with` and loops."""
    for one in body:
        yield one
        if isinstance(one, ast.If | ast.Try | ast.With | ast.For | ast.While):
            for field in ("body", "orelse", "finalbody"):
                yield from _top_level(getattr(one, field, []))
            for handler in getattr(one, "handlers", []):
                yield from _top_level(handler.body)


def _assigned_names(one: ast.stmt) -> set[str]:
    match one:
        case ast.Assign(targets=targets):
            found: list[ast.expr] = targets
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            found = [target]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return {name}  # decorated: its value is what the decorator made of it
        case _:
            return set()
    names = (node for target in found for node in ast.walk(target))
    return {node.id for node in names if isinstance(node, ast.Name)}


def _paths(one: ast.stmt, own: str) -> Iterator[Path]:
    seen: set[Path] = set()
    inner: set[int] = set()  # parts of a longer path
    for node in ast.walk(one):  # from the outside to the inside
        path = _path(node)
        if path is None or id(node) in inner:
            continue
        inner_node = node
        while isinstance(inner_node, ast.Attribute):
            inner_node = inner_node.value
            inner.add(id(inner_node))
        if path not in seen and path != (own,):
            seen.add(path)
            yield path


def _path(node: ast.AST) -> Path | None:
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        before = _path(node.value)
        return None if before is None else (*before, node.attr)
    return None
