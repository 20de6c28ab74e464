"""Calls user code: async on the loop, sync in a thread, with a deadline on the engine's clock.

Steps of workflows, handlers of automations and pipelines all come here.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import signal
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor as Threads
from typing import Any, TypeVar

from rota.core.user_code import exit_of
from rota.engine.clock import Clock, Timer

log = logging.getLogger("rota.engine")
T = TypeVar("T")


class DeadlinePassed(Exception):
    """The work did not end in time; it was cancelled."""


async def contained(work: Awaitable[T]) -> T:
    """Await user code. An exception that would end the process or the event loop becomes an error
    of this call, unless it comes from outside."""
    task = asyncio.current_task()
    try:
        return await work
    except Exception:
        raise
    except BaseException as error:
        if is_from_outside(error, task):
            raise
        raise failure_of(error) from error


def failure_of(error: BaseException) -> Exception:
    """The error of a call with code that raised this."""
    if isinstance(error, asyncio.CancelledError):
        return RuntimeError("the code raised CancelledError, although nothing cancelled it")
    return exit_of(error)


def is_from_outside(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Whether an exception in `task` is a cancellation by the host, the end of the event loop, or
    Ctrl-C."""
    if isinstance(error, asyncio.CancelledError):
        return task is not None and task.cancelling() > 0
    if isinstance(error, GeneratorExit):  # a task that is deleted closes its coroutine
        try:
            return asyncio.current_task() is not task
        except RuntimeError:  # no event loop runs
            return True
    # Ctrl-C raises KeyboardInterrupt where Python's own handler of SIGINT is installed. `rota up`
    # and `asyncio.run` install others, which cancel the main task.
    by_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    in_main = threading.current_thread() is threading.main_thread()
    return isinstance(error, KeyboardInterrupt) and in_main and by_default


def in_thread(threads: Threads, function: Callable[[], T]) -> asyncio.Future[T]:
    """Begin a sync function in a thread, with the context of the caller."""
    context = contextvars.copy_context()
    return asyncio.get_running_loop().run_in_executor(threads, lambda: context.run(function))


async def within(
    work: asyncio.Future[T], clock: Clock, at: int, extended: Callable[[], int] | None = None
) -> T:
    """Wait for `work`. At the instant `at`, or a later one that `extended` answers then, cancel it
    and raise DeadlinePassed once it has ended. A thread cannot be cancelled: it is abandoned at
    once."""
    passed = False
    timer: Timer

    def expire() -> None:
        nonlocal passed, timer
        if extended is not None and (later := extended()) > clock.now():
            timer = clock.call_at(later, expire)
            return
        passed = True
        work.cancel()

    timer = clock.call_at(at, expire)
    try:
        return await work
    except asyncio.CancelledError:
        if not passed:
            raise
        raise DeadlinePassed from None
    finally:
        timer.cancel()


async def within_or_left(
    work: asyncio.Future[T], clock: Clock, at: int, *, unwind_s: float, what: str
) -> T:
    """The same for `work` that may swallow its cancellation: it is abandoned after `unwind_s`,
    even if the caller is cancelled."""
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def end(_: object = None) -> None:
        if not over.done():
            over.set_result(None)

    work.add_done_callback(end)
    timer = clock.call_at(at, end)
    try:
        await over
        if work.done():
            return work.result()
    finally:
        timer.cancel()
        if not work.done():
            work.cancel()
            await asyncio.wait([work], timeout=unwind_s)
            if not work.done():
                log.error("%s swallowed its cancellation and still runs", what)
            elif not work.cancelled():
                work.exception()  # mark the exception as retrieved, so that asyncio does not log it
    raise DeadlinePassed
