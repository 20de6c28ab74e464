"""Decides what follows when the worker of a run died: a recovery or the end, and how it runs.

All runs of a dead worker crash with it, and nothing shows which of them killed the process. The
first two crashes therefore say little about a run. From its second recovery on, a run is executed
alone, by a worker that holds nothing else. A further crash is its own, and only such a crash ends
the run for good (unless `recoveries_max` is below 2).
"""

from __future__ import annotations

from collections.abc import Collection

from rota.core.runs.model import Run

# The claim queries and the index `runs_alone` name the same number.
ALONE_FROM = 2
# A busy worker pauses its claims for one lease, in order to become idle, once in this many leases.
LEASES_BETWEEN_PAUSES = 10


def runs_alone(recoveries: int) -> bool:
    """Whether a run with so many recoveries is executed by a worker that holds nothing else."""
    return recoveries >= ALONE_FROM


def died_alone(recoveries: int) -> bool:
    """Whether the last of so many crashes was one of a run that was executed alone."""
    return runs_alone(recoveries - 1)


def is_recovered(run: Run, recoveries_max: int, kept_kinds: Collection[str]) -> bool:
    """Whether a run of a dead worker gets a successor.

    Kinds of `kept_kinds` always keep an open run: after too many crashes it asks an operator.
    """
    return run.recoveries < recoveries_max or run.kind in kept_kinds
