"""The objects that runs of a worker share, such as the way of their code into its event loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from rota.engine.clock import Clock
from rota.engine.journal import Journal
from rota.engine.step_threads import StepThreads
from rota.workflows.run_loop import RunLoop

if TYPE_CHECKING:
    from rota.workflows.children import AppStarter
    from rota.workflows.workflow_run import WorkflowRun


class ReadyRuns:
    """The runs of one worker with code that may continue: all of one moment in one callback of its
    event loop, never inside a task of that loop."""

    def __init__(self, host: asyncio.AbstractEventLoop) -> None:
        self._host = host
        self._runs: list[WorkflowRun] = []
        self._count = 0
        # Set once: setting them costs as much as a step.
        self._hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(self._first_iteration, self._finalize)
        # The run with code that executes at this moment, and its number; another thread reads it.
        self.in_progress: tuple[int, WorkflowRun] | None = None

    def add(self, run: WorkflowRun) -> None:
        """Let a run continue soon."""
        if not self._runs:
            self._host.call_soon(self._proceed)
        self._runs.append(run)

    def _proceed(self) -> None:
        runs, self._runs = self._runs, []
        for run in runs:
            self._proceed_with(run)

    def _proceed_with(self, run: WorkflowRun) -> None:
        self._count += 1
        self.in_progress = self._count, run
        try:
            run.proceed()
        finally:
            self.in_progress = None

    def proceed_at_once(self, run: WorkflowRun) -> None:
        """Let a run continue now. The caller is a task of the worker's event loop."""
        self.between(self._proceed_with, run)

    def between(self, work: Callable[[WorkflowRun], None], run: WorkflowRun) -> None:
        """Do this between the tasks of the event loop: a thread executes one task at a time, so the
        task of the caller pauses."""
        task = asyncio.current_task(self._host)
        assert task is not None
        asyncio._leave_task(self._host, task)
        try:
            work(run)
        finally:
            asyncio._enter_task(self._host, task)

    def _first_iteration(self, generator: AsyncGenerator[Any, Any]) -> None:
        if not isinstance(asyncio._get_running_loop(), RunLoop) and self._hooks.firstiter:
            self._hooks.firstiter(generator)

    def _finalize(self, generator: AsyncGenerator[Any, Any]) -> None:
        loop = asyncio._get_running_loop()
        if isinstance(loop, RunLoop):
            loop.finalize(generator)
        elif self._hooks.finalizer:
            self._hooks.finalizer(generator)

    def close(self) -> None:
        """Let the event loop close async generators by itself again."""
        if sys.get_asyncgen_hooks().finalizer == self._finalize:  # the newest of several workers
            sys.set_asyncgen_hooks(*self._hooks)


class WorkflowContext(NamedTuple):
    """The objects that all workflow runs of one process share."""

    ready_runs: ReadyRuns
    journal: Journal
    clock: Clock
    threads: StepThreads
    starter: AppStarter
    payload_bytes_max: int
    loop: asyncio.AbstractEventLoop
    steps: set[Any]  # the calls of steps that are executed now: work outside of Rota
    is_stopping: Callable[[], bool]  # whether the worker stops


class Rest(Enum):
    """Why the code of a run does not continue for now."""

    BLOCKED = "blocked"  # it waits, and no work is in progress
    ENDED = "ended"  # it returned or raised
    REFUSED = "refused"  # `refusal` ended it
    LOST = "lost"  # the run is not ours any more
