"""Run ids: UUIDv7 in hex, which sort by creation time. Time and random numbers are arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator

_VERSION = 7 << 76
_VARIANT = 2 << 62
_LOW = (1 << 61) - 1
_LOWER_HALF = (1 << 64) - 1


def created_at_of(run_id: str) -> int:
    """When an id was made, to the millisecond (in microseconds)."""
    return int(run_id[:12], 16) * 1000


SHORT = 8


def short_id(run_id: str) -> str:
    """The end of an id, for tables. Ids of one moment begin alike; they differ at their end."""
    return run_id[-SHORT:]


def first_id(at: int) -> str:
    """Not above any id made from then on: ids begin with the millisecond of their creation."""
    return f"{at // 1000:012x}"


def id_bound(instant: int) -> str:
    """Above every id made until then. A run that ended before then was created before then: ids are
    in the order of their creation, so this bounds a search."""
    return f"{first_id(instant)}g"


class IdMaker:
    """Makes ids that rise strictly within one process, so a batch keeps its order."""

    def __init__(self, entropy: Callable[[int], int]) -> None:
        self._entropy = entropy
        self._last = 0

    def make(self, now: int) -> str:
        """One new id created at `now` (microseconds)."""
        value = self._last = self._first(now)
        return value.to_bytes(16, "big").hex()

    def make_after(self, newest: str, now: int) -> str:
        """One new id that sorts after `newest`, which another process may have made."""
        made = self.make(now)
        return made if made > newest else self.make(created_at_of(newest) + 1000)

    def take(self, now: int, count: int) -> Iterator[str]:
        """`count` new ids in rising order."""
        value = self._first(now)
        self._last = value + count - 1
        low = value & _LOWER_HALF
        # Only the lower half is counted up; `map` and `%` make ids without a call of Python code.
        return map(f"{value >> 64:016x}%016x".__mod__, range(low, low + count))

    def _first(self, now: int) -> int:
        chance = self._entropy(74)
        # Both random fields start below their top bit so that counting up cannot leave them.
        high = (chance >> 62) & 0x7FF
        value = ((now // 1000) << 80) | _VERSION | (high << 64) | _VARIANT | (chance & _LOW)
        return value if value > self._last else self._last + 1

    def endless(self, now: int) -> Iterator[str]:
        """New ids in rising order, without end."""
        while True:
            yield from self.take(now, 100)
