"""Steps that the workflow itself cancelled, by a timeout of asyncio or `task.cancel()`.

The worker cancels tasks too: when it stops, or has lost the run. Only what follows tells the two
apart: the code of the workflow continues. So the record of a cancelled step is written when that
code comes to its next durable call, suspends or ends.
"""

from __future__ import annotations

import asyncio

import msgspec

from rota.core.runs.failures import describe
from rota.core.runs.model import StoredStep
from rota.core.time.instants import MINUTE
from rota.errors import Stranded
from rota.workflows.run import WorkflowRun

# How much longer than the first time a replay waits for the code to cancel the step again.
PATIENCE_US = MINUTE


def note(flow: WorkflowRun, step: StoredStep, stop: asyncio.CancelledError) -> None:
    """Remember that the step was cancelled, until it is clear who cancelled it."""
    if flow.suspending or flow.interrupted:
        return
    flow.fails(step.key)
    record = msgspec.structs.replace(
        step, status="failed", output=None, error=describe(stop), wake_at=None,
        finished_at=flow.clock.now(),
    )  # fmt: skip
    flow.cancelled = (*flow.cancelled, record)


async def wait_for_cancel(flow: WorkflowRun, known: StoredStep) -> None:
    """Wait until the code cancels the step again, as it did before; the step is not executed.

    Raising at once would be another answer than the first time: a timeout that has not expired
    passes CancelledError on, and one that has expired raises TimeoutError.
    """
    waiting: asyncio.Future[None] = flow.context.loop.create_future()
    took_us = (known.finished_at or known.started_at) - known.started_at

    def give_up() -> None:
        if not waiting.done():
            problem = Stranded(
                f"run {flow.claim.id} ({flow.claim.name}) recorded that the code cancelled "
                f"{known.key}, and the code does not cancel it now",
                steps=[known.key],
            )
            waiting.set_exception(flow.refuse(problem))

    timer = flow.clock.call_at(flow.clock.now() + 2 * took_us + PATIENCE_US, give_up)
    try:
        await waiting
    except asyncio.CancelledError:
        if not flow.suspending:
            flow.fails(known.key)
        raise
    finally:
        timer.cancel()
