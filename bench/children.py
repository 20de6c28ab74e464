"""Worker processes, and waiting for what they do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from bench.sides import Side, Work

PATIENCE_S = 120.0


class TookTooLong(Exception):
    """Something that was waited for did not come; the message holds the worker's last lines."""


class Child:
    """One `python -m bench.worker`."""

    def __init__(
        self, side: Side, work: Work, hits: Path, environment: dict[str, str] | None = None
    ) -> None:
        self._log = hits.with_suffix(".log")
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "bench.worker", side.kind, side.url, work, str(hits)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=os.environ | (environment or {}),
            )

    @property
    def pid(self) -> int:
        """Its number."""
        return self._child.pid

    def wait_ready(self) -> None:
        """Return when it is connected."""
        if _pipe(self._child.stdout).readline() != b"ready\n":
            raise TookTooLong(f"a worker did not start:\n{self.last_words()}")

    def go(self) -> None:
        """Let it begin."""
        stdin = _pipe(self._child.stdin)
        stdin.write(b"go\n")
        stdin.flush()

    def last_words(self) -> str:
        """The end of what it wrote to stderr."""
        return self._log.read_text(errors="replace")[-2000:]

    def kill(self) -> None:
        """End it at once; what it held is dropped with its database."""
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            _pipe(pipe).close()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


@contextlib.contextmanager
def workers(
    side: Side, work: Work, hits: Path, *, count: int = 1, environment: dict[str, str] | None = None
) -> Iterator[list[Child]]:
    """Workers that all began at the same moment, ended when the block is left."""
    children = [Child(side, work, hits, environment) for _ in range(count)]
    try:
        for child in children:
            child.wait_ready()
        for child in children:
            child.go()
        yield children
    finally:
        for child in children:
            child.kill()


async def until(reached: Callable[[], bool], what: str, every_s: float = 0.002) -> None:
    """Wait for a condition that can only be looked at."""
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        if time.monotonic() > deadline:
            raise TookTooLong(f"{what}: not within {PATIENCE_S:.0f} s")
        await asyncio.sleep(every_s)
