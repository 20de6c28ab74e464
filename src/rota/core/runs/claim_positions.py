"""The position at which the next claim of a queue begins while a backlog is worked off.

A claim from the front passes every run that was claimed before, as long as some snapshot keeps
their index entries alive. A run may still arrive before such a position: its start took long to
commit, or it woke up. So a claim begins at the front again after a while.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rota.core.runs.model import Claim
from rota.core.time.instants import SECOND

# A claim begins at the front again after FRONT_EVERY_US, or after FRONT_SHARE times its own
# duration if that is longer.
FRONT_EVERY_US = SECOND
FRONT_SHARE = 10
# A claim of fewer is not a sign of a backlog, and what it passes over costs little.
BACKLOG_MIN = 10


class QueuePosition(NamedTuple):
    """A place in the order of a queue: that of the last run claimed from it."""

    priority: int
    available_at: int
    id: str


def claim_order(run: Claim | QueuePosition) -> tuple[int, int, str]:
    """The order of claims: highest priority, then oldest."""
    return (-run.priority, run.available_at, run.id)


class _Backlog(NamedTuple):
    position: QueuePosition
    since: int  # when a claim last began at the front
    pause: int  # how long after that the next one does


class QueuePositions:
    """The positions of one worker, by queue."""

    def __init__(self) -> None:
        self._backlogs: dict[str, _Backlog] = {}

    def after(self, now: int) -> dict[str, QueuePosition]:
        """The positions at which claims begin now; those of other queues begin at the front."""
        self._backlogs = {
            name: one
            for name, one in self._backlogs.items()
            if 0 <= now - one.since < one.pause  # below 0: the clock went back
        }
        return {name: one.position for name, one in self._backlogs.items()}

    def note(
        self, full: Mapping[str, bool], claims: Iterable[Claim], *, began: int, ended: int
    ) -> None:
        """Learn from a claim of this duration. Only a full claim shows a backlog."""
        taken: dict[str, list[Claim]] = {}
        for claim in sorted(claims, key=claim_order):
            taken.setdefault(claim.queue, []).append(claim)
        for name, is_full in full.items():
            known = self._backlogs.pop(name, None)
            if not is_full or len(taken[name]) < BACKLOG_MIN:
                continue
            claim = taken[name][-1]
            position = QueuePosition(claim.priority, claim.available_at, claim.id)
            if known is not None and claim_order(known.position) > claim_order(position):
                position = known.position  # all of these had a higher priority
            if known is None:
                known = _Backlog(
                    position, began, max(FRONT_EVERY_US, FRONT_SHARE * (ended - began))
                )
            self._backlogs[name] = known._replace(position=position)
