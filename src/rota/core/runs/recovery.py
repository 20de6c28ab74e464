"""What becomes of a run whose worker died: recovered or put aside, in company or alone. Pure.

A worker that dies takes every run in its hands along, and nothing tells which of them killed it.
So the first two deaths say little about a run. From its second recovery on, a run is executed
alone, by a worker that holds nothing else: each further death is its own.
"""

from __future__ import annotations

from rota.core.runs.model import Run

# The claim queries and the index `runs_alone` name the same number.
ALONE_FROM = 2
# A busy worker stops claiming for one lease, in order to become idle, once in this many leases.
LEASES_BETWEEN_CLEARINGS = 10


def runs_alone(recoveries: int) -> bool:
    """Whether a run with so many recoveries is executed by a worker that holds nothing else."""
    return recoveries >= ALONE_FROM


def is_recovered(run: Run, recoveries_max: int) -> bool:
    """Whether a run whose worker died gets a successor.

    An automation always keeps a turn: one that died too often asks a person when it begins.
    """
    return run.recoveries < recoveries_max or run.kind == "automation"
