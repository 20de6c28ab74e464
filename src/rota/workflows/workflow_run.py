"""One run of a workflow while it is executed: its records, its work in progress and its waits.

Everything durable that user code awaits passes through here. When all branches of the code are
blocked on durable waits, the flow suspends: the slot is given back, and a later claim replays the
code, with every finished step answered from memory. Nothing new is executed while a recorded step
has not been asked for again: a code change has stranded such a chain, and it fails.
"""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from collections.abc import Callable, Collection, Coroutine, Sequence
from concurrent.futures import Executor as Threads
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rota.core.runs.model import Claim, StoredStep
from rota.core.runs.stored_errors import read_error
from rota.core.typed import JsonReader
from rota.engine.clock import Clock
from rota.engine.journal import Journal, Written
from rota.engine.run_task import is_stopped
from rota.errors import (
    BadInput,
    LeaseLost,
    RotaError,
    RunInterrupted,
    Stranded,
    Suspended,
    Unstorable,
    UsageError,
)
from rota.workflows import branches, raised_failures
from rota.workflows.asyncio_timeouts import asyncio_timeout_error
from rota.workflows.calls import PendingCalls, noted
from rota.workflows.calls import close as close_calls
from rota.workflows.completions import CompletionOrder
from rota.workflows.nondeterminism import not_asked_for, other_arguments, other_type

if TYPE_CHECKING:
    from rota.workflows.children import AppStarter

T = TypeVar("T")
T_Error = TypeVar("T_Error", bound=RotaError)

# Turns of the event loop without any sign of activity after which all branches count as blocked.
QUIET_CHECKS = 8
# The time for plain awaits beside a durable wait before they are cancelled (and repeated at the
# replay).
LINGER_S = 5.0
# The time that new steps wait for a branch that may still ask for a recorded one.
HELD_S = 0.5


def current_run() -> WorkflowRun | None:
    """The run this code belongs to, if it is inside a workflow and not inside a step."""
    branch = branches.here.get()
    return None if branch is None else branch.flow


def is_replay() -> bool:
    """Whether this code repeats what an earlier claim of its run has done already."""
    flow = current_run()
    return flow is not None and flow.is_replay()


class WorkflowContext(NamedTuple):
    """The objects that all workflow runs of one process share."""

    journal: Journal
    clock: Clock
    threads: Threads
    starter: AppStarter
    payload_bytes_max: int
    loop: asyncio.AbstractEventLoop
    loop_thread: int


class WorkflowRun:
    """One run in progress: the object that steps and primitives talk to."""

    # Slots: thousands of runs are made a second, and their attributes are read at every call.
    __slots__ = (
        "_activity", "_busy", "_checking", "_held", "_lingered", "_order", "_patching", "_position",
        "_recorded", "_root", "_seed", "_undecided", "_used_keys", "_waits", "cancelled", "claim",
        "clock", "context", "failed_before", "handling", "interrupted", "new_children",
        "pending_calls", "refusal", "suspending", "task", "threaded", "unasked", "waits_for",
        "wake_at",
    )  # fmt: skip

    def __init__(
        self,
        context: WorkflowContext,
        claim: Claim,
        recorded: Sequence[StoredStep],
        *,
        threaded: bool,
        seed: str | None = None,
    ) -> None:
        self.context = context
        self.clock = context.clock
        self.claim = claim
        self.task = asyncio.current_task(context.loop)
        self.threaded = threaded
        self.interrupted = self.suspending = self._lingered = self._checking = False
        self.refusal: RotaError | None = None
        self.wake_at: int | None = None
        self.waits_for: Collection[str] = ()
        self.cancelled: Sequence[StoredStep] = ()  # steps, not yet recorded as such
        self._root = branches.Branch(self, "", None if threaded else self.task)
        self._seed = seed or claim.root_id
        self._position = self._busy = self._activity = 0
        self._recorded: dict[str, StoredStep] = {}
        self.unasked: set[str] | None = None  # recorded, and not asked for again
        self.failed_before: Collection[str] = ()  # in an earlier attempt, for good
        self.handling: BaseException | None = None  # by the thread of a sync workflow
        self._waits: dict[asyncio.Future[None], tuple[str, int | None]] = {}
        self._held: dict[asyncio.Future[None], None] = {}
        self._undecided: dict[asyncio.Future[None], None] = {}
        self.pending_calls: PendingCalls = {}
        self.new_children: set[str] = set()  # inserted by this execution, not read yet
        self._used_keys: set[str] = set()
        self._patching: asyncio.Lock | None = None
        self._order: CompletionOrder | None = None  # once there are branches
        if recorded:
            self._learn(recorded)
        branches.here.set(self._root)  # the calling task executes the run

    def _learn(self, recorded: Sequence[StoredStep]) -> None:
        # A failure that ended an earlier attempt is forgotten, with the calls that handled it: a
        # retry makes them again. A failure that user code caught is raised again at every replay.
        self._recorded = {
            step.key: step
            for step in recorded
            if not step.is_forgotten or step.run_attempt >= self.claim.attempt
        }
        self.failed_before = {step.key for step in recorded} - self._recorded.keys()
        # A patch may be removed from the code, once it has done its work. A step that the code
        # cancels may be cancelled before it begins.
        self.unasked = {
            key
            for key, step in self._recorded.items()
            if step.kind != "patch" and not (step.error and is_cancelled(step))
        }
        self._position = recorded[-1].position

    @property
    def random(self) -> random.Random:
        """Deterministic random numbers: seeded by the chain and the branch."""
        branch = branches.current(self._root)
        if branch.chance is None:
            branch.chance = random.Random(f"{self._seed}{branch.path}")
        return branch.chance

    def end(self) -> list[asyncio.Task[Any]]:
        """The workflow function has ended: cancel the branches it left behind, and return them.

        Break the reference cycles. Otherwise the garbage collector has to free every run, which
        costs a fifth of its execution."""
        if self.pending_calls:
            close_calls(self.pending_calls)
        if self.threaded:
            return []
        self.interrupted = True  # a callback that outlived the run gets an error at its next call
        if self._root.children:
            self._root.hush()
            return self._root.cancel_below()
        self.task = self._root.task = None
        self._root = _NOBODY
        return []

    # -- keys and memory -------------------------------------------------------------------

    def key_for(self, name: str, explicit: str | None = None) -> str:
        """The name of one call: by order among calls of that name, or as given."""
        self.check_open()
        branch = branches.current(self._root)
        if not self.threaded and asyncio.current_task(self.context.loop) is not branch.task:
            self._check_task(branch)
        if explicit is None:
            key = branch.next_key(name)
        else:
            key = f"{name}:{explicit}"
            if key in self._used_keys:
                raise UsageError(
                    f"this run calls {name.removeprefix('start ')} with key {explicit!r} twice",
                    hint="Give each call its own key: a key represents one result.",
                )
            self._used_keys.add(key)
        if branch.failures or branch.children or branch.handles:
            raised_failures.note_call(branch, key, sys.exception() or self.handling)
        return key

    def _check_task(self, branch: branches.Branch) -> None:
        """Refuse a call from a task that was not made by our factory: it would be counted as one
        of the branch that made the task. (A callback or a thread has no task.)"""
        task = asyncio.current_task(self.context.loop)
        if task is None or self.in_thread():
            return
        if branch.task is None:
            branch.task = task  # an eager task runs before its maker holds it
            return
        raise self.refuse(branches.displaced(self.context.loop.get_task_factory()))

    def refuse(self, problem: T_Error) -> T_Error:
        """End the run with this error, even if user code catches it. The caller raises it."""
        self.refusal = self.refusal or problem
        return problem

    def fails(self, key: str, error: BaseException) -> None:
        """Note that the final failure of a call is about to be raised into user code."""
        raised_failures.raises(self.branch, key, error)

    def repeated(self, error: BaseException) -> raised_failures.RepeatedCalls:
        """The calls that a retry makes again after this error has ended the run."""
        return raised_failures.repeated_calls(self._root, error)

    def recall(self, key: str) -> StoredStep | None:
        """The record under a key; asking counts as having replayed it."""
        self._activity += 1
        if self._order is not None:
            self._order.calls += 1
        if self.unasked:
            self.unasked.discard(key)
        return self._recorded.get(key)

    def recall_call(
        self, key: str, digest: int | None, call: str, args: Any, kwargs: Any
    ) -> StoredStep | None:
        """The same for a call with arguments, which have to be the recorded ones."""
        step = self.recall(key)
        if step is not None:
            self.check_arguments(step, digest, call, args, kwargs)
        return step

    def check_arguments(
        self, step: StoredStep, digest: int | None, call: str, args: Any, kwargs: Any
    ) -> None:
        """Refuse to answer a call from a record that was made with other arguments."""
        if step.digest == digest or step.digest is None or digest is None:
            return
        twin = next((one.key for one in self._recorded.values() if one.digest == digest), None)
        raise self.refuse(other_arguments(self.claim, step.key, call, args, kwargs, twin))

    def read_recorded(self, returns: JsonReader, step: StoredStep, what: str) -> Any:
        """A recorded result; ends the run if it does not fit the type in the code now."""
        try:
            return returns.read(step.output, what=what)
        except BadInput as error:
            raise self.refuse(other_type(self.claim, step, error)) from error

    def next_position(self) -> int:
        """The position of the next step in the chain."""
        self._position += 1
        return self._position

    def new_step(self, key: str, kind: str, **fields: Any) -> StoredStep:
        """A step record at the next position of the chain."""
        values: dict[str, Any] = {
            "status": "completed", "attempt": 1, "run_attempt": self.claim.attempt,
            "output": None, "error": None, "wake_at": None, "child_id": None,
            "started_at": self.clock.now(), "finished_at": None,
        }  # fmt: skip
        values.update(fields)
        return StoredStep(
            root_id=self.claim.root_id, key=key, position=self.next_position(), kind=kind, **values
        )

    async def record_patch(self, key: str, is_new: bool) -> StoredStep:
        """Record whether this run takes the new path. The first branch that calls `patched` decides
        for all branches."""
        self._patching = self._patching or asyncio.Lock()
        async with self._patching:
            step = self._recorded.get(key)
            if step is None:
                output = "true" if is_new else "false"
                step = self.new_step(key, "patch", output=output, finished_at=self.clock.now())
                await self.record(step)
        return step

    async def record(self, step: StoredStep) -> None:
        """Write a step and remember it."""
        with self:
            self.remember(step, await self.context.journal.put(self.claim, step))

    def remember(self, step: StoredStep, written: Written = True) -> None:
        """Keep a step that was written. Otherwise unwind user code: the run is not ours any more,
        or fails because the step cannot be stored."""
        if written is not True:
            if isinstance(written, Unstorable):
                self.refuse(written)
            self.interrupted = True
            raise RunInterrupted
        self._recorded[step.key] = step

    @property
    def order(self) -> CompletionOrder | None:
        """The order of results, if other branches may see which result comes first."""
        if not self._root.children or (self.branch is self._root and not self._root.has_living()):
            return None
        if self._order is None:
            self._order = CompletionOrder(self, self._recorded.values())
        return self._order

    def ends_at(self) -> int:
        """The instant of a result that is about to be recorded."""
        return self.clock.now() if self._order is None else self._order.next_at()

    @property
    def branch(self) -> branches.Branch:
        """The branch of the calling task."""
        return branches.current(self._root)

    async def ours(self, write: Coroutine[Any, Any, T]) -> T:
        """Await a write; when the run is no longer ours, unwind user code for good."""
        try:
            return await write
        except (LeaseLost, Unstorable) as error:
            if isinstance(error, Unstorable):
                self.refuse(error)
            self.interrupted = True
            raise RunInterrupted from None

    # -- activity, quiet, suspension -------------------------------------------------------

    # `with flow:` marks work in progress; while there is any, the flow does not suspend.

    def __enter__(self) -> None:
        self._busy += 1
        self._activity += 1

    def __exit__(self, *_: object) -> None:
        self._busy -= 1
        self._activity += 1
        if self._waits or self._held or self._undecided:
            self._note()  # this may have been the last work: all branches may be blocked now

    async def permit_new(self) -> None:
        """Return once the code has asked for all recorded steps and has got their results."""
        if self.is_replay():
            await self._block(self._held)
        if self.cancelled:
            await self.record_cancelled()

    async def record_cancelled(self) -> None:
        """Record the steps that this run cancelled itself, so that no replay executes them."""
        cancelled, self.cancelled = self.cancelled, ()
        for step in cancelled:
            await self.record(step)

    async def has_old_path(self) -> bool:
        """Whether recorded steps are left that only the code behind this point can ask for."""
        if self.unasked:
            await self._block(self._undecided)
        return bool(self.unasked)

    async def wait(self, what: str, wake_at: int | None) -> None:
        """Block this branch durably until `wake_at` or until something pokes the run."""
        future: asyncio.Future[None] = self.context.loop.create_future()
        self._waits[future] = (what, wake_at)
        # While another branch is at work the run keeps its slot, and time passes here.
        timer = None if wake_at is None else self.clock.call_at(wake_at, lambda: _arrive(future))
        self._note()
        try:
            await future
        finally:
            self._waits.pop(future, None)
            if timer is not None:
                timer.cancel()

    async def _block(self, blocked: dict[asyncio.Future[None], None]) -> None:
        future: asyncio.Future[None] = self.context.loop.create_future()
        blocked[future] = None
        future.add_done_callback(lambda _: blocked.pop(future, None))  # its task may be cancelled
        self._note()
        await future

    def _note(self) -> None:
        self._activity += 1
        self._lingered = False
        if self._busy or self._checking:
            return
        if self._waits or self._held or self._undecided:
            self._checking = True
            self.context.loop.call_soon(self._check_quiet, self._activity, QUIET_CHECKS)

    def _check_quiet(self, seen: int, checks: int) -> None:
        if self._busy or not (self._waits or self._held or self._undecided):
            self._checking = False
        elif seen != self._activity:
            self.context.loop.call_soon(self._check_quiet, self._activity, QUIET_CHECKS)
        elif checks:
            self.context.loop.call_soon(self._check_quiet, seen, checks - 1)
        else:
            self._checking = False
            self._all_quiet(seen)

    def _all_quiet(self, seen: int) -> None:
        """Nothing of ours is in progress. Other awaits of a branch get a moment to end."""
        durable = self._waits.keys() | {*self._held, *self._undecided}
        real = not self.threaded and self._root.awaits_something_real(durable)
        if real and not self._lingered:
            self._lingered = self._checking = True
            pause_s = HELD_S if self._held or self._undecided else LINGER_S
            self.context.loop.call_later(pause_s, self._check_quiet, seen, 0)
        elif self.refusal is not None:
            self._release([*self._waits, *self._held, *self._undecided], self.refusal)
        elif self._undecided:
            undecided, self._undecided = [*self._undecided], {}
            self._release(undecided, None)
        elif self._held:
            # A branch that is busy elsewhere may still ask for what is missing: no proof then.
            held, self._held = [*self._held], {}
            self._release(held, None if real else self.stranded())
        elif not self.threaded and (
            problem := asyncio_timeout_error(self.context.loop, self._root, durable)
        ):
            self._release(list(self._waits), self.refuse(problem))
        else:
            self.suspend()

    def _release(self, futures: list[asyncio.Future[None]], problem: RotaError | None) -> None:
        for future in futures:
            if future.done():
                continue
            if problem is None:
                future.set_result(None)
            else:
                future.set_exception(problem)

    def is_replay(self) -> bool:
        """Whether recorded results have not reached the code yet."""
        return bool(self.unasked) or (self._order is not None and self._order.is_repeating())

    def stranded(self) -> Stranded | None:
        """The error when recorded steps were not asked for again."""
        return not_asked_for(self.claim, self.unasked) if self.unasked else None

    def suspend(self) -> None:
        """Unwind user code; the run sleeps until the first of its waits is over."""
        times = [at for _, at in self._waits.values() if at is not None]
        self.wake_at = min(times) if times else None
        self.waits_for = {what for what, _ in self._waits.values()}
        self.suspending = True
        self._root.hush()
        for future in list(self._waits):
            if not future.done():
                future.set_exception(Suspended())
                # A branch that no code awaits any more must not be reported as unhandled.
                future.exception()
        if self.task is not None and not self.threaded:
            self.task.cancel()

    def noted(
        self, name: str, begin: Callable[[], Coroutine[Any, Any, T]]
    ) -> Coroutine[Any, Any, T]:
        """The coroutine of a call that user code has to await; known until it begins."""
        return noted(self.pending_calls, name, begin)

    def in_thread(self) -> bool:
        """Whether the caller is a sync workflow's thread."""
        return threading.get_ident() != self.context.loop_thread

    def block_on(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run `work` on the event loop and wait for it, from a sync workflow's thread."""
        self.check_open()
        self.handling = sys.exception()  # the event loop has an exception state of its own
        try:
            return asyncio.run_coroutine_threadsafe(work, self.context.loop).result()
        finally:
            self.handling = None

    def check_open(self) -> None:
        """Raise when user code continues although its run has been suspended or taken away."""
        if self.suspending:
            raise Suspended
        if self.interrupted or is_stopped(self.task):
            raise RunInterrupted
        if self.refusal is not None:
            raise self.refusal


_NOBODY = branches.Branch(None, "", None)


def is_cancelled(step: StoredStep) -> bool:
    """Whether the record says that the workflow cancelled the step itself."""
    return read_error(step.error)["type"] == asyncio.CancelledError.__name__


def _arrive(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
