"""Branches: the tasks of one flow. Each counts its own calls, so that a branch which is faster this
time than last time cannot be given another branch's results.

A branch is named when its task is made: its place among the tasks that its parent made.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import random
import sys
import weakref
from collections.abc import Callable, Container, Iterator
from typing import Any, cast

from rota.client import caller
from rota.engine.clock import Clock
from rota.errors import UsageError
from rota.store.backend.background import is_own
from rota.workflows.calls import OWN_CODE, STEP_CODE
from rota.workflows.raised_failures import RaisedFailure, handled_in

NONE: dict[str, RaisedFailure] = {}  # never changed: most branches have no failures


class Branch:
    """One task of a flow, with the counts of its calls by name."""

    __slots__ = (
        "chance", "children", "context", "counts", "failures", "flow", "group", "handles",
        "living", "path", "task",
    )  # fmt: skip

    def __init__(self, flow: Any, path: str, task: asyncio.Task[Any] | None) -> None:
        self.flow = flow
        self.path = path  # "" for the workflow itself, "0." for its first branch, "0.1." below
        self.task = task
        self.counts: dict[str, int] = {}
        self.children: list[Branch] = []
        self.living: list[Branch] = []  # children that may be alive; ended ones are removed lazily
        self.failures = NONE  # raised here and not known to be caught
        self.handles = NONE  # of other branches: the code that made this one handled them
        self.chance: random.Random | None = None
        self.context: contextvars.Context | None = None  # of its task, once there is one
        self.group: object = None  # the gather that alone awaits it, if it runs no code of the user

    def next_key(self, name: str) -> str:
        """The key of the next call of that name in this branch."""
        count = self.counts.get(name, 0)
        self.counts[name] = count + 1
        return f"{name}#{self.path}{count}"

    def with_ended(self) -> Iterator[Branch]:
        """This branch, and those below that have ended."""
        yield self
        for child in self.children:
            if child.is_over():
                yield from child.with_ended()

    def all_failures(self) -> dict[str, RaisedFailure]:
        """Failures that are not known to be caught, here and below."""
        found = dict(self.failures)
        for child in self.children:
            found |= child.all_failures()
        return found

    def is_over(self) -> bool:
        """Whether its task has ended."""
        return self.task is not None and self.task.done()

    def has_living(self) -> bool:
        """Whether a branch below has not ended."""
        living = self.living
        while living and living[-1].is_over() and not living[-1].has_living():
            living.pop()
        return bool(living)

    def hush(self) -> None:
        """Keep asyncio from reporting the tasks below: they end with the run's suspension."""
        for child in self.children:
            if child.task is not None:
                child.task.add_done_callback(_retrieve)
            child.hush()

    def cancel_below(self) -> list[asyncio.Task[Any]]:
        """Cancel the tasks below that have not ended, and return them."""
        cancelled = []
        for child in self.children:
            if child.task is not None and not child.task.done():
                child.task.cancel()
                cancelled.append(child.task)
            cancelled += child.cancel_below()
        return cancelled

    def blocked_tasks(self, durable: Container[object]) -> list[asyncio.Task[Any] | None]:
        """The tasks here and below that wait for nothing but durable things."""
        found = [] if self.awaits_something_real(durable) else [self.task]
        for child in self.children:
            if not child.is_over():
                found += child.blocked_tasks(durable)
        return found

    def awaits_something_real(self, durable: Container[object]) -> bool:
        """Whether it, or a branch below it, waits for something that is not durable.

        A branch may wait for an unknown future while another task listens to branches below it.
        Then it is taken to wait for them (gather, task groups, asyncio.wait)."""
        living = [child for child in self.children if not child.is_over()]
        if any(child.awaits_something_real(durable) for child in living):
            return True
        if any(getattr(child.task, "_callbacks", None) for child in living):
            return False
        waiter = getattr(self.task, "_fut_waiter", None)
        return waiter is not None and waiter not in durable


class InStep:
    """Marks code inside a step: it belongs to no branch."""

    __slots__ = ("clock", "name")
    flow = None

    def __init__(self, name: str) -> None:
        self.name = name
        self.clock: Clock | None = None  # of the engine that executes the step


def _retrieve(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()


# The branch the running code belongs to, or the step; None outside of workflows.
here = cast("contextvars.ContextVar[Branch | InStep | None]", caller.here)


def join(task: asyncio.Future[Any], work: object, group: object) -> None:
    """Note that only a gather awaits this task, and that no code of the user runs in it."""
    branch = here.get()
    if isinstance(branch, Branch) and getattr(work, "cr_code", None) in OWN_CODE:
        own = branch.children[-1]
        if own.task is task:
            own.group = group


def step_around() -> str | None:
    """The name of the running step, if any."""
    place = here.get()
    return place.name if isinstance(place, InStep) else None


def current(root: Branch) -> Branch:
    """The branch of the calling task."""
    branch = here.get()
    return branch if isinstance(branch, Branch) and branch.flow is root.flow else root


Factory = Callable[..., "asyncio.Future[Any]"]

# The branch with a task in a context; a copy of the context still names the branch it is from.
_runs_in: contextvars.ContextVar[Branch | None] = contextvars.ContextVar("rota_task", default=None)


class TaskFactory:
    """The task factory of one event loop, shared by all apps in it. Every task made inside a
    workflow becomes a branch, in the order in which tasks are made."""

    def __init__(self) -> None:
        self._before: Factory | None = None
        self._users = 0
        self._checked: Any = self  # the last factory found to lead here

    def __call__(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        parent = here.get()
        context: contextvars.Context | None = options.get("context")
        # Work that a thread submits to the loop is the thread's own.
        if (
            not isinstance(parent, Branch)
            or parent.flow.threaded
            or (context is not None and is_own(context))
        ):
            return self._make(loop, coroutine, options)
        if _in_no_order(coroutine):
            coroutine.close()
            raise parent.flow.refuse(
                UsageError(
                    "asyncio.as_completed makes the tasks of coroutines in no fixed order, so a "
                    "replay cannot distinguish them",
                    hint="Give it tasks: `as_completed([asyncio.create_task(one) for one in …])`.",
                )
            )
        if context is None:
            context = contextvars.copy_context()
        elif _is_taken(context):
            coroutine.close()
            raise UsageError(
                "two tasks of a workflow share one context, so their steps cannot be distinguished",
                hint="Give each task its own: `context=contextvars.copy_context()`.",
            )
        fresh = Branch(parent.flow, f"{parent.path}{len(parent.children)}.", None)
        if (error := sys.exception()) is not None or parent.handles:
            fresh.handles = handled_in(parent, error)
        parent.children.append(fresh)
        parent.living.append(fresh)
        fresh.context = context
        context.run(_enter, fresh)
        fresh.task = self._make(loop, coroutine, options | {"context": context})
        return fresh.task

    def _make(
        self, loop: asyncio.AbstractEventLoop, coroutine: Any, options: dict[str, Any]
    ) -> Any:
        if self._before is not None:
            return self._before(loop, coroutine, **options)
        return asyncio.Task(coroutine, loop=loop, **options)

    workers = 0  # in this process

    def install(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use it for one more app."""
        TaskFactory.workers += 1
        self._users += 1
        if self._users == 1 and not self._leads_here(loop):
            self._before = loop.get_task_factory()
            loop.set_task_factory(self)

    def release(self, loop: asyncio.AbstractEventLoop) -> None:
        """Release it for one app; the last one restores the factory that was there before."""
        TaskFactory.workers -= 1
        self._users -= 1
        if not self._users and loop.get_task_factory() is self:
            loop.set_task_factory(self._before)

    def check(self, loop: asyncio.AbstractEventLoop) -> None:
        """Raise unless the tasks of the loop are still made here."""
        current = loop.get_task_factory()
        if current is self._checked:
            return
        if not self._leads_here(loop):
            raise displaced(current)
        self._checked = current

    def _leads_here(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether the factory in force calls this one: make a task and check for its branch."""
        if loop.get_task_factory() is None:
            return False
        probe = Branch(_Probe, "", None)

        async def nothing() -> None:
            return None

        def make() -> None:
            here.set(probe)
            loop.create_task(nothing())

        contextvars.copy_context().run(make)
        return len(probe.children) == 1


def _in_no_order(coroutine: Any) -> bool:
    """Whether `asyncio.as_completed` makes this task: it takes coroutines from a set. The call of a
    step is known by its key, whatever its task."""
    if getattr(coroutine, "cr_code", None) in STEP_CODE:
        return False
    frame, in_asyncio = inspect.currentframe(), False
    while frame is not None:
        if frame.f_code in _AS_COMPLETED:
            return True
        if frame.f_globals.get("__name__") in _TASK_MAKERS:
            in_asyncio = True
        elif in_asyncio:  # the code that makes the task
            return False
        frame = frame.f_back
    return False


# The modules between the code of the user and the task factories.
_TASK_MAKERS = ("asyncio.base_events", "asyncio.tasks")
# The code that makes the tasks: of a function, and since Python 3.13 of a class.
_AS_COMPLETED = {asyncio.as_completed.__code__}
if _iterator := getattr(asyncio.tasks, "_AsCompletedIterator", None):
    _AS_COMPLETED.add(_iterator.__init__.__code__)


class _Probe:
    """A run for the probe of `_leads_here`."""

    threaded = False


_factories: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, TaskFactory] = (
    weakref.WeakKeyDictionary()
)


def factory_of(loop: asyncio.AbstractEventLoop) -> TaskFactory:
    """The one task factory of Rota for this loop."""
    return _factories.setdefault(loop, TaskFactory())


def displaced(factory: object) -> UsageError:
    """The error when tasks of a workflow were not made by our factory."""
    name = getattr(factory, "__qualname__", None) or type(factory).__qualname__
    return UsageError(
        f"the task factory {name} displaced the one of Rota, so the branches of a workflow cannot "
        "be distinguished",
        hint="Set it before the worker starts, or let it call the factory that was there before.",
    )


def _enter(branch: Branch) -> None:
    here.set(branch)
    _runs_in.set(branch)


def _is_taken(context: contextvars.Context) -> bool:
    branch = context.get(_runs_in)
    return branch is not None and branch.context is context and not branch.is_over()
