"""Branches: the tasks of one flow. Each counts its own calls, so that a branch which is faster this
time than last time cannot be given another branch's results.

A branch is named when its task is made: its place among the tasks that its parent made.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Container
from typing import Any

NONE: frozenset[str] = frozenset()


class Branch:
    """One task of a flow, with the counts of its calls by name."""

    __slots__ = ("chance", "children", "counts", "failures", "flow", "path", "task")

    def __init__(self, flow: Any, path: str, task: asyncio.Task[Any] | None) -> None:
        self.flow = flow
        self.path = path  # "" for the workflow itself, "0." for its first branch, "0.1." below
        self.task = task
        self.counts: dict[str, int] = {}
        self.children: list[Branch] = []
        self.failures: frozenset[str] = NONE  # raised here and not known to be caught
        self.chance: random.Random | None = None

    def next_key(self, name: str) -> str:
        """The key of the next call of that name in this branch."""
        count = self.counts.get(name, 0)
        self.counts[name] = count + 1
        return f"{name}#{self.path}{count}"

    def went_on(self) -> None:
        """The code went on to another call: what was raised before has been caught."""
        self.failures = NONE
        for child in self.children:
            if child.is_over():
                child.went_on()

    def uncaught(self) -> frozenset[str]:
        """Failures that nobody is known to have caught, here and below."""
        return self.failures.union(*(child.uncaught() for child in self.children))

    def is_over(self) -> bool:
        """Whether its task has ended."""
        return self.task is not None and self.task.done()

    def awaits_something_real(self, durable: Container[object]) -> bool:
        """Whether it, or a branch below it, waits for something that is not durable.

        A branch that waits for an unknown future while somebody listens to branches below it is
        taken to wait for them (gather, task groups, asyncio.wait)."""
        living = [child for child in self.children if not child.is_over()]
        if any(child.awaits_something_real(durable) for child in living):
            return True
        if any(getattr(child.task, "_callbacks", None) for child in living):
            return False
        waiter = getattr(self.task, "_fut_waiter", None)
        return waiter is not None and waiter not in durable


# The branch the running code belongs to; None outside of workflows and inside steps.
here: contextvars.ContextVar[Branch | None] = contextvars.ContextVar("rota_branch", default=None)


def current(root: Branch) -> Branch:
    """The branch of the calling task."""
    branch = here.get()
    return root if branch is None or branch.flow is not root.flow else branch


Factory = Callable[..., "asyncio.Future[Any]"]


def branching(before: Factory | None) -> Factory:
    """A task factory that gives every task made inside a flow its branch, in the order in which
    tasks are made. Tasks made with a context of their own are none of the workflow's, and what a
    thread submits to the loop is the thread's own work."""

    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        parent = here.get()
        if parent is None or parent.flow.threaded or options.get("context") is not None:
            return _task(before, loop, coroutine, options)
        fresh = Branch(parent.flow, f"{parent.path}{len(parent.children)}.", None)
        parent.children.append(fresh)
        context = contextvars.copy_context()
        context.run(here.set, fresh)
        fresh.task = _task(before, loop, coroutine, options | {"context": context})
        return fresh.task

    return make


def _task(
    before: Factory | None, loop: asyncio.AbstractEventLoop, work: Any, options: dict[str, Any]
) -> Any:
    if before is not None:
        return before(loop, work, **options)
    return asyncio.Task(work, loop=loop, **options)
