"""Child processes that cost milliseconds: forked from a server that has imported everything."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from tests.kit import PATIENCE_S

# A start polls all that were started before; another poller at the same moment takes the exit code
# away, and the first one reads 255.
_lock = threading.Lock()


def forked(target: Callable[..., object], *args: Any) -> ForkServerProcess:
    """A process that calls the function, started; its `exitcode` is negative for a signal."""
    context = multiprocessing.get_context("forkserver")
    # One server serves all tests of a process, so it imports what any of them needs.
    context.set_forkserver_preload(["tests.crash.kit.warm_imports"])
    process = context.Process(target=target, args=args)
    with _lock:
        process.start()
    return process


async def ended(process: ForkServerProcess, timeout_s: float) -> int | None:
    """Its exit code, or None if it takes longer. Only one thread polls them: two at once would
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


class Child:
    """`python -m module arguments`, but forked; what it says is kept in a file."""

    def __init__(self, module: str, *arguments: object, log: Path) -> None:
        self.log = log
        log.touch()
        words = [str(each) for each in arguments]
        self._fork = forked(_run, module, words, str(log), dict(os.environ))

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._fork.pid is not None
        return self._fork.pid

    @property
    def code(self) -> int | None:
        """Its exit code (negative: the signal that ended it), or None while it runs."""
        with _lock:
            return self._fork.exitcode

    def send(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.code is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        self.send(signal.SIGKILL)
        wait([self._fork.sentinel])

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Its exit code; one that does not end in time is killed, and its log is shown."""
        wait([self._fork.sentinel], timeout_s)
        if (code := self.code) is None:
            self.kill()
            raise AssertionError(f"no end after {timeout_s} s:\n{self.tail()}")
        return code

    def tail(self, lines: int = 40) -> str:
        """The end of what it said."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def end_all(children: Sequence[Child]) -> None:
    """Kill those that still run."""
    for child in children:
        child.kill()


def _run(module: str, arguments: list[str], log: str, environ: dict[str, str]) -> None:
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.environ.clear()  # the server has the variables of an earlier test
    os.environ.update(environ)
    sys.argv = [module, *arguments]
    sys.exit(import_module(module).main())
