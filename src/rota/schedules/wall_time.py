"""A time in a question, compared with a spec: which instants it may mean. Pure.

A wall time may not exist (a gap), or happen twice (a repeat); a time without seconds means its
whole minute.
"""

from __future__ import annotations

from datetime import UTC, datetime

from rota.core.time.calendar import Walls
from rota.core.time.cron import read_cron
from rota.core.time.instants import MINUTE, SECOND, clock_text, instant
from rota.core.time.recurrence import Spec, next_after, notes, skipped_between
from rota.core.time.zones import zone_named


def to_instant(when: datetime, zone: str) -> int:
    """The instant of a time; without an offset it is wall time in the zone. A wall time that
    happens twice is the first one, unless its `fold` is 1."""
    if isinstance(when, datetime) and when.tzinfo is None:
        when = when.replace(tzinfo=zone_named(zone))
    return instant(when)


class Moment:
    """One question about one time."""

    def __init__(self, spec: Spec, zone: str, asked: datetime) -> None:
        self._spec = spec
        self._width = SECOND if asked.second or asked.microsecond else MINUTE
        self.remark: str | None = None  # what the clock did to it
        self.left_out = False  # the clock is moved past it, and so is the schedule
        self.in_gap = False  # no clock in the zone shows it
        self.written = f"{asked:%a %Y-%m-%d} {clock_text(asked)}"
        self._ats = self._instants(asked, zone)

    @property
    def first_at(self) -> int:
        """The instant that it means, or may mean first."""
        return self._ats[0]

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The instants it covers, both ends included."""
        return [(at, at + self._width - 1) for at in self._ats]

    def occurrence(self, spread_us: int) -> int | None:
        """The occurrence that it names; with jitter, also by the time it really ran."""
        for shift in dict.fromkeys((0, spread_us)):
            for first, last in self.spans:
                found = next_after(self._spec, first - shift - 1)
                if found is not None and found <= last - shift:
                    return found
        return None

    def _instants(self, asked: datetime, zone: str) -> list[int]:
        if asked.tzinfo is not None:
            return [instant(asked)]
        zone_info = zone_named(zone)
        first, second = (instant(asked.replace(tzinfo=zone_info, fold=fold)) for fold in (0, 1))
        if first < second:
            remarks = [note for at in (first, second) for note in notes(self._spec, at)]
            twice = f"{clock_text(asked)} happens twice on {asked:%Y-%m-%d} in {zone}"
            self.remark = remarks[0] if remarks else twice
            return [first, second]
        if first == second:
            return [first]
        # In a gap the two readings lie on both sides of the change.
        self.in_gap = True
        self.remark = f"{clock_text(asked)} does not exist on {asked:%Y-%m-%d} in {zone}"
        if not self._names(asked):
            return [second]
        for remark in skipped_between(self._spec, second, first, 1):
            self.remark = remark.text
            if next_after(self._spec, remark.at - 1) == remark.at:
                return [remark.at]
            self.left_out = True
        return [second]

    def _names(self, asked: datetime) -> bool:
        """Whether the spec names this wall time."""
        low = instant(asked.replace(tzinfo=UTC)) // SECOND
        return any(
            Walls(read_cron(timing.cron)).count(low, low + self._width // SECOND)
            for timing in self._spec.timings
            if timing.cron is not None
        )
