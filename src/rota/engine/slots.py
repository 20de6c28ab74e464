"""The slots of a worker: by queue, and those it keeps empty for a run that is executed alone
(core/runs/recovery)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import msgspec

from rota.core.runs.model import Claim
from rota.core.runs.queue_options import Contender, shares
from rota.core.runs.recovery import LEASES_BETWEEN_PAUSES, runs_alone
from rota.store.runs.claim import ClaimRequest

# Runs and queues of which a worker remembers when it claimed them to execute them alone.
CLAIMED_MAX = 1_000


class QueueSlots(msgspec.Struct):
    """A queue this worker serves, and how many of its slots it may fill."""

    name: str
    slots_max: int
    active: int = 0
    may_have_more: bool = True  # whether there may be more in it than was claimed
    weight: int | None = None  # its share of the slots, where a queue has one
    used: float = 0.0  # runs claimed, divided by the weight


def claimable(queues: Iterable[QueueSlots]) -> list[tuple[str, int]]:
    """The queues that may have work and have free slots here, with the number of these slots."""
    return [
        (q.name, q.slots_max - q.active)
        for q in queues
        if q.may_have_more and q.slots_max > q.active
    ]


def divided(wanted: Sequence[tuple[QueueSlots, int]], free: int) -> list[tuple[str, int]]:
    """Divide the free slots by weight among queues that may have work."""
    contenders = [Contender(q.name, most, q.weight or 1, q.used) for q, most in wanted]
    return list(shares(free, contenders).items())


def lacks_slots(queues: Iterable[QueueSlots], free: int) -> bool:
    """Whether a queue without a free slot may have work."""
    return any(q.may_have_more and (free <= 0 or q.slots_max <= q.active) for q in queues)


def filled(request: ClaimRequest, claims: Iterable[Claim]) -> dict[str, bool]:
    """Whether each queue of a claim returned as many runs as requested."""
    taken = Counter(claim.queue for claim in claims)
    runs_max, answers = request.runs_max, {}
    for name, free in request.queues:
        if runs_max <= 0:
            break  # the claim did not reach this queue
        answers[name] = taken[name] >= min(free, runs_max)
        runs_max -= taken[name]
    return answers


class AloneRuns:
    """Decides when a worker claims a run that executes alone, and when it claims no other run.

    An idle worker claims the run, and nothing more until that run ends or suspends. Then it claims
    other runs once, children of that run first, before it executes another one alone: a run that
    is woken again and again must not keep other work away. A busy worker pauses its claims for one
    lease to become idle. It does so rarely, because its other runs may take much longer than a
    lease.
    """

    def __init__(self, lease_us: int) -> None:
        self.waits = False  # whether such a run may wait for an idle worker
        self.parent_id = ""  # the run after which no other runs have been claimed yet
        self._claimed: dict[str, None] = {}  # such runs and their queues, by their last claim
        self._lease_us = lease_us
        self._paused_until = self._next_pause_at = 0

    @property
    def is_next(self) -> bool:
        """Whether an idle worker claims such a run next."""
        return self.waits and not self.parent_id

    def in_order(self, names: Iterable[str]) -> list[str]:
        """Runs or queues by their last claim here, those without one first."""
        places = {name: place for place, name in enumerate(self._claimed, 1)}
        return sorted(names, key=lambda name: places.get(name, 0))

    def note_claim(self, claims: Sequence[Claim]) -> None:
        """Note the answer to a claim of such a run."""
        self.waits = bool(claims)  # after this one there may be another
        for claim in claims:
            self.parent_id = claim.root_id
            for name in (claim.root_id, claim.queue):
                self._claimed.pop(name, None)
                self._claimed[name] = None
            self._paused_until = self._next_pause_at = 0  # the pause, if there was one, is over
        while len(self._claimed) > CLAIMED_MAX:
            del self._claimed[next(iter(self._claimed))]

    def expect(self, waits: bool, *, busy: bool, now: int) -> None:
        """Set whether such a run waits."""
        self.waits = waits
        between_us = LEASES_BETWEEN_PAUSES * self._lease_us
        # A pause further away than its own length was set before the clock was set back: ignore it.
        if waits and busy and not 0 < self._next_pause_at - now <= between_us:
            self._paused_until = now + self._lease_us
            self._next_pause_at = now + between_us

    def is_executed(self, held: Collection[Claim]) -> bool:
        """Whether the worker executes such a run."""
        return len(held) == 1 and runs_alone(next(iter(held)).recoveries)

    def keeps_slots_empty(self, held: Collection[Claim], now: int) -> bool:
        """Whether the worker must not claim ordinary runs now."""
        if self.is_executed(held):
            return True
        return self.waits and 0 < self._paused_until - now <= self._lease_us
