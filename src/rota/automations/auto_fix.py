"""Auto-fix: a hook that may answer a failure of the code with a new version of one handler.

A fix is source text that defines the handler's functions again. It cannot change what the
automation declares (topics, schedules, subscriptions): the host takes only functions from it, and
only those that were there before, with the same parameters. Off unless a hook is given.

The source is stored in the database, and every worker of the automation executes it. Write access
to the database is therefore access to the workers.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from rota.errors import UsageError

Function = Callable[..., Any]


class HandlerFailure(NamedTuple):
    """The input of a fixer: the handler, its source by phase, the error and what came before."""

    automation: str
    handler: str
    phase: str
    error: str  # with its trace, as it was recorded
    logs: tuple[str, ...]
    source: Mapping[str, str]  # of the version that failed; a fix may return it, changed
    version: int
    attempt: int  # number of consecutive fixes, including this one
    history: tuple[str, ...]  # comments of earlier versions, newest first


class Fix(NamedTuple):
    """A new version: source text for some of the handler's functions, and what it changes."""

    source: Mapping[str, str]
    comment: str


Fixer = Callable[[HandlerFailure], Awaitable[Fix | None]]


def compiled(functions: Mapping[str, Function], source: Mapping[str, str]) -> dict[str, Function]:
    """The handler's functions with those of the fix in their place, or UsageError."""
    unknown = sorted(set(source) - set(functions))
    if unknown:
        raise UsageError(f"the fix brings {', '.join(unknown)}, which the handler does not have")
    if not source:
        raise UsageError("the fix changes nothing")
    made = dict(functions)
    for phase, text in source.items():
        made[phase] = _compiled_function(phase, functions[phase], text)
    return made


def _compiled_function(phase: str, before: Function, text: str) -> Function:
    """The function that a text defines, without its decorators, which would register it again."""
    names = _names_around(before)
    known = set(names)
    wanted = before.__name__
    try:
        tree = _parsed(text)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == wanted:
                node.decorator_list = []
        exec(compile(tree, f"<fix of {phase}>", "exec"), names)
    except Exception as error:
        raise UsageError(f"the fix of {phase} does not compile: {error}") from error
    after = names.get(wanted)
    fresh = after is not None and (wanted not in known or after is not before)
    if not fresh or not inspect.isfunction(after):
        raise UsageError(f"the fix of {phase} does not define {wanted}")
    old, new = (list(inspect.signature(one).parameters) for one in (before, after))
    if old != new:
        raise UsageError(f"the fix of {phase} takes {new}; it was called with {old}")
    return after


def _parsed(text: str) -> ast.Module:
    """The text as a module. Methods come indented; dedenting would change strings in them."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    is_indented = first[:1].isspace()
    tree = ast.parse(f"if True:\n{text}" if is_indented else text)
    if is_indented:
        [block] = tree.body
        tree.body = block.body if isinstance(block, ast.If) else []
    return tree


def _names_around(function: Function) -> dict[str, Any]:
    """The names that a function sees: those of its module, and of the functions around it."""
    names: dict[str, Any] = dict(getattr(function, "__globals__", {}))
    code = getattr(function, "__code__", None)
    cells = getattr(function, "__closure__", None) or ()
    for name, cell in zip(code.co_freevars if code else (), cells, strict=True):
        with contextlib.suppress(ValueError):  # not assigned yet
            names[name] = cell.cell_contents
    return names
