"""The task of one run. Only the worker interrupts a run; its own code may cancel the task too."""

from __future__ import annotations

import asyncio
from typing import Any


class RunTask(asyncio.Task[None]):
    """A task that knows whether it was stopped from outside.

    `asyncio.timeout` and task groups cancel the task of the code that uses them. `cancelling()`
    counts these as well. Before Python 3.13 it also counts task groups that have ended."""

    is_stopped = False

    def stop(self) -> None:
        """Cancel the run: it is not ours any more, or the worker ends."""
        self.is_stopped = True
        self.cancel()

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the task. `asyncio.run` does so at its end, when the loop does not run."""
        if not self.get_loop().is_running():
            self.is_stopped = True
        return super().cancel(msg)


def is_stopped(task: asyncio.Task[Any] | None) -> bool:
    """Whether a run was stopped from outside; its code must not continue then."""
    if isinstance(task, RunTask):
        return task.is_stopped
    return task is not None and task.cancelling() > 0
