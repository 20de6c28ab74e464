"""The same answers by brute force: walk the clock and look at the wall. Shares nothing with `src`.

Days are matched by the calendar module, times by walking UTC in small steps and asking the
standard library what the wall shows. Gaps are seen as a jump of the wall, repeats by `fold`.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAMES = {n: i for i, n in enumerate(["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"])} | {
    n.upper(): i for i, n in enumerate(calendar.month_abbr) if n
}
BOUNDS = [(0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 7)]


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def utc(at: int) -> datetime:
    return EPOCH + timedelta(microseconds=at)


def _number(text: str) -> int:
    return NAMES[text] if text in NAMES else int(text)


@cache
def _plain(item: str, place: int) -> set[int]:
    """The values of one plain item, counted out one by one."""
    low, high = BOUNDS[place]
    body, _, step = item.partition("/")
    if body in "*?":
        first, last = low, 6 if place == 5 else high
    elif "-" in body:
        first, last = (_number(part) for part in body.split("-"))
    else:
        first = _number(body)
        last = (6 if place == 5 else high) if step else first
    if place == 5 and first == 7:
        first, last = 0, last % 7
    value, values, number = first, set(), 0
    while True:
        if number % int(step or 1) == 0:
            values.add(value % 7 if place == 5 else value)
        if value == last:
            return values
        value = low if value == high or (place == 5 and value == 6 and last != 7) else value + 1
        number += 1


class Expression(NamedTuple):
    fields: list[str]  # six
    seconds: set[int]
    minutes: set[int]
    hours: set[int]
    months: set[int]

    @property
    def named_times(self) -> bool:
        """No wildcard, step or range in minute and hour; one that holds one value is none."""
        for place in (1, 2):
            for item in self.fields[place].split(","):
                if len(_plain(item, place)) > 1:
                    return False
        return True

    def on_time(self, wall: datetime) -> bool:
        return (
            wall.minute in self.minutes and wall.hour in self.hours and wall.second in self.seconds
        )

    def on_day(self, wall: date) -> bool:
        return wall.month in self.months and _day_fits(self.fields[3], self.fields[5], wall)


@cache
def expression(text: str) -> Expression:
    fields = text.upper().split()
    if len(fields) == 5:
        fields.insert(0, "0")
    sets = [
        set().union(*(_plain(item, place) for item in fields[place].split(",")))
        for place in (0, 1, 2, 4)
    ]
    return Expression(fields, *sets)


def _day_fits(days: str, weekdays: str, day: date) -> bool:
    by_day = any(_month_day(item, day) for item in days.split(","))
    by_weekday = any(_week_day(item, day) for item in weekdays.split(","))
    if days[0] in "*?" or weekdays[0] in "*?":
        return by_day and by_weekday
    return by_day or by_weekday


def _month_day(item: str, day: date) -> bool:
    length = calendar.monthrange(day.year, day.month)[1]
    found = re.fullmatch(r"L(?:-(\d+))?(W?)|(\d+)(W)", item)
    if found is None:
        return day.day in _plain(item, 3)
    number = int(found[3]) if found[3] else length - int(found[1] or 0)
    if not 1 <= number <= length:
        return False
    if not (found[2] or found[4]):
        return day.day == number
    workdays = [n for n in range(1, length + 1) if day.replace(day=n).weekday() < 5]
    # The nearest; a Saturday goes back and a Sunday forward, both one day, so there are no ties.
    return day.day == min(workdays, key=lambda n: abs(n - number))


def _week_day(item: str, day: date) -> bool:
    sunday_first = (day.weekday() + 1) % 7
    if "#" in item:
        name, _, count = item.partition("#")
        return sunday_first == _number(name) % 7 and (day.day - 1) // 7 + 1 == int(count)
    if item.endswith("L"):
        length = calendar.monthrange(day.year, day.month)[1]
        return sunday_first == _number(item[:-1]) % 7 and day.day + 7 > length
    return sunday_first in _plain(item, 5)


class Rule(NamedTuple):
    gap: str
    repeat: str


def rule_for(text: str, gap: str = "auto", repeat: str = "auto") -> Rule:
    fixed = expression(text).named_times
    return Rule(
        ("next" if fixed else "skip") if gap == "auto" else gap,
        ("first" if fixed else "both") if repeat == "auto" else repeat,
    )


class Look(NamedTuple):
    """One step of the walk: the instant, the wall it shows, and what is odd about it."""

    at: int
    wall: datetime
    again: bool  # the wall showed this before
    comes_again: bool  # the wall will show this once more
    missed: tuple[datetime, ...]  # what the wall skipped just before


def walk(zone: ZoneInfo, start: int, stop: int, step_s: int = 60) -> list[Look]:
    """Every `step_s` seconds from start up to but without stop."""
    step = timedelta(seconds=step_s)
    looks = []
    moment = utc(start) - step
    before = moment.astimezone(zone).replace(tzinfo=None, fold=0)
    for _ in range((stop - start) // (step_s * 1_000_000)):
        moment += step
        local = moment.astimezone(zone)
        wall = local.replace(tzinfo=None, fold=0)
        # A real instant is never in a gap, so two readings that differ mean: it comes twice.
        twice = (
            local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset()
            if local.fold == 0
            else True
        )
        missed = []
        expected = before + step
        while expected < wall:
            missed.append(expected)
            expected += step
        looks.append(
            Look(micros(moment), wall, local.fold == 1, twice and local.fold == 0, tuple(missed))
        )
        before = wall
    return looks


def occurrences(text: str, rule: Rule, looks: list[Look]) -> list[int]:
    """The occurrences of a walk that fire."""
    wanted = expression(text)
    minutes = wanted.minutes
    close = [look for look in looks if look.wall.minute in minutes or look.missed]  # For speed.
    return list(_firing(wanted, rule, close))


def _firing(wanted: Expression, rule: Rule, looks: list[Look]) -> Iterator[int]:
    for look in looks:
        here = wanted.on_time(look.wall) and wanted.on_day(look.wall)
        if here and look.again and rule.repeat == "first":
            here = False
        if here and look.comes_again and rule.repeat == "second":
            here = False
        if not here and rule.gap == "next":
            here = any(wanted.on_time(wall) and wanted.on_day(wall) for wall in look.missed)
        if here:
            yield look.at


def moves(zone: ZoneInfo, first_year: int, last_year: int) -> list[tuple[int, int, int]]:
    """Every change of offset: the second it happens, the offset before and after."""
    at = int((datetime(first_year, 1, 1, tzinfo=UTC) - EPOCH).total_seconds())
    stop = int((datetime(last_year + 1, 1, 1, tzinfo=UTC) - EPOCH).total_seconds())
    found = []
    was = _offset(zone, at)
    while at < stop:
        later = at + 2 * 86_400
        now = _offset(zone, later)
        if now != was:
            low, high = at, later
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if _offset(zone, middle) == was else (low, middle)
            found.append((high, was, now))
        at, was = later, now
    return found


def _offset(zone: ZoneInfo, at: int) -> int:
    offset = datetime.fromtimestamp(at, zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())
