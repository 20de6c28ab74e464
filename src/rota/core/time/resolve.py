"""The one place where wall-clock times become instants. Pure.

The rule: a time that does not exist (a gap) fires at the first instant after the gap, or not at
all; one that happens twice (a repeat) fires at the first, the second, or both. For expressions that
name their times of day, `auto` means next and first. For those that step through the hour or the
minute it means skip and both, so that they follow elapsed time. Several wall times that land on one
instant are one occurrence.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

from rota.core.time.calendar import Walls
from rota.core.time.cron import Cron, read_cron
from rota.core.time.dst import DAY_S, FIRST_S, LAST_S, Timeline, timeline
from rota.core.time.instants import SECOND

# The search for a wall time that never exists (02:30 on the day of the change, with gaps skipped)
# would not end. So it gives up after this many offset periods.
PERIODS_MAX = 400
_FAR_S = 2 * DAY_S


class Times(Protocol):
    """The occurrences of one timing; instants are microseconds."""

    def after(self, at: int) -> int | None:
        """The first occurrence strictly after an instant."""

    def before(self, at: int) -> int | None:
        """The last occurrence strictly before an instant."""

    def count(self, after: int, until: int) -> int:
        """How many occurrences have after < t <= until."""


def rule_of(cron: Cron, gap: str, repeat: str) -> tuple[str, str]:
    """The meaning of `auto` for this expression."""
    if gap == "auto":
        gap = "next" if cron.fixed else "skip"
    if repeat == "auto":
        repeat = "first" if cron.fixed else "both"
    return gap, repeat


class CronTimes:
    """Occurrences of a cron expression in a zone."""

    __slots__ = ("_timeline", "walls")

    def __init__(self, walls: Walls, zone_timeline: Timeline) -> None:
        self.walls = walls
        self._timeline = zone_timeline

    def after(self, at: int) -> int | None:
        """The first occurrence strictly after an instant."""
        found = self._at_or_after(at // SECOND + 1)
        return None if found is None else found * SECOND

    def before(self, at: int) -> int | None:
        """The last occurrence strictly before an instant."""
        found = self._at_or_before(-(-at // SECOND) - 1)
        return None if found is None else found * SECOND

    def count(self, after: int, until: int) -> int:
        """How many occurrences have after < t <= until; costs by the year, not by the count."""
        at, stop = max(after // SECOND + 1, FIRST_S), min(until // SECOND + 1, LAST_S)
        total = 0
        while at < stop:
            period = self._timeline.at(at)
            hi = min(period.hi, stop)
            offset = period.offset
            total += self.walls.count(max(at + offset, period.entry), min(hi + offset, period.end))
            start = period.lo + offset
            if at == period.lo and period.entry < start:
                # All that fell into the gap is one occurrence, and none if `lo` itself is one.
                first = self.walls.at_or_after(period.entry)
                total += (
                    first is not None and first < start and not self.walls.count(start, start + 1)
                )
            at = hi
        return total

    def _at_or_after(self, at: int) -> int | None:
        at = max(at, FIRST_S)
        for _ in range(PERIODS_MAX):
            if at >= LAST_S:
                return None
            lo, hi, offset, entry, end = self._timeline.at(at)
            wall = at + offset
            if wall < entry or at == lo:
                wall = entry
            found = self.walls.at_or_after(wall)
            if found is None:
                return None
            if found < end:
                # Before `lo` only when it lies in the gap there.
                return max(found - offset, lo)
            # Beyond two days no repeat can bring back what was looked at: go where it may be.
            far = hi + offset - wall > _FAR_S
            at = max(hi, found - offset - _FAR_S) if far else hi
        return None

    def _at_or_before(self, at: int) -> int | None:
        at = min(at, LAST_S - 1)
        for _ in range(PERIODS_MAX):
            if at < FIRST_S:
                return None
            lo, _, offset, entry, end = self._timeline.at(at)
            wall = min(at + offset, end - 1)
            found = self.walls.at_or_before(wall)
            if found is None:
                return None
            if found >= entry:
                return max(found - offset, lo)
            far = wall - (lo + offset) > _FAR_S
            at = min(lo - 1, found - offset + _FAR_S) if far else lo - 1
        return None


class EveryTimes:
    """A fixed interval of elapsed time: the anchor, and every step from it in both directions."""

    __slots__ = ("_anchor", "_every")

    def __init__(self, every_us: int, anchor_at: int) -> None:
        self._every, self._anchor = every_us, anchor_at

    def after(self, at: int) -> int | None:
        """The first occurrence strictly after an instant."""
        at = max(at, FIRST_S * SECOND - 1)
        found = self._anchor + ((at - self._anchor) // self._every + 1) * self._every
        return found if found < LAST_S * SECOND else None

    def before(self, at: int) -> int | None:
        """The last occurrence strictly before an instant."""
        at = min(at, LAST_S * SECOND)
        found = self._anchor + ((at - 1 - self._anchor) // self._every) * self._every
        return found if found >= FIRST_S * SECOND else None

    def count(self, after: int, until: int) -> int:
        """How many occurrences have after < t <= until."""
        after = max(after, FIRST_S * SECOND - 1)
        until = min(until, LAST_S * SECOND - 1)
        steps = (until - self._anchor) // self._every - (after - self._anchor) // self._every
        return max(steps, 0)


class OnceTimes:
    """One instant."""

    __slots__ = ("_at",)

    def __init__(self, at: int) -> None:
        self._at = at

    def after(self, at: int) -> int | None:
        """The instant, if it is still to come."""
        return self._at if at < self._at else None

    def before(self, at: int) -> int | None:
        """The instant, if it is over."""
        return self._at if at > self._at else None

    def count(self, after: int, until: int) -> int:
        """1 if the instant has after < t <= until."""
        return int(after < self._at <= until)


@lru_cache(maxsize=131_072)
def cron_times(cron: str, zone: str, gap: str, repeat: str) -> CronTimes:
    """The occurrences of an expression, compiled once."""
    read = read_cron(cron)
    return CronTimes(_walls(read.text), timeline(zone, *rule_of(read, gap, repeat)))


@lru_cache(maxsize=65_536)
def _walls(cron: str) -> Walls:
    return Walls(read_cron(cron))
