"""The event loop of one run of an async workflow.

Its ready queue is a FIFO, and it runs only when its owner lets it: after each recorded completion,
until the queue is empty. So the same completions in the same order give the same interleaving of
tasks, at the first execution and at every replay. Timers are durable: the owner keeps them.
Everything that would let something else in (threads, sockets, subprocesses, signals) is refused.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from zlib import crc32

from rota.errors import UsageError
from rota.workflows.leftovers import where

if TYPE_CHECKING:
    from rota.workflows.workflow_run import WorkflowRun

# Code with more callbacks never comes to rest: it yields in a loop, and waits for nothing.
CALLBACKS_MAX = 20_000_000
# After so many rounds of the ready queue code that yields in a loop counts as waiting. anyio yields
# so until the tasks of a cancelled scope have ended; other code polls a task.
ROUNDS_MAX = 1_000
# Spreads the hashes of tasks, so that sets of the tasks of many runs have few collisions.
_SPREAD = 0x9E3779B97F4A7C15
_HASH_MAX = (1 << 61) - 1


class _Runs:
    """The common part of a callback and a timer. They have the slots: two bases with slots of their
    own do not mix."""

    if TYPE_CHECKING:
        callback: Callable[..., object]
        args: tuple[Any, ...]
        loop: RunLoop
        context: contextvars.Context
        is_cancelled: bool
    else:
        __slots__ = ()

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.is_cancelled

    def get_context(self) -> contextvars.Context:
        """The context that it is called in."""
        return self.context

    def __repr__(self) -> str:
        state = " cancelled" if self.is_cancelled else ""
        return f"<{type(self).__name__}{state} {self.callback!r}>"


class LoopCallback(_Runs, asyncio.Handle):
    """A callback in the ready queue."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "loop")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: RunLoop,
        context: contextvars.Context | None,
    ) -> None:
        self.callback = callback
        self.args = args
        self.loop = loop
        self.context = contextvars.copy_context() if context is None else context
        self.is_cancelled = False

    def cancel(self) -> None:
        """Do not call it."""
        self.is_cancelled = True


class LoopTimer(_Runs, asyncio.TimerHandle):
    """A callback that is due at an instant: what `call_at` returns."""

    __slots__ = (
        "args", "call", "callback", "context", "delay_us", "is_cancelled", "loop", "when_us"
    )  # fmt: skip

    def __init__(
        self,
        when_us: int,
        delay_us: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: RunLoop,
        context: contextvars.Context | None,
    ) -> None:
        self.callback = callback
        self.args = args
        self.loop = loop
        self.context = contextvars.copy_context() if context is None else context
        self.is_cancelled = False
        self.when_us = when_us
        self.delay_us = delay_us
        self.call: Any = None  # the durable timer, kept by the owner

    def when(self) -> float:
        """The instant, on the clock of the loop."""
        return self.when_us / 1e6

    def cancel(self) -> None:
        """Do not call it."""
        if not self.is_cancelled:
            self.is_cancelled = True
            self.loop.owner.cancel_timer(self)

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


class LoopTask(asyncio.Task[Any]):
    """A task of a run. Its hash is a function of its number in the run, so a set of tasks has the
    same order at every execution."""

    def __init__(
        self,
        work: Coroutine[Any, Any, Any],
        loop: RunLoop,
        number: int,
        parent: asyncio.Task[Any] | None,
        name: object = None,
        context: contextvars.Context | None = None,
        handles: Any = None,
        **options: Any,
    ) -> None:
        self.parent = parent
        self.handles = handles  # failures that the code which makes the task handles
        self._number = number
        if loop.hash_base is None:
            loop.hash_base = crc32(loop.owner.segment.encode()) << 29
        self._hash = (loop.hash_base + number * _SPREAD) & _HASH_MAX
        text = f"Task-{number}" if name is None else str(name)
        super().__init__(work, loop=loop, name=text, context=context, **options)

    def __hash__(self) -> int:
        return self._hash

    def cancel(self, msg: Any = None) -> bool:
        """Cancel it. Tasks that are cancelled together wake in the order in which they were made,
        because libraries cancel tasks in the order of a set."""
        loop: Any = self.get_loop()
        before = loop.ready_count
        is_cancelled = super().cancel(msg)
        loop.wake_in_order(self._number, before)
        return is_cancelled


ExceptionHandler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]


def _refused(what: str, verb: str) -> Any:
    """A method of an event loop that a workflow must not use."""

    def refused(self: RunLoop, *args: Any, **_: Any) -> Any:
        for each in args:
            if asyncio.iscoroutine(each):
                each.close()
        raise UsageError(
            f"workflow {self.owner.name} used {what} ({verb}), which no replay would repeat",
            hint="Call it in a step: an async step runs on the event loop of the worker, a sync "
            "step (`await step.aio(…)`) in a thread.",
        )

    return refused


class RunLoop(asyncio.AbstractEventLoop):
    """The event loop of one run."""

    is_closing = False  # its owner drops the rest of the run: no reports about it
    is_yielding = False  # whether the code yields in a loop, and waits until something else happens
    hash_base: int | None = None  # of its tasks
    _makes_main = False
    _prune_at = 64
    _made = 0
    _count = 0  # callbacks since the code has come to rest
    _rounds = 0  # of the ready queue, since the last completion
    _round = 0  # callbacks that are left of this round
    _factory: Any = None
    _handler: ExceptionHandler | None = None
    _waker: LoopCallback | None = None  # its argument has the callbacks by which tasks wake

    def __init__(self, owner: WorkflowRun, host: asyncio.AbstractEventLoop) -> None:
        self.owner = owner
        self.workflow_run = owner  # by which the code of a workflow is recognised
        self.host = host
        self._ready: deque[LoopCallback | LoopTimer] = deque()
        self._tasks: list[asyncio.Task[Any]] = []
        self._debug = host.get_debug()

    # -- for the owner ---------------------------------------------------------------------

    def enter(self) -> None:
        """Make it the running loop of this thread."""
        asyncio._set_running_loop(self)

    def create_main(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """The task of the function of a workflow."""
        self._makes_main = True
        task = asyncio.Task(work, loop=self, name=name)
        self._makes_main = False
        self._tasks.append(task)
        return task

    def drain(self, most: int) -> bool:
        """Run what is ready, and what becomes ready by that: at most `most` callbacks. Returns
        whether the code waits: nothing is left, or it yields in a loop."""
        ready = self._ready
        left = most
        while ready and left:
            if not self._round:
                if self._rounds == ROUNDS_MAX:
                    break
                self._rounds += 1
                self._round = len(ready)
            self._round -= 1
            left -= 1
            callback = ready.popleft()
            if callback.is_cancelled:
                continue
            try:
                callback.context.run(callback.callback, *callback.args)
            except KeyboardInterrupt:
                raise
            except SystemExit:
                pass  # the task that raised it has it: a run does not end the process
            except BaseException as error:  # as on any event loop
                what = f"Exception in callback {callback!r}"
                self.call_exception_handler(
                    {"message": what, "exception": error, "handle": callback}
                )
        if not ready:
            self._count = 0
            self.is_yielding = False
            return True
        self.is_yielding = self._rounds == ROUNDS_MAX and not self._round
        self._count += most - left
        if self._count > CALLBACKS_MAX:
            raise UsageError(
                f"workflow {self.owner.name} never comes to rest: it yields in a loop, and waits "
                f"for nothing: {where(self.left_tasks())}",
                hint="Wait for a step, a signal, a child or `rota.sleep(…)` in the loop.",
            )
        return self.is_yielding

    def proceed(self) -> None:
        """Something else has happened, or cannot happen: code that yields continues."""
        self._rounds = 0

    def fire(self, timer: LoopTimer) -> None:
        """The time of a timer has come."""
        if not timer.is_cancelled:
            self._ready.append(timer)

    @property
    def ready_count(self) -> int:
        """How many callbacks are ready."""
        return len(self._ready)

    def wake_in_order(self, number: int, before: int) -> None:
        """The cancellation of the task of this number has added the callbacks that are ready beyond
        `before`: call those of all tasks that are cancelled until then in the order of numbers."""
        ready, waker = self._ready, self._waker
        added = [ready.pop() for _ in range(len(ready) - before)]
        if not added:
            return
        if waker is None:
            waker = self._waker = LoopCallback(self._wake, ([],), self, None)
            ready.append(waker)
        elif waker in added:  # the task awaits another one, and has passed its cancellation on
            ready.append(waker)
        waker.args[0].extend((number, one) for one in reversed(added) if one is not waker)

    def _wake(self, waking: list[tuple[int, LoopCallback | LoopTimer]]) -> None:
        self._waker = None
        self._round += len(waking)
        waking.sort(key=itemgetter(0))
        self._ready.extendleft(callback for _, callback in reversed(waking))

    def left_tasks(self) -> list[asyncio.Task[Any]]:
        """The tasks that have not ended, oldest first."""
        return [task for task in self._tasks if not task.done()]

    def forget_tasks(self) -> None:
        """All have ended."""
        self._tasks.clear()

    # -- what asyncio calls ----------------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Call back in this drain."""
        if asyncio._get_running_loop() is not self and not self._makes_main:
            self._refuse_from_outside(callback)
        handle = LoopCallback(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """The same: other threads have no access."""
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call back after a durable wait."""
        delay_us = max(0, round(delay * 1e6))
        return self._timer(self.owner.loop_time_us() + delay_us, delay_us, callback, args, context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call back at an instant of `time()`, durably."""
        when_us = round(when * 1e6)
        if when_us / 1e6 < when:  # `time()` must not be before `when` then: some code looks again
            when_us += 1
        delay_us = max(0, when_us - self.owner.loop_time_us())
        return self._timer(when_us, delay_us, callback, args, context)

    def _timer(
        self,
        when_us: int,
        delay_us: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> asyncio.TimerHandle:
        if asyncio._get_running_loop() is not self:
            self._refuse_from_outside(callback)
        timer = LoopTimer(when_us, delay_us, callback, args, self, context)
        self.owner.start_timer(timer)
        return timer

    def time(self) -> float:
        """Seconds since the epoch: the instant of the completion that the code reacts to."""
        return self.owner.loop_time_us() / 1e6

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Any,
        *,
        name: object = None,
        context: contextvars.Context | None = None,
        **options: Any,
    ) -> asyncio.Task[Any]:
        """A task of this run."""
        if self._factory is not None:
            if context is not None:
                options["context"] = context
            task: asyncio.Task[Any] = self._factory(self, coro, **options)
            if name is not None:
                task.set_name(name)
        else:
            self._made += 1
            parent = asyncio.current_task(self)
            handles = self.owner.handled(sys.exception())
            task = LoopTask(coro, self, self._made, parent, name, context, handles, **options)
        self._tasks.append(task)
        if len(self._tasks) > self._prune_at:
            self._tasks = self.left_tasks()
            self._prune_at = max(64, 2 * len(self._tasks))
        return task

    def set_task_factory(self, factory: Any) -> None:
        """Let this factory make the tasks of this run."""
        self._factory = factory

    def get_task_factory(self) -> Any:
        """The factory of this run, if the code has set one."""
        return self._factory

    def is_running(self) -> bool:
        """Whether its code runs at this moment."""
        return asyncio._get_running_loop() is self

    def is_closed(self) -> bool:
        """Never: its owner drops it."""
        return False

    def get_debug(self) -> bool:
        """As the loop of the worker."""
        return self._debug

    def get_exception_handler(self) -> ExceptionHandler | None:
        """The handler that this run has set."""
        return self._handler

    def set_exception_handler(self, handler: ExceptionHandler | None) -> None:
        """Set a handler for this run."""
        self._handler = handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Pass it on to the loop of the worker."""
        self.host.call_exception_handler(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report an error that no code of the run has got."""
        if self.is_closing:
            return
        if self._handler is None:
            self.default_exception_handler(context)
            return
        try:
            self._handler(self, context)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            what = "Unhandled error in exception handler"
            self.default_exception_handler(
                {"message": what, "exception": error, "context": context}
            )

    async def shutdown_asyncgens(self) -> None:
        """Nothing to do: generators are closed when they are dropped."""

    def finalize(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Close an async generator that the code has dropped."""
        if not self.is_closing:
            self.create_task(generator.aclose())

    def _refuse_from_outside(self, callback: object) -> None:
        raise self.owner.refuse(
            UsageError(
                f"something outside of workflow {self.owner.name} completed what its code waits "
                f"for ({callback!r}), which no replay would repeat",
                hint="Let a step return the value, or send the run a signal.",
            )
        )


# A workflow must not use these: what they are, and the methods of an event loop that do them.
REFUSED = {
    "a thread": "run_in_executor set_default_executor shutdown_default_executor",
    "a host name": "getaddrinfo getnameinfo",
    "a connection": "create_connection create_unix_connection create_datagram_endpoint start_tls "
    "sendfile connect_accepted_socket",
    "a server": "create_server create_unix_server",
    "a socket": "add_reader remove_reader add_writer remove_writer sock_recv sock_recv_into "
    "sock_recvfrom sock_recvfrom_into sock_sendall sock_sendto sock_connect sock_accept "
    "sock_sendfile",
    "a subprocess": "subprocess_shell subprocess_exec",
    "a pipe": "connect_read_pipe connect_write_pipe",
    "a signal of the system": "add_signal_handler remove_signal_handler",
    "control of its event loop": "run_forever run_until_complete stop close set_debug",
}
for _what, _verbs in REFUSED.items():
    for _verb in _verbs.split():
        setattr(RunLoop, _verb, _refused(_what, _verb))
