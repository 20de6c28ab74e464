"""Failures that were raised into the code of a workflow, and whether the code caught them.

A retry of the run makes the failed calls again that the code did not catch. Code may clean up after
a failure in its `except` or `finally` block and let it pass. Then the retry forgets these calls
too: they belong to the failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container
from typing import Any, NamedTuple

_MARK = "_rota_failed_call"  # the attribute of an exception that a failed call raised

Task = asyncio.Task[Any] | None  # None: the thread of a sync workflow


class RaisedFailure:
    """A failed call that is not known to be caught."""

    __slots__ = ("calls", "key", "task", "timer")

    def __init__(self, key: str, task: Task, timer: str | None) -> None:
        self.key = key
        self.timer = timer  # that ended the call
        self.task = task  # the one with the code that handles it
        self.calls: list[str] = []  # that this code made in the meantime

    def is_caught(self, error: BaseException, main: Task) -> bool:
        """Whether the code that handled it did not let it pass. `error` has ended the run."""
        if not self.calls:
            return False
        task = self.task
        if task is None or task is main:
            return self.key not in failed_calls(error)
        if not task.done():
            return True
        return not task.cancelled() and self.key not in failed_calls(task.exception())


class RepeatedCalls(NamedTuple):
    """The calls that a retry of the run makes again."""

    failed: frozenset[str]
    handling: frozenset[str]  # the calls with which the code handled these failures


class RaisedFailures:
    """The failures of one run that are not known to be caught."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[Task, RaisedFailure]] = {}  # by call: the task that got it

    def __bool__(self) -> bool:
        return bool(self._open)

    def raises(self, task: Task, key: str, error: BaseException, timer: str | None = None) -> None:
        """Note that a failed call is about to raise this exception into the code of a task.
        `timer` is the key of the timer of the code that ended the call, if one did."""
        error.__dict__[_MARK] = key
        self._open[key] = task, RaisedFailure(key, task, timer)

    def handled_in(self, task: Task, error: BaseException | None) -> dict[str, RaisedFailure]:
        """The failures that code of this task handles, in the `except` block of `error`."""
        keys = failed_calls(error, enclosing=True)
        found = {one.key: one for one in self._below(task, keys)}
        for failure in found.values():
            failure.task = task
        return {**_inherited(task), **found}

    def note_call(
        self, task: Task, key: str, error: BaseException | None, *, is_new: bool = True
    ) -> None:
        """Note a call that code of this task makes in the `except` block of `error`, if any. After
        a new call the code has caught what it does not handle."""
        handled = self.handled_in(task, error)
        if is_new:
            self._continue(task, handled)
        for failure in handled.values():
            failure.calls.append(key)

    def repeated(self, error: BaseException, main: Task) -> RepeatedCalls:
        """The calls that a retry makes again after this error has ended the run."""
        failures = {key: failure for key, (_, failure) in self._open.items()}
        failed = {key for key, failure in failures.items() if not failure.is_caught(error, main)}
        handling = {call for key in failed for call in failures[key].calls}
        handling |= {timer for key in failed if (timer := failures[key].timer) is not None}
        return RepeatedCalls(frozenset(failed), frozenset(handling - failed))

    def _below(self, task: Task, keys: Container[str]) -> list[RaisedFailure]:
        return [
            failure
            for got_by, failure in self._open.values()
            if failure.key in keys and _leads_to(got_by, task)
        ]

    def _continue(self, task: Task, handled: dict[str, RaisedFailure]) -> None:
        # The failure that ends a `gather` ends other tasks too. Their failures count as caught if
        # the failure that the code handles is caught.
        inherited = _inherited(task)
        leader = next((one for key, one in handled.items() if key not in inherited), None)
        for key, (got_by, failure) in list(self._open.items()):
            if key in handled or not _leads_to(got_by, task):
                continue
            if got_by is task or leader is None:
                del self._open[key]
            elif not failure.calls:
                self._open[key] = got_by, leader


def failed_calls(error: BaseException | None, *, enclosing: bool = False) -> set[str]:
    """The keys of the failed calls that led to an exception, or to those of a group.

    `enclosing` adds the failures that were handled when one of these was raised. The code in an
    `except` block handles all of them, but only the newest one leaves the block.
    """
    found: set[str] = set()
    seen: set[int] = set()
    left = [error]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        key = one.__dict__.get(_MARK)
        if key is not None:
            found.add(key)
        if isinstance(one, BaseExceptionGroup):
            left += one.exceptions
        if enclosing:
            left += (one.__cause__, one.__context__)
        elif key is None:
            left.append(one.__cause__ or one.__context__)
    return found


def _leads_to(task: Task, maker: Task) -> bool:
    """Whether it is this task, or one that ended below it."""
    while task is not maker:
        if task is None or not task.done():
            return False
        task = getattr(task, "parent", None)
    return True


def _inherited(task: Task) -> dict[str, RaisedFailure]:
    """The failures that the code which made this task was handling."""
    handles: dict[str, RaisedFailure] = getattr(task, "handles", None) or {}
    return handles
