"""A worker's knowledge about runs that are executed alone (core/runs/recovery)."""

from __future__ import annotations

from collections.abc import Collection

from rota.core.runs.model import Claim
from rota.core.runs.recovery import LEASES_BETWEEN_PAUSES, runs_alone


class AloneRuns:
    """Decides when one worker claims such a run, and when it claims nothing because of one.

    An idle worker claims the run, and nothing more until that run ends or suspends. A busy worker
    pauses its claims for one lease in order to become idle. It does so rarely: the runs that it
    holds may take much longer than a lease.
    """

    def __init__(self, lease_us: int) -> None:
        self.waits = False  # whether one may wait for an idle worker
        self._lease_us = lease_us
        self._paused_until = self._next_pause_at = 0

    def expect(self, waits: bool, *, busy: bool, now: int) -> None:
        """Learn whether such a run waits."""
        self.waits = waits
        if waits and busy and now >= self._next_pause_at:
            self._paused_until = now + self._lease_us
            self._next_pause_at = now + LEASES_BETWEEN_PAUSES * self._lease_us

    def keeps_slots_empty(self, held: Collection[Claim], now: int) -> bool:
        """Whether the worker must not claim ordinary runs now."""
        if len(held) == 1 and runs_alone(next(iter(held)).recoveries):
            return True
        return self.waits and now < self._paused_until
