"""The slots of a worker, by queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from rota.core.runs import fairness
from rota.core.runs.fairness import Contender
from rota.core.runs.model import Claim
from rota.store.runs.claim import ClaimRequest


class QueueSlots(msgspec.Struct):
    """A queue this worker serves, and how many of its slots it may fill."""

    name: str
    slots_max: int
    active: int = 0
    may_have_more: bool = True  # whether there may be more in it than was claimed
    weight: int | None = None  # its share of the slots, where a queue has one
    used: float = 0.0  # runs claimed, divided by the weight


def claimable(queues: Iterable[QueueSlots]) -> list[tuple[str, int]]:
    """The queues that may have work and have room here, with the slots that they may fill."""
    return [
        (q.name, q.slots_max - q.active)
        for q in queues
        if q.may_have_more and q.slots_max > q.active
    ]


def divided(wanted: Sequence[tuple[QueueSlots, int]], free: int) -> list[tuple[str, int]]:
    """Divide the free slots by weight among queues that may have work."""
    contenders = [Contender(q.name, most, q.weight or 1, q.used) for q, most in wanted]
    return list(fairness.shares(free, contenders).items())


def lacks_slots(queues: Iterable[QueueSlots], free: int) -> bool:
    """Whether there may be work in a queue from which nothing can be claimed now."""
    return any(q.may_have_more and (free <= 0 or q.slots_max <= q.active) for q in queues)


def filled(request: ClaimRequest, claims: Iterable[Claim]) -> dict[str, bool]:
    """Whether each queue of a claim gave all that was asked for."""
    taken = Counter(claim.queue for claim in claims)
    runs_max, answers = request.runs_max, {}
    for name, free in request.queues:
        if runs_max <= 0:
            break  # it was not asked
        answers[name] = taken[name] >= min(free, runs_max)
        runs_max -= taken[name]
    return answers
