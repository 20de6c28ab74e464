"""Steps: the remembered result of a call, or its execution with timeout and retries."""

from __future__ import annotations

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
from rota.workflows import branches, invoke
from rota.workflows.run import WorkflowRun


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
    known = flow.recall_call(key, digest, step.name, args, kwargs)
    if known is None:
        if flow.is_replaying:
            await flow.permit_new()
    elif known.status == "completed":
        return _value(step, known.output)
    elif known.wake_at is None:
        flow.fails(key)
        raise _step_failed(step, known)
    attempt = 1 if known is None else known.attempt + 1
    while True:
        if known is not None and known.wake_at is not None:
            while flow.clock.now() < known.wake_at:
                await flow.wait("retry", known.wake_at)
        known, value, error = await _try_step(
            flow, step, key, known, attempt, digest, args, kwargs
        )
        if known.status == "completed":
            return value
        if known.wake_at is None:
            flow.fails(key)
            raise _step_failed(step, known) from error
        attempt += 1


async def _try_step(
    flow: WorkflowRun,
    step: StepLike,
    key: str,
    earlier: StoredStep | None,
    attempt: int,
    digest: int | None,
    args: Any,
    kwargs: Any,
) -> tuple[StoredStep, Any, Exception | None]:
    flow.check_open()
    position = flow.next_position() if earlier is None else earlier.position
    began = flow.clock.now()
    value = output = problem = wake_at = trouble = None
    with flow.busy():
        try:
            result = await invoke.invoke(step, args, kwargs, flow.room.threads, flow.clock)
            flow.check_open()  # a step that swallowed its cancellation has no result
            output = flow.encode(result, step.result_name)
            # Read back at once: live and replayed code see the same value, and one that does not
            # fit its hint fails here instead of poisoning every replay.
            value = _value(step, output)
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
            attempt, flow.claim.attempt, output, problem, wake_at, None, began, flow.clock.now(),
            digest,
        )  # fmt: skip
        flow.written(done, await flow.write(done))
    return done, value, trouble


def _wait_us(step: StepLike, attempt: int, error: Exception) -> int | None:
    if not TABLE[kind_of(error)].retried:
        return None
    return next_try_us(
        step.retry, attempt=attempt, error_names=names_of(error),
        retry_after_s=getattr(error, "retry_after_s", None), chance=random.random(),
    )  # fmt: skip


def _value(step: StepLike, output: str | None) -> Any:
    return step.returns.read(output, what=step.result_name)


def _step_failed(step: StepLike, known: StoredStep) -> StepFailed:
    detail = read_error(known.error)
    return StepFailed(
        f"step {step.name} failed after {known.attempt} "
        f"attempt{'s' if known.attempt > 1 else ''}: {detail['type']}: {detail['message']}",
        step=known.key, attempts=known.attempt, error_type=detail["type"], kind=detail["kind"],
    )  # fmt: skip
