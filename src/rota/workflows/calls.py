"""Calls of steps and workflows as user code wrote them: which were never awaited, and how an error
shows one.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60


class Calls:
    """The calls of one run that user code has to await, until it does."""

    __slots__ = ("_pending", "begun")

    def __init__(self) -> None:
        self._pending: dict[object, tuple[str, Coroutine[Any, Any, Any]]] = {}
        # Called at every step with its key and None. (The frame of a coroutine would tell as much,
        # but each look at one is an audit event, at a tenth of what a step costs.)
        self.begun = self._pending.pop

    def note(self, key: object, name: str, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Remember a call until it says that it has begun."""
        self._pending[key] = (name, work)
        return work

    def unawaited(self) -> list[str]:
        """The names of what was called and never awaited."""
        # A task that is cancelled before it begins has awaited its coroutine all the same.
        return [name for name, work in self._pending.values() if _is_untouched(work)]

    def close(self) -> None:
        """Nobody can await them any more; Python need not warn about each."""
        for _, work in self._pending.values():
            work.close()
        self._pending.clear()


def _is_untouched(work: Coroutine[Any, Any, Any]) -> bool:
    return inspect.getcoroutinestate(work) == inspect.CORO_CREATED


def shown(name: str, args: Any, kwargs: Any) -> str:
    """A call as its author wrote it, long values cut."""
    values = [_SHORT.repr(value) for value in args]
    values += [f"{key}={_SHORT.repr(value)}" for key, value in kwargs.items()]
    return f"{name}({', '.join(values)})"
