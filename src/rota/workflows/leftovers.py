"""The leftovers of a run: code that has to end, and cancelled steps that need time to close."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from rota.core.time.instants import SECOND
from rota.errors import UsageError

if TYPE_CHECKING:
    from rota.workflows.workflow_run import WorkflowRun

log = logging.getLogger("rota.workflows")

# Callbacks of one run before other runs of the worker continue.
SLICE = 2_000
# How long a step that was cancelled may take to close before it is cancelled again.
CLOSE_US = 5 * SECOND
# How often code is cancelled that has to end and awaits in its cleanup.
UNWIND_ROUNDS = 100


def unwind(run: WorkflowRun) -> None:
    """Cancel the tasks of the code until all have ended."""
    left = run.loop.left_tasks()
    if not left:
        return
    run.loop.enter()
    try:
        for _ in range(UNWIND_ROUNDS):
            for task in left:
                task.cancel()
            run.loop.proceed()
            run.loop.drain(SLICE)
            left = run.loop.left_tasks()
            if not left:
                return
    finally:
        asyncio._set_running_loop(run.host)
    log.error(
        "workflow %s: %d of its tasks do not end when they are cancelled (run %s): %s. They are "
        "dropped. Let asyncio.CancelledError pass.",
        run.name, len(left), run.claim.id, where(left),
    )  # fmt: skip


async def until_closed(run: WorkflowRun, works: Collection[asyncio.Task[Any]]) -> None:
    """Wait for cancelled steps of a run that is over, for a while."""
    _, pending = await asyncio.wait(works, timeout=CLOSE_US / SECOND)
    if pending:
        for work in pending:
            work.cancel()
        log.error(
            "run %s (%s) is over, and %d of its steps have not ended after their cancellation: "
            "%s. They are left behind. Let asyncio.CancelledError pass.",
            run.claim.id, run.name, len(pending), where(pending),
        )  # fmt: skip


def leave_behind(run: WorkflowRun, late: dict[asyncio.Task[Any], str]) -> None:
    """Cancel steps again that have not closed in time; the run continues without them."""
    for task in late:
        task.cancel()
    log.error(
        "run %s (%s) continues although %s, which its code cancelled, has not ended: %s. "
        "Let asyncio.CancelledError pass.",
        run.claim.id, run.name, ", ".join(late.values()), where(late),
    )  # fmt: skip


def blocked_forever(run: WorkflowRun) -> UsageError:
    """The error for code that waits, although nothing it waits for can come."""
    return UsageError(
        f"workflow {run.name} waits for something that no step, timer, signal or child will "
        f"complete: {where(run.loop.left_tasks())}",
        hint="Await a durable call, or code that another task of the workflow completes. A value "
        "from outside comes from a step or a signal.",
    )


def where(tasks: Iterable[asyncio.Task[Any]]) -> str:
    """The lines at which tasks wait, for messages."""
    found = []
    for task in tasks:
        frames = task.get_stack(limit=1)
        place = "an unknown place"
        if frames:
            place = f"{frames[-1].f_code.co_filename}:{frames[-1].f_lineno}"
        found.append(f"{task.get_name()} at {place}")
    return ", ".join(found[:5])
