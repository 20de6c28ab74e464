"""A range of time with the occurrences of a spec in it, cut without listing them. Pure.

A schedule may owe millions of occurrences after an outage; their outcomes are decided by counting,
which costs by the year, and only those that run are listed.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from rota.core.time.recurrence import Spec, between, count_between, next_after, previous_before

# Up to so many are listed to find a cut; beyond, it is found by bisection.
LISTED_MAX = 64


class OccurrenceRange(NamedTuple):
    """The occurrences with after < t <= until, and how many they are."""

    spec: Spec
    after: int
    until: int
    size: int

    @classmethod
    def of(cls, spec: Spec, after: int, until: int) -> OccurrenceRange:
        """The range between two instants."""
        return cls(spec, after, until, count_between(spec, after, until))

    @property
    def first(self) -> int:
        """The first occurrence; there must be one."""
        return next_after(self.spec, self.after) or self.after

    @property
    def last(self) -> int:
        """The last occurrence; there must be one."""
        return previous_before(self.spec, self.until + 1) or self.until

    def dues(self, most: int) -> list[int]:
        """The first `most` occurrences."""
        if not most or not self.size:
            return []
        if self.until == self.after + 1:  # the common case: only one instant, and it is one
            return [self.until]
        return between(self.spec, self.after, self.until, limit=min(most, self.size))

    def split_at(self, at: int) -> tuple[OccurrenceRange, OccurrenceRange]:
        """The occurrences up to an instant, and those after it."""
        if at <= self.after:
            return self._head(self.after, 0), self
        if at >= self.until:
            return self, self._tail(self.until, 0)
        count = count_between(self.spec, self.after, at)
        return self._head(at, count), self._tail(at, self.size - count)

    def split(self, count: int) -> tuple[OccurrenceRange, OccurrenceRange]:
        """The first `count` occurrences, and the rest."""
        if count <= 0:
            return self._head(self.after, 0), self
        if count >= self.size:
            return self, self._tail(self.until, 0)
        at = self._instant_after(count)
        return self._head(at, count), self._tail(at, self.size - count)

    def _head(self, until: int, size: int) -> OccurrenceRange:
        return OccurrenceRange(self.spec, self.after, until, size)

    def _tail(self, after: int, size: int) -> OccurrenceRange:
        return OccurrenceRange(self.spec, after, self.until, size)

    def _instant_after(self, count: int) -> int:
        """An instant with exactly `count` occurrences up to it."""
        if count <= LISTED_MAX:
            return self.dues(count)[-1]
        instants = range(self.after, self.until)
        return self.after + bisect_left(
            instants, count, key=lambda at: count_between(self.spec, self.after, at)
        )
