"""Times and spans as people say them: `9am`, `yesterday 9:00`, `last night`, `2027-03-28`. Pure.

All are wall times, and stay naive. A word with two readings (`monday 9:00`: the last or the next)
is not read.
"""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta

from rota.core.time.instants import micros, moment
from rota.core.time.zones import zone_named

_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_CLOCK = re.compile(r"(\d{1,2})(?::(\d\d))?(?::(\d\d))?\s*(am|pm)?", re.ASCII)
_NAMED = {"midnight": time(0), "noon": time(12)}
# Part of a day: days from today and hours, from and to.
_SPANS = {
    "last night": ((-1, 18), (0, 6)),
    "this morning": ((0, 5), (0, 12)),
    "this afternoon": ((0, 12), (0, 18)),
    "tonight": ((0, 18), (1, 6)),
}
_WHOLE_DAY = timedelta(days=1) - timedelta(microseconds=1)


def said_time(text: str, zone: str, now: int) -> datetime | None:
    """`9am`, `9:30 pm`, `yesterday 9:00`, `tomorrow at noon`; None for anything else."""
    words = text.lower().split()
    offset = 0
    if words and words[0] in _DAYS:
        offset = _DAYS[words[0]]
        words = words[2:] if words[1:2] == ["at"] else words[1:]
    clock = _clock(" ".join(words))
    return None if clock is None else datetime.combine(_day(zone, now, offset), clock)


def said_span(text: str, zone: str, now: int) -> tuple[datetime, datetime] | None:
    """`last night`, `yesterday`, `last 12h` or a date, both ends in it; None for anything else."""
    words = " ".join(text.lower().split())
    if words in _DAYS:
        return _whole(_day(zone, now, _DAYS[words]))
    if words in _SPANS:
        first, last = (
            datetime.combine(_day(zone, now, days), time(hour)) for days, hour in _SPANS[words]
        )
        return first, last
    if re.fullmatch(r"\d{4}-\d\d-\d\d", words, re.ASCII):
        try:
            return _whole(date.fromisoformat(words))
        except ValueError:
            return None
    if re.fullmatch(r"last \d+[smhdw]", words, re.ASCII):
        until = moment(now).astimezone(zone_named(zone)).replace(tzinfo=None)
        return until - timedelta(microseconds=micros(words.removeprefix("last "))), until
    return None


def _clock(text: str) -> time | None:
    if text in _NAMED:
        return _NAMED[text]
    found = _CLOCK.fullmatch(text)
    if found is None:
        return None
    hour, minute, second = (int(part or 0) for part in found.groups()[:3])
    half = found[4]
    if half is None and found[2] is None:  # a number alone may be anything
        return None
    if half is not None:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half == "pm" else 0)
    return time(hour, minute, second) if hour < 24 and minute < 60 and second < 60 else None


def _day(zone: str, now: int, offset: int) -> date:
    return moment(now).astimezone(zone_named(zone)).date() + timedelta(days=offset)


def _whole(day: date) -> tuple[datetime, datetime]:
    begin = datetime.combine(day, time())
    return begin, begin + _WHOLE_DAY
