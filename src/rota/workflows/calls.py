"""Calls of steps and workflows in user code: unawaited calls, and their text in errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from rota.core.json_round_trip import short

T = TypeVar("T")


# Calls that user code has to await: by key, the name and the coroutine. A call removes itself when
# it begins. (The frame of a coroutine shows this too, but reading it is an audit event, which takes
# a tenth of the time of a step.)
PendingCalls = dict[object, tuple[str, Coroutine[Any, Any, Any]]]


# The code of the coroutines that calls of steps, children and primitives return.
OWN_CODE: set[object] = set()
STEP_CODE: set[object] = set()  # of steps alone: the key of such a call is known before it begins


def noted(
    pending: PendingCalls, name: str, begin: Callable[[], Coroutine[Any, Any, T]]
) -> Coroutine[Any, Any, T]:
    """The coroutine of a call that has to be awaited; pending until it begins."""
    call = object()
    work = _begun(pending, call, begin)
    pending[call] = (name, work)
    return work


async def _begun(
    pending: PendingCalls, call: object, begin: Callable[[], Coroutine[Any, Any, T]]
) -> T:
    pending.pop(call, None)
    return await begin()


OWN_CODE.add(_begun.__code__)


def unawaited(pending: PendingCalls) -> list[str]:
    """The names of calls that were never awaited."""
    # A task that is cancelled before it begins counts as having awaited its coroutine.
    return [
        name
        for name, work in pending.values()
        if inspect.getcoroutinestate(work) == inspect.CORO_CREATED
    ]


def close(pending: PendingCalls) -> None:
    """Close calls that were never awaited, so that Python does not warn about each."""
    for _, work in pending.values():
        work.close()
    pending.clear()


def shown(name: str, args: Any, kwargs: Any) -> str:
    """A call as its author wrote it, long values cut."""
    values = [short(value) for value in args]
    values += [f"{key}={short(value)}" for key, value in kwargs.items()]
    return f"{name}({', '.join(values)})"
