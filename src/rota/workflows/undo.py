"""The undo steps that the code of a run has registered, and their calls after the code has ended.

A part of `WorkflowRun`; user code registers with `compensation.compensate`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota.workflows.workflow_run import WorkflowRun


class Undo:
    """The undo steps of one run."""

    __slots__ = ("_calls", "_run", "failures", "has_begun", "is_wanted", "keys")

    def __init__(self, run: WorkflowRun) -> None:
        self._run = run
        self._calls: list[Callable[[], Awaitable[None]]] = []
        self.has_begun = False
        self.keys: list[str] = []  # of the undo steps that were called
        self.failures: list[Exception] = []
        # Whether this end of the code is final, and not a result: known to the executor.
        self.is_wanted: Callable[[asyncio.Future[Any]], BaseException | None] = lambda _: None

    def __bool__(self) -> bool:
        return bool(self._calls) and not self.has_begun

    def register(self, call: Callable[[], Awaitable[None]]) -> None:
        """Add an undo step."""
        self._calls.append(call)

    def begin(self) -> bool:
        """Begin to undo if the code has ended without a result, and will not be tried again."""
        run, end = self._run, self._run.end
        if end is None or not end.done():
            return False
        if run.interrupted or run.refusal is not None:
            return False
        if (error := self.is_wanted(end)) is None:
            return False
        self.has_begun = True
        for task in run.loop.left_tasks():
            task.cancel()  # nothing continues beside the undo steps
        run.replace_main(self._undo(error))
        return True

    async def _undo(self, error: BaseException) -> None:
        while self._calls:
            await self._calls.pop()()
        for failure in self.failures:
            error.add_note(f"Compensation failed: {failure}")
        raise error
