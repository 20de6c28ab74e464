"""Windows of the day in cron: "every 30 minutes between 9:00 and 17:00". Pure.

Both ends belong to a window. One that ends before it begins goes past midnight.
"""

from __future__ import annotations

from rota.core.time.phrase_choices import Choices, refuse
from rota.core.time.phrase_clock import Wall
from rota.core.time.phrase_model import PhraseRate

_DAY = 24 * 60


def hour_fields(
    first: Wall, last: Wall, rate: PhraseRate, past: str, choices: Choices
) -> list[str]:
    """Minute and hour of every N hours; `past` are the minutes past the hour, when said."""
    _refuse_empty(first, last)
    (hour, minute, second), (end, end_minute, end_second) = first, last
    if second or end_second:
        refuse("inexpressible", "a window begins and ends with a minute")
    if past:
        if (minute, end_minute) == (0, 59):  # "during the hours 9:00 and 11:00"
            refuse("conflict", "minutes past the hour go with a window: from 9:00 to 17:00")
        return _past_fields((hour, minute), (end, end_minute), rate.number, past)
    if minute and choices.choose(f"the hours may count from {hour}:{minute:02}", 2) == 1:
        hour, minute = _within((hour + 1, 0), first, last)  # on the hour, from the next one on
    if end_minute < minute:
        end = (end - 1) % 24
    return [f"{minute} {_hours(hour, end, rate.number)}"]


def _past_fields(
    first: tuple[int, int], last: tuple[int, int], number: int, past: str
) -> list[str]:
    """Minutes past each hour, as far as they lie in the window: 17:30 is not before 17:00."""
    span = (last[0] * 60 + last[1] - first[0] * 60 - first[1]) % _DAY
    minutes: dict[str, list[str]] = {}
    for past_minute in _single(past):
        offset = (past_minute - first[1]) % 60
        if offset > span:
            continue
        start = (first[0] * 60 + first[1] + offset) // 60
        hours = _hours(start % 24, (start + (span - offset) // 60) % 24, number)
        minutes.setdefault(hours, []).append(str(past_minute))
    if not minutes:
        refuse("invalid", "no time lies in the window")
    if len(minutes) == 1:
        return [f"{past} {hours}" for hours in minutes]
    return [f"{','.join(listed)} {hours}" for hours, listed in minutes.items()]


def _single(past: str) -> list[int]:
    """The minutes of "0,30" and of "0-10", one by one."""
    minutes: list[int] = []
    for item in past.split(","):
        low, _, high = item.partition("-")
        minutes += range(int(low), int(high or low) + 1)
    return minutes


def window_fields(first: Wall, last: Wall, rate: PhraseRate, choices: Choices) -> list[str]:
    """The fields in front of the day for every N minutes or seconds."""
    _refuse_empty(first, last)
    (hour, minute, second), (end, end_minute, end_second) = first, last
    if rate.unit == "second":
        whole = (minute, second, end_second) == (0, 0, 0) or end_second == 60 - rate.number
        if not whole or (end_second and end_minute != 59) or (not end_second and end_minute):
            refuse("inexpressible", "a window of seconds begins and ends with an hour")
        step = every(rate.number)
        if end_second:
            return [f"{step} * {_range(hour, end)}"]
        return [f"{step} * {_range(hour, (end - 1) % 24)}", f"0 {end}"]
    if second or end_second:
        refuse("inexpressible", "a window begins and ends with a minute")
    return _minute_fields((hour, minute), (end, end_minute), rate.number, choices)


def _minute_fields(
    first: tuple[int, int], last: tuple[int, int], number: int, choices: Choices
) -> list[str]:
    (hour, minute), (end, end_minute) = first, last
    offset = minute % number
    if offset and choices.choose(f"the minutes may count from {hour}:{minute:02}", 2) == 1:
        later, offset = hour * 60 + minute - offset + number, 0
        hour, minute = _within(divmod(later, 60), first, last)  # at whole steps, from the next on
    minutes = list(range(offset, 60, number))
    if hour == end and minute <= end_minute:
        return [_minutes([m for m in minutes if minute <= m <= end_minute], number, hour)]
    head = [m for m in minutes if m >= minute]
    tail = [m for m in minutes if m <= end_minute]
    start = hour if head == minutes else (hour + 1) % 24
    stop = end if tail == minutes else (end - 1) % 24
    fields = [] if head == minutes else [_minutes(head, number, hour)]
    hours_between = (stop - start) % 24 + 1
    if hours_between < 24 or start == hour:
        fields.append(f"{every(number, offset)} {_range(start, stop)}")
    if tail and tail != minutes:
        fields.append(_minutes(tail, number, end))
    return fields


def _minutes(minutes: list[int], number: int, hour: int) -> str:
    """The minutes of one hour."""
    if not minutes:
        refuse("invalid", "no time lies in the window")
    if len(minutes) == 60 // number:
        return f"{every(number, minutes[0])} {hour}"
    return f"{','.join(str(minute) for minute in minutes)} {hour}"


def every(number: int, offset: int = 0) -> str:
    """Every `number`-th value of a field, from `offset` on."""
    if number == 1:
        return "*"
    return f"{offset}/{number}" if offset else f"*/{number}"


def _refuse_empty(first: Wall, last: Wall) -> None:
    if first == last:
        refuse("invalid", "the window begins and ends at the same time")


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _hours(first: int, last: int, number: int) -> str:
    if number > 23:
        refuse("inexpressible", f"every {number} hours does not fit into a day")
    step = "" if number == 1 or first == last else f"/{number}"
    return f"{_range(first, last)}{step}"


def _within(
    start: tuple[int, int], first: tuple[int, ...], last: tuple[int, ...]
) -> tuple[int, int]:
    """A later start, which must not lie behind the end of the window."""
    if first < last and start > last[:2]:
        refuse("invalid", "no time lies in the window")
    return start[0] % 24, start[1]
