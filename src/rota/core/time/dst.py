"""When a zone's offset changes, and what that does to the clock on the wall. Pure.

The standard library gives the offset at an instant but not its next change. So changes are found by
bisection between days. In the whole zone database no offset has ever lasted less than three and a
half days. No clock was moved by more than one day. A test checks both.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

from rota.core.time.zones import zone_named

DAY_S = 86_400
STEP_S = 2 * DAY_S  # Less than any offset ever lasted.
MARGIN_S = 3 * DAY_S  # More than any clock was ever moved by.
CHUNK_BITS = 25  # Changes are searched in chunks of 2^25 seconds, somewhat over a year.

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Instants in seconds between which everything is defined: the calendar's ends, less a margin.
FIRST_S = int((datetime(2, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds())
LAST_S = int((datetime(9998, 12, 31, tzinfo=UTC) - _EPOCH).total_seconds())


class OffsetChange(NamedTuple):
    """The clock is moved at `at`: forward over a gap, or back into a repeat."""

    at: int
    was: int
    now: int

    @property
    def gap(self) -> bool:
        """True when wall times are skipped, false when they come twice."""
        return self.now > self.was

    @property
    def walls(self) -> tuple[int, int]:
        """The wall times skipped or doubled: from the first up to but without the second."""
        return self.at + min(self.was, self.now), self.at + max(self.was, self.now)


def offset_at(zone: ZoneInfo, at: int) -> int:
    """Seconds that the clock on the wall is ahead of UTC."""
    # The quickest way that also works for years before 1970 on every system.
    offset = zone.fromutc(_EPOCH.replace(tzinfo=zone) + timedelta(seconds=at)).utcoffset()
    assert offset is not None
    return offset.days * DAY_S + offset.seconds


def changes_between(name: str, start: int, stop: int) -> list[OffsetChange]:
    """Every change of the zone's offset with start <= at < stop."""
    start, stop = max(start, FIRST_S), min(stop, LAST_S)
    changes = []
    for chunk in range(start >> CHUNK_BITS, ((stop - 1) >> CHUNK_BITS) + 1):
        low, high = chunk << CHUNK_BITS, (chunk + 1) << CHUNK_BITS
        for change in _chunk_changes(name, chunk):
            if max(low, start) <= change.at < min(high, stop):
                changes.append(change)
    return changes


@lru_cache(maxsize=16_384)
def _chunk_changes(name: str, chunk: int) -> tuple[OffsetChange, ...]:
    """The changes within one chunk and its margins on both sides."""
    zone = zone_named(name)
    if zone.utcoffset(None) is not None:
        return ()  # A zone that never changed.
    start = max((chunk << CHUNK_BITS) - MARGIN_S, FIRST_S - MARGIN_S)
    stop = min(((chunk + 1) << CHUNK_BITS) + MARGIN_S, LAST_S + MARGIN_S)
    step, moment = timedelta(seconds=STEP_S), _EPOCH.replace(tzinfo=zone)
    moment += timedelta(seconds=start)
    was = zone.fromutc(moment).utcoffset()
    changes = []
    for at in range(start, stop, STEP_S):
        moment += step
        now = zone.fromutc(moment).utcoffset()
        if now != was:
            before, after = offset_at(zone, at), offset_at(zone, at + STEP_S)
            changes.append(OffsetChange(_instant_of(zone, at, at + STEP_S, before), before, after))
        was = now
    return tuple(changes)


def _instant_of(zone: ZoneInfo, low: int, high: int, was: int) -> int:
    """The first second at which the offset is no longer `was`."""
    return low + bisect_left(range(low, high), True, key=lambda at: offset_at(zone, at) != was)


class OffsetPeriod(NamedTuple):
    """A time of constant offset, with the rule for gaps and repeats worked in.

    Instants are lo <= t < hi. The wall times that may fire in it are entry <= w < end. If a gap at
    `lo` fires after it, `entry` lies before lo + offset, at the beginning of the gap.
    """

    lo: int
    hi: int
    offset: int
    entry: int
    end: int


class Timeline:
    """The offset periods of one zone under one rule; computed on first use, then cached."""

    __slots__ = ("_chunks", "_gap", "_repeat", "_zone", "name")

    def __init__(self, name: str, gap: str, repeat: str) -> None:
        self.name = name
        self._zone = zone_named(name)
        self._gap, self._repeat = gap, repeat
        self._chunks: dict[int, tuple[OffsetPeriod, ...]] = {}

    def at(self, instant: int) -> OffsetPeriod:
        """The period that holds an instant (in seconds)."""
        chunk = instant >> CHUNK_BITS
        periods = self._chunks.get(chunk)
        if periods is None:
            periods = self._chunks[chunk] = self._build(chunk)
        for period in periods:
            if instant < period.hi:
                return period
        raise AssertionError(f"{instant} is in no period")

    def _build(self, chunk: int) -> tuple[OffsetPeriod, ...]:
        fixed = self._zone.utcoffset(None)
        if fixed is not None:
            offset = fixed.days * DAY_S + fixed.seconds
            return (OffsetPeriod(FIRST_S, LAST_S, offset, FIRST_S + offset, LAST_S + offset),)
        low, high = chunk << CHUNK_BITS, (chunk + 1) << CHUNK_BITS
        changes = _chunk_changes(self.name, chunk)
        inside = [change.at for change in changes if low < change.at < high]
        bounds = [low, *inside, high]
        return tuple(self._period(lo, hi, changes) for lo, hi in pairwise(bounds))

    def _period(self, lo: int, hi: int, changes: tuple[OffsetChange, ...]) -> OffsetPeriod:
        """Chunks cut periods too, so changes a little outside still count for the rule."""
        offset = offset_at(self._zone, max(lo, FIRST_S))
        entry, end = lo + offset, min(hi, LAST_S) + offset
        for change in changes:
            if change.gap and change.at == lo and self._gap == "next":
                entry = lo + change.was
            elif not change.gap and change.at <= lo and self._repeat == "first":
                entry = max(entry, change.at + change.was)
            elif not change.gap and change.at >= hi and self._repeat == "second":
                end = min(end, change.at + change.now)
        return OffsetPeriod(lo, hi, offset, entry, end)


@lru_cache(maxsize=4_096)
def timeline(zone: str, gap: str, repeat: str) -> Timeline:
    """The timeline of a zone under a rule, shared by all callers."""
    return Timeline(zone, gap, repeat)
