"""Times of day as people write them, and which half of the day a bare hour means. Pure.

A bare hour is 1 to 12 without am, pm, a leading zero or a word such as "morning". Alone it is read
on the 24-hour clock. Beside other times it may mean the other half of the day ("at 5 and 6pm",
"from 9 to 5", "from noon to 5"); where both halves make sense, the phrase leaves a choice open.
A time that only the 24-hour clock has (17:00, 0:30) puts all of them on that clock.
"""

from __future__ import annotations

from typing import NamedTuple

from rota.core.time.phrase_choices import Choices, refuse

Wall = tuple[int, int, int]  # hour, minute, second


class ClockTime(NamedTuple):
    """A time of day as written."""

    hour: int
    minute: int = 0
    second: int = 0
    mark: str = "24"  # bare | am | pm | 24
    midnight: bool = False  # said as a word; in `resolved` the hour may be 24
    offset: int = 0  # minutes said in front of the hour: 5 in "5 past 9", -10 in "ten to 9"

    @property
    def wall(self) -> Wall:
        """On the 24-hour clock; a bare hour is taken as written."""
        hour = self.hour
        if self.mark in ("am", "pm"):
            hour = hour % 12 + (12 if self.mark == "pm" else 0)
        return hour, self.minute, self.second


# The bare hours that each part of the day has, in the morning half and in the other one.
_PARTS = {
    "morning": (range(1, 12), ()),
    "afternoon": ((), (12, 1, 2, 3, 4, 5, 6)),
    "evening": ((), range(4, 12)),
    "night": ((12, 1, 2, 3, 4), (8, 9, 10, 11)),
}
_WALLS = {
    "morning": range(12),
    "afternoon": range(12, 19),
    "evening": range(16, 24),
    "night": (*range(17, 24), *range(8)),
}


def in_part(clock: ClockTime, part: str) -> ClockTime:
    """The time in the morning, afternoon, evening or night."""
    if clock.mark != "bare":
        if clock.wall[0] not in _WALLS[part]:
            refuse("conflict", f"{_shown(clock)} is not in the {part}")
        return clock
    early, late = _PARTS[part]
    if clock.hour in early:
        return clock._replace(mark="am")
    if clock.hour in late:
        return clock._replace(mark="pm")
    shown = _shown(clock)
    return refuse(
        "ambiguous", f"{shown} in the {part} may be before or after noon",
        f"every day at {shown}am", f"every day at {shown}pm",
    )  # fmt: skip


def moved(hour: ClockTime, minutes: int) -> ClockTime:
    """So many minutes past an hour; negative ones are before it."""
    if minutes >= 0:
        return hour._replace(minute=minutes, offset=minutes)
    if hour.mark == "bare" and hour.hour > 1:
        return ClockTime(hour.hour - 1, 60 + minutes, mark="bare", offset=minutes)
    return ClockTime((hour.wall[0] - 1) % 24, 60 + minutes, offset=minutes)


def resolved(clocks: list[ClockTime], choices: Choices) -> list[Wall]:
    """The times of one list, or the two ends of one window, on the 24-hour clock."""
    written = [clock.wall for clock in clocks]
    exact = any(
        clock.mark == "24" and not (clock.midnight or 0 < clock.hour < 13) for clock in clocks
    )
    if len(clocks) == 1 or exact or all(clock.mark != "bare" for clock in clocks):
        return written
    # Midnight ends the day, unless it comes first.
    clocks = [clock._replace(hour=24) if at and clock.midnight else clock
              for at, clock in enumerate(clocks)]  # fmt: skip
    literal = [clock.wall for clock in clocks]
    options: list[list[Wall]] = []
    shared = _shared(clocks)
    if _rises(literal) and not _rises(shared or []):
        shared = None  # "9 and 5pm"
    for option in (_rising(clocks), shared, literal):
        if option is not None and option not in options:
            options.append(option)
    if len(options) == 1:
        return written
    unsure = next(at for at, walls in enumerate(zip(*options, strict=True)) if len(set(walls)) > 1)
    reason = f"{_shown(clocks[unsure])} may be before or after noon"
    chosen = options[choices.choose(reason, len(options))]
    return [(hour % 24, minute, second) for hour, minute, second in chosen]


def _shared(clocks: list[ClockTime]) -> list[Wall] | None:
    """Each bare hour takes the am or pm that follows it ("5 and 6pm"), or the last one."""
    marks: list[str] = []
    halves = [_half(clock) for clock in clocks]
    mark = next((half for half in reversed(halves) if half), "")
    for half in reversed(halves):
        mark = half or mark
        marks.append(mark)
    if not mark:
        return None
    return [
        clock._replace(mark=mark).wall if clock.mark == "bare" else clock.wall
        for clock, mark in zip(clocks, reversed(marks), strict=True)
    ]


def _half(clock: ClockTime) -> str:
    """The half of the day that a time says: am, pm or none."""
    if clock.midnight:
        return "pm" if clock.hour == 24 else "am"
    return clock.mark if clock.mark in ("am", "pm") else ""


def _rises(walls: list[Wall]) -> bool:
    return walls == sorted(set(walls))


def _rising(clocks: list[ClockTime]) -> list[Wall] | None:
    """Each bare hour is the next one after the time before it ("9am, 1 and 5")."""
    read: list[Wall] = []
    for clock in clocks:
        options = [clock.wall]
        if clock.mark == "bare" and read:
            options = [clock._replace(mark=mark).wall for mark in ("am", "pm")]
            if clock.hour == 12:
                options.append((24, clock.minute, clock.second))  # "11pm and 12"
        later = [wall for wall in options if not read or wall > read[-1]]
        if not later:
            return None
        read.append(later[0])
    return read


def _shown(clock: ClockTime) -> str:
    minutes = f":{clock.minute:02}" if clock.minute or clock.mark == "24" else ""
    return f"{clock.hour}{minutes}{clock.mark if clock.mark in ('am', 'pm') else ''}"
