"""One run of a workflow while a worker has it: its calls, their ends, and when it rests.

The code of an async workflow runs on a loop of its own (`run_loop`). Recorded completions enter it
one at a time, in the order of their records, and the loop is drained after each: at a replay from
memory, then as they come. So the code makes the same calls in the same order at every execution,
and a call is named by its order in the run. When the loop has nothing to run and no work is in
progress, the run is blocked: it leaves its slot, and its code stays where it is.

Facts and the ends of timers are gathered, and written before new work begins: all that the code has
learned is durable before it has an effect.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor as Threads
from typing import TYPE_CHECKING, Any, TypeVar

from rota.client import caller
from rota.core import trace_spans
from rota.core.runs.model import Claim, StoredStep
from rota.core.typed import JsonReader
from rota.engine.journal import Written
from rota.errors import (
    BadInput,
    ContinueAsNew,
    LeaseLost,
    RotaError,
    RunInterrupted,
    Stranded,
    Suspended,
    Unstorable,
    UsageError,
)
from rota.workflows import nondeterminism, run_loop
from rota.workflows.calls import CallNames, DurableCall, PendingCalls, TimerCall, close, noted
from rota.workflows.graceful_end import GracefulEnd
from rota.workflows.leftovers import SLICE, blocked_forever, until_closed, unwind
from rota.workflows.open_calls import OpenCalls
from rota.workflows.raised_failures import RaisedFailures, RepeatedCalls
from rota.workflows.records import Records
from rota.workflows.run_context import Rest, WorkflowContext
from rota.workflows.run_loop import RunLoop
from rota.workflows.sync_thread import SyncThread
from rota.workflows.undo import Undo

if TYPE_CHECKING:
    from rota.workflows.children import ResultCall

T = TypeVar("T")
T_Error = TypeVar("T_Error", bound=RotaError)


def current_run() -> WorkflowRun | None:
    """The run this code belongs to, if it is inside a workflow and not inside a step."""
    run: WorkflowRun | None = caller.current_run()
    return run


def is_replay() -> bool:
    """Whether this code repeats what an earlier claim of its run has done already."""
    run = current_run()
    return run is not None and run.records.replay.is_going_on


class WorkflowRun:
    """One run in progress: the object that steps and primitives talk to."""

    workers = 0  # of this process
    calls_type: type[OpenCalls] = OpenCalls
    __slots__ = (
        "_broken", "_failures", "_instant", "_is_ready", "_main", "_over", "_random", "_seed",
        "busy", "calls", "child_reads", "claim", "clock", "context", "continuation",
        "deadline_at", "ending", "host",
        "interrupted", "loop", "name", "names", "new_children", "pending_calls", "reacts_to",
        "records", "refusal", "rest", "segment", "span", "thread", "undo",
    )  # fmt: skip

    def __init__(
        self,
        context: WorkflowContext,
        claim: Claim,
        recorded: Sequence[StoredStep],
        *,
        began_at: int,
        seed: str | None = None,
    ) -> None:
        self.context = context
        self.clock = context.clock
        self.host = context.loop
        self.claim = claim
        self.name = claim.name
        self.segment = claim.segment
        self.loop = RunLoop(self, context.loop)  # type: ignore[abstract]
        self.records = Records(self, recorded)
        self.deadline_at: int | None = None  # of the whole chain
        self.names = CallNames()
        self.calls = self.calls_type(self)
        self.undo = Undo(self)
        self.thread: SyncThread | None = None  # of a sync workflow
        self.rest: Rest | None = None
        self.interrupted = False  # user code that continues gets an error at its next call
        self.refusal: RotaError | None = None
        self.busy = 0  # pieces of work in progress outside of the loop
        self.span: Any = None  # where steps belong, if not to the span of their code
        self.continuation: ContinueAsNew | None = None  # the code has made it, and has to raise it
        self.pending_calls: PendingCalls = {}
        self.new_children: set[str] = set()  # inserted by this claim, not read yet
        self.child_reads: list[ResultCall] | None = None
        self._main: asyncio.Task[Any] | None = None
        self._over: asyncio.Future[None] | None = None
        self._is_ready = False
        self._broken: BaseException | None = None
        self._instant = began_at
        self.reacts_to: DurableCall | None = None  # the one with the end that was delivered last
        self._random: random.Random | None = None
        self._seed = seed or claim.segment
        self._failures = RaisedFailures()
        self.ending = GracefulEnd(self)

    # -- execution -------------------------------------------------------------------------

    def begin(self, work: Coroutine[Any, Any, Any]) -> None:
        """Begin the code of an async workflow: execute it until it waits."""
        self._main = self.loop.create_main(work, self.name)
        self.context.ready_runs.proceed_at_once(self)

    def begin_in_thread(self, threads: Threads, work: Callable[[], Any]) -> None:
        """Begin the code of a sync workflow."""
        self.thread = SyncThread(self)
        self.thread.start(threads, work)

    def resume(self, claim: Claim) -> None:
        """Continue code that was blocked, under a new claim: look at all that it waits for."""
        self.claim = claim
        self.rest = None
        self.span = trace_spans.here()  # the context of the code has that of an earlier claim
        self.new_children.clear()  # they may have ended since
        for call in self.calls.waits.take_all():
            call.begin()
        self.proceed_soon()

    async def until_rest(self) -> Rest:
        """Let the code run until it ends or is blocked. All that it has learned is durable then."""
        if self.rest is None:
            self._over = self.host.create_future()
            await self._over
        assert self.rest is not None
        if self._broken is not None:
            raise self._broken
        if self.rest is Rest.BLOCKED and not await self.records.flush():
            self.rest = Rest.REFUSED if self.refusal else Rest.LOST
        return self.rest

    @property
    def has_begun(self) -> bool:
        """Whether the code has begun, under this claim or an earlier one."""
        return self._main is not None

    @property
    def end(self) -> asyncio.Future[Any] | None:
        """The end of the code: what it returned or raised."""
        return self._main if self.thread is None else self.thread.end

    def proceed_soon(self) -> None:
        """Let the code continue soon."""
        if not self._is_ready:
            self._is_ready = True
            self.context.ready_runs.add(self)

    def proceed(self) -> None:
        """Let the code run until it waits for completions that have not come."""
        self._is_ready = False
        if self.rest is not None:
            return
        loop, is_over = self.loop, False
        loop.enter()
        try:
            while loop.drain(SLICE):
                if loop.is_yielding and not self.calls:
                    loop.proceed()  # it waits for nothing
                    self.proceed_soon()
                    return
                is_over = self._is_over()
                if is_over and self.undo and self.undo.begin():
                    continue
                if is_over or not self._deliver_next():
                    break
            else:
                self.proceed_soon()  # after other runs of the worker
                return
        except UsageError as problem:
            self.refuse(problem)
        finally:
            asyncio._set_running_loop(self.host)
        if is_over or self.refusal is not None:
            self._end(self._how_it_is_over())
        else:
            self._come_to_rest()

    def _is_over(self) -> bool:
        if self.interrupted or self.refusal is not None:
            return True
        end = self._main or self.end
        return end is not None and end.done()

    def _deliver_next(self) -> bool:
        """Give the code the next completion. False if none is there."""
        if self.thread is not None and self.thread.is_at_work():
            return False
        if self.records.replay.undelivered:
            return self._repeat_next()
        call = self.calls.take_written()
        if call is None or call.record is None:
            return False
        self.records.replay.repeats = False
        self._give(call, call.record)
        return True

    def _repeat_next(self) -> bool:
        """Deliver the next recorded end."""
        replay = self.records.replay
        if (step := replay.next_end()) is None:
            self.refuse(replay.stranded())
            return False
        call = self.calls.take_recorded(step.key)
        if call is not None:  # otherwise the code cancelled it before its end came
            self._give(call, step)
        return True

    def _give(self, call: DurableCall, ended: StoredStep) -> None:
        self._instant = ended.finished_at or 0
        self.reacts_to = call
        self.loop.proceed()
        call.deliver(ended)

    def _come_to_rest(self) -> None:
        """The loop has nothing to run: begin what the code has asked for, or wait, or leave."""
        if self.thread is not None and self.thread.is_at_work():
            self.thread.answer()
            return
        replay = self.records.replay
        if not replay.is_finished and (problem := replay.finish()) is not None:
            self.refuse(problem)
            self._end(Rest.REFUSED)
            return
        self.ending.begin() if self.ending.is_due else self.calls.begin_fresh()
        if self.busy or self._is_ready or self.calls.are_in_progress:
            self.calls.set_alarm()
        elif self.calls.waits:
            self._end(Rest.BLOCKED)
        else:
            self.refuse(blocked_forever(self))
            self._end(Rest.REFUSED)

    def _how_it_is_over(self) -> Rest:
        if self.refusal is not None:
            return Rest.REFUSED
        return Rest.LOST if self.interrupted else Rest.ENDED

    def _end(self, rest: Rest) -> None:
        self.calls.cancel_alarm()
        self.rest = rest
        if self._over is not None:
            if not self._over.done():
                self._over.set_result(None)
            self._over = None

    def cancel_code(self, reason: str) -> None:
        """Cancel what the code of the workflow awaits, as `task.cancel()` does."""
        task = self._main if self.thread is None else self.thread.call
        if task is not None:
            task.cancel(reason)

    def replace_main(self, work: Coroutine[Any, Any, Any]) -> None:
        """Continue with other code, as that of the workflow has ended."""
        self.thread = None
        self._main = self.loop.create_main(work, self.name)
        self.loop.enter()

    def interrupt(self) -> None:
        """The run is not ours any more, or its time is over: its code must not continue."""
        self.interrupted = True
        if self.rest is None:
            self.proceed_soon()

    async def close(self) -> None:
        """Drop the run: end the code that is left and the work that is in progress. Code sees a
        cancellation, and an error at each durable call."""
        self.interrupted = True
        self.loop.is_closing = self.rest is not Rest.ENDED
        if self.rest is None:
            self._end(Rest.LOST)
        if self.pending_calls:
            close(self.pending_calls)
        waits = bool(self.calls.waits)
        works = self.calls.stop_all()
        if self.thread is not None:
            self.thread.drop(Suspended() if waits else RunInterrupted())
        if self.loop.left_tasks():
            self.context.ready_runs.between(unwind, self)
        if works:
            await until_closed(self, works)
        elif self.rest is Rest.ENDED and not self.busy:
            self._release()

    def _release(self) -> None:
        """All has ended: drop the parts, which refer to this object. So memory is free at once, not
        when the garbage collector finds the cycles."""
        self.loop.forget_tasks()
        self._main = self.reacts_to = None
        del self.loop, self.records, self.calls, self.undo, self.ending

    # -- what the code asks for ------------------------------------------------------------

    @property
    def random(self) -> random.Random:
        """Deterministic random numbers, seeded by the segment."""
        if self._random is None:
            self._random = random.Random(self._seed)
        return self._random

    def key_for(self, name: str, explicit: str | None = None, *, is_new: bool = True) -> str:
        """The name of one call: by its order among calls of that name, or as given."""
        self.check_open()
        names = self.names
        key = names.next(name) if explicit is None else names.explicit(name, explicit)
        if self._failures:
            self.note_call(key, is_new=is_new)
        return key

    def key_of_result(self, child_id: str) -> str:
        """The name of one wait for the result of a child."""
        self.check_open()
        key = self.names.next_result(child_id)
        if self._failures:
            self.note_call(key, is_new=False)
        return key

    def note_call(self, key: str, *, is_new: bool) -> None:
        """Note which failure the code handles that makes this call."""
        self._failures.note_call(self._task(), key, self._handling(), is_new=is_new)

    def _handling(self) -> BaseException | None:
        return sys.exception() or (None if self.thread is None else self.thread.handling)

    def _task(self) -> asyncio.Task[Any] | None:
        return None if self.in_thread() else asyncio.current_task(self.loop)

    def refuse(self, problem: T_Error) -> T_Error:
        """End the run with this error, even if user code catches it. The caller raises it."""
        self.refusal = self.refusal or problem
        return problem

    def fails(self, key: str, error: BaseException, timer: str | None = None) -> None:
        """Note that the final failure of a call is about to be raised into user code; `timer` of
        the code may have ended the call."""
        self._failures.raises(self._task(), key, error, timer)

    def handled(self, error: BaseException | None) -> Any:
        """The failures that the running code handles, for a task that it makes."""
        if not self._failures:
            return None
        return self._failures.handled_in(self._task(), error or self._handling())

    def repeated(self, error: BaseException) -> RepeatedCalls:
        """The calls that a retry makes again after this error has ended the run."""
        return self._failures.repeated(error, self._main)

    def ask_call(
        self, key: str, digest: int | None, call: str, args: Any, kwargs: Any
    ) -> StoredStep | None:
        """The record of a call with these arguments."""
        try:
            return self.records.replay.ask_call(key, digest, call, args, kwargs)
        except Stranded as problem:
            raise self.refuse(problem) from None

    def read_recorded(self, returns: JsonReader, step: StoredStep, what: str) -> Any:
        """A recorded result; ends the run if it does not fit the type in the code now."""
        try:
            return returns.read(step.output, what=what)
        except BadInput as error:
            raise self.refuse(nondeterminism.other_type(self.claim, step, error)) from error

    def is_ours(self, written: Written) -> bool:
        """Whether a record was written. Otherwise the run is not ours any more, or fails because
        the record cannot be stored."""
        if written is True:
            return True
        if isinstance(written, Unstorable):
            self.refuse(written)
            self.proceed_soon()
        else:
            self.interrupt()
        return False

    async def end_of(self, call: DurableCall) -> StoredStep:
        """Make a call, and wait until its end is delivered. If the code cancels it, the work is
        cancelled and the code continues at once."""
        future = call.future = asyncio.Future(loop=self.loop)
        self.calls.add(call)
        try:
            return await future
        except asyncio.CancelledError as stop:
            raise self.cancelled(call, stop) from None

    def cancelled(self, call: DurableCall, stop: asyncio.CancelledError) -> asyncio.CancelledError:
        """The code has cancelled a call that it awaits, or the run ends. Returns the error to
        raise."""
        if not call.is_delivered and not self.interrupted:
            by = self.reacts_to
            self.fails(call.key, stop, by.key if isinstance(by, TimerCall) else None)
            self.calls.withdraw(call, stop)
        return self.ending.error_for(stop, self.reacts_to)

    def start_timer(self, timer: run_loop.LoopTimer) -> None:
        """Call a timer of the loop once its time has come."""
        self.check_open()
        if timer.delay_us <= 0:
            self.loop.fire(timer)
            return
        timer.call = TimerCall(self, timer)
        self.calls.add(timer.call)

    def cancel_timer(self, timer: run_loop.LoopTimer) -> None:
        """Forget a timer that the code has cancelled."""
        if timer.call is not None and not self.interrupted:
            self.calls.withdraw(timer.call)

    def loop_time_us(self) -> int:
        """The instant of the completion that the code reacts to."""
        return self._instant

    # -- for the engine --------------------------------------------------------------------

    def work(self, work: Coroutine[Any, Any, Any]) -> None:
        """Begin work of this run on the loop of the worker."""
        self.busy += 1
        # Not by the loop's factory: it serves the tasks that user code makes.
        asyncio.Task(self._counted(work), loop=self.host)

    async def _counted(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except (LeaseLost, RunInterrupted):
            self.interrupt()
        except RotaError as error:
            self.refuse(error)
        except Exception as error:
            self.breaks(error)
        self.work_ended()

    def breaks(self, error: BaseException) -> None:
        """A bug of the engine ends the run: the worker reports it."""
        self._broken = error
        self.interrupt()

    def work_ended(self) -> None:
        """A piece of work has ended, in a task of the host."""
        self.busy -= 1
        self.proceed_soon()

    def noted(
        self, name: str, begin: Callable[[], Coroutine[Any, Any, T]]
    ) -> Coroutine[Any, Any, T]:
        """The coroutine of a call that user code has to await; known until it begins."""
        return noted(self.pending_calls, name, begin)

    def in_thread(self) -> bool:
        """Whether the caller is a sync workflow's thread."""
        return self.thread is not None and self.thread.is_here()

    def gone(self) -> RunInterrupted | None:
        """The error for code that continues although its run was suspended or taken away."""
        return RunInterrupted() if self.interrupted or self.rest is not None else None

    def block_on(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run `work` on the loop of the run and wait for it, from a sync workflow's thread."""
        assert self.thread is not None
        self.check_open()
        return self.thread.block_on(work)

    def check_open(self) -> None:
        """Raise when user code continues although its run was suspended or taken away."""
        if self.interrupted:
            raise RunInterrupted
        if self.refusal is not None:
            raise self.refusal
        if self.thread is not None and self.in_thread() and asyncio._get_running_loop() is not None:
            raise UsageError(
                f"workflow {self.name} runs an event loop of its own, and no replay would repeat "
                "its calls in the same order",
                hint="Write `rota.blocking.block_on(…)` instead of `asyncio.run(…)`, or make the "
                "workflow async.",
            )
