"""Steps: the object that `@app.step` makes, and its calls: the remembered result, or an execution
with timeout and retries. A call outside of a workflow is a plain call."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Generic, ParamSpec, TypedDict, TypeVar, cast

from rota.client import caller
from rota.client.connection import running_loop
from rota.client.start import Startable
from rota.core import redaction, trace_spans, typed
from rota.core.runs.argument_digest import NotComparable, digest_of
from rota.core.runs.failures import describe
from rota.core.runs.model import StoredStep
from rota.core.runs.names import checked_key, checked_name
from rota.core.runs.retry import RetryPolicy
from rota.core.runs.stored_errors import RecordedError, read_error
from rota.core.time.instants import Duration, after, timeout_micros
from rota.core.typed import returns_of
from rota.engine import run_log
from rota.engine.invoke import (
    DeadlinePassed,
    contained,
    failure_of,
    is_from_outside,
    within,
)
from rota.engine.outcome import retry_delay_us
from rota.engine.step_threads import ThreadCall
from rota.errors import StepFailed, StepTimeout, UsageError
from rota.workflows.calls import NO_VALUE, DurableCall
from rota.workflows.step_attempt import StepAttempt
from rota.workflows.workflow_run import WorkflowRun, current_run

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("rota.workflows")
# The exceptions that the code of a step may raise; the control flow of Rota is not among them.
_OF_THE_CODE = (
    Exception, SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError,
)  # fmt: skip


class Step(Generic[P, R]):
    """A function with a recorded result inside a workflow."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        retries: int | RetryPolicy | None = None,
        timeout: Duration | None = None,
        heartbeat: Duration | None = None,
        check_arguments: bool = True,
    ) -> None:
        check_function(function, "step")
        functools.update_wrapper(self, function)
        self.function = function
        self.name = checked_name(name or function.__name__, "step name")
        self._warned = False
        self.result_name = f"the result of step {self.name}"
        self.retry = RetryPolicy.of(retries)
        self.timeout_us = None if timeout is None else timeout_micros(timeout)
        self.heartbeat_us = None if heartbeat is None else timeout_micros(heartbeat)
        if self.timeout_us and self.heartbeat_us and self.heartbeat_us >= self.timeout_us:
            raise UsageError(
                f"step {self.name} has heartbeat={heartbeat!r}, which is not shorter than its "
                f"timeout={timeout!r}",
                hint="Give it a shorter heartbeat, or leave one of the two out.",
            )
        self.has_deadline = bool(self.timeout_us or self.heartbeat_us)
        self.is_ad_hoc = current_run() is not None  # each execution of the workflow makes it again
        self.is_async = inspect.iscoroutinefunction(function)
        self.returns = returns_of(function)
        # The digest of a call's arguments; None when they are not compared at a replay.
        self.digest: Callable[[Any, Any], int | None] = _no_digest
        if check_arguments:
            self.digest = functools.partial(digest_of, _parameters(function))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Inside a workflow: the remembered result, or the call. Elsewhere: a plain call."""
        run = current_run()
        if run is None:
            self._warn_in_thread()
            return self.function(*args, **kwargs)
        work: R = self._within(run, next_key(run, self), args, kwargs)
        return work

    def keyed(self, key: str) -> Callable[P, R]:
        """The same step under an explicit key, for calls in a changing order.

        Args:
            key: Unique in the run.
        """
        checked_key(str(key), f"the key of step {self.name}")

        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            run = current_run()
            if run is None:
                return self.function(*args, **kwargs)
            return cast(R, self._within(run, next_key(run, self, key), args, kwargs))

        return call

    def aio(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Any]:
        """Call a sync step from an async workflow: it runs in a thread.

        Args:
            args, kwargs: The arguments of the step.

        Returns:
            The result of the step.
        """
        run = current_run()
        if run is None:
            return self._plain(args, kwargs)
        key = next_key(run, self)
        return run.noted(
            f"{self.name}.aio",
            lambda: run_step(run, self, key, args, kwargs),
        )

    async def _plain(self, args: Any, kwargs: Any) -> Any:
        value: Any = self.function(*args, **kwargs)
        return await value if self.is_async else value

    def _warn_in_thread(self) -> None:
        """Warn once of a call in a thread beside a worker: a workflow may have made the thread."""
        if self._warned or not WorkflowRun.workers or caller.current_step() is not None:
            return
        thread = threading.current_thread()
        if thread is threading.main_thread() or running_loop() is not None:
            return
        self._warned = True
        log.warning(
            "step %s was called in thread %s, as a plain function: nothing is recorded. If a "
            "workflow made this thread, every replay repeats the call: use gather in an async "
            "workflow, or call the step in the workflow's own thread.",
            self.name, thread.name,
        )  # fmt: skip

    def _within(self, run: WorkflowRun, key: str, args: Any, kwargs: Any) -> Any:
        if run.in_thread() is self.is_async:
            raise wrong_colour("step", self.name, self.is_async)
        work = run_step(run, self, key, args, kwargs)
        if not self.is_async:
            return run.block_on(work)
        run.pending_calls[key] = (self.name, work)
        return work


class StepOptions(TypedDict, total=False):
    """The options of `@app.step`."""

    name: str | None
    retries: int | RetryPolicy | None
    timeout: Duration | None
    heartbeat: Duration | None
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


def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(function).parameters)
    except ValueError:
        return ()  # some functions of C have no signature


def next_key(run: WorkflowRun, step: Step[..., Any], explicit: str | None = None) -> str:
    """The key of the next call of a step."""
    run.names.check_step(step)
    return run.key_for(step.name, explicit)


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
    first = next(iter(_parameters(function)), None)
    if owner and first in ("self", "cls"):
        raise UsageError(
            f"{what} {function.__name__} is a method of {owner}",
            hint="Use a function or a @staticmethod, and pass what it needs as arguments.",
        )


async def run_step(run: WorkflowRun, step: Step[..., Any], key: str, args: Any, kwargs: Any) -> Any:
    """The recorded result of a step, or its execution with retries."""
    run.pending_calls.pop(key, None)
    try:
        digest = step.digest(args, kwargs)
    except NotComparable as error:
        raise not_comparable(step.name, error) from None
    record = run.ask_call(key, digest, step.name, args, kwargs)
    call = StepCall(run, key, record, step, args, kwargs, digest)
    future = call.future = asyncio.Future(loop=run.loop)
    run.calls.add(call)
    try:  # as `run.end_of` does, with one coroutine less for each step
        ended = await future
    except asyncio.CancelledError as stop:
        raise run.cancelled(call, stop) from None
    if ended.status == "completed":
        if call.value is not NO_VALUE:
            return call.value
        return run.read_recorded(step.returns, ended, step.result_name)
    failure = _step_failed(step, ended)
    run.fails(key, failure)
    # Not from the error itself: a replay does not have it.
    raise failure from RecordedError(ended.error)


class StepCall(DurableCall):
    """A call of a step: executed on the event loop of the worker, or in a thread."""

    __slots__ = ("args", "attempt", "digest", "kwargs", "step", "task", "work")
    what = "retry"
    records_alone = True

    def __init__(
        self,
        run: WorkflowRun,
        key: str,
        record: StoredStep | None,
        step: Step[..., Any],
        args: Any,
        kwargs: Any,
        digest: int | None,
    ) -> None:
        super().__init__(run, key, record)
        self.step = step
        self.args = args
        self.kwargs = kwargs
        self.digest = digest
        # The attempt that reported progress and did not end begins again: it was interrupted.
        self.attempt = 0 if record is None else record.attempt - (record.status == "waiting")
        self.task: asyncio.Task[Any] | None = None
        self.work: asyncio.Future[Any] | None = None  # of a step with a timeout, or in a thread
        self.context = contextvars.copy_context()

    def begin(self) -> None:
        """Execute the step, or wait for its next attempt."""
        run, record = self.run, self.record
        if record is not None and (record.wake_at or 0) > run.clock.now():
            run.calls.wait(self, record.wake_at)
            return
        self.attempt += 1
        run.busy += 1
        # Context variables that the step sets end with it: each attempt has those of the call.
        context = self.context.copy()
        self.task = asyncio.Task(self._execute(), loop=run.host, name=self.key, context=context)

    def new_record(self, **fields: Any) -> StoredStep:
        """A record of this attempt, at the position of the call."""
        return super().new_record(attempt=self.attempt, digest=self.digest, **fields)

    def stop(self) -> asyncio.Task[Any] | None:
        """Cancel the step; its own cleanup may take time."""
        if self.task is None or self not in self.run.context.steps:
            return None
        self.task.cancel()
        return self.task

    async def _execute(self) -> None:
        """Execute the step once and record how that ended: with a value, or with an error."""
        run, step = self.run, self.step
        output = problem = wake_at = trouble = None
        try:
            if self.is_withdrawn or run.interrupted:
                run.work_ended()
                return
            run.context.steps.add(self)
            now = StepAttempt(self)
            self.record = None  # of the attempt before
            caller.enter_step(now)
            try:
                work = self._begun(now)
                if trace_spans.is_on():
                    work = _traced(work, step.name, self.key, self.attempt, run.span)
                result = await work
                output = typed.encode(
                    result, what=step.result_name, bytes_max=run.context.payload_bytes_max
                )
                redaction.learn(output)
                # Read back at once: live and replayed code see the same value, and one that does
                # not fit its hint fails here instead of in every replay.
                self.value = step.returns.read_back(result, output, what=step.result_name)
            except _OF_THE_CODE as error:
                _pass_on(error, self.task)
                if self._is_wanted():
                    output, trouble = None, _own_failure(now, step, error, self._obstacle())
                    problem, wake_at = self._failure(trouble)
            if not self._counts(now):
                return
            if trouble is not None:
                output = now.stored_progress()
            record = self.record = StoredStep(
                run.segment, self.key, self.position, "step",
                "failed" if trouble else "completed", self.attempt, run.claim.attempt, output,
                problem, wake_at, None, now.began_at, run.records.next_at(), self.digest,
            )  # fmt: skip
            answer = run.calls.put_end(self, record, is_final=wake_at is None)
        except Exception as error:
            run.breaks(error)
            run.work_ended()
        else:
            if answer is not None:
                self.set_result(await answer)

    def _counts(self, now: StepAttempt) -> bool:
        """End this attempt. Returns whether its end is recorded."""
        run = self.run
        run.context.steps.discard(self)
        self.task = None  # its context refers to this object: no cycle is left
        now.end()
        if run.interrupted or not self._has_own_arguments():
            is_counted = False
        else:
            # A step that was cancelled has neither a result nor a failure, whatever it did then.
            is_counted = not self.is_withdrawn
        if not (is_counted or self.is_withdrawn):  # the run does not wait for that as for work
            run.work_ended()
        return is_counted

    def _is_wanted(self) -> bool:
        """Whether the run still waits for this step."""
        return not (self.is_withdrawn or self.run.interrupted)

    def _begun(self, now: StepAttempt) -> Awaitable[Any]:
        """Begin one execution of the function."""
        run, step = self.run, self.step
        ends_at = now.ends_at() if step.has_deadline else None
        if step.is_async and ends_at is None:
            return cast(Awaitable[Any], step.function(*self.args, **self.kwargs))
        work: asyncio.Future[Any]
        if step.is_async:
            code = cast(Awaitable[Any], step.function(*self.args, **self.kwargs))
            work = run.host.create_task(contained(code))
        else:
            function = functools.partial(_plain, step, self.args, self.kwargs)
            work = run.context.threads.begin(step.name, function)
        self.work = work
        if ends_at is None:
            return work
        return within(work, run.clock, ends_at, lambda: now.ends_at() or 0)

    @property
    def waits_for_thread(self) -> bool:
        """Whether it is a sync step that begins when other steps have ended."""
        return isinstance(self.work, ThreadCall) and not self.work.has_begun

    def _obstacle(self) -> str | None:
        """The reason why a sync step has not begun; None if it has."""
        work = self.work
        return self.run.context.threads.obstacle(work) if isinstance(work, ThreadCall) else None

    def _failure(self, error: Exception) -> tuple[str, int | None]:
        """The stored error of a failed attempt, and when the next one begins, if there is one."""
        run = self.run
        wait_us = retry_delay_us(error, self.step.retry, attempt=self.attempt)
        if wait_us is None:
            return describe(error), None
        run_log.step_failed(run.claim, self.key, self.attempt, error, wait_us)
        return describe(error), after(run.clock.now(), wait_us)

    def _has_own_arguments(self) -> bool:
        """Whether the arguments are still those of the call. Otherwise the run ends: no replay
        would see the change."""
        if self.digest is None or (
            _are_fixed(self.args) and (not self.kwargs or _are_fixed(self.kwargs.values()))
        ):
            return True
        try:
            if self.step.digest(self.args, self.kwargs) == self.digest:
                return True
        except NotComparable:
            pass  # a value that cannot be compared any more
        self.run.refuse(changed_arguments(self.step.name))
        return False


def not_comparable(name: str, error: NotComparable) -> UsageError:
    """The error for an argument that no replay could compare with the recorded one."""
    return UsageError(
        f"an argument of step {name} cannot be compared at a replay: {error}",
        hint="Pass plain values or a dataclass, or give the step check_arguments=False.",
    )


def changed_arguments(name: str) -> UsageError:
    """The error for a step with arguments that changed while it ran: a replay has the old ones."""
    return UsageError(
        f"an argument of step {name} changed while the step was executed, and no replay would see "
        "the change",
        hint="Let the step return the new value instead of changing its argument, and do not "
        "change a value that a running step has.",
    )


_FIXED = {str, int, float, bool, bytes, type(None)}


def _are_fixed(values: Iterable[object]) -> bool:
    """Whether no code can change these arguments."""
    return _FIXED.issuperset(map(type, values))


def _pass_on(error: BaseException, task: asyncio.Task[Any] | None) -> None:
    """Raise what comes from outside again. The run knows of its own cancellations."""
    if not isinstance(error, asyncio.CancelledError) and is_from_outside(error, task):
        raise error


def _own_failure(
    now: StepAttempt, step: Step[..., Any], error: BaseException, obstacle: str | None
) -> Exception:
    """The error that a step failed with. `obstacle` is the reason why it has not begun."""
    if isinstance(error, DeadlinePassed):
        failure: Exception = now.time_over()
        if obstacle is not None:
            took = f"{(step.timeout_us or step.heartbeat_us or 0) / 1e6:g} s"
            failure = StepTimeout(
                f"step {step.name} did not begin within {took}: {obstacle}",
                hint="Give the calls that these steps make timeouts of their own, then restart "
                "the worker: Python cannot end a thread. The setting `threads` is their number.",
            )
        failure.__suppress_context__ = True
        return failure
    if isinstance(error, Exception):
        return error
    failure = failure_of(error)
    failure.__cause__ = error
    return failure


def _plain(step: Step[..., Any], args: Any, kwargs: Any) -> Any:
    """Call a sync function, in a thread."""
    value = step.function(*args, **kwargs)
    if inspect.iscoroutine(value):
        value.close()
        raise UsageError(
            f"the function of step {step.name} returned a coroutine, which nothing awaits",
            hint="Pass the async function itself and its arguments, without a lambda.",
        )
    return value


async def _traced(work: Awaitable[Any], name: str, key: str, attempt: int, within: Any) -> Any:
    with trace_spans.step(name, key, attempt, within):
        return await work


def _step_failed(step: Step[..., Any], known: StoredStep) -> StepFailed:
    detail = read_error(known.error)
    return StepFailed(
        f"step {step.name} failed after {known.attempt} "
        f"attempt{'s' if known.attempt > 1 else ''}: {detail['type']}: {detail['message']}",
        step=known.key, attempts=known.attempt, error_type=detail["type"], kind=detail["kind"],
    )  # fmt: skip
