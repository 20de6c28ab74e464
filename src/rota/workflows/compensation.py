"""Compensation: undo steps, called in reverse order when a run fails for good or is ended.

The code registers them in its own order, so a replay registers the same ones. Their calls are
recorded as those of any step.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec

from rota.errors import UsageError
from rota.workflows.steps import Step, run_step
from rota.workflows.workflow_run import current_run

if TYPE_CHECKING:
    from rota.workflows.workflow_run import WorkflowRun

P = ParamSpec("P")


def compensate(step: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None:
    """Register an undo step: Rota calls it if the run fails for good, or is ended gracefully.

    Undo steps are called in reverse order of their registration, after the code has ended. They
    are not called when the run completes or will be retried, or when it is ended at once.

    Args:
        step: A step, made with `@app.step`.
        args, kwargs: The arguments of the step.

    Raises:
        UsageError: It is called outside of a workflow, or with something that is not a step.

    Example:
        await reserve(order)
        compensate(release, order)
    """
    run = current_run()
    if run is None:
        raise UsageError(
            "compensate was called outside of a workflow",
            hint="Call it in the workflow function itself, not in a step or in plain code.",
        )
    if not isinstance(step, Step):
        raise UsageError(
            f"compensate cannot call {step!r}, which is not a step",
            hint="Write `compensate(undo, …)` with a function that has @app.step.",
        )
    inspect.signature(step.function).bind(*args, **kwargs)
    run.check_open()
    run.undo.register(lambda: call_undo(run, step, args, kwargs))


async def call_undo(run: WorkflowRun, step: Step[..., Any], args: Any, kwargs: Any) -> None:
    """Call one undo step. Its key counts with those of calls of that name, so it is its own."""
    key = run.names.next(f"undo {step.name}")
    run.undo.keys.append(key)
    try:
        await run_step(run, step, key, args, kwargs)
    except asyncio.CancelledError:
        raise
    except Exception as failure:
        run.undo.failures.append(failure)
