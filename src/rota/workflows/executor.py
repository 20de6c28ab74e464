"""Executes workflow runs: calls the function, and turns its end or its error into an outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rota.core import typed
from rota.core.runs.end_request import CANCEL_KEY, TIMEOUT_KEY, EndRequest
from rota.core.runs.failures import describe
from rota.core.runs.ids import IdMaker
from rota.core.runs.model import Claim, Outcome, StoredStep
from rota.core.runs.options import StoredRunOptions
from rota.core.runs.retry import RetryPolicy
from rota.core.runs.worker_code import NO_CODE
from rota.core.time.instants import after
from rota.engine.clock import Timer
from rota.engine.journal import Journal
from rota.engine.outcome import OutcomeMaker, is_final
from rota.engine.process_identity import resident_bytes
from rota.engine.step_threads import StepThreads
from rota.engine.watchdog import CodeInProgress
from rota.errors import (
    BadInput,
    CleanupTimeout,
    ContinueAsNew,
    LeaseLost,
    RunInterrupted,
    RunTimeout,
    Stranded,
    Suspended,
    UsageError,
)
from rota.settings import Settings
from rota.store.runs import wake
from rota.workflows.calls import unawaited
from rota.workflows.children import AppStarter
from rota.workflows.code_version import HandBack
from rota.workflows.definition import Workflow
from rota.workflows.raised_failures import failed_calls
from rota.workflows.run_context import ReadyRuns, Rest, WorkflowContext
from rota.workflows.steps import StepCall
from rota.workflows.warm_runs import LOOK_AT, WarmRuns
from rota.workflows.workflow_run import WorkflowRun

log = logging.getLogger("rota.workflows")


class WorkflowExecutor:
    """Runs registered workflow functions."""

    kind = "workflow"
    keeps_open_run = False
    code = NO_CODE

    def __init__(
        self,
        workflows: dict[str, Workflow[..., Any]],
        journal: Journal,
        settings: Settings,
        ids: IdMaker,
        starter: AppStarter,
        version: str,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._workflows = self.names = workflows
        self._settings = settings
        self._version = version
        self._journal = journal
        self._hand_back = HandBack(journal, settings, version)
        self._outcomes = OutcomeMaker(journal.clock, ids)
        self._step_threads = StepThreads(settings.threads)
        # Sync workflows block a thread while their steps run, so the two never share a pool.
        self._flow_threads = ThreadPoolExecutor(settings.slots, thread_name_prefix="rota-flow")
        self.steps: set[StepCall] = set()  # executed now: their code may await anything real
        loop = asyncio.get_running_loop()
        self._context = WorkflowContext(
            ReadyRuns(loop), journal, journal.clock, self._step_threads, starter,
            settings.payload_bytes_max, loop, self.steps, is_stopping,
        )  # fmt: skip
        self._running: dict[str, WorkflowRun] = {}
        self.warm = WarmRuns(settings.warm_runs, settings.warm_memory_mb, resident_bytes)
        WorkflowRun.workers += 1

    def held_threads(self) -> Sequence[str]:
        """The steps that hold a thread although they timed out or were cancelled."""
        return self._step_threads.held

    async def close(self) -> None:
        """Drop the warm runs and shut the thread pools down. Threads that hang in user code are
        left behind."""
        WorkflowRun.workers -= 1
        await self.warm.close()
        self._context.ready_runs.close()
        self._step_threads.close()
        self._flow_threads.shutdown(wait=False, cancel_futures=True)

    def in_progress(self) -> CodeInProgress | None:
        """The code that executes at this moment; another thread asks."""
        found = self._context.ready_runs.in_progress
        if found is None:
            return None
        number, run = found
        return CodeInProgress(number, run.name, run.claim.id, run.claim.namespace)

    def needs_records(self, claim: Claim) -> bool:
        """Whether the run has records, and no code in memory that knows them. Secrets in records
        have to be known to hide them in errors."""
        return not claim.is_fresh and not (
            self.warm.has(claim) and not self._settings.secret_fields
        )

    async def tidy(self) -> None:
        """Drop warm runs that have ended, or that another worker has claimed."""
        if runs := self.warm.oldest(LOOK_AT):
            ids = [run.claim.id for run in runs]
            claims = await self._context.journal.read(wake.waiting, "reading claims", run_ids=ids)
            self.warm.drop_stale(runs, claims)

    def look_again(self, claim: Claim) -> None:
        """A client may have asked the run to end."""
        if (run := self._running.get(claim.id)) is not None:
            run.ending.look_again()

    async def perform(self, claim: Claim, steps: Sequence[StoredStep]) -> Outcome:
        """Call or continue the workflow; its end, suspension or error becomes an outcome."""
        workflow = self._workflows[claim.name]
        if workflow.is_pinned and claim.pinned_version is None:
            claim = await self._journal.pin(claim, self._version)  # before it has any effect
        options = StoredRunOptions.read(claim.options)
        run = None if claim.is_fresh else self.warm.take(claim)
        if run is None:
            run = WorkflowRun(
                self._context, claim, steps, began_at=options.begins_at(claim.started_at),
                seed=options.seed,
            )  # fmt: skip
        else:
            run.claim = claim  # before, it is the one under which the run came to rest
        limit = _Deadline(run, claim, options, workflow)
        retry = options.retry or workflow.retry
        run.undo.is_wanted = lambda end: self._failure_to_undo(run, end, workflow, retry, limit)
        self._running[claim.id] = run
        is_kept = False
        try:
            try:
                limit.check()
                self._begin(run, claim, workflow)
                outcome = await self._performed(run, workflow, limit)
            except (KeyboardInterrupt, GeneratorExit, LeaseLost):
                raise
            except BaseException as error:
                problem = run.refusal or error
                if (
                    run.rest is not None
                    and isinstance(problem, Stranded)
                    and (handed_back := await self._hand_back.outcome(claim, problem))
                ):
                    return handed_back
                return await self._ended_by(error, run, retry, limit)
            is_kept = outcome.verb == "suspend" and workflow.is_async and self.warm.keep(run)
            return outcome
        finally:
            limit.cancel()
            if self._running.get(claim.id) is run:
                del self._running[claim.id]
            if not is_kept:
                await run.close()

    def _begin(self, run: WorkflowRun, claim: Claim, workflow: Workflow[..., Any]) -> None:
        """Begin the code, or continue it where it waits."""
        if run.has_begun:
            run.resume(claim)
            return
        arguments = _arguments(workflow, claim)
        if workflow.is_async:
            run.begin(workflow.function(**arguments))
        else:
            run.begin_in_thread(self._flow_threads, lambda: workflow.function(**arguments))

    async def _performed(
        self, run: WorkflowRun, workflow: Workflow[..., Any], limit: _Deadline
    ) -> Outcome:
        rest = await run.until_rest()
        limit.check()
        if rest is Rest.BLOCKED:
            return _suspended(run, run.clock.now() if run.ending.is_due else limit.at)
        if rest is Rest.LOST:
            raise run.claim.lost()
        if rest is Rest.REFUSED and run.refusal is not None:
            raise run.refusal
        value = _result(run)
        if problem := run.refusal or run.records.replay.omitted() or _unawaited(run):
            raise problem
        if run.ending.end is not None:
            return await self._ended(run, None, limit)
        if isinstance(value, ContinueAsNew):
            untaken = run.calls.undelivered_signals()
            return self._outcomes.continued(run.claim, value.input, workflow.version, untaken)
        if run.continuation is not None:
            raise _not_raised(run)
        output = None if value is None else self._written(value, workflow)
        return Outcome(run.claim, "complete", output=output)

    async def _ended_by(
        self, error: BaseException, run: WorkflowRun, retry: RetryPolicy, limit: _Deadline
    ) -> Outcome:
        """The outcome of an exception from user code; raises LeaseLost if the run is not ours."""
        if run.rest is None and isinstance(error, asyncio.CancelledError):
            raise error  # the worker stops, or has lost the run
        if isinstance(error, Suspended | RunInterrupted):
            raise run.claim.lost() from None
        if run.ending.end is not None or isinstance(error, CleanupTimeout):
            return await self._ended(run, error, limit)
        if isinstance(error, asyncio.CancelledError):
            text = f"workflow {run.name} raised CancelledError, although its run was not cancelled"
            error = UsageError(text)
        if isinstance(error, RuntimeError) and "attached to a different loop" in str(error):
            error.add_note(
                f"Workflow {run.name} awaited something from outside of its run, which no replay "
                "would repeat. Let a step return the value, or send the run a signal."
            )
        if (problem := _unawaited(run)) and str(problem) != str(error):
            error.add_note(f"{problem}. {problem.advice}")
        return self._failed(run.refusal or error, run, retry, limit)

    async def _ended(
        self, run: WorkflowRun, error: BaseException | None, limit: _Deadline
    ) -> Outcome:
        """The outcome after the code has got the end: whatever it did then, the run has ended for
        the reason of the request. An error of the cleanup is kept beside it."""
        end = run.ending.request
        assert end is not None
        if isinstance(error, asyncio.CancelledError):
            error = run.undo.failures[0] if run.undo.failures else None
        if not run.interrupted and not await run.records.flush():
            raise run.claim.lost()
        reason = end.request.reason
        if end.key == CANCEL_KEY:
            text = None if error is None else describe(error)
            return Outcome(run.claim, "cancel", reason, error=text)
        problem = RunTimeout(reason)
        if error is not None:
            problem.add_note(f"Its cleanup failed: {type(error).__name__}: {error}")
        return self._outcomes.failed(run.claim, problem, RetryPolicy(), deadline_at=limit.at)

    def _failure_to_undo(
        self, run: WorkflowRun, end: asyncio.Future[Any], workflow: Workflow[..., Any],
        retry: RetryPolicy, limit: _Deadline,
    ) -> BaseException | None:  # fmt: skip
        """The failure after which the undo steps of a run are called; None for a result, and for a
        failure that is tried again or waits for a person."""
        try:
            value = end.result()
            if problem := _unawaited(run):
                raise problem
            if run.ending.end is None:
                self._written(value, workflow)
                return None
            return asyncio.CancelledError()
        except BaseException as error:
            is_over = run.ending.end is not None or is_final(
                error, retry, attempt=run.claim.attempt, now=run.clock.now(), deadline_at=limit.at
            )
            # Undo steps of an earlier claim continue, even if the policy is another one now.
            return error if is_over or run.records.replay.expects("undo ") else None

    def _written(self, value: Any, workflow: Workflow[..., Any]) -> str:
        """The result as JSON. A value that its own type cannot read back is not a result."""
        what = f"the result of workflow {workflow.name}"
        text = typed.encode(value, what=what, bytes_max=self._settings.payload_bytes_max)
        workflow.signature.returns.read_back(value, text, what=what)
        return text

    def _failed(
        self, error: BaseException, run: WorkflowRun, retry: RetryPolicy, limit: _Deadline
    ) -> Outcome:
        again = run.repeated(error)
        handling = again.handling.union(run.undo.keys) - again.failed
        outcome = self._outcomes.failed(
            run.claim, error, RetryPolicy() if run.undo.has_begun else retry, deadline_at=limit.at,
            again=tuple(sorted(again.failed)), handling=tuple(sorted(handling)),
        )  # fmt: skip
        caught = failed_calls(error) - again.failed
        if outcome.retry is not None and caught:
            log.warning(
                "run %s (%s): the failure of %s counts as caught, because the code made another "
                "durable call after it, outside of its `except` or `finally` block. A retry of the "
                "run does not call the step again. Give the step itself `retries`.",
                run.claim.id, run.claim.name, min(caught),
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
    """When a run has to end: its timeout, counted from the first claim of the chain, sleeps and
    retries included; or the end of the time that its code has to clean up."""

    def __init__(
        self,
        run: WorkflowRun,
        claim: Claim,
        options: StoredRunOptions,
        workflow: Workflow[..., Any],
    ) -> None:
        self._run = run
        self._timeout_us = options.timeout_us or workflow.timeout_us
        self._cleanup_us = workflow.cleanup_us
        self._timeout_at: int | None = None
        self._has_passed = False
        self._timer: Timer | None = None
        if self._timeout_us is not None:
            self._timeout_at = after(options.begins_at(claim.started_at), self._timeout_us)
            run.deadline_at = self._timeout_at
        run.ending.changed = self._set
        if self.at is not None:
            self._set()

    @property
    def at(self) -> int | None:
        """When it has to end."""
        if self._run.ending.until is not None:
            return self._run.ending.until
        if self._timeout_at is not None and self._run.undo.has_begun:
            return after(self._timeout_at, self._cleanup_us)
        return self._timeout_at

    def _set(self) -> None:
        self.cancel()
        if self.at is not None:
            self._timer = self._run.clock.call_at(self.at, self._pass)

    def _pass(self) -> None:
        if not self._is_put_off():
            self._has_passed = True
            self._run.interrupt()

    def _is_put_off(self) -> bool:
        """Whether the code has some time to clean up first."""
        run = self._run
        if not self._cleanup_us or run.ending.is_asked:
            return False
        if run.undo.has_begun:
            if self.at is None or self.at <= run.clock.now():
                return False
            self._set()
        else:
            run.ending.ask(TIMEOUT_KEY, EndRequest(self._text(), self._cleanup_us))
        return True

    def cancel(self) -> None:
        """Let no time pass here."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def check(self) -> None:
        """Raise an error if the time is over."""
        at = self.at
        is_over = self._has_passed or (at is not None and at <= self._run.clock.now())
        if not is_over or (not self._has_passed and self._is_put_off()):
            return
        if self._run.ending.is_asked:
            raise CleanupTimeout(
                f"run {self._run.claim.id} ({self._run.name}) was ended: its code had not cleaned "
                "up in time"
            )
        raise RunTimeout(self._text())

    def _text(self) -> str:
        return (
            f"run {self._run.claim.id} ({self._run.name}) took longer than "
            f"{(self._timeout_us or 0) / 1e6:g} s"
        )


def _result(run: WorkflowRun) -> Any:
    """The value that the code returned, or its `continue_as_new`; raises another error of it."""
    assert run.end is not None
    try:
        return run.end.result()
    except ContinueAsNew as continuation:
        return continuation
    except BaseExceptionGroup as group:  # of a `TaskGroup`, which wraps what its block raises
        rest = group.split(ContinueAsNew)[1]
        if rest is not None or run.continuation is None:
            raise
        return run.continuation


def _not_raised(run: WorkflowRun) -> UsageError:
    return UsageError(
        f"workflow {run.name} called continue_as_new and returned, so it did not continue",
        hint="Write `raise rota.continue_as_new(…)`, and let no `except BaseException` catch it.",
    )


def _unawaited(run: WorkflowRun) -> UsageError | None:
    if not run.pending_calls or not (names := unawaited(run.pending_calls)):
        return None
    waits = (
        f"rota.blocking.block_on({names[0]}(…))"
        if run.thread is not None
        else f"await {names[0]}(…)"
    )
    return UsageError(
        f"workflow {run.claim.name} called {', '.join(names[:5])} without awaiting it, so nothing "
        "was executed",
        hint=f"Write `{waits}`.",
    )


def _suspended(run: WorkflowRun, deadline_at: int | None) -> Outcome:
    times = [at for at in (run.calls.waits.next_at(), deadline_at) if at is not None]
    waits_for = run.calls.waits.kinds()
    reason = next(iter(waits_for)) if len(waits_for) == 1 else "several"
    return Outcome(run.claim, "suspend", reason=reason, wake_at=min(times, default=None))
