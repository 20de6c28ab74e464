"""Counts the statements that SQLite runs in a process, for the cost of idling.

apsw calls a hook for every connection that any code opens; there a trace is set, which SQLite
calls as each statement begins. Two counters are kept in a file that another process reads.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any, NamedTuple

import apsw

_COUNTERS = struct.Struct("<qq")
CONTROL = ("begin", "commit", "rollback", "savepoint", "release", "end")


class Statements(NamedTuple):
    """Statements that read or write something, and those that only begin and end transactions."""

    queries: int
    control: int


def count_statements(path: Path) -> None:
    """Count from now on, in this process."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    counters = [0, 0]

    def traced(event: dict[str, Any]) -> None:
        # Not by event["trigger"]: that is also set for a statement that opens with a comment.
        counters[event["sql"].lstrip().lower().startswith(CONTROL)] += 1
        os.pwrite(file, _COUNTERS.pack(*counters), 0)

    apsw.connection_hooks.append(
        lambda connection: connection.trace_v2(apsw.SQLITE_TRACE_STMT, traced)
    )


def read(path: Path) -> Statements:
    """The counts so far."""
    raw = path.read_bytes() if path.exists() else b""
    return Statements(*_COUNTERS.unpack(raw)) if raw else Statements(0, 0)
