"""Finds the calls of `ctx` in user code, and whether the code would use `ctx` again after its one
change.

The call in `mutate` ends it, so a second change behind the first would be lost without an error.
The bytecode of a function shows what it may still execute: the instructions that follow the call,
along all jumps. The same holds for other tasks that the handler has started.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import dis
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache, partial
from types import CodeType, CoroutineType, FrameType, FunctionType, MethodType
from typing import Any, NamedTuple

# After these, the next instruction is not executed. Jumps lead to their target only.
_ENDS = {
    *("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"),
    *("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"),
}
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD"}
_JUMPS = {*dis.hasjrel, *dis.hasjabs}
# Modules that are not user code: the search ends there.
_HOSTS = ("rota.automations.", "asyncio.")
# The module with the coroutine of a handler's own task; those of the engine never have `ctx`.
_INVOKER = "rota.automations.invoke"
# How far a value is followed: from a list to its coroutines, to their methods, and so on.
_DEPTH_MAX = 5
_ELEMENTS_MAX = 1000

_COLLECTIONS = (list, tuple, set, frozenset, dict)

CHANGES = frozenset({"call"})
# The calls that leave something behind.
LEAVES = frozenset({"call", "publish", "input"})


class CallSite(NamedTuple):
    """A line of user code."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file.rpartition('/')[2]}, line {self.line}"


class _Use(NamedTuple):
    """A variable that an instruction loads, and the attributes that the next ones take of it."""

    name: str
    attributes: tuple[str, ...]
    line: int


class _Search(NamedTuple):
    """The context to look for, and its methods that count. Code that passes it on always counts."""

    ctx: object
    methods: Collection[str]
    seen: set[tuple[CodeType, int]]  # functions, each with its owner


def site_of(frame: FrameType) -> CallSite:
    """The line that a frame executes."""
    return CallSite(frame.f_code.co_filename, frame.f_lineno)


def use_after(frame: FrameType | None, ctx: object) -> CallSite | None:
    """The line at which the calling code, or one of its callers, may use `ctx` after the call: for
    another call, or to pass it on. Its other attributes change nothing."""
    search = _Search(ctx, CHANGES, set())
    while frame is not None and not _is_host(frame):
        found = _use_in(frame.f_code, frame.f_lasti, frame.f_locals, search, 0)
        if found is not None:
            return found
        frame = frame.f_back
    return None


def is_captured(frame: FrameType | None, ctx: object) -> bool:
    """Whether a variable with `ctx` in the calling code belongs to closures too."""
    while frame is not None and not _is_host(frame):
        shared = (*frame.f_code.co_cellvars, *frame.f_code.co_freevars)
        if shared and any(frame.f_locals.get(name) is ctx for name in shared):
            return True
        frame = frame.f_back
    return False


def use_elsewhere(ctx: object, methods: Collection[str] = CHANGES) -> CallSite | None:
    """The place at which another task of this event loop may still use `ctx`."""
    search = _Search(ctx, methods, set())
    current = asyncio.current_task()
    for task in asyncio.all_tasks():
        coroutine = task.get_coro()
        if task is not current and _may_belong(coroutine, ctx):
            found = _use_by(coroutine, search, 0)
            if found is not None:
                return found
    return None


def _may_belong(coroutine: object, ctx: object) -> bool:
    """Whether a task with this coroutine may be the handler's, or one that it started."""
    frame = coroutine.cr_frame if isinstance(coroutine, CoroutineType) else None
    if frame is None:
        return False
    module = str(frame.f_globals.get("__name__", ""))
    if module == _INVOKER:
        return frame.f_locals.get("ctx") is ctx
    return not module.startswith("rota.")


def _is_host(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith(_HOSTS)


def _use_by(coroutine: object, search: _Search, depth: int) -> CallSite | None:
    """The place at which a suspended coroutine, or one that it awaits, may use `ctx`."""
    while isinstance(coroutine, CoroutineType):
        frame = coroutine.cr_frame
        if frame is not None and not _is_host(frame):
            found = _use_in(frame.f_code, frame.f_lasti, frame.f_locals, search, depth)
            if found is not None:
                return found
        coroutine = coroutine.cr_await
    return None


def _use_in(
    code: CodeType, offset: int, values: Mapping[str, Any], search: _Search, depth: int
) -> CallSite | None:
    """The place behind an offset of this code at which it may use `ctx`."""
    for use in _uses_after(code, offset):
        if use.name in values and _leads_to(values[use.name], use.attributes, search, depth):
            return CallSite(code.co_filename, use.line)
    return None


def _leads_to(value: object, attributes: tuple[str, ...], search: _Search, depth: int) -> bool:
    """Whether code that takes these attributes of a value may use `ctx` through it."""
    while value is not search.ctx and attributes and not isinstance(value, _COLLECTIONS):
        held = _own(value, attributes[0])
        if held is None:
            return False
        value, attributes = held, attributes[1:]
    if value is search.ctx:
        return not attributes or attributes[0] in search.methods
    return depth < _DEPTH_MAX and _may_use(value, search, depth + 1)


def _own(value: object, name: str) -> object:
    """An attribute of an instance or a method of its class, without executing any code."""
    held = getattr(value, "__dict__", None)
    if isinstance(held, dict) and name in held:
        return held[name]
    method = next((vars(one)[name] for one in type(value).__mro__ if name in vars(one)), None)
    return MethodType(method, value) if isinstance(method, FunctionType) else None


def _may_use(value: object, search: _Search, depth: int) -> bool:
    """Whether a function, a coroutine or a collection of them may use `ctx`."""
    match value:
        case CoroutineType():
            return _use_by(value, search, depth) is not None
        case MethodType(__self__=owner, __func__=function):
            if owner is search.ctx:
                return function.__name__ in search.methods
            return isinstance(function, FunctionType) and _calls(function, owner, search, depth)
        case FunctionType():
            return _calls(value, None, search, depth)
        case partial():
            given = [value.func, *value.args, *value.keywords.values()]
            return any(_leads_to(one, (), search, depth) for one in given)
        case list() | tuple() | set() | frozenset() | dict():
            several = value.values() if isinstance(value, dict) else value
            return len(several) <= _ELEMENTS_MAX and any(
                _leads_to(one, (), search, depth) for one in several
            )
    return False


def _calls(function: FunctionType, owner: object, search: _Search, depth: int) -> bool:
    """Whether a call of this function may use `ctx`, by its closure or by its first argument."""
    code = function.__code__
    key = (code, id(owner))
    if key in search.seen:
        return False  # it is being searched, or was searched without a result
    search.seen.add(key)
    values: dict[str, Any] = {}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not assigned yet
            values[name] = cell.cell_contents
    if owner is not None and code.co_argcount:
        values[code.co_varnames[0]] = owner
    return _use_in(code, -1, values, search, depth) is not None


@lru_cache(maxsize=1024)
def _uses_after(code: CodeType, offset: int) -> tuple[_Use, ...]:
    instructions = list(dis.get_instructions(code))
    found = []
    for index in sorted(_reachable(instructions, offset)):
        one = instructions[index]
        loaded = _loaded(one)
        for name in loaded:
            attributes = _attributes(instructions, index + 1) if name == loaded[-1] else ()
            line = one.positions.lineno if one.positions else None
            found.append(_Use(name, attributes, line or code.co_firstlineno))
    return tuple(found)


def _attributes(instructions: list[dis.Instruction], index: int) -> tuple[str, ...]:
    """The attributes that are taken one after the other, from this instruction on."""
    taken = []
    while index < len(instructions) and instructions[index].opname in _ATTRIBUTES:
        taken.append(str(instructions[index].argval))
        index += 1
    return tuple(taken)


def _reachable(instructions: list[dis.Instruction], offset: int) -> Iterator[int]:
    """The indexes of all instructions that may be executed after the one at this offset."""
    offsets = [one.offset for one in instructions]
    seen: set[int] = set()
    todo = [bisect.bisect_right(offsets, offset)]
    while todo:
        index = todo.pop()
        if index in seen or index >= len(instructions):
            continue
        seen.add(index)
        yield index
        one = instructions[index]
        if one.opcode in _JUMPS:
            todo.append(bisect.bisect_left(offsets, one.argval))
        if one.opname not in _ENDS:
            todo.append(index + 1)


def _loaded(one: dis.Instruction) -> tuple[str, ...]:
    """The names of the local variables that an instruction loads, in order."""
    if one.opname == "STORE_FAST_LOAD_FAST":
        return (one.argval[1],)
    if not one.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_CLOSURE")):
        return ()
    return one.argval if isinstance(one.argval, tuple) else (one.argval,)
