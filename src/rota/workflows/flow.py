"""One run of a workflow while it is performed: what it remembers, does now, and waits for.

Everything durable that user code awaits passes through here. When all branches of the code are
blocked on durable waits, the flow suspends: the seat is given back, and a later claim replays the
code, with every finished step answered from memory. Nothing new is executed while a recorded step
has not been asked for again: such a chain is stranded by a code change, and says so.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import Executor as Threads
from typing import Any, Protocol, TypeVar

from rota.core import typed
from rota.core.failures import TABLE, describe, kind_of, names_of
from rota.core.model import Claim, Step
from rota.core.outcomes import end_of, read_error, run_failed
from rota.core.retry import RetryPolicy, next_try_us
from rota.engine.clock import Clock
from rota.engine.journal import Journal
from rota.errors import LeaseLost, RunInterrupted, StepFailed, Stranded, Suspended
from rota.workflows import calls

T = TypeVar("T")

# Turns of the event loop without any sign of activity after which all branches count as blocked.
QUIET_TURNS = 8


def current_flow() -> Flow | None:
    """The run this code belongs to, if it is inside a workflow and not inside a step."""
    flow: Flow | None = calls.here.get()
    return flow


class StepLike(Protocol):
    """What a flow needs to know of a step."""

    name: str
    function: Any
    retry: RetryPolicy
    timeout_us: int | None
    is_async: bool
    returns: typed.Reader | None


class Flow:
    """The inside of one run."""

    def __init__(
        self,
        claim: Claim,
        recorded: Sequence[Step],
        journal: Journal,
        threads: Threads,
        *,
        namespace: str,
        payload_bytes_max: int,
        children: calls.Children,
        threaded: bool,
    ) -> None:
        self.claim = claim
        self._threaded = threaded
        self.namespace = namespace
        self.payload_bytes_max = payload_bytes_max
        self.children = children
        self.random = random.Random(claim.root_id)
        self.interrupted = threading.Event()
        self.suspending = False
        self.wake_at: int | None = None
        self.waits_for: set[str] = set()
        # A retry tries again what failed for good in an earlier attempt, so that is forgotten.
        self._recorded = {
            step.key: step
            for step in recorded
            if step.status != "failed" or step.run_attempt >= claim.attempt
        }
        self._unasked = set(self._recorded)
        self._position = max((step.position for step in recorded), default=0)
        self._journal = journal
        self._threads = threads
        self._counts: dict[str, int] = {}
        self._busy = 0
        self._activity = 0
        self._checking = False
        self._waits: dict[asyncio.Future[None], tuple[str, int | None]] = {}
        self._held: list[asyncio.Future[None]] = []
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._task = asyncio.current_task()

    @property
    def clock(self) -> Clock:
        """The clock all of this runs by."""
        return self._journal.clock

    def enter(self) -> None:
        """Make this the flow of the calling task."""
        calls.here.set(self)

    # -- keys and memory -------------------------------------------------------------------

    def key_for(self, name: str, explicit: str | None = None) -> str:
        """The name of one call: by order among calls of that name, or as given."""
        self._check_open()
        if explicit is not None:
            return f"{name}:{explicit}"
        count = self._counts.get(name, 0)
        self._counts[name] = count + 1
        return f"{name}#{count}"

    def recall(self, key: str) -> Step | None:
        """What is recorded under a key; asking counts as having replayed it."""
        self._activity += 1
        self._unasked.discard(key)
        return self._recorded.get(key)

    def new_step(self, key: str, kind: str, **fields: Any) -> Step:
        """A step record in the chain's order."""
        self._position += 1
        values: dict[str, Any] = {
            "status": "completed", "attempt": 1, "run_attempt": self.claim.attempt,
            "output": None, "error": None, "wake_at": None, "child_id": None,
            "started_at": self.clock.now(), "finished_at": None,
        }  # fmt: skip
        values.update(fields)
        return Step(
            root_id=self.claim.root_id, key=key, position=self._position, kind=kind, **values
        )

    async def record(self, step: Step) -> None:
        """Write a step and remember it."""
        with self.busy():
            await self._ours(self._journal.record(self.claim, step))
        self._recorded[step.key] = step

    async def _ours(self, write: Coroutine[Any, Any, T]) -> T:
        """Await a write; when the run is no longer ours, unwind user code for good."""
        try:
            return await write
        except LeaseLost:
            self.interrupted.set()
            raise RunInterrupted from None

    def encode(self, value: Any, what: str) -> str:
        """A value as JSON within the size limit."""
        return typed.encode(value, what=what, bytes_max=self.payload_bytes_max)

    # -- activity, quiet, suspension -------------------------------------------------------

    def busy(self) -> _Busy:
        """Marks work under way; while there is any, the flow does not suspend."""
        return _Busy(self)

    async def permit_new(self) -> None:
        """Return once it is certain that executing something new contradicts no recorded step."""
        if self._unasked:
            await self._block(self._held)

    async def wait(self, what: str, wake_at: int | None) -> None:
        """Block this branch durably until `wake_at` or until something pokes the run."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._waits[future] = (what, wake_at)
        self._note()
        try:
            await future
        finally:
            self._waits.pop(future, None)

    async def _block(self, line: list[asyncio.Future[None]]) -> None:
        future: asyncio.Future[None] = self._loop.create_future()
        line.append(future)
        self._note()
        await future

    def _note(self) -> None:
        self._activity += 1
        if not self._busy and not self._checking and (self._waits or self._held):
            self._checking = True
            self._loop.call_soon(self._check_quiet, self._activity, QUIET_TURNS)

    def _check_quiet(self, seen: int, turns: int) -> None:
        if self._busy or not (self._waits or self._held):
            self._checking = False
        elif seen != self._activity:
            self._loop.call_soon(self._check_quiet, self._activity, QUIET_TURNS)
        elif turns:
            self._loop.call_soon(self._check_quiet, seen, turns - 1)
        else:
            self._checking = False
            self._all_blocked()

    def _all_blocked(self) -> None:
        if self._held:
            self._release_held()
        else:
            self.suspend()

    def _release_held(self) -> None:
        held, self._held = self._held, []
        problem = self.stranded()
        for future in held:
            if future.done():
                continue
            if problem is None:
                future.set_result(None)
            else:
                future.set_exception(problem)

    def stranded(self) -> Stranded | None:
        """The error when recorded steps were not asked for again."""
        if not self._unasked:
            return None
        lost = ", ".join(sorted(self._unasked)[:5])
        return Stranded(
            f"run {self.claim.id} ({self.claim.name}) has finished steps that the code no longer "
            f"asks for: {lost}. Nothing new was executed.",
            steps=sorted(self._unasked),
        )

    def suspend(self) -> None:
        """Unwind user code; the run sleeps until the first of its waits is over."""
        times = [at for _, at in self._waits.values() if at is not None]
        self.wake_at = min(times) if times else None
        self.waits_for = {what for what, _ in self._waits.values()}
        self.suspending = True
        for future in list(self._waits):
            if not future.done():
                future.set_exception(Suspended())
                # A branch nobody awaits any more must not be reported as unhandled.
                future.exception()
        if self._task is not None and not self._threaded:
            self._task.cancel()

    # -- sync workflows --------------------------------------------------------------------

    def in_thread(self) -> bool:
        """Whether the caller is a sync workflow's thread."""
        return threading.get_ident() != self._loop_thread

    def block_on(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run `work` on the event loop and wait for it, from a sync workflow's thread."""
        self._check_open()
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _check_open(self) -> None:
        if self.suspending:
            raise Suspended
        if self.interrupted.is_set():
            raise RunInterrupted

    # -- steps -----------------------------------------------------------------------------

    async def run_step(self, step: StepLike, key: str, args: Any, kwargs: Any) -> Any:
        """The remembered result of a step, or its execution with retries."""
        known = self.recall(key)
        if known is None:
            await self.permit_new()
        elif known.status == "completed":
            return _value(step, known)
        elif known.wake_at is None:
            raise _step_failed(step, known)
        attempt = 1 if known is None else known.attempt + 1
        while True:
            if known is not None and known.wake_at is not None:
                while self.clock.now() < known.wake_at:
                    await self.wait("retry", known.wake_at)
            known, error = await self._try_step(step, key, attempt, args, kwargs)
            if known.status == "completed":
                return _value(step, known)
            if known.wake_at is None:
                raise _step_failed(step, known) from error
            attempt += 1

    async def _try_step(
        self, step: StepLike, key: str, attempt: int, args: Any, kwargs: Any
    ) -> tuple[Step, Exception | None]:
        self._check_open()
        record = self._recorded.get(key) or self.new_step(key, "step")
        began = self.clock.now()
        trouble: Exception | None = None
        with self.busy():
            try:
                value = await calls.invoke(step, args, kwargs, self._threads, self.clock)
                text = self.encode(value, f"the result of step {step.name}")
                done = calls.completed(record, attempt, text, began, self.clock.now())
            except Exception as error:
                trouble = error
                wait_us = self._wait_us(step, attempt, error)
                now = self.clock.now()
                wake_at = None if wait_us is None else now + wait_us
                done = calls.failed(record, attempt, describe(error), began, now, wake_at)
            await self.record(done)
        return done, trouble

    def _wait_us(self, step: StepLike, attempt: int, error: Exception) -> int | None:
        if not TABLE[kind_of(error)].retried:
            return None
        return next_try_us(
            step.retry, attempt=attempt, error_names=names_of(error),
            retry_after_s=getattr(error, "retry_after_s", None), chance=random.random(),
        )  # fmt: skip

    # -- children --------------------------------------------------------------------------

    async def start_child(self, workflow: Any, args: Any, kwargs: Any, **options: Any) -> str:
        """Start a child run, once; returns its id."""
        key = self.key_for(f"start {workflow.name}")
        known = self.recall(key)
        if known is None:
            await self.permit_new()
            child = self.children.new_run(self, workflow, args, kwargs, options)
            with self.busy():
                step = self.new_step(key, "child", child_id=child.id, finished_at=self.clock.now())
                started = await self._ours(self._journal.record_child(self.claim, step, child))
            self._recorded[key] = step
            self.children.started()
            return started.id
        assert known.child_id is not None
        return known.child_id

    async def run_child(self, workflow: Any, args: Any, kwargs: Any) -> Any:
        """Start a child run and wait durably for its result."""
        child_id = await self.start_child(workflow, args, kwargs)
        return await self.child_result(child_id, workflow.signature.returns)

    async def child_result(self, child_id: str, returns: typed.Reader) -> Any:
        """The result of a child run; raises RunFailed when it ended without one."""
        key = f"result {child_id}"
        known = self.recall(key)
        if known is None:
            await self.permit_new()
            known = await self._child_end(key, child_id)
        if known.status == "failed":
            raise run_failed(child_id, known.error)
        return returns.read(known.output, what=f"the result of run {child_id}")

    async def _child_end(self, key: str, child_id: str) -> Step:
        while True:
            with self.busy():
                ended = await self._journal.ended(child_id)
            if ended is not None:
                break
            await self.wait("child", None)
        good = ended.status == "completed"
        error = None if good else end_of(ended.status, ended.reason, ended.error)
        step = self.new_step(
            key, "result", status="completed" if good else "failed", output=ended.output,
            error=error, child_id=child_id, finished_at=self.clock.now(),
        )  # fmt: skip
        await self.record(step)
        return step

    # -- signals ---------------------------------------------------------------------------

    async def take_signal(self, name: str, timeout_us: int | None) -> Step:
        """The next signal of that name as a step; `failed` when none came in time."""
        key = self.key_for(f"wait {name}")
        step = self.recall(key)
        if step is None:
            await self.permit_new()
            deadline = None if timeout_us is None else self.clock.now() + timeout_us
            step = self.new_step(key, "signal", status="waiting", wake_at=deadline)
        while step.status == "waiting":
            with self.busy():
                step = await self._ours(self._journal.await_signal(self.claim, name, step))
            self._recorded[key] = step
            if step.status == "waiting":
                await self.wait("signal", step.wake_at)
        return step


class _Busy:
    """Counts work under way; when the last of it ends, quiet may follow."""

    __slots__ = ("_flow",)

    def __init__(self, flow: Flow) -> None:
        self._flow = flow

    def __enter__(self) -> None:
        self._flow._busy += 1
        self._flow._activity += 1

    def __exit__(self, *_: object) -> None:
        self._flow._busy -= 1
        self._flow._note()


def _value(step: StepLike, known: Step) -> Any:
    reader = step.returns or typed.Reader(Any)
    return reader.read(known.output, what=f"the result of step {step.name}")


def _step_failed(step: StepLike, known: Step) -> StepFailed:
    detail = read_error(known.error)
    return StepFailed(
        f"step {step.name} failed after {known.attempt} "
        f"attempt{'s' if known.attempt > 1 else ''}: {detail['type']}: {detail['message']}",
        step=known.key, attempts=known.attempt, error_type=detail["type"], kind=detail["kind"],
    )  # fmt: skip
