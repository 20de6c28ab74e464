"""Branches: the tasks of one flow. Each counts its own calls, so that a branch which is faster this
time than last time cannot be given another branch's results.

A branch is known from its first durable call on; its name is its place among its siblings in the
order of those first calls, which is the order in which the tasks were made.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Container
from typing import Any


class Branch:
    """One task of a flow, with the counts of its calls by name."""

    __slots__ = ("chance", "children", "counts", "failures", "flow", "path", "task")

    def __init__(self, flow: object, path: str, task: asyncio.Task[Any] | None) -> None:
        self.flow = flow
        self.path = path  # "" for the workflow itself, "0." for its first branch, "0.1." below
        self.task = task
        self.counts: dict[str, int] = {}
        self.children: list[Branch] = []
        self.failures: set[str] = set()  # raised here and not known to be caught
        self.chance: random.Random | None = None

    def next_key(self, name: str) -> str:
        """The key of the next call of that name in this branch."""
        count = self.counts.get(name, 0)
        self.counts[name] = count + 1
        return f"{name}#{self.path}{count}"

    def went_on(self) -> None:
        """The code went on to another call: what was raised before has been caught."""
        self.failures.clear()
        for child in self.children:
            if child.is_over():
                child.went_on()

    def uncaught(self) -> set[str]:
        """Failures that nobody is known to have caught, here and below."""
        return self.failures.union(*(child.uncaught() for child in self.children))

    def is_over(self) -> bool:
        """Whether its task has ended."""
        return self.task is not None and self.task.done()

    def awaits_something_real(self, durable: Container[object]) -> bool:
        """Whether it, or a branch below it, waits for something that is not durable.

        A branch that waits for an unknown future while branches below it live is taken to wait
        for them (gather, task groups, asyncio.wait)."""
        living = [child for child in self.children if not child.is_over()]
        if living:
            return any(child.awaits_something_real(durable) for child in living)
        waiter = getattr(self.task, "_fut_waiter", None)
        return waiter is not None and waiter not in durable


_branch: contextvars.ContextVar[Branch | None] = contextvars.ContextVar("rota_branch", default=None)


def enter(root: Branch) -> None:
    """Make this the branch of the calling task."""
    _branch.set(root)


def current(root: Branch) -> Branch:
    """The branch of the calling task; a task seen for the first time begins one."""
    if root.task is None:
        return root  # a sync workflow: one thread, no branches
    branch = _branch.get()
    if branch is None or branch.flow is not root.flow:
        branch = root
    task = asyncio.current_task()
    if task is None or branch.task is task:
        return branch
    fresh = Branch(root.flow, f"{branch.path}{len(branch.children)}.", task)
    branch.children.append(fresh)
    _branch.set(fresh)
    return fresh
