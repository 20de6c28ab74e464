"""Executes workflow runs: calls the function, and turns its end or its error into an outcome."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rota.core import typed
from rota.core.runs.ids import IdMaker
from rota.core.runs.model import Claim, Outcome, StoredStep
from rota.core.runs.options import StoredRunOptions
from rota.core.runs.retry import RetryPolicy
from rota.core.runs.worker_code import NO_CODE
from rota.core.time.instants import after
from rota.engine.invoke import in_thread
from rota.engine.journal import Journal
from rota.engine.outcome import OutcomeMaker
from rota.engine.run_task import is_stopped
from rota.errors import (
    BadInput,
    RunInterrupted,
    RunTimeout,
    Suspended,
    Unstorable,
    UsageError,
)
from rota.settings import Settings
from rota.workflows import branches
from rota.workflows.asyncio_timeouts import undetected
from rota.workflows.calls import unawaited
from rota.workflows.children import AppStarter
from rota.workflows.definition import Workflow
from rota.workflows.raised_failures import failed_calls
from rota.workflows.workflow_run import LINGER_S, WorkflowContext, WorkflowRun

log = logging.getLogger("rota.workflows")


class WorkflowExecutor:
    """Runs registered workflow functions."""

    kind = "workflow"
    keeps_open_run = False
    replays = True
    code = NO_CODE

    def __init__(
        self,
        workflows: dict[str, Workflow[..., Any]],
        journal: Journal,
        settings: Settings,
        ids: IdMaker,
        starter: AppStarter,
    ) -> None:
        self._workflows = self.names = workflows
        self._settings = settings
        self._outcomes = OutcomeMaker(journal.clock, ids)
        self._step_threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="rota-step")
        # Sync workflows block a thread while their steps run, so the two never share a pool.
        self._flow_threads = ThreadPoolExecutor(settings.slots, thread_name_prefix="rota-flow")
        self._loop = asyncio.get_running_loop()
        self._factory = branches.factory_of(self._loop)
        self._factory.install(self._loop)
        if warning := undetected(self._loop):
            log.info("%s", warning)
        self._context = WorkflowContext(
            journal, journal.clock, self._step_threads, starter, settings.payload_bytes_max,
            self._loop, threading.get_ident(),
        )  # fmt: skip

    def close(self) -> None:
        """Shut the thread pools down; threads that hang in user code are left behind."""
        self._factory.release(self._loop)
        self._step_threads.shutdown(wait=False, cancel_futures=True)
        self._flow_threads.shutdown(wait=False, cancel_futures=True)

    async def perform(self, claim: Claim, steps: Sequence[StoredStep]) -> Outcome:
        """Call the workflow; its end, its suspension or its error becomes an outcome."""
        workflow = self._workflows[claim.name]
        options = StoredRunOptions.read(claim.options)
        threaded = not workflow.is_async
        flow = WorkflowRun(self._context, claim, steps, threaded=threaded, seed=options.seed)
        timeout_us = options.timeout_us or workflow.timeout_us
        limit = _Deadline(flow, claim, options, timeout_us) if timeout_us else _UNLIMITED
        try:
            self._factory.check(self._loop)
            if limit.at is not None and limit.at <= flow.clock.now():
                limit.passed = True
                raise limit.error()
            arguments = _arguments(workflow, claim)
            if workflow.is_async:
                value = await workflow.function(**arguments)
            else:
                value = await in_thread(self._flow_threads, lambda: workflow.function(**arguments))
            if flow.suspending:
                return _swallowed(flow, limit.at)
            if problem := flow.refusal or (flow.unasked and flow.stranded()) or _unawaited(flow):
                raise problem
            output = None if value is None else self._written(value, workflow)
            return Outcome(claim, "complete", output=output)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            return self._ended_by(error, flow, options.retry or workflow.retry, limit)
        finally:
            if limit is not _UNLIMITED:
                limit.cancel()
            if flow.cancelled:
                await _record_cancelled(flow)
            if branches_left := flow.end():
                await _until_ended(branches_left, flow)

    def _ended_by(
        self, error: BaseException, flow: WorkflowRun, retry: RetryPolicy, limit: _Deadline
    ) -> Outcome:
        """The outcome of an exception from user code; raises LeaseLost if the run is not ours."""
        if isinstance(flow.refusal, Unstorable):  # user code was unwound as if interrupted
            return self._failed(flow.refusal, flow, retry, limit)
        stopped = isinstance(error, Suspended | RunInterrupted | asyncio.CancelledError)
        if flow.suspending:
            return (_suspended if stopped else _swallowed)(flow, limit.at)
        if stopped and limit.passed:
            return self._failed(limit.error(), flow, retry, limit)
        if isinstance(error, asyncio.CancelledError):
            flow.interrupted = True
            raise error
        if stopped:
            raise flow.claim.lost() from None
        if (problem := _unawaited(flow)) and str(problem) != str(error):
            error.add_note(f"{problem}. {problem.advice}")
        return self._failed(flow.refusal or error, flow, retry, limit)

    def _written(self, value: Any, workflow: Workflow[..., Any]) -> str:
        """The result as JSON. A value that its own type cannot read back is not a result."""
        what = f"the result of workflow {workflow.name}"
        text = typed.encode(value, what=what, bytes_max=self._settings.payload_bytes_max)
        workflow.signature.returns.read_back(value, text, what=what)
        return text

    def _failed(
        self, error: BaseException, flow: WorkflowRun, retry: RetryPolicy, limit: _Deadline
    ) -> Outcome:
        again = flow.repeated(error)
        outcome = self._outcomes.failed(
            flow.claim, error, retry, deadline_at=limit.at,
            again=tuple(sorted(again.failed)), handling=tuple(sorted(again.handling)),
        )  # fmt: skip
        caught = failed_calls(error) - again.failed
        if outcome.retry is not None and caught:
            log.warning(
                "run %s (%s): the failure of %s counts as caught, because the code made another "
                "durable call after it, outside of its `except` or `finally` block. A retry of the "
                "run does not call the step again. Give the step itself `retries`.",
                flow.claim.id, flow.claim.name, min(caught),
            )  # fmt: skip
        return outcome


def _arguments(workflow: Workflow[..., Any], claim: Claim) -> dict[str, Any]:
    """The input of the run. The code of its caller may be older or newer than this one."""
    try:
        return workflow.signature.read(claim.input, what="the input")
    except BadInput as error:
        raise BadInput(
            f"the input of run {claim.id} does not fit {workflow.signature.described(claim.name)}: "
            f"{error.message.removeprefix('the input: ')}",
            hint="Start it again with arguments that fit. If the code has changed, let it accept "
            "this input (a default for a new parameter), then `rota run retry` it.",
        ) from error


class _Deadline:
    """The timeout of the chain, counted from its first claim; sleeps and retries included."""

    passed = False

    def __init__(
        self, flow: WorkflowRun, claim: Claim, options: StoredRunOptions, timeout_us: int
    ) -> None:
        self._flow = flow
        self._claim = claim
        self._timeout_us = timeout_us
        self.at: int | None = after(options.begins_at(claim.started_at), timeout_us)
        self._timer = flow.clock.call_at(self.at, self._pass)

    def _pass(self) -> None:
        self.passed = True
        self._flow.interrupted = True  # a thread cannot be cancelled: it stops at its next call
        if self._flow.task is not None:
            self._flow.task.cancel()

    def cancel(self) -> None:
        self._timer.cancel()

    def error(self) -> RunTimeout:
        return RunTimeout(
            f"run {self._claim.id} ({self._claim.name}) took longer than "
            f"{self._timeout_us / 1e6:g} s"
        )


class _Unlimited(_Deadline):
    """No timeout."""

    def __init__(self) -> None:
        self.at = None


_UNLIMITED = _Unlimited()


async def _record_cancelled(flow: WorkflowRun) -> None:
    """Record the steps that the workflow cancelled itself, now that it has ended or suspends."""
    if (flow.interrupted or is_stopped(flow.task)) and not flow.suspending:
        return
    try:
        await flow.record_cancelled()
    except RunInterrupted:
        raise flow.claim.lost() from None


async def _until_ended(tasks: list[asyncio.Task[Any]], flow: WorkflowRun) -> None:
    """Wait for cancelled branches, so that no step of a run is at work after the run's end."""
    _, pending = await asyncio.wait(tasks, timeout=LINGER_S)
    if pending:
        log.error(
            "workflow %s ended, but %d of its tasks did not stop when they were cancelled (run %s)."
            " Let asyncio.CancelledError pass.", flow.claim.name, len(pending), flow.claim.id,
        )  # fmt: skip


def _unawaited(flow: WorkflowRun) -> UsageError | None:
    if not flow.pending_calls or not (names := unawaited(flow.pending_calls)):
        return None
    waits = f"rota.blocking.block_on({names[0]}(…))" if flow.threaded else f"await {names[0]}(…)"
    return UsageError(
        f"workflow {flow.claim.name} called {', '.join(names[:5])} without awaiting it, so nothing "
        "was executed",
        hint=f"Write `{waits}`.",
    )


def _swallowed(flow: WorkflowRun, deadline_at: int | None) -> Outcome:
    log.error(
        "workflow %s swallowed its suspension (run %s); it is suspended all the same. "
        "Let BaseException pass: catch Exception instead.", flow.claim.name, flow.claim.id,
    )  # fmt: skip
    return _suspended(flow, deadline_at)


def _suspended(flow: WorkflowRun, deadline_at: int | None) -> Outcome:
    times = [at for at in (flow.wake_at, deadline_at) if at is not None]
    reason = next(iter(flow.waits_for)) if len(flow.waits_for) == 1 else "several"
    return Outcome(flow.claim, "suspend", reason=reason, wake_at=min(times, default=None))
