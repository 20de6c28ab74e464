"""The kind of code that makes a call: of a workflow, of a step, or code outside of both.

Code of an async workflow runs on the event loop of its run, and that of a sync workflow on a thread
of its own. So the running loop or the thread tells which code it is. Contexts do not: libraries
copy them.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any, Protocol

from rota.errors import UsageError


class StepCode(Protocol):
    """A step that is executed: its name is part of errors and warnings."""

    @property
    def name(self) -> str:
        """The name of the step."""
        ...


# The step around the running code. `workflows.steps` sets it in the task or thread of the step.
_step: contextvars.ContextVar[Any] = contextvars.ContextVar("rota_step", default=None)
_thread = threading.local()

enter_step = _step.set


def enter_thread(run: Any) -> None:
    """Note that this thread executes a sync workflow; None: no longer."""
    _thread.run = run


def current_run() -> Any:
    """The run that this workflow code belongs to; None in a step and outside of workflows."""
    loop = asyncio._get_running_loop()
    if loop is not None and (run := getattr(loop, "workflow_run", None)) is not None:
        return run
    return getattr(_thread, "run", None)


def current_step() -> Any:
    """The step around this code, if any."""
    return None if current_run() is not None else _step.get()


def refuse_in_workflow(verb: str) -> None:
    """Refuse a call in workflow code that changes something outside of the run."""
    if current_run() is not None:
        raise refusal(verb)


def refusal(verb: str) -> UsageError:
    """The error for a call in workflow code that changes something outside of the run."""
    return UsageError(
        f"{verb} was called in a workflow, where every replay would do it again",
        hint=f"Call it in a step: its result is recorded, so {verb} happens once.",
    )
