"""Finds the calls of `ctx` in user code, and whether the code would use `ctx` again after its one
change.

The call in `mutate` ends it, so a second change behind the first would be lost without an error.
The bytecode of a function shows what it may still execute: the instructions that follow the call,
along all jumps.
"""

from __future__ import annotations

import bisect
import dis
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FrameType
from typing import NamedTuple

# After these, the next instruction is not executed. Jumps lead to their target only.
_ENDS = {
    *("RETURN_VALUE", "RETURN_CONST", "RETURN_GENERATOR", "RAISE_VARARGS", "RERAISE"),
    *("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"),
}
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD"}
_JUMPS = {*dis.hasjrel, *dis.hasjabs}
# Modules that are not user code: the search ends there.
_HOSTS = ("rota.automations.", "asyncio.")


class CallSite(NamedTuple):
    """A line of user code."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file.rpartition('/')[2]}, line {self.line}"


class _Use(NamedTuple):
    """A variable that an instruction loads, and the attribute that the next one takes of it."""

    name: str
    attribute: str | None
    line: int


def site_of(frame: FrameType) -> CallSite:
    """The line that a frame executes."""
    return CallSite(frame.f_code.co_filename, frame.f_lineno)


def use_after(frame: FrameType | None, ctx: object) -> CallSite | None:
    """The places at which the code that is about to call, or one of its callers, may use `ctx`
    afterwards: for another call, or to hand it on. Its other attributes change nothing."""
    while frame is not None and not frame.f_globals.get("__name__", "").startswith(_HOSTS):
        values = frame.f_locals
        for use in _uses_after(frame.f_code, frame.f_lasti):
            if values.get(use.name) is ctx and use.attribute in (None, "call"):
                return CallSite(frame.f_code.co_filename, use.line)
        frame = frame.f_back
    return None


@lru_cache(maxsize=1024)
def _uses_after(code: CodeType, offset: int) -> tuple[_Use, ...]:
    instructions = list(dis.get_instructions(code))
    found = []
    for index in sorted(_reachable(instructions, offset)):
        one = instructions[index]
        loaded = _loaded(one)
        after = instructions[index + 1] if index + 1 < len(instructions) else None
        for name in loaded:
            taken = after is not None and after.opname in _ATTRIBUTES and name == loaded[-1]
            attribute = str(after.argval) if after is not None and taken else None
            line = one.positions.lineno if one.positions else None
            found.append(_Use(name, attribute, line or code.co_firstlineno))
    return tuple(found)


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
