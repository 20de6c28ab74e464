"""Calling user functions: async on the loop, sync in a thread, each within its timeout."""

from __future__ import annotations

import asyncio
import contextvars
from concurrent.futures import Executor as Threads
from typing import Any, Protocol

from rota.client.start import RunOptions
from rota.core.runs.model import NewRun
from rota.engine.clock import Clock
from rota.errors import StepTimeout
from rota.workflows import branches


class Children(Protocol):
    """How a flow makes child runs: validated like any start."""

    def new_run(
        self, flow: Any, workflow: Any, args: Any, kwargs: Any, options: RunOptions
    ) -> NewRun:
        """A new child run."""
        ...

    def new_id(self) -> str:
        """An id for the next attempt of a child."""
        ...

    def started(self, *, delayed: bool = False) -> None:
        """Tell workers that there is work, or will be."""
        ...


async def invoke(step: Any, args: Any, kwargs: Any, threads: Threads, clock: Clock) -> Any:
    """Call a step's function. The code inside is no longer inside the workflow: calls of other
    steps in there are plain calls."""
    left = branches.here.set(step.inside)
    try:
        if step.is_async and step.timeout_us is None:
            return await step.function(*args, **kwargs)
        return await _within(_begin(step, args, kwargs, threads), step, clock)
    except SystemExit as leaving:
        raise SystemError(f"step {step.name} called exit ({leaving})") from leaving
    except asyncio.CancelledError as stop:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError(f"step {step.name} raised CancelledError by itself") from stop
    finally:
        branches.here.reset(left)


def _begin(step: Any, args: Any, kwargs: Any, threads: Threads) -> asyncio.Future[Any]:
    loop = asyncio.get_running_loop()
    if step.is_async:
        return loop.create_task(_contained(step, args, kwargs))
    context = contextvars.copy_context()
    return loop.run_in_executor(threads, lambda: context.run(step.function, *args, **kwargs))


async def _contained(step: Any, args: Any, kwargs: Any) -> Any:
    """A task that ends with SystemExit would take the event loop with it."""
    try:
        return await step.function(*args, **kwargs)
    except SystemExit as leaving:
        raise SystemError(f"step {step.name} called exit ({leaving})") from leaving


async def _within(work: asyncio.Future[Any], step: Any, clock: Clock) -> Any:
    """Wait for `work`; at the timeout an async step is cancelled, a sync one is left behind."""
    if step.timeout_us is None:
        return await work
    expired = False

    def expire() -> None:
        nonlocal expired
        expired = True
        work.cancel()

    timer = clock.call_at(clock.now() + step.timeout_us, expire)
    try:
        return await work
    except asyncio.CancelledError:
        if not expired:
            raise
        raise StepTimeout(
            f"step {step.name} took longer than {step.timeout_us / 1e6:g} s"
        ) from None
    finally:
        timer.cancel()
