"""The sliding window with results in order: the next work begins as soon as one is done."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import TypeVar

from rota.errors import LeaseLost
from rota.pipelines.run.model_caller import STOPPING

T = TypeVar("T")
R = TypeVar("R")
AHEAD = 4  # how many times the window may be begun before the first of it is done


async def in_order(
    works: AsyncIterator[T], parallel: int, perform: Callable[[T], Awaitable[R]]
) -> AsyncGenerator[R, None]:
    """The result of each work, in the order of the works, with few of them in memory.

    After an error that stops the run no further work begins. Works in progress are waited for:
    their answers are paid for, and kept. Any other error cancels them.
    """
    slots = asyncio.Semaphore(parallel)
    waiting: deque[asyncio.Task[R]] = deque()
    stopped: Exception | None = None

    async def in_slot(work: T) -> R:
        nonlocal stopped
        async with slots:
            if stopped is not None:
                raise stopped
            try:
                return await perform(work)
            except STOPPING as error:
                stopped = error
                raise

    try:
        async for work in works:
            waiting.append(asyncio.create_task(in_slot(work)))
            if len(waiting) >= AHEAD * parallel:
                yield await waiting.popleft()
        while waiting:
            yield await waiting.popleft()
    finally:
        if stopped is None:
            for task in waiting:
                task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to raise: a lost lease before any other."""
    flat = [
        first_of(error) if isinstance(error, BaseExceptionGroup) else error
        for error in errors.exceptions
    ]
    return next((each for each in flat if isinstance(each, LeaseLost)), flat[0])
