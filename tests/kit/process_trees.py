"""Programs that have children, and what is left of them when their caller gives up."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import select
import signal
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

FIFO = "children"
# Tells the id of its child through the FIFO, and waits for it for ever.
PARENT = f"sleep 600 & echo $! > {FIFO}; wait"
BIRTH_S = 0.5


async def given_up(
    call: Callable[[], Awaitable[object]], folder: Path, *, forks: int, times: int = 1
) -> None:
    """Give up `call`, which runs PARENT in `folder`, at each turn of the loop while it starts.

    The loop stops until the child is created (or nothing has begun), so that the program is
    always further than its caller knows. Nothing may be left: no child, no file descriptor.
    """
    os.mkfifo(folder / FIFO)
    fifo = os.open(folder / FIFO, os.O_RDWR)  # also for writing: no writer ever meets an end
    children: list[int] = []
    try:
        open_before = _open_ones()
        for turn in range(1, forks):
            task = asyncio.ensure_future(call())
            await _forks(turn)
            if select.select([fifo], [], [], BIRTH_S)[0]:
                children += map(int, os.read(fifo, 1000).split())
            for _ in range(times):
                task.cancel()
                await _forks(1)
            with pytest.raises(asyncio.CancelledError):
                await task
        assert children, "no program was ever started: the test looks at the wrong moments"
        await until(lambda: all(map(gone, children)))
        # No more than before: a file of an earlier test may be closed only now.
        await until(lambda: _open_ones() <= open_before)
        await _forks(10)  # the loop has been reported the last end; it closes what was for it
    finally:
        os.close(fifo)
        for child in itertools.filterfalse(gone, children):
            os.kill(child, signal.SIGKILL)


def gone(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return True
    with contextlib.suppress(OSError):  # killed, and waiting for the parent to notice
        return ") Z " in Path(f"/proc/{process_id}/stat").read_text()
    return True


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def _forks(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def _open_ones() -> int:
    """File descriptors, and threads of asyncio that wait for the end of a child."""
    waiting = [each for each in threading.enumerate() if "waitpid" in each.name]
    return len(os.listdir("/dev/fd")) + len(waiting)
