"""How user code reports that it ran: one record of 24 bytes, appended in one write.

Both sides pay the same for it (about 2 microseconds). It is atomic between processes, and its clock
(CLOCK_MONOTONIC) is the same for all of them.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_RECORD = struct.Struct("<qqd")

Pen = Callable[[int, int], None]


class Hit(NamedTuple):
    """Run `number` came by at `at`; `step` tells which line of it."""

    number: int
    step: int
    at: float


def pen(path: Path) -> Pen:
    """A function that reports a run and a step."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    write, pack, now = os.write, _RECORD.pack, time.monotonic

    def report(number: int, step: int) -> None:
        write(file, pack(number, step, now()))

    return report


def count(path: Path) -> int:
    """How many reports there are."""
    try:
        return path.stat().st_size // _RECORD.size
    except FileNotFoundError:
        return 0


def read(path: Path) -> list[Hit]:
    """All reports."""
    return [Hit(*values) for values in _RECORD.iter_unpack(path.read_bytes())]
