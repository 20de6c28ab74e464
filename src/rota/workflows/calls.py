"""Calls of steps and workflows as user code wrote them: which were never awaited, and how an error
shows one.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

# Calls noted before those that have begun are dropped from the list.
NOTED_MAX = 1000

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60


class Calls:
    """The calls of one run that user code has to await."""

    __slots__ = ("_noted",)

    def __init__(self) -> None:
        self._noted: list[tuple[str, Any]] = []

    def note(self, name: str, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Remember a call until it has begun."""
        noted = self._noted
        if noted and noted[-1][1].cr_frame is None:  # it has ended, as in code without branches
            noted[-1] = (name, work)
            return work
        if len(noted) >= NOTED_MAX:
            noted[:] = [call for call in noted if _has_not_begun(call[1])]
        noted.append((name, work))
        return work

    def unawaited(self) -> list[str]:
        """The names of what was called and never awaited."""
        return [name for name, work in self._noted if _has_not_begun(work)]

    def close(self) -> None:
        """Nobody can await them any more; Python need not warn about each."""
        for _, work in self._noted:
            if _has_not_begun(work):
                work.close()
        self._noted.clear()


def _has_not_begun(work: Any) -> bool:
    return inspect.getcoroutinestate(work) == inspect.CORO_CREATED


def shown(name: str, args: Any, kwargs: Any) -> str:
    """A call as its author wrote it, long values cut."""
    values = [_SHORT.repr(value) for value in args]
    values += [f"{key}={_SHORT.repr(value)}" for key, value in kwargs.items()]
    return f"{name}({', '.join(values)})"
