"""Steps: the remembered result of a call, or its execution with timeout and retries."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Protocol

from rota.core import typed
from rota.core.runs.failures import TABLE, describe, kind_of, names_of
from rota.core.runs.model import StoredStep
from rota.core.runs.retry import RetryPolicy, next_try_us
from rota.core.runs.stored_errors import read_error
from rota.core.time.instants import after
from rota.engine import run_log
from rota.errors import StepFailed
from rota.workflows import branches, cancelled_steps, invoke
from rota.workflows.run import WorkflowRun, is_cancelled


class StepLike(Protocol):
    """What performing a step needs to know of it."""

    name: str
    result_name: str  # how messages call what it returns
    function: Any
    retry: RetryPolicy
    timeout_us: int | None
    is_async: bool
    returns: typed.JsonReader
    inside: branches.InStep

    def digest(self, args: Any, kwargs: Any) -> int | None:
        """Of the arguments; None when they are not compared."""
        ...


async def run_step(flow: WorkflowRun, step: StepLike, key: str, args: Any, kwargs: Any) -> Any:
    """The remembered result of a step, or its execution with retries."""
    flow.calls.begun(key, None)
    digest = step.digest(args, kwargs)
    known = flow.recall(key)
    if known is None:
        if flow.unasked or flow.cancelled:
            await flow.permit_new()
    else:
        flow.check_arguments(known, digest, step.name, args, kwargs)
        if known.status == "completed":
            return step.returns.read(known.output, what=step.result_name)
        if known.wake_at is None:
            if is_cancelled(known):
                await cancelled_steps.wait_for_cancel(flow, known)
            flow.fails(key)
            raise _step_failed(step, known)
    while True:
        if known is not None and known.wake_at is not None:
            await _until_retry(flow, known, known.wake_at)
        known, value, error = await _try_step(flow, step, key, known, digest, args, kwargs)
        if known.status == "completed":
            return value
        if known.wake_at is None:
            flow.fails(key)
            raise _step_failed(step, known) from error


async def _until_retry(flow: WorkflowRun, known: StoredStep, wake_at: int) -> None:
    while flow.clock.now() < wake_at:
        try:
            await flow.wait("retry", wake_at)
        except asyncio.CancelledError as stop:
            cancelled_steps.note(flow, known, stop)
            raise


async def _try_step(
    flow: WorkflowRun,
    step: StepLike,
    key: str,
    earlier: StoredStep | None,
    digest: int | None,
    args: Any,
    kwargs: Any,
) -> tuple[StoredStep, Any, Exception | None]:
    flow.check_open()
    if earlier is None:
        attempt, position = 1, flow.next_position()
    else:
        attempt, position = earlier.attempt + 1, earlier.position
    began = flow.clock.now()
    bytes_max = flow.room.payload_bytes_max
    value = output = problem = wake_at = trouble = None
    try:
        with flow:
            try:
                result = await invoke.invoke(step, args, kwargs, flow.room.threads, flow.clock)
                flow.check_open()  # a step that swallowed its cancellation has no result
                output = typed.encode(result, what=step.result_name, bytes_max=bytes_max)
                # Read back at once: live and replayed code see the same value, and one that does
                # not fit its hint fails here instead of poisoning every replay.
                value = step.returns.read(output, what=step.result_name)
            except Exception as error:
                flow.check_open()  # nor is an error that a cancellation caused its failure
                trouble, output = error, None
                problem = describe(error)
                wait_us = _wait_us(step, attempt, error)
                if wait_us is not None:
                    run_log.step_failed(flow.claim, key, attempt, error, wait_us)
                wake_at = None if wait_us is None else after(flow.clock.now(), wait_us)
            done = StoredStep(
                flow.claim.root_id, key, position, "step", "failed" if trouble else "completed",
                attempt, flow.claim.attempt, output, problem, wake_at, None, began,
                flow.clock.now(), digest,
            )  # fmt: skip
            flow.written(done, await flow.write(done))
    except asyncio.CancelledError as stop:
        begun = StoredStep(
            flow.claim.root_id, key, position, "step", "failed", attempt, flow.claim.attempt, None,
            None, None, None, began, None, digest,
        )  # fmt: skip
        cancelled_steps.note(flow, begun, stop)
        raise
    return done, value, trouble


def _wait_us(step: StepLike, attempt: int, error: Exception) -> int | None:
    if not TABLE[kind_of(error)].retried:
        return None
    return next_try_us(
        step.retry, attempt=attempt, error_names=names_of(error),
        retry_after_s=getattr(error, "retry_after_s", None), chance=random.random(),
    )  # fmt: skip


def _step_failed(step: StepLike, known: StoredStep) -> StepFailed:
    detail = read_error(known.error)
    return StepFailed(
        f"step {step.name} failed after {known.attempt} "
        f"attempt{'s' if known.attempt > 1 else ''}: {detail['type']}: {detail['message']}",
        step=known.key, attempts=known.attempt, error_type=detail["type"], kind=detail["kind"],
    )  # fmt: skip
