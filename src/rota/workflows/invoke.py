"""Calling user functions: async on the loop, sync in a thread, each within its timeout."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor as Threads
from typing import Any

from rota.engine.clock import Clock
from rota.engine.invoke import DeadlinePassed, in_thread, within
from rota.errors import StepTimeout
from rota.workflows import branches


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
    return in_thread(threads, lambda: step.function(*args, **kwargs))


async def _contained(step: Any, args: Any, kwargs: Any) -> Any:
    """A task that ends with SystemExit would take the event loop with it."""
    try:
        return await step.function(*args, **kwargs)
    except SystemExit as leaving:
        raise SystemError(f"step {step.name} called exit ({leaving})") from leaving


async def _within(work: asyncio.Future[Any], step: Any, clock: Clock) -> Any:
    if step.timeout_us is None:
        return await work
    try:
        return await within(work, clock, clock.now() + step.timeout_us)
    except DeadlinePassed:
        raise StepTimeout(
            f"step {step.name} took longer than {step.timeout_us / 1e6:g} s"
        ) from None
