"""Durable calls of workflow code: each is made once, begins once, and its end is delivered once."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from rota.core.runs.model import StoredStep
from rota.engine.journal import Written
from rota.errors import UsageError
from rota.workflows import run_loop
from rota.workflows.records import is_cancelled

if TYPE_CHECKING:
    from rota.workflows.steps import Step
    from rota.workflows.workflow_run import WorkflowRun


class CallNames:
    """Counts the calls of each name. The order of calls is the same at every execution."""

    __slots__ = ("_counts", "_explicit", "_steps")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._explicit: set[str] = set()
        self._steps: dict[str, Step[..., Any]] = {}

    def check_step(self, step: Step[..., Any]) -> None:
        """Refuse two different steps of one name: after a change of the code one might get the
        results of the other."""
        known = self._steps.setdefault(step.name, step)
        if known is not step and not _are_same(known, step):
            raise UsageError(
                f"two different steps of this run have the name {step.name}: "
                f"{_place(known)} and {_place(step)}",
                hint='Give one of them another name: @rota.step(name="…"). For a step of a '
                "library, write `mine = rota.step(name=…)(theirs.function)`.",
            )

    def next(self, name: str) -> str:
        """The key of the next call of this name."""
        count = self._counts.get(name, 0)
        self._counts[name] = count + 1
        return f"{name}#{count}"

    def next_result(self, child_id: str) -> str:
        """The key of the next wait for the result of a child."""
        key = self.next(f"result {child_id}")
        return key.removesuffix("#0")

    def explicit(self, name: str, key: str) -> str:
        """The key of a call that the code has given a key of its own."""
        full = f"{name}:{key}"
        if full in self._explicit:
            raise UsageError(
                f"this run calls {name.removeprefix('start ')} with key {key!r} twice",
                hint="Give each call its own key: a key represents one result.",
            )
        self._explicit.add(full)
        return full


def _are_same(one: Step[..., Any], other: Step[..., Any]) -> bool:
    """Whether two steps are made of the same function. A function inside of a workflow is a new one
    at each execution, with the same code."""
    if one.function is other.function:
        return True
    codes = [getattr(step.function, "__code__", step.function) for step in (one, other)]
    return (one.is_ad_hoc or other.is_ad_hoc) and codes[0] == codes[1]


def _place(step: Step[..., Any]) -> str:
    return f"{step.function.__module__}.{step.function.__qualname__}"


T = TypeVar("T")


# Calls that user code has to await: by key, the name and the coroutine. A call removes itself when
# it begins. (The frame of a coroutine shows this too, but reading it is an audit event, which takes
# a tenth of the time of a step.)
PendingCalls = dict[object, tuple[str, Coroutine[Any, Any, Any]]]


def noted(
    pending: PendingCalls, name: str, begin: Callable[[], Coroutine[Any, Any, T]]
) -> Coroutine[Any, Any, T]:
    """The coroutine of a call that has to be awaited; pending until it begins."""
    call = object()
    work = _begun(pending, call, begin)
    pending[call] = (name, work)
    return work


async def _begun(
    pending: PendingCalls, call: object, begin: Callable[[], Coroutine[Any, Any, T]]
) -> T:
    pending.pop(call, None)
    return await begin()


def unawaited(pending: PendingCalls) -> list[str]:
    """The names of calls that were never awaited."""
    # A task that is cancelled before it begins counts as having awaited its coroutine.
    return [
        name
        for name, work in pending.values()
        if inspect.getcoroutinestate(work) == inspect.CORO_CREATED
    ]


def close(pending: PendingCalls) -> None:
    """Close calls that were never awaited, so that Python does not warn about each."""
    for _, work in pending.values():
        work.close()
    pending.clear()


NO_VALUE: Any = object()


class DurableCall:
    """A durable call of the code, until its end is delivered."""

    __slots__ = (
        "carries", "context", "future", "is_begun", "is_delivered", "is_ending", "is_withdrawn",
        "is_written", "key", "position", "record", "run", "value",
    )  # fmt: skip
    what = "call"  # what a run waits for that waits for this
    kind = "step"
    records_alone = False  # whether its record may be the first to hold what the code has learned

    def __init__(self, run: WorkflowRun, key: str, record: StoredStep | None) -> None:
        self.run = run
        self.key = key
        self.record = record
        self.position = 0 if record is None else record.position
        self.value: Any = NO_VALUE
        self.is_begun = self.is_ending = self.is_written = False
        self.is_delivered = self.is_withdrawn = False
        self.carries = False  # whether its record takes along what else is urgent
        self.future: asyncio.Future[StoredStep] | None = None

    def begin(self) -> None:
        """Begin the work, or look again at what the call waits for."""
        raise NotImplementedError

    def stop(self) -> asyncio.Task[Any] | None:
        """End the work, which is withdrawn. Returns it while it needs time to close."""

    # The receiver of the journal's answer to the record of its end.

    def done(self) -> bool:
        """Never: the run wants to know."""
        return False

    def set_result(self, written: Written) -> None:
        """The end of the work is written: deliver it, or wait for its next attempt."""
        run = self.run
        run.records.end_write(self.carries)
        if written is True or run.is_ours(written):
            if self.is_ending:
                self.is_written = True
            elif not self.is_withdrawn and self.record is not None:
                run.calls.wait(self, self.record.wake_at)
        run.work_ended()

    def set_exception(self, error: Exception) -> None:
        """It cannot be written, for a reason that the engine does not know."""
        self.run.breaks(error)
        self.run.work_ended()

    def deliver(self, ended: StoredStep) -> None:
        """Give the end to the code."""
        self.is_delivered = True
        if self.future is not None and not self.future.done():
            self.future.set_result(ended)

    def wait_until(self, at: int) -> None:
        """Wait for a time; a replay waits for the recorded one."""
        run, is_new = self.run, self.record is None
        record = self.record = self.record or self.new_record(status="waiting", wake_at=at)
        at = record.wake_at or 0
        if at <= run.clock.now():
            run.calls.complete(self, record)
        else:
            run.calls.wait(self, at, record if is_new else None)

    def new_record(self, **fields: Any) -> StoredStep:
        """A record of this call, at its position."""
        return self.run.records.new_step(self.key, self.kind, position=self.position, **fields)


class SleepCall(DurableCall):
    """A durable sleep."""

    __slots__ = ("until",)
    what = "sleep"
    kind = "sleep"
    until: int

    def begin(self) -> None:
        """Wait for the time."""
        self.wait_until(self.until)


class TimerCall(DurableCall):
    """A durable timer of the loop: `asyncio.sleep`, `asyncio.timeout`, `call_later`."""

    __slots__ = ("timer",)
    what = "timer"
    kind = "timer"
    records_alone = True

    def __init__(self, run: WorkflowRun, timer: run_loop.LoopTimer) -> None:
        key = run.key_for(f"timer {timer.delay_us / 1e6:g}s", is_new=False)
        record = run.records.replay.ask(key)
        # One that the code cancels is not in the order: what matters is that the code cancels it.
        super().__init__(run, key, None if record is not None and is_cancelled(record) else record)
        self.timer = timer

    def begin(self) -> None:
        """Wait for the time of the timer; a replay waits for the recorded one."""
        self.wait_until(self.run.clock.now() + self.timer.delay_us)

    def deliver(self, ended: StoredStep) -> None:
        """Call back."""
        self.is_delivered = True
        self.run.loop.fire(self.timer)
