"""Child processes that cost milliseconds: forked from a server that has imported everything."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from typing import Any


def forked(target: Callable[..., object], *args: Any) -> ForkServerProcess:
    """A process that calls the function, started; its `exitcode` is negative for a signal."""
    context = multiprocessing.get_context("forkserver")
    # One server serves all tests of a process, so it imports what any of them needs.
    context.set_forkserver_preload(["tests.crash.warm"])
    process = context.Process(target=target, args=args)
    process.start()
    return process


async def ended(process: ForkServerProcess, timeout_s: float) -> int | None:
    """Its exit code, or None if it takes longer. Looked at by one thread only: two at once would
    take the code out of each other's hands."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(process.sentinel, over.set)
    try:
        await asyncio.wait_for(over.wait(), timeout_s)
    except TimeoutError:
        return None
    finally:
        loop.remove_reader(process.sentinel)
    return process.exitcode
