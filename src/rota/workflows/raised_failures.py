"""Failures that were raised into the code of a workflow, and whether the code caught them.

A retry of the run makes the failed calls again that the code did not catch. Code may clean up after
a failure in its `except` or `finally` block and let it pass. Then the retry forgets these calls
too: they belong to the failure.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rota.workflows.branches import Branch

_MARK = "_rota_failed_call"  # the attribute of an exception that a failed call raised


class RaisedFailure:
    """A failed call that is not known to be caught."""

    __slots__ = ("branch", "calls", "key")

    def __init__(self, key: str, branch: Branch) -> None:
        self.key = key
        self.branch = branch  # the one with the code that handles it
        self.calls: list[str] = []  # that this code made in the meantime

    def is_caught(self, error: BaseException) -> bool:
        """Whether the code that handled it did not let it pass. `error` has ended the run."""
        if not self.calls:
            return False
        task = self.branch.task
        if not self.branch.path or task is None:
            return self.key not in failed_calls(error)
        if not task.done():
            return True
        return not task.cancelled() and self.key not in failed_calls(task.exception())


class RepeatedCalls(NamedTuple):
    """The calls that a retry of the run makes again."""

    failed: frozenset[str]
    handling: frozenset[str]  # the calls with which the code handled these failures


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


def raises(branch: Branch, key: str, error: BaseException) -> None:
    """Note that a failed call is about to raise this exception into the code."""
    error.__dict__[_MARK] = key
    branch.failures = {**branch.failures, key: RaisedFailure(key, branch)}


def handled_in(branch: Branch, error: BaseException | None) -> dict[str, RaisedFailure]:
    """The failures that code of this branch handles, in the `except` block of `error`."""
    keys = failed_calls(error, enclosing=True)
    found = {failure.key: failure for failure in _open(branch, keys)}
    for failure in found.values():
        failure.branch = branch
    return {**branch.handles, **found}


def _open(branch: Branch, keys: Container[str]) -> Iterator[RaisedFailure]:
    for one in branch.with_ended():
        yield from (failure for failure in one.failures.values() if failure.key in keys)


def note_call(
    branch: Branch, key: str, error: BaseException | None, *, is_new: bool = True
) -> None:
    """Note a call that code of this branch makes in the `except` block of `error`, if any. After a
    new call the code has caught what it does not handle."""
    handled = handled_in(branch, error)
    if is_new:
        _continue(branch, handled)
    for failure in handled.values():
        failure.calls.append(key)


def _continue(branch: Branch, handled: dict[str, RaisedFailure]) -> None:
    # The failure that ends a `gather` ends other branches too. Their failures
    # count as caught if the failure that the code handles is caught.
    leader = next((one for key, one in handled.items() if key not in branch.handles), None)
    for one in branch.with_ended():
        if not one.failures:
            continue
        if one is branch or leader is None:
            one.failures = {key: one.failures[key] for key in one.failures if key in handled}
        else:
            one.failures = {
                key: failure if failure.calls or key in handled else leader
                for key, failure in one.failures.items()
            }


def repeated_calls(root: Branch, error: BaseException) -> RepeatedCalls:
    """The calls that a retry makes again after this error has ended the run."""
    failures = root.all_failures()
    failed = {key for key, failure in failures.items() if not failure.is_caught(error)}
    handling = {call for key in failed for call in failures[key].calls}
    return RepeatedCalls(frozenset(failed), frozenset(handling - failed))
