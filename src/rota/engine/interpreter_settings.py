"""Settings of the interpreter in a process that belongs to Rota: `rota up` and `run_forever`.

A library must not change them in a user's own process.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator

# A waiting thread requests the GIL from a busy event loop after this time. Python's
# own 5 ms are more than a commit takes, and SQLite's writer needs the lock between two statements.
SWITCH_S, PYTHON_SWITCH_S = 0.0001, 0.005
# New objects before the young ones are collected. Hundreds of runs are in progress at a time;
# with Python's own value (2000 since 3.13), the collector visits their objects again and again.
YOUNG, PYTHON_YOUNG = 10_000, (700, 2000)


@contextlib.contextmanager
def own_process(*, uses_threads: bool) -> Iterator[None]:
    """Tune the interpreter for a worker, until the block ends. Values that were chosen before
    stay. `uses_threads`: the database is used by a thread (SQLite)."""
    switch_s = sys.getswitchinterval()
    switches = uses_threads and switch_s == PYTHON_SWITCH_S
    freezes = gc.isenabled() and not gc.get_freeze_count()
    thresholds = gc.get_threshold()
    if switches:
        sys.setswitchinterval(SWITCH_S)
    if thresholds[0] in PYTHON_YOUNG:
        gc.set_threshold(YOUNG, *thresholds[1:])
    if freezes:
        # The code and its modules stay for good: no full collection walks through them again.
        gc.collect()
        gc.freeze()
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        if freezes:
            gc.unfreeze()
        if switches:
            sys.setswitchinterval(switch_s)
