"""Rate limits as arithmetic (GCRA): one stored instant per queue, no counters to drift. Pure."""

from __future__ import annotations

import msgspec


class Rate(msgspec.Struct, frozen=True):
    """A token bucket: `count` starts per `per_us` on average, and as many at once after a rest."""

    count: int
    per_us: int


def allowed(rate: Rate, *, ready_at: int, now: int) -> int:
    """How many may start now; `ready_at` is the stored instant of the queue."""
    spare = now + rate.per_us - max(ready_at, now)
    return max(0, min(rate.count, spare * rate.count // rate.per_us))


def advance(rate: Rate, *, ready_at: int, now: int, taken: int) -> int:
    """The instant to store after `taken` starts."""
    return max(ready_at, now) + -(-taken * rate.per_us // rate.count)


def next_free_at(rate: Rate, *, ready_at: int) -> int:
    """When at least one start becomes possible."""
    return ready_at - rate.per_us + -(-rate.per_us // rate.count)
