"""Results of calls: recorded, then delivered to the code in the order in which they came."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import msgspec

from rota.core.runs.model import StoredStep
from rota.workflows.completions import Completion
from rota.workflows.workflow_run import WorkflowRun


def expect_result(flow: WorkflowRun, *, failed: bool = False) -> Completion | None:
    """A result that is about to be recorded; None in a run without branches, which has no order."""
    order = flow.order
    return None if order is None else order.expect(flow.branch, failed=failed)


@contextlib.asynccontextmanager
async def new_result(flow: WorkflowRun, *, failed: bool = False) -> AsyncIterator[int]:
    """Context manager: yields the instant to record a result with, then waits until the result may
    be delivered."""
    completion = expect_result(flow, failed=failed)
    with flow:
        if completion is None:
            yield flow.ends_at()
            return
        try:
            yield completion.at
        except BaseException:
            completion.drop()
            raise
        await completion.deliver()


async def record_result(flow: WorkflowRun, step: StoredStep) -> StoredStep:
    """Record the end of a call; returns when it is the turn of its result."""
    async with new_result(flow, failed=step.status == "failed") as at:
        step = msgspec.structs.replace(step, finished_at=at)
        await flow.record(step)
    return step


async def repeat_result(flow: WorkflowRun, step: StoredStep) -> None:
    """Return when it is the turn of a result that was recorded before."""
    order = flow.order
    if order is not None:
        with flow:
            await order.expect(
                flow.branch, step.finished_at, step.position, failed=step.status == "failed"
            ).deliver()
