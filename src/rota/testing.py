"""For users' tests and our own: an app on virtual time. A month passes in milliseconds.

    async with virtual(app) as world:
        run = await fulfil.start("order-7")
        await world.advance("24h")
        assert await run.result() == "receipt"

The engine is the real one; the test controls only its clock and its pace.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import inspect
import itertools
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from rota.app import Rota
from rota.automations.threads import HandlerThread
from rota.client import caller
from rota.core.time.instants import DAY, Duration, instant, micros, moment
from rota.engine.maintenance import Maintenance
from rota.engine.worker import Worker
from rota.errors import UsageError
from rota.store.backend.database import Database
from rota.store.runs.history import ChainResult
from rota.workflows.steps import StepCall

START = instant(datetime(2030, 1, 1, tzinfo=UTC))
# Real time, and turns of the event loop, given to handlers and pipelines that await something the
# virtual clock does not know. A busy machine lengthens the turns, so sockets of the same process
# are answered.
GRACE_S = 0.1
GRACE_ITERATIONS = 100
# Real time without any progress, after which waiting for a result is an error.
STILL_S = 10.0
# Steps, threads and child processes are known to be at work, so the clock waits until they end. A
# step is an error after so much real time without any progress.
REAL_WORK_S = 10.0

# How many blocks of `held` each step is in.
_held: Counter[Any] = Counter()


@contextlib.contextmanager
def held() -> Iterator[None]:
    """In a step: a wait that the test itself ends. Virtual time does not wait for it.

    Example:
        with held():
            await gate.wait()
    """
    attempt = caller.current_step()
    step = getattr(attempt, "call", attempt)
    _held[step] += 1
    try:
        yield
    finally:
        _held[step] -= 1
        if not _held[step]:
            del _held[step]


class VirtualTimer:
    """A call that is due later."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """Cancel the call."""
        self.callback = None

    def fire(self) -> None:
        """Make the call, unless it was cancelled."""
        if self.callback is not None:
            self.callback()


class VirtualClock:
    """A clock that moves only on command."""

    def __init__(self, start: datetime | int = START) -> None:
        self._now = start if isinstance(start, int) else instant(start)
        self._order = itertools.count()
        self._timers: list[tuple[int, int, VirtualTimer]] = []
        self._stepped_at: int | None = None

    def now(self) -> int:
        """Microseconds since the epoch."""
        return self._now

    def moment(self) -> datetime:
        """The same as a datetime in UTC."""
        return moment(self._now)

    def steady_for(self) -> int:
        """Microseconds since the last jump."""
        return 1 << 62 if self._stepped_at is None else self._now - self._stepped_at

    def jump(self, duration: Duration) -> None:
        """Step the clock, forwards or back, without the time having passed."""
        self._now += micros(duration)
        self._stepped_at = self._now

    def call_at(self, at: int, callback: Callable[[], object]) -> VirtualTimer:
        """Call back when the clock is moved to or past an instant."""
        timer = VirtualTimer(callback)
        if at <= self._now:
            asyncio.get_running_loop().call_soon(timer.fire)
            return timer
        heapq.heappush(self._timers, (at, next(self._order), timer))
        return timer

    async def wait(self, event: asyncio.Event, until: int) -> None:
        """Return when the event is set or the clock has come to the instant."""
        if event.is_set() or until <= self._now:
            await asyncio.sleep(0)
            return
        timer = self.call_at(until, event.set)
        try:
            await event.wait()
        finally:
            timer.cancel()

    def next_timer_at(self) -> int | None:
        """When the next waiting call is due."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def move_to(self, at: int) -> None:
        """Move on, calling everything that comes due on the way, in order."""
        while (due := self.next_timer_at()) is not None and due <= at:
            self._now = max(self._now, due)
            heapq.heappop(self._timers)[2].fire()
        self._now = max(self._now, at)


class _Calls:
    """Counts the calls of a store: while one is in progress, a test has not come to rest."""

    def __init__(self, database: Database) -> None:
        self.count = 0
        self.under_way = 0
        for name in ("write", "write_brief", "read"):
            setattr(database, name, self._counted(getattr(database, name)))

    def _counted(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def counted(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            self.under_way += 1
            try:
                return await call(*args, **kwargs)
            finally:
                self.under_way -= 1

        return counted


class _Work(NamedTuple):
    """The work of an app at one moment that may lead to more without time passing."""

    calls_begun: int  # calls of the store
    calls_open: int
    steps: list[StepCall]
    is_real: bool  # a thread or a child process is at work

    @property
    def is_under_way(self) -> bool:
        """Whether any of it has not ended."""
        return bool(self.calls_open or self.steps or self.is_real)


class _RealWork:
    """The threads and child processes that an event loop waits for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._threads = 0
        self._children: list[asyncio.SubprocessTransport] = []
        self._run_in_executor = loop.run_in_executor
        self._subprocess_exec = loop.subprocess_exec
        self._subprocess_shell = loop.subprocess_shell
        self._loop: Any = loop

    def __enter__(self) -> _RealWork:
        # A loop that is not written in Python takes no attributes: its work is not waited for.
        with contextlib.suppress(AttributeError):
            self._loop.run_in_executor = self._in_thread
            self._loop.subprocess_exec = self._spawning(self._subprocess_exec)
            self._loop.subprocess_shell = self._spawning(self._subprocess_shell)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(AttributeError):
            del self._loop.run_in_executor
            del self._loop.subprocess_exec
            del self._loop.subprocess_shell

    def under_way(self, held_threads: int) -> bool:
        """Whether some of it has not ended yet, beside threads that the test holds."""
        self._children = [child for child in self._children if child.get_returncode() is None]
        handlers = (one for one in threading.enumerate() if isinstance(one, HandlerThread))
        is_busy = self._threads > held_threads or bool(self._children)
        return is_busy or any(one.awaited for one in handlers)

    def _in_thread(self, *args: Any) -> asyncio.Future[Any]:
        future = self._run_in_executor(*args)
        self._threads += 1
        future.add_done_callback(self._thread_ended)
        return future

    def _thread_ended(self, _: object) -> None:
        self._threads -= 1

    def _spawning(self, spawn: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def spawned(*args: Any, **kwargs: Any) -> Any:
            transport, protocol = await spawn(*args, **kwargs)
            self._children.append(transport)
            return transport, protocol

        return spawned


def line_of(call: StepCall) -> str:
    """The line at which an async step waits; of a sync step, its first line."""
    code = getattr(inspect.unwrap(call.step.function), "__code__", None)
    if code is None:
        return "an unknown line"
    line = code.co_firstlineno
    work = call.work if isinstance(call.work, asyncio.Task) else call.task
    awaited: Any = None if work is None else work.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None)
        if frame is not None and frame.f_code.co_filename == code.co_filename:
            line = frame.f_lineno
        awaited = getattr(awaited, "cr_await", None)
    return f"{code.co_filename}:{line}"


class World:
    """An app with loops that the test drives."""

    def __init__(self, app: Rota, clock: VirtualClock, real_work: _RealWork) -> None:
        self.app = app
        self._real_work = real_work
        self.clock = clock
        assert app.runtime is not None
        self._worker: Worker = app.runtime.worker
        self._maintenance: Maintenance = app.runtime.maintenance
        self._scheduler = app.runtime.scheduler
        self._notification_loop = app.runtime.notification_loop
        self._calls = _Calls(app.connection.database)
        self._settling = asyncio.Lock()
        self._wait = app.connection.results.wait
        app.connection.results.wait = self._wait_for_result  # type: ignore[method-assign]

    async def _wait_for_result(self, root_id: str, *, held: bool = False) -> ChainResult:
        """Raise an error instead of waiting forever: only the test moves the clock."""
        waiting = asyncio.ensure_future(self._wait(root_id))
        try:
            while not waiting.done():
                if self._real_steps() and not self._settling.locked():
                    await self.settle()  # real work ends by itself: what it leads to happens now
                    self._refuse_real_steps()
                before = self._calls.count, self.clock.now()
                await asyncio.wait({waiting}, timeout=STILL_S)
                is_still = before == (self._calls.count, self.clock.now())
                if is_still and not self._real_steps() and not waiting.done():
                    raise UsageError(
                        f"run {root_id} has not ended, and virtual time does not pass by itself",
                        hint="Call world.advance(…) or world.drain() before run.result().",
                    )
            return waiting.result()
        finally:
            waiting.cancel()

    def _real_steps(self) -> list[StepCall]:
        """The steps at work that wait neither for the test nor for virtual time."""
        executor = self.app._executor
        if executor is None:
            return []
        return [c for c in executor.steps if c not in _held and not c.waits_for_thread]

    def _held_threads(self) -> int:
        executor = self.app._executor
        if executor is None:
            return 0
        left_behind = len(executor.held_threads())
        return left_behind + sum(c in _held and not c.step.is_async for c in executor.steps)

    def _refuse_real_steps(self) -> None:
        """Raise an error rather than let virtual time pass while a step awaits something real."""
        if steps := self._real_steps():
            raise UsageError(
                f"step {steps[0].step.name} has waited for something real for {REAL_WORK_S:g} s, "
                f"at {line_of(steps[0])}, and virtual time does not pass meanwhile",
                hint="If the test ends this wait, put it in `with rota.testing.held():`. To test a "
                "timeout, let the step await `world.sleep(…)`.",
            )

    async def settle(self) -> None:
        """Do everything that can be done without time passing."""
        async with self._settling:
            await self._settle()

    async def _settle(self) -> None:
        self._worker.poll()
        while True:
            if self._schedule_is_due():
                await self._scheduler.tick()
            if self._notification_loop is not None and self._notification_loop.is_due():
                await self._notification_loop.tick()
            # Before the iteration, not after it: a run may end while the worker looks elsewhere.
            self._worker.wake.clear()
            while await self._worker.iterate():
                pass
            if self._worker.wake.is_set():
                continue  # a run ended, or more work came, after the last iteration had looked
            if self._worker.idle or not await self._some_run_ended():
                return

    def _schedule_is_due(self) -> bool:
        due = self._scheduler.next_at
        return due is not None and due <= self.clock.now()

    async def _some_run_ended(self) -> bool:
        """Wait for a run to end, as long as claimed ones may still end by themselves."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + REAL_WORK_S
        while True:
            before = self._work()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._worker.wake.wait(), GRACE_S)
                return True
            for _ in range(GRACE_ITERATIONS):
                await asyncio.sleep(0)
            if self._worker.wake.is_set():
                return True
            if before != (now := self._work()):  # something began or ended, and may lead to more
                give_up_at = loop.time() + REAL_WORK_S
            elif not now.is_under_way or (not now.calls_open and loop.time() > give_up_at):
                return False

    def _work(self) -> _Work:
        held_threads = self._held_threads()
        return _Work(
            self._calls.count, self._calls.under_way, self._real_steps(),
            self._real_work.under_way(held_threads),
        )  # fmt: skip

    async def advance(self, duration: Duration) -> None:
        """Let time pass; everything due on the way happens at its own instant.

        Args:
            duration: A duration such as `1h`.
        """
        await self._advance_to(self.clock.now() + micros(duration))

    async def advance_to(self, when: datetime) -> None:
        """Let time pass until an instant.

        Args:
            when: The instant.
        """
        await self._advance_to(instant(when))

    async def sleep(self, duration: Duration) -> None:
        """In a step: wait for virtual time, as something that never answers would.

        Args:
            duration: A duration such as `1h`.
        """
        with held():
            await self.clock.wait(asyncio.Event(), self.clock.now() + micros(duration))

    async def drain(self, within: Duration = 366 * DAY // 1_000_000) -> None:
        """Let time pass until nothing is left that time alone can move.

        Args:
            within: The most virtual time to pass.
        """
        await self._settle_until(self.clock.now() + micros(within))

    async def _advance_to(self, target: int) -> None:
        await self._settle_until(target)
        self.clock.move_to(target)
        await self.settle()

    async def _settle_until(self, limit: int) -> None:
        """Do everything that is due until then, each at its own instant."""
        await self.settle()
        self._refuse_real_steps()
        while (due := self._next_due_at()) is not None and due <= limit:
            self.clock.move_to(due)
            await self.settle()
            self._refuse_real_steps()

    def _next_due_at(self) -> int | None:
        digest_at = None if self._notification_loop is None else self._notification_loop.next_at
        times = (
            self._worker.due_at, self._scheduler.next_at, self.clock.next_timer_at(), digest_at
        )  # fmt: skip
        return min((at for at in times if at is not None), default=None)

    async def beat(self) -> None:
        """One heartbeat: report, renew, reap, prune."""
        await self._worker.renew()
        await self._maintenance.beat()


@contextlib.asynccontextmanager
async def virtual(
    app: Rota,
    *,
    url: str = "sqlite://:memory:",
    start: datetime | int = START,
    warm: bool = False,
) -> AsyncIterator[World]:
    """Run an app on virtual time, by default on a database in memory.

    Args:
        app: The app.
        url: Another database.
        start: The instant at which time begins.
        warm: Keep runs that wait in memory, as a worker does; otherwise each wait ends in a replay.

    Returns:
        The world: clock, app and worker.

    Example:
        async with virtual(app) as world:
            run = await app.start(greet, "Ann")
            await world.advance("1d")
    """
    real_url, real_clock, real_migrate = app.url, app.clock, app.migrates
    real_settings = app.settings
    clock = VirtualClock(start)
    app.url, app.clock, app.migrates = url, clock, True
    if not warm:
        app.settings = msgspec.structs.replace(app.settings, warm_runs=0)
    try:
        await app.connect()
        runtime = app._make_runtime()
        await runtime.register()
        await app._deploy()
        with _RealWork(asyncio.get_running_loop()) as real_work:
            yield World(app, clock, real_work)
    finally:
        if app.runtime is not None:
            # Time stops now, so no claimed run can end by itself: hand it over at once.
            await app.runtime.stop(0)
            app.runtime = None
        await app.close()
        app.url, app.clock, app.migrates = real_url, real_clock, real_migrate
        app.settings = real_settings
