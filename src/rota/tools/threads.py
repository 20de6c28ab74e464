"""Blocking work in a thread, with a time limit that the work itself observes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
GRACE_S = 1.0


async def in_thread(work: Callable[[threading.Event], T], *, timeout_s: float) -> T:
    """Run `work(late)`. A thread cannot be stopped, so `late` is set when its time is over.

    The work checks `late` while it waits and right before its effect, where it can still report
    that nothing happened. Work that does not end soon after is left behind: TimeoutError.
    """
    late = threading.Event()
    task = asyncio.ensure_future(asyncio.to_thread(work, late))
    task.add_done_callback(_retrieve)
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout_s)
        if not done:
            late.set()
            done, _ = await asyncio.wait({task}, timeout=GRACE_S)
    finally:
        late.set()
    if not done:
        raise TimeoutError(f"no end within {timeout_s:g} s")
    return task.result()


def _retrieve(task: asyncio.Future[T]) -> None:
    if not task.cancelled():
        task.exception()  # otherwise asyncio logs that it was never retrieved
