"""Which workers of a fleet poll for work after a notification. Pure.

Every worker receives every NOTIFY. If each of them polled, one start would cost a claim per worker.
So a few are asked, drawn by lot. A worker that cannot take all runs asks more of them, until all
are asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

# Two, so that a worker that has just died delays nothing.
ASKED = 2
# Each round doubles the workers that are asked, so this many reach any fleet.
ROUNDS_MAX = 20


class Fleet(NamedTuple):
    """A worker, and the workers that can execute the same runs: itself included."""

    worker_id: str
    peers: Sequence[str]


class WakeupCall(NamedTuple):
    """A notification: its topic, how often workers passed it on, and the seed of the draw. Without
    a seed all workers are asked."""

    topic: str
    round: int = 0
    seed: str = ""


def read_call(payload: str) -> WakeupCall:
    """A notification as it was sent: `topic`, `topic seed` or `topic+round seed`."""
    name, _, seed = payload.partition(" ")
    topic, _, number = name.partition("+")
    asked_before = number.isascii() and number.isdecimal() and len(number) <= 2
    return WakeupCall(topic, min(int(number), ROUNDS_MAX) if asked_before else 0, seed)


def is_asked(fleet: Fleet, call: WakeupCall) -> bool:
    """Whether this worker is one of those that should poll."""
    most = ASKED << call.round
    if not call.seed or most >= len(fleet.peers):
        return True
    own = _lot(call.seed, fleet.worker_id)
    return sum(_lot(call.seed, peer) < own for peer in fleet.peers) < most


def wider(fleet: Fleet, call: WakeupCall) -> str | None:
    """The topic of a notification that asks more workers; None when all have been asked."""
    if not call.seed or ASKED << call.round >= len(fleet.peers):
        return None
    return f"{call.topic}+{call.round + 1}"


def _lot(seed: str, worker_id: str) -> bytes:
    return blake2b(f"{seed} {worker_id}".encode(), digest_size=8).digest()
