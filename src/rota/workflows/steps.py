"""Steps: the object that `@app.step` makes, and its calls: the remembered result, or an execution
with timeout and retries. A call outside of a workflow is a plain call."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, ParamSpec, TypedDict, TypeVar, cast

import msgspec

from rota.client.connection import running_loop
from rota.client.start import Startable
from rota.core import redaction, trace_spans, typed
from rota.core.runs.argument_digest import digest_of
from rota.core.runs.failures import describe
from rota.core.runs.model import StoredStep
from rota.core.runs.names import checked_key, checked_name
from rota.core.runs.retry import RetryPolicy
from rota.core.runs.stored_errors import read_error
from rota.core.time.instants import MINUTE, Duration, after, timeout_micros
from rota.core.typed import returns_of
from rota.engine import run_log
from rota.engine.invoke import DeadlinePassed, in_thread, within
from rota.engine.outcome import retry_delay_us
from rota.errors import StepFailed, StepTimeout, Stranded, UsageError
from rota.workflows import branches
from rota.workflows.calls import OWN_CODE, STEP_CODE
from rota.workflows.results import repeat_result
from rota.workflows.workflow_run import WorkflowRun, current_run, is_cancelled

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("rota.workflows")

# How much longer than the first time a replay waits for the code to cancel the step again.
PATIENCE_US = MINUTE


class Step(Generic[P, R]):
    """A function with a recorded result inside a workflow."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        retries: int | RetryPolicy | None = None,
        timeout: Duration | None = None,
        check_arguments: bool = True,
    ) -> None:
        check_function(function, "step")
        functools.update_wrapper(self, function)
        self.function = function
        self.name = checked_name(name or function.__name__, "step name")
        self.inside = branches.InStep(self.name)
        self._warned = False
        self.result_name = f"the result of step {self.name}"
        self.retry = RetryPolicy.of(retries)
        self.timeout_us = None if timeout is None else timeout_micros(timeout)
        self.is_async = inspect.iscoroutinefunction(function)
        self.returns = returns_of(function)
        # The digest of a call's arguments; None when they are not compared at a replay.
        self.digest: Callable[[Any, Any], int | None] = _no_digest
        if check_arguments:
            parameters = tuple(inspect.signature(function).parameters)
            self.digest = functools.partial(digest_of, parameters)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Inside a workflow: the remembered result, or the call. Elsewhere: a plain call."""
        flow = current_run()
        if flow is None:
            self._warn_in_thread()
            return self.function(*args, **kwargs)
        work: R = self._within(flow, flow.key_for(self.name), args, kwargs)
        return work

    def keyed(self, key: str) -> Callable[P, R]:
        """The same step under an explicit key, for calls in a changing order.

        Args:
            key: Unique in the run.
        """
        checked_key(str(key), f"the key of step {self.name}")

        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            flow = current_run()
            if flow is None:
                return self.function(*args, **kwargs)
            return cast(R, self._within(flow, flow.key_for(self.name, key), args, kwargs))

        return call

    def aio(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Any]:
        """Call a sync step from an async workflow: it runs in a thread.

        Args:
            args, kwargs: The arguments of the step.

        Returns:
            The result of the step.
        """
        flow = current_run()
        if flow is None:
            return self._plain(args, kwargs)
        return flow.noted(
            f"{self.name}.aio",
            lambda: run_step(flow, self, flow.key_for(self.name), args, kwargs),
        )

    async def _plain(self, args: Any, kwargs: Any) -> Any:
        value: Any = self.function(*args, **kwargs)
        return await value if self.is_async else value

    def _warn_in_thread(self) -> None:
        """Warn once of a call in a thread beside a worker: a workflow may have made the thread."""
        if branches.here.get() is not None or not branches.TaskFactory.workers or self._warned:
            return
        thread = threading.current_thread()
        if thread is threading.main_thread() or running_loop() is not None:
            return
        self._warned = True
        log.warning(
            "step %s was called in thread %s, as a plain function: nothing is recorded. If a "
            "workflow made this thread, every replay repeats the call: use asyncio.to_thread or "
            "gather in an async workflow, or call the step in the workflow's own thread.",
            self.name, thread.name,
        )  # fmt: skip

    def _within(self, flow: WorkflowRun, key: str, args: Any, kwargs: Any) -> Any:
        if flow.in_thread() is self.is_async:
            raise wrong_colour("step", self.name, self.is_async)
        work = run_step(flow, self, key, args, kwargs)
        if not self.is_async:
            return flow.block_on(work)
        flow.pending_calls[key] = (self.name, work)
        return work


class StepOptions(TypedDict, total=False):
    """The options of `@app.step`."""

    name: str | None
    retries: int | RetryPolicy | None
    timeout: Duration | None
    check_arguments: bool


def wrong_colour(what: str, name: str, is_async: bool) -> UsageError:
    """The error for a plain call between sync and async code, which cannot work."""
    if is_async:
        return UsageError(
            f"{what} {name} is async and was called in a sync workflow",
            hint=f"Write `rota.blocking.block_on({name}.aio(…))`.",
        )
    return UsageError(
        f"{what} {name} is a sync function called in an async workflow",
        hint=f"Write `await {name}.aio(…)`; it then runs in a thread.",
    )


def _no_digest(_args: Any, _kwargs: Any) -> None:
    return None


def check_function(function: Callable[..., Any], what: str) -> None:
    """Refuse all but functions with a result. Refuse one with `self` too: no caller would pass
    it, and JSON cannot hold it."""
    if isinstance(function, Step | Startable):
        kind = "step" if isinstance(function, Step) else "workflow"
        raise UsageError(
            f"{function.name} is a {kind} already",
            hint="Decorate a function once. A workflow calls a step, or another workflow.",
        )
    if not inspect.isroutine(function):
        raise UsageError(
            f"{what} {function!r} is not a function",
            hint="Decorate a `def` or an `async def` that calls it.",
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(
            f"{what} {function.__name__} has a `yield`, so it has no result",
            hint="Return a list instead.",
        )
    owner = getattr(function, "__qualname__", "").rpartition("<locals>.")[2].rpartition(".")[0]
    first = next(iter(inspect.signature(function).parameters), None)
    if owner and first in ("self", "cls"):
        raise UsageError(
            f"{what} {function.__name__} is a method of {owner}",
            hint="Use a function or a @staticmethod, and pass what it needs as arguments.",
        )


async def run_step(
    flow: WorkflowRun, step: Step[..., Any], key: str, args: Any, kwargs: Any
) -> Any:
    """The recorded result of a step, or its execution with retries."""
    flow.pending_calls.pop(key, None)
    digest = step.digest(args, kwargs)
    known = flow.recall(key)
    if known is not None:
        flow.check_arguments(known, digest, step.name, args, kwargs)
        if known.status == "completed":
            if flow.order is not None:
                await repeat_result(flow, known)
            return flow.read_recorded(step.returns, known, step.result_name)
        await _until_retry(flow, step, known)
    if flow.cancelled or flow.is_replay():
        await flow.permit_new()
    position, attempt = (known.position, known.attempt) if known else (flow.next_position(), 0)
    while True:
        attempt += 1
        flow.check_open()
        known, value, trouble = await _attempt(
            flow, step, key, position, attempt, digest, args=args, kwargs=kwargs
        )
        if trouble is None:
            return value
        await _until_retry(flow, step, known, trouble)


STEP_CODE.add(run_step.__code__)
OWN_CODE.add(run_step.__code__)


async def _attempt(
    flow: WorkflowRun,
    step: Step[..., Any],
    key: str,
    position: int,
    attempt: int,
    digest: int | None,
    *,
    args: Any,
    kwargs: Any,
) -> tuple[StoredStep, Any, Exception | None]:
    """Execute a step once and record how that ended: with a value, or with an error."""
    value = output = problem = wake_at = trouble = completion = None
    claim, started_at = flow.claim, flow.clock.now()
    try:
        with flow:
            # The code of a step is not inside the workflow: it calls other steps plainly.
            step.inside.clock = flow.clock
            outside = branches.here.set(step.inside)
            try:
                work = _begun(flow, step, args, kwargs)
                if trace_spans.is_on():
                    work = _traced(work, step.name, key, attempt)
                result = await work
                flow.check_open()  # a step that swallowed its cancellation has no result
                output = typed.encode(
                    result, what=step.result_name, bytes_max=flow.context.payload_bytes_max
                )
                redaction.learn(output)
                # Read back at once: live and replayed code see the same value, and one that does
                # not fit its hint fails here instead of in every replay.
                value = step.returns.read_back(result, output, what=step.result_name)
            except (Exception, SystemExit, asyncio.CancelledError) as error:
                trouble = _own_failure(step, error)
                flow.check_open()  # an error that a cancellation caused is not its failure
                output = None
                problem, wake_at = _failure(flow, step, key, attempt, trouble)
            finally:
                branches.here.reset(outside)
            order = flow.order
            if order is not None and wake_at is None:
                completion = order.expect(flow.branch, failed=trouble is not None)
            ended = StoredStep(
                claim.root_id, key, position, "step", "failed" if trouble else "completed",
                attempt, claim.attempt, output, problem, wake_at, None, started_at,
                completion.at if completion else flow.ends_at(), digest,
            )  # fmt: skip
            flow.remember(ended, await flow.context.journal.put(claim, ended))
    except BaseException as stop:
        if completion is not None:
            completion.drop()
        if isinstance(stop, asyncio.CancelledError):
            begun = StoredStep(
                claim.root_id, key, position, "step", "failed", attempt, claim.attempt, None, None,
                None, None, started_at, None, digest,
            )  # fmt: skip
            _note_cancelled(flow, begun, stop)
        raise
    if completion is not None:
        with flow:
            await completion.deliver()
    return ended, value, trouble


def _begun(flow: WorkflowRun, step: Step[..., Any], args: Any, kwargs: Any) -> Awaitable[Any]:
    """Begin one execution of a step's function."""
    if step.is_async and step.timeout_us is None:
        return cast(Awaitable[Any], step.function(*args, **kwargs))
    work: asyncio.Future[Any]
    if step.is_async:
        work = flow.context.loop.create_task(_contained(step, args, kwargs))
    else:
        work = in_thread(flow.context.threads, lambda: step.function(*args, **kwargs))
    if step.timeout_us is None:
        return work
    return within(work, flow.clock, flow.clock.now() + step.timeout_us)


def _own_failure(step: Step[..., Any], error: BaseException) -> Exception:
    """The error that a step failed with. Raises a cancellation that came from outside."""
    if isinstance(error, DeadlinePassed):
        took = f"{(step.timeout_us or 0) / 1e6:g} s"
        failure: Exception = StepTimeout(f"step {step.name} took longer than {took}")
        failure.__suppress_context__ = True
        return failure
    if isinstance(error, SystemExit):
        failure = SystemError(f"step {step.name} called exit ({error})")
    elif isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise error
        failure = RuntimeError(
            f"step {step.name} raised CancelledError, although nothing cancelled it"
        )
    else:
        assert isinstance(error, Exception)
        return error
    failure.__cause__ = error
    return failure


async def _contained(step: Any, args: Any, kwargs: Any) -> Any:
    """A task that ends with SystemExit would take the event loop with it."""
    try:
        return await step.function(*args, **kwargs)
    except SystemExit as leaving:
        raise SystemError(f"step {step.name} called exit ({leaving})") from leaving


async def _traced(work: Awaitable[Any], name: str, key: str, attempt: int) -> Any:
    with trace_spans.step(name, key, attempt):
        return await work


async def _until_retry(
    flow: WorkflowRun, step: Step[..., Any], known: StoredStep, error: Exception | None = None
) -> None:
    """Wait for the next attempt of a failed step; raise its failure when there is none."""
    if known.wake_at is None:
        if error is None and is_cancelled(known):
            await _wait_for_cancel(flow, known)
        if error is None:
            await repeat_result(flow, known)
        failure = _step_failed(step, known)
        flow.fails(known.key, failure)
        raise failure from error
    while flow.clock.now() < known.wake_at:
        try:
            await flow.wait("retry", known.wake_at)
        except asyncio.CancelledError as stop:
            _note_cancelled(flow, known, stop)
            raise


def _failure(
    flow: WorkflowRun, step: Step[..., Any], key: str, attempt: int, error: Exception
) -> tuple[str, int | None]:
    """The stored error of a failed attempt, and when the next one begins, if there is one."""
    wait_us = retry_delay_us(error, step.retry, attempt=attempt)
    if wait_us is None:
        return describe(error), None
    run_log.step_failed(flow.claim, key, attempt, error, wait_us)
    return describe(error), after(flow.clock.now(), wait_us)


def _step_failed(step: Step[..., Any], known: StoredStep) -> StepFailed:
    detail = read_error(known.error)
    return StepFailed(
        f"step {step.name} failed after {known.attempt} "
        f"attempt{'s' if known.attempt > 1 else ''}: {detail['type']}: {detail['message']}",
        step=known.key, attempts=known.attempt, error_type=detail["type"], kind=detail["kind"],
    )  # fmt: skip


# -- steps that the workflow itself cancelled, by a timeout of asyncio or `task.cancel()` ----------

# The worker cancels tasks too: when it stops, or has lost the run. The code of the workflow
# continues only if it cancelled the step itself. So the record of a cancelled step is written when
# that code comes to its next durable call, suspends or ends.


def _note_cancelled(flow: WorkflowRun, step: StoredStep, stop: asyncio.CancelledError) -> None:
    """Remember that the step was cancelled, until it is clear who cancelled it."""
    if flow.suspending or flow.interrupted:
        return
    flow.fails(step.key, stop)
    record = msgspec.structs.replace(
        step, status="failed", output=None, error=describe(stop), wake_at=None,
        finished_at=flow.clock.now(),
    )  # fmt: skip
    flow.cancelled = (*flow.cancelled, record)


async def _wait_for_cancel(flow: WorkflowRun, known: StoredStep) -> None:
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
    except asyncio.CancelledError as stop:
        if not flow.suspending:
            flow.fails(known.key, stop)
        raise
    finally:
        timer.cancel()
