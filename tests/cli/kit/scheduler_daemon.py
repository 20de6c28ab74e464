"""A real `rota scheduler start` in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.kit import pause


class SchedulerDaemon:
    """Its output, its log, and the signals it gets."""

    def __init__(self, folder: Path, *words: str) -> None:
        number = len(list(folder.glob("scheduler-*.out")))
        self._out = folder / f"scheduler-{number}.out"
        self._err = folder / f"scheduler-{number}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "rota", "scheduler", "start", *words], cwd=folder,
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=dict(os.environ),
            )  # fmt: skip
        self.pid = self._popen.pid

    def events(self, name: str) -> list[dict[str, Any]]:
        """The events of this name that it has printed."""
        lines = [json.loads(line) for line in self._out.read_text().splitlines()]
        return [line for line in lines if line["event"] == name]

    def log(self) -> str:
        """Its log."""
        return self._err.read_text()

    def until(self, condition: Callable[[], Any], timeout_s: float = 60) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, f"never so:\n{self._out.read_text()}\n{self.log()}"
            assert self._popen.poll() is None, f"ended:\n{self.log()}"
            pause(0.05)

    def send(self, number: int) -> None:
        """Send a signal."""
        self._popen.send_signal(number)

    def wait(self, timeout_s: float = 60) -> int:
        """Its exit code."""
        return self._popen.wait(timeout_s)

    def end(self) -> None:
        """Kill it, if it still runs."""
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.wait()
