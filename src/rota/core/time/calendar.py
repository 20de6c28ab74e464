"""Wall-clock times of a cron expression, as if there were no time zones. Pure.

A wall time is a count of seconds since 1970-01-01 00:00 on the clock on the wall. Days are kept as
one number of 366 bits for each of the 14 kinds of year. Times of day are 1,440 bits for the minutes
and 60 for the seconds. So every question is a few shifts, however rare the answer.
"""

from __future__ import annotations

from datetime import date
from functools import cache, lru_cache

from rota.core.time.cron import Cron, Field

DAY_S = 86_400
YEAR_MIN, YEAR_MAX = 1, 9999
CYCLE_YEARS = 400  # After that many years the calendar, weekdays too, repeats exactly.
_EPOCH = date(1970, 1, 1).toordinal()
_LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class Days:
    """Which days of a year fit the day-of-month, month and day-of-week fields."""

    __slots__ = ("_day", "_masks", "_month", "_weekday", "years")

    def __init__(self, day: Field, month: Field, weekday: Field) -> None:
        self._day, self._month, self._weekday = day, month, weekday
        self._masks: list[int | None] = [None] * 14
        self.years: dict[int, tuple[int, int]] = {}  # Day number of 1 January, and the mask.

    def mask(self, kind: int) -> int:
        """Bit 0 is 1 January. A kind of year is its first weekday, plus 7 in a leap year."""
        mask = self._masks[kind]
        if mask is None:
            mask = self._masks[kind] = self._build(kind)
        return mask

    def of_year(self, year: int) -> tuple[int, int]:
        """The day number of 1 January, and the mask of that year."""
        year_days = self.years.get(year)
        if year_days is None:
            start, kind = _year(year)
            year_days = self.years[year] = (start, self.mask(kind))
        return year_days

    def never(self) -> bool:
        """True when no day of any year fits."""
        return not any(self.mask(kind) for kind in range(14))

    def _build(self, kind: int) -> int:
        leap, weekday = divmod(kind, 7)
        mask = start = 0
        for month, usual in enumerate(_LENGTHS, start=1):
            length = usual + (leap if month == 2 else 0)
            if self._month.bits >> month & 1:
                mask |= self._of_month(length, (weekday + start) % 7) << start
            start += length
        return mask

    def _of_month(self, length: int, first: int) -> int:
        """Bit 0 is the 1st. `first` is the weekday of the 1st."""
        by_day = (self._day.bits >> 1) & ((1 << length) - 1)
        for item in self._day.items:
            by_day |= _day_bit(item.kind, item.first, length, first)
        by_weekday = 0
        for number in range(length):
            if self._weekday.bits >> ((first + number) % 7) & 1:
                by_weekday |= 1 << number
        for item in self._weekday.items:
            by_weekday |= _weekday_bit(item.kind, item.first, item.last, length, first)
        # Cron's traditional rule: a field that begins with a star narrows, otherwise either fits.
        if self._day.starred or self._weekday.starred:
            return by_day & by_weekday
        return by_day | by_weekday


def _day_bit(kind: str, number: int, length: int, first: int) -> int:
    if kind in ("end", "near-end"):
        number = length - number
    if kind not in ("end", "near-end", "near") or not 1 <= number <= length:
        return 0
    if kind == "end":
        return 1 << (number - 1)
    weekday = (first + number - 1) % 7
    if weekday == 6:  # Saturday: the Friday before, unless that is another month.
        number += -1 if number > 1 else 2
    elif weekday == 0:  # Sunday: the Monday after, unless that is another month.
        number += 1 if number < length else -2
    return 1 << (number - 1)


def _weekday_bit(kind: str, weekday: int, count: int, length: int, first: int) -> int:
    day = (weekday - first) % 7  # The first of them, from 0.
    if kind == "nth":
        day += 7 * (count - 1)
    elif kind == "final":
        day += 7 * ((length - 1 - day) // 7)
    else:
        return 0
    return 1 << day if day < length else 0


@lru_cache(maxsize=4_096)
def _days(day: Field, month: Field, weekday: Field) -> Days:
    return Days(day, month, weekday)


@cache
def _year(year: int) -> tuple[int, int]:
    """The day number of 1 January, and the kind of year."""
    start = date(year, 1, 1).toordinal()
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return start - _EPOCH, start % 7 + 7 * leap


class Walls:
    """The wall times of one expression."""

    __slots__ = ("_first_second", "_first_time", "_last_second", "_last_time", "_minutes",
                 "_seconds", "days")  # fmt: skip

    def __init__(self, cron: Cron) -> None:
        self.days = _days(cron.day, cron.month, cron.weekday)
        self._seconds = cron.second.bits
        self._minutes = 0
        for hour in cron.hour.values:
            self._minutes |= cron.minute.bits << (60 * hour)
        self._first_second = _lowest(self._seconds)
        self._last_second = self._seconds.bit_length() - 1
        self._first_time = _lowest(self._minutes) * 60 + self._first_second
        self._last_time = (self._minutes.bit_length() - 1) * 60 + self._last_second

    def at_or_after(self, wall: int) -> int | None:
        """The first wall time that is not before `wall`."""
        day, time = divmod(wall, DAY_S)
        if time <= self._last_time:
            found = self._day_from(day)
            if found == day:
                return day * DAY_S + self._time_from(time)
        else:
            found = self._day_from(day + 1)
        return None if found is None else found * DAY_S + self._first_time

    def at_or_before(self, wall: int) -> int | None:
        """The last wall time that is not after `wall`."""
        day, time = divmod(wall, DAY_S)
        if time >= self._first_time:
            found = self._day_until(day)
            if found == day:
                return day * DAY_S + self._time_until(time)
        else:
            found = self._day_until(day - 1)
        return None if found is None else found * DAY_S + self._last_time

    def count(self, start: int, stop: int) -> int:
        """How many wall times there are from `start` up to but without `stop`."""
        if stop <= start:
            return 0
        first, since = divmod(start, DAY_S)
        last, until = divmod(stop, DAY_S)
        per_day = self._minutes.bit_count() * self._seconds.bit_count()
        total = self._count_days(first, last) * per_day
        if since and self._day_from(first) == first:
            total -= self._count_times(since)
        if until and self._day_from(last) == last:
            total += self._count_times(until)
        return total

    def _day_from(self, day: int) -> int | None:
        year = date.fromordinal(day + _EPOCH).year
        start, mask = self.days.years.get(year) or self.days.of_year(year)
        rest = mask >> (day - start)
        if rest & 1:
            return day
        if rest:
            return day + _lowest(rest)
        for later in range(year + 1, min(year + CYCLE_YEARS, YEAR_MAX) + 1):
            start, mask = self.days.of_year(later)
            if mask:
                return start + _lowest(mask)
        return None

    def _day_until(self, day: int) -> int | None:
        year = date.fromordinal(day + _EPOCH).year
        start, mask = self.days.years.get(year) or self.days.of_year(year)
        rest = mask & ((2 << (day - start)) - 1)
        if rest:
            return start + rest.bit_length() - 1
        for earlier in range(year - 1, max(year - CYCLE_YEARS, YEAR_MIN) - 1, -1):
            start, mask = self.days.of_year(earlier)
            if mask:
                return start + mask.bit_length() - 1
        return None

    def _time_from(self, time: int) -> int:
        """The first time of day from `time` on; the caller knows that there is one."""
        minute, second = divmod(time, 60)
        rest = self._minutes >> minute
        if rest & 1:
            seconds = self._seconds >> second
            if seconds:
                return time + _lowest(seconds)
            rest -= 1
        return (minute + (rest & -rest).bit_length() - 1) * 60 + self._first_second

    def _time_until(self, time: int) -> int:
        """The last time of day up to `time`; the caller knows that there is one."""
        minute, second = divmod(time, 60)
        if self._minutes >> minute & 1:
            seconds = self._seconds & ((2 << second) - 1)
            if seconds:
                return minute * 60 + seconds.bit_length() - 1
        rest = self._minutes & ((1 << minute) - 1)
        return (rest.bit_length() - 1) * 60 + self._last_second

    def _count_times(self, time: int) -> int:
        """How many times of day lie before `time`."""
        minute, second = divmod(time, 60)
        whole = (self._minutes & ((1 << minute) - 1)).bit_count() * self._seconds.bit_count()
        if self._minutes >> minute & 1:
            whole += (self._seconds & ((1 << second) - 1)).bit_count()
        return whole

    def _count_days(self, first: int, last: int) -> int:
        """How many fitting days there are from `first` up to but without `last`."""
        if last <= first:
            return 0
        year = date.fromordinal(first + _EPOCH).year
        start, mask = self.days.of_year(year)
        total = -(mask & ((1 << (first - start)) - 1)).bit_count()
        final = date.fromordinal(last + _EPOCH).year
        while year < final:
            total += self.days.of_year(year)[1].bit_count()
            year += 1
        start, mask = self.days.of_year(final)
        return total + (mask & ((1 << (last - start)) - 1)).bit_count()


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1
