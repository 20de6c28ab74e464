"""Invariants as queries that must return no row, shared by the tests and `rota doctor`."""

from __future__ import annotations

from typing import NamedTuple

from rota.store.backend.database import Tx

INVARIANTS: dict[str, str] = {
    "broken_lease": "a run is leased exactly while it runs",
    "broken_finish": "a run has an end time exactly when it is over",
    "broken_way_forward": "no open run is without a way forward",
    "broken_occurrence": "no occurrence fires twice",
    "broken_turn": "a queued occurrence has a run before it",
    "broken_backfill": "a queued run of a backfill has a run before it",
    "broken_successor": "no attempt has two successors",
    "broken_chain": "a successor follows a finished attempt of its own chain",
    "broken_open_chain": "a chain has at most one open run",
    "broken_serial": "a serial key has at most one open run",
    "broken_step": "every step belongs to a chain",
    "broken_child_wait": "a parent that waits for children has one that continues",
    "broken_orphan": "children of a cancelled run are cancelled",
    "broken_automation_turn": "an active automation has an open run",
    "broken_automation_wait": "an automation that waits for an operator has a reason",
    "broken_reservation": "a reserved event belongs to a chain that continues",
    "broken_mutation": "a chain has at most one side effect",
    "broken_doubt": "a side effect with an unknown outcome belongs to a chain that continues",
    "broken_consumption": "no event is consumed twice",
    "broken_commit": "a committed handler run is a completed run",
    "broken_applied": "a run with an applied change has moved on",
}

# These read every run or step that is stored. The checks of the tables say the first two as well.
SCANS = frozenset({"broken_lease", "broken_finish", "broken_step"})
# The rows that `store.runs.chain_ends.release_stuck` repairs.
REPAIRABLE = frozenset({"broken_turn", "broken_backfill"})


class BrokenInvariant(NamedTuple):
    """An invariant that does not hold, with the rows that prove it."""

    name: str
    sentence: str
    rows: list[str]


async def broken(tx: Tx, *, full: bool = True) -> list[BrokenInvariant]:
    """Every invariant that does not hold; empty when all is well. Without `full`, those that read
    everything are skipped."""
    found = []
    for name, sentence in INVARIANTS.items():
        if name in SCANS and not full:
            continue
        rows = await tx.rows(name)
        if rows:
            found.append(BrokenInvariant(name, sentence, [str(tuple(row)) for row in rows[:10]]))
    return found
