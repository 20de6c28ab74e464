"""Signals: a workflow waits durably for a value from outside, without holding a worker."""

from __future__ import annotations

import json
import logging
from typing import Any

from rota.core import typed
from rota.core.json_schema import shape_of
from rota.core.runs.argument_digest import digest_of
from rota.core.runs.model import StoredStep
from rota.core.runs.stored_errors import read_error
from rota.core.time.instants import after
from rota.errors import BadInput
from rota.store.runs.signals import Fits
from rota.workflows.results import expect_result, repeat_result
from rota.workflows.workflow_run import WorkflowRun

log = logging.getLogger("rota.workflows")


async def take_signal(
    flow: WorkflowRun, name: str, timeout_us: int | None, kind: Any
) -> StoredStep:
    """The next signal of that name as a step; `failed` when none came in time."""
    key = flow.key_for(f"wait {name}")
    shape = _shape_text(kind)
    digest = None if shape is None else digest_of((), (shape,), {})
    step = flow.recall_call(key, digest, "wait_for", (name,), {"type": kind})
    if step is None or step.status == "waiting":
        await flow.permit_new()
    if step is None:
        deadline = None if timeout_us is None else after(flow.clock.now(), timeout_us)
        # The shape is stored in place of the value: a sender of a wrong value gets an error.
        step = flow.new_step(
            key, "signal", status="waiting", wake_at=deadline, output=shape, digest=digest
        )
    reader = typed.JsonReader(kind)

    def fits(text: str | None) -> BadInput | None:
        try:
            reader.read(text, what=f"signal {name}")
        except BadInput as problem:
            return problem
        return None

    if step.status != "waiting":
        await repeat_result(flow, step)
    while step.status == "waiting":
        error = step.error
        step = await _looked(flow, name, step, fits)
        if step.error is not None and step.error != error:
            problem = read_error(step.error)["message"]
            said = "run %s ignores a signal that does not fit, and keeps waiting: %s"
            log.warning(said, flow.claim.id, problem)
        if step.status == "waiting":
            await flow.wait("signal", step.wake_at)
    return step


async def _looked(flow: WorkflowRun, name: str, step: StoredStep, fits: Fits) -> StoredStep:
    """The step after a read of the signals, when it is the turn of its result."""
    completion = expect_result(flow)
    at = None if completion is None else completion.at
    with flow:
        try:
            look = flow.context.journal.await_signal(flow.claim, name, step, fits, at)
            step = await flow.ours(look)
            flow.remember(step)
        finally:
            if completion is not None and step.status == "waiting":
                completion.drop()
        if completion is not None and step.status != "waiting":
            await completion.deliver()
    return step


def _shape_text(kind: Any) -> str | None:
    shape = shape_of(kind)
    return None if shape is None else json.dumps(shape, sort_keys=True)
