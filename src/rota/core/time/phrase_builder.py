"""What a phrase said, gathered, and the cron text or interval it comes to. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from rota.core.time.instants import DAY, HOUR, MINUTE, SECOND

Understood = str | int | tuple[str, ...]
_UNITS_US = {"second": SECOND, "minute": MINUTE, "hour": HOUR, "day": DAY, "week": 7 * DAY}


class Draft:
    """The parts of a phrase. `refuse` raises, with the reason that it is given."""

    def __init__(self, refuse: Callable[[str], NoReturn]) -> None:
        self.refuse = refuse
        self.times: list[tuple[int, int]] = []
        self.weekdays: list[str] = []
        self.nth: list[str] = []
        self.days: list[str] = []
        self.months: list[str] = []
        self.window: tuple[tuple[int, int], tuple[int, int]] | None = None
        self.past: int | None = None
        self.rate: tuple[int, str] | None = None
        self.rate_named = False  # "weekly" rather than "every week"

    def set_rate(self, number: int, unit: str, named: bool = False) -> None:
        """Note "every N units"; it can be said only once, save that a month or year goes along."""
        if number < 1:
            self.refuse(f"every {number} {unit}s is no interval")
        if unit == "quarter":
            number, unit = 3 * number, "month"
        if self.rate is not None and self.rate != (number, unit):
            self.refuse("it names two different rates")
        self.rate, self.rate_named = (number, unit), named


def build(draft: Draft) -> Understood:
    """Cron text, an interval in microseconds, or several cron texts."""
    if draft.past is not None and draft.rate is None:
        draft.rate = (1, "hour")
    if (draft.days or draft.nth) and draft.weekdays and not (draft.nth and not draft.days):
        draft.refuse("a day of the month and one of the week; cron fires on either, never on both")
    if draft.days and draft.nth:
        draft.refuse("two ways to name a day of the month; give two schedules")
    number, unit = draft.rate or (1, "")
    if unit in ("second", "minute", "hour"):
        return _within_the_day(draft, number, unit)
    if draft.window is not None or draft.past is not None:
        draft.refuse('"between" needs a rate within the day, such as "every 30 minutes"')
    if unit in ("day", "week") and number > 1:
        return _elapsed(draft, number, unit)
    return _at_times(draft, _day_fields(draft, number, unit))


def _elapsed(draft: Draft, number: int, unit: str) -> int:
    if draft.times or draft.weekdays or draft.nth or draft.days or draft.months:
        draft.refuse(
            f"every {number} {unit}s at a wall-clock time cannot be said in cron; "
            f'"{number}{unit[0]}" counts elapsed time'
        )
    return number * _UNITS_US[unit]


def _within_the_day(draft: Draft, number: int, unit: str) -> Understood:
    """Every N seconds, minutes or hours: an interval when nothing narrows it, else cron."""
    if draft.times:
        draft.refuse(f"every {number} {unit}s and a time of day do not go together")
    narrowed = draft.weekdays or draft.nth or draft.days or draft.months or draft.window
    if not narrowed and draft.past is None:
        if number == 1 and unit != "second":
            return "* * * * *" if unit == "minute" else "0 * * * *"
        return number * _UNITS_US[unit]
    size = 24 if unit == "hour" else 60
    if number > size or size % number:
        draft.refuse(f"cron cannot count every {number} {unit}s within a day without a break")
    step = "*" if number == 1 else f"*/{number}"
    tail = _day_fields(draft, 1, "day")
    hours = _hours(draft, number if unit == "hour" else 1)
    if unit == "hour":
        return f"{draft.past or 0} {hours} {tail}"
    if draft.past is not None:
        draft.refuse(f"every {number} {unit}s and minutes past the hour do not go together")
    front = f"{step} *" if unit == "second" else step
    if draft.window is None:
        return f"{front} * {tail}"
    (first, _), (last, _) = draft.window
    closing = f"0 {last} {tail}" if unit == "minute" else f"0 0 {last} {tail}"
    return (f"{front} {_range(first, (last - 1) % 24)} {tail}", closing)  # Both ends belong to it.


def _hours(draft: Draft, step: int) -> str:
    if draft.window is None:
        return "*" if step == 1 else f"*/{step}"
    (first, first_minute), (last, last_minute) = draft.window
    if first_minute or last_minute:
        draft.refuse('"between" takes whole hours')
    if first == last:
        draft.refuse("the hours begin and end at the same time")
    return _range(first, last) + ("" if step == 1 else f"/{step}")


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _day_fields(draft: Draft, number: int, unit: str) -> str:
    """The last three fields: day of month, month, day of week."""
    if unit == "year" and number > 1:
        draft.refuse("cron knows no years")
    days = list(dict.fromkeys(draft.days))
    weekdays = list(dict.fromkeys(draft.weekdays + draft.nth))
    months = _months(draft, number if unit == "month" else 1)
    if unit == "month" and not weekdays:
        days = days or ["1"]
    if unit == "year" and not weekdays:
        days, months = days or ["1"], months or ["JAN"]
    if unit == "week" and not weekdays:
        if days or months or (draft.times and not draft.rate_named):
            draft.refuse('which day of the week? Say "every monday at 9am"')
        weekdays = ["SUN"]
    said = draft.times or weekdays or days or unit
    if months and unit != "day" and not weekdays and not days:
        draft.refuse('which day of the month? Say "1st of january" or "every day in january"')
    if not said:
        draft.refuse("it names neither a time nor a day")
    return f"{','.join(days) or '*'} {','.join(months) or '*'} {','.join(weekdays) or '*'}"


def _months(draft: Draft, every: int) -> list[str]:
    if every == 1:
        return list(dict.fromkeys(draft.months))
    if every > 12 or 12 % every:
        draft.refuse(f"every {every} months does not fit into a year")
    if draft.months:
        draft.refuse("it names both months and a number of months")
    return [f"*/{every}"]


def _at_times(draft: Draft, tail: str) -> Understood:
    """One cron text when the times share their minutes, else one for each minute."""
    times = sorted(set(draft.times or [(0, 0)]))
    by_minute: dict[int, list[int]] = {}
    for hour, minute in times:
        by_minute.setdefault(minute, []).append(hour)
    if len({tuple(hours) for hours in by_minute.values()}) == 1:
        hours = next(iter(by_minute.values()))
        return f"{_joined(sorted(by_minute))} {_joined(hours)} {tail}"
    return tuple(f"{minute} {_joined(hours)} {tail}" for minute, hours in by_minute.items())


def _joined(numbers: list[int]) -> str:
    return ",".join(str(number) for number in numbers)
