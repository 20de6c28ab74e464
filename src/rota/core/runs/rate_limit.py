"""Rate limits as arithmetic (GCRA): one stored instant per queue, no counters to drift. Pure."""

from __future__ import annotations

import msgspec

from rota.core.time.instants import SECOND

# Clocks of workers differ by less than this. An instant beyond a whole period and this has another
# reason: the rate was changed, or the clock was set back.
SKEW_US = 10 * SECOND


class Rate(msgspec.Struct, frozen=True):
    """A token bucket: `count` starts per `per_us` on average, and as many at once after a rest."""

    count: int
    per_us: int


def allowed(rate: Rate, *, ready_at: int, now: int) -> int:
    """How many may start now; `ready_at` is the stored instant of the queue."""
    spare = now + rate.per_us - max(_bounded(rate, ready_at, now), now)
    return max(0, min(rate.count, spare * rate.count // rate.per_us))


def advance(rate: Rate, *, ready_at: int, now: int, taken: int) -> int:
    """The instant to store after `taken` starts."""
    return max(_bounded(rate, ready_at, now), now) + -(-taken * rate.per_us // rate.count)


def _bounded(rate: Rate, ready_at: int, now: int) -> int:
    """The stored instant, or one that lets a single start through if this rate cannot have set it.
    The queue would otherwise wait for the period of an earlier rate, or for the old clock."""
    if ready_at <= now + rate.per_us + SKEW_US:
        return ready_at
    return now + rate.per_us - -(-rate.per_us // rate.count)


def set_back_us(*, seen_at: int, now: int) -> int:
    """How far the clock was set back since it was read at `seen_at`; 0 for a difference between
    the clocks of workers."""
    behind_us = seen_at - now
    return behind_us if behind_us > SKEW_US else 0


def next_free_at(rate: Rate, *, ready_at: int) -> int:
    """When at least one start becomes possible."""
    return ready_at - rate.per_us + -(-rate.per_us // rate.count)
