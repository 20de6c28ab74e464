"""Reads days, dates and months: "mon-fri", "last friday of the month", "25 december". Pure."""

from __future__ import annotations

from rota.core.time.cron import MONTH_NAMES, MONTHS, WEEKDAY_NAMES, WEEKDAYS
from rota.core.time.phrase_choices import Choices, refuse
from rota.core.time.phrase_model import Day
from rota.core.time.phrase_tokens import (
    DAY_PARTS,
    ENDINGS,
    EVERY,
    MONTH_NUMBERS,
    UNITS,
    WEEKENDS,
    WORKDAYS,
    WORKING,
    Cursor,
    weekday,
)

_ELAPSED_DAYS = "cron cannot count days across the end of a month"
_LAST_WORDS = ("last", "final")
_STARTS = ("start", "beginning")
_QUARTER_STARTS = ("*/3",)
_QUARTER_ENDS = ("MAR", "JUN", "SEP", "DEC")


def read_days_back(cursor: Cursor) -> list[Day] | None:
    """ "3 days before the last day of the month"."""
    back = _back(cursor)
    return None if back is None else _bound(cursor, Day("month", f"L-{back}", last=True))


def read_days(cursor: Cursor, choices: Choices, *, every: bool) -> list[Day] | None:
    """Days of the week or of the month, with the months that they are bound to."""
    days = cursor.first_of(
        lambda: _end_of(cursor, choices),
        lambda: _nearest(cursor),
        lambda: _stepped(cursor) if every else None,
        lambda: _date(cursor),
        lambda: _counted(cursor, choices, every=every),
        lambda: _weekdays(cursor, every=every),
    )
    if days is not None:
        _refuse_year(cursor, days)
    return days


def read_months(cursor: Cursor) -> list[str] | None:
    """ "january", "june to august", one by one."""
    first = MONTH_NUMBERS.get(cursor.word())
    if first is None:
        return None
    cursor.take()
    last = MONTH_NUMBERS.get(cursor.word(1)) if cursor.to() else None
    if last is None:
        return [MONTHS[first - 1]]
    if last == first:
        name = MONTH_NAMES[first - 1].lower()
        reason = f"{name} to {name} may be one month or all twelve"
        refuse("ambiguous", reason, f"every day in {name}", "every day")
    cursor.take(2)
    return [f"{MONTHS[first - 1]}-{MONTHS[last - 1]}"]


def of_period(day: Day, unit: str) -> Day:
    """The day of a quarter or a year: the last one is in its last month, others in its first."""
    if unit == "quarter" and (day.text == "31" or day.text.endswith("#5")):
        instead = ["the 31st of january, july and october"] if day.text == "31" else []
        refuse("inexpressible", "cron counts the days of a month, not of a quarter", *instead)
    if unit == "quarter":
        return day._replace(months=_QUARTER_ENDS if day.last else _QUARTER_STARTS)
    if unit == "year":
        return day._replace(months=("DEC",) if day.last else ("JAN",))
    return day._replace(unbound=True)


def in_every_month(day: Day, choices: Choices) -> Day:
    """ "the 31st of every month": a shorter month has none, or its last day is meant."""
    if day.of != "month" or day.text not in ("29", "30", "31"):
        return day
    reason = f"not every month has a day {day.text}; its last day may be meant"
    if choices.choose(reason, 2) == 0:
        return day
    if day.text != "31":
        refuse("inexpressible", "cron cannot say that day or the last", "last day of the month")
    return day._replace(text="L", last=True)


# -- days of the week --------------------------------------------------------------------------


def _weekdays(cursor: Cursor, *, every: bool) -> list[Day] | None:
    """ "mondays", "monday to friday", "weekdays", "business days", "weekend"."""
    text = _group(cursor)
    if text is None:
        first = weekday(cursor.word())
        if first is None:
            return None
        cursor.take()
        last = weekday(cursor.word(1)) if cursor.to() else None
        if last == first:
            name = WEEKDAY_NAMES[first].lower()
            reason = f"{name} to {name} may be one day or all seven"
            refuse("ambiguous", reason, f"every {name}", "every day")
        cursor.take(0 if last is None else 2)
        text = WEEKDAYS[first] if last is None else f"{WEEKDAYS[first]}-{WEEKDAYS[last]}"
    if _tail(cursor) in ("month", "quarter", "year"):
        refuse("incomplete", 'which one? Say "first monday of the month"')
    return [Day("week", text, every=every)]


def _group(cursor: Cursor) -> str | None:
    is_two_words = cursor.word() in WORKING and cursor.word(1) in ("day", "days")
    if is_two_words or cursor.word() in WORKDAYS:
        cursor.take(2 if is_two_words else 1)
        return "MON-FRI"
    if cursor.word() in WEEKENDS:
        cursor.take()
        return "SAT,SUN"
    return None


# -- counted days ------------------------------------------------------------------------------


def _counted(cursor: Cursor, choices: Choices, *, every: bool) -> list[Day] | None:
    """ "first monday", "1st and 15th", "last day of the month", "first business day"."""
    in_digits = cursor.whole() is not None
    numbers = _ordinals(cursor)
    if not numbers:
        return None
    # "the 1st and the last friday": the 1st may be a friday, or the day of the month.
    mixed = in_digits and len(numbers) > 1 and cursor.word(-1) not in ENDINGS
    named = weekday(cursor.word())
    if named is not None:
        cursor.take()
        days = [_nth(number, named, alone=len(numbers) == 1) for number in numbers]
    elif (group := _group(cursor)) is not None:
        days = [_nth_working_day(number, group, alone=len(numbers) == 1) for number in numbers]
    else:
        mixed = False
        noun = cursor.skip(("day", "days"))
        if not noun and any(first < 0 for first, _ in numbers) and not _tail_follows(cursor):
            return None
        days = [_day_of_month(first, last) for first, last in numbers]
        if every and numbers[0][0] > 1:
            days = _every_nth_day(cursor, days, choices, noun=noun)
    if mixed and choices.choose("its first ordinal may be a day of the month", 2) == 1:
        days = [*[_day_of_month(*number) for number in numbers[:-1]], days[-1]]
    if (within := _within_period(cursor, days, choices)) is not None:
        return within
    if every and named is not None:
        return _every_nth(days, choices, numbers[0][0])
    if every and cursor.word(-1) == "day" and numbers[0][0] == 1:
        refuse("incomplete", "first day of what?", "first day of the month", "every day")
    return days


def _within_period(cursor: Cursor, days: list[Day], choices: Choices) -> list[Day] | None:
    """The days of a month, quarter or year that the phrase continues to name; None if it does
    not."""
    tail = _tail(cursor)
    if tail == "month" and cursor.word(-2) in EVERY:
        days = [in_every_month(day, choices) for day in days]
    if tail in ("month", "quarter", "year"):
        return [of_period(day, tail) for day in days]
    if tail == "week":
        refuse("incomplete", "which day of the week? Say its name")
    months = _months_after(cursor)
    return [day._replace(months=months) for day in days] if months else None


def _every_nth(days: list[Day], choices: Choices, number: int) -> list[Day]:
    """ "every third monday": of the month, or every three weeks, which cron cannot count."""
    if number in (1, -1):
        return days
    if choices.choose(f"it can mean once a month or every {number} weeks", 2) == 0:
        return days
    return refuse("inexpressible", "cron knows no week numbers", f"every {number} weeks")


def _every_nth_day(cursor: Cursor, days: list[Day], choices: Choices, *, noun: bool) -> list[Day]:
    """ "every third day of the month" may be the 3rd; "every third morning" is every 3 days."""
    number = days[0].text
    if cursor.word() in DAY_PARTS:
        refuse("inexpressible", _ELAPSED_DAYS, f"every {number} days")
    if not noun or len(days) > 1 or not number.isdigit():
        return days
    reason = f"it may be the day {number} of the month, or every {number} days"
    return [Day("month", f"*/{number}")] if choices.choose(reason, 2) == 1 else days


def _ordinals(cursor: Cursor) -> list[tuple[int, int]]:
    """A list of ordinals and ranges of them; counted from the end they are negative."""
    ranges: list[tuple[int, int]] = []
    ahead = 0
    while (ordinal := _ordinal(cursor, ahead)) is not None:
        first, length = ordinal
        last, ahead = first, ahead + length
        if first > 0 and (end := _range_end(cursor, ahead)) is not None and end[0] > 0:
            last, ahead = end[0], ahead + end[1]
        ranges.append((first, last))
        cursor.take(ahead)
        ahead = 0
        while cursor.peek(ahead).kind == "separator" or cursor.word(ahead) == "the":
            ahead += 1
        if ahead == 0 or ";" in (cursor.word(0), cursor.word(1)):
            break
    return ranges


def _range_end(cursor: Cursor, ahead: int) -> tuple[int, int] | None:
    """ "to the 20th": the ordinal, and how many tokens all of it has."""
    if not cursor.to(ahead):
        return None
    before = 2 if cursor.word(ahead + 1) == "the" else 1
    end = _ordinal(cursor, ahead + before)
    return None if end is None else (end[0], before + end[1])


def _ordinal(cursor: Cursor, ahead: int) -> tuple[int, int] | None:
    if cursor.word(ahead) in _LAST_WORDS:
        return -1, 1
    if cursor.word(ahead) == "penultimate":
        return -2, 1
    ordinal = cursor.ordinal(ahead)
    if ordinal is None:
        return None
    number, length = ordinal
    for joint in (0, 1):
        joined = joint == 0 or cursor.to(ahead + length)
        if joined and cursor.word(ahead + length + joint) == "last":
            return -number, length + joint + 1
    if not 1 <= number <= 31:
        shown = "".join(cursor.word(ahead + index) for index in range(length))
        refuse("invalid", f"no month has a {shown}")
    return number, length


def _nth(number: tuple[int, int], named: int, *, alone: bool) -> Day:
    first, last = number
    if first == -1:
        return Day("week", f"{WEEKDAYS[named]}L", last=True, counted=True)
    if first > 5 and not alone:
        return _day_of_month(first, last)  # "the 15th and the last friday"
    if first < 0 or first != last:
        refuse("inexpressible", "of a weekday cron knows the first to the fifth, and the last")
    if first > 5:
        refuse("invalid", f"no month has {first} of one weekday")
    return Day("week", f"{WEEKDAYS[named]}#{first}", counted=True)


def _nth_working_day(number: tuple[int, int], group: str, *, alone: bool) -> Day:
    if number[0] > 5 and not alone:
        return _day_of_month(*number)  # "the 15th and the last weekday"
    if group != "MON-FRI" or number not in ((1, 1), (-1, -1)):
        refuse("inexpressible", "of the weekdays of a month cron knows only the first and the last")
    last = number[0] == -1
    return Day("month", "LW" if last else "1W", last=last)


def _day_of_month(first: int, last: int) -> Day:
    if first < 0:
        return Day("month", "L" if first == -1 else f"L-{-first - 1}", last=True)
    if not 1 <= first <= 31 or last > 31:
        refuse("invalid", f"no month has a day {first if first > 31 or first < 1 else last}")
    if last < first:
        refuse("inexpressible", f"a range from {first} to {last} reaches into the next month")
    return Day("month", str(first) if first == last else f"{first}-{last}")


# -- what follows a day ------------------------------------------------------------------------


def _tail(cursor: Cursor) -> str:
    """ "of the month", "of every quarter": the unit, or nothing."""
    start = cursor.at
    if cursor.word() in ("of", "in"):
        cursor.take()
        cursor.skip(("the", "a", "any", *EVERY))
        unit = UNITS.get(cursor.word(), "")
        if unit in ("week", "month", "quarter", "year"):
            cursor.take()
            return unit
    cursor.at = start
    return ""


def _tail_follows(cursor: Cursor) -> bool:
    start = cursor.at
    follows = bool(_tail(cursor) or _months_after(cursor))
    cursor.at = start
    return follows


def _months_after(cursor: Cursor) -> tuple[str, ...]:
    """ "of june and july", "in june", "june": the months that a day is bound to."""
    start = cursor.at
    if cursor.word() in ("of", "in"):
        cursor.take()
        cursor.skip(("the", *EVERY))
    names: list[str] = []
    while (months := read_months(cursor)) is not None:
        names += months
        ahead = _separators(cursor)
        # "… of june and july 4": that month begins a date of its own.
        goes_on = cursor.word(ahead) in MONTH_NUMBERS and _day_number(cursor, ahead + 1) is None
        if ahead == 0 or not goes_on:
            break
        cursor.take(ahead)
    if not names:
        cursor.at = start
    return tuple(names)


def _separators(cursor: Cursor) -> int:
    """How many separators of a list come next."""
    ahead = 0
    while cursor.peek(ahead).kind == "separator" and cursor.word(ahead) != ";":
        ahead += 1
    return ahead


# -- dates -------------------------------------------------------------------------------------


def _date(cursor: Cursor) -> list[Day] | None:
    """ "25 december", "1 and 15 january", "december 25th", "may 1 to 7"."""
    by_day = _numbers(cursor, month_first=False)
    if by_day:
        months = _months_after(cursor)
        return _dated(by_day, months) if months else None
    month = MONTH_NUMBERS.get(cursor.word())
    if month is None:
        return None
    cursor.take()
    cursor.skip(("the",))
    numbers = _numbers(cursor, month_first=True)
    if not numbers:
        return None
    if cursor.to() and (cursor.word(1) in MONTH_NUMBERS or cursor.word(2) in MONTH_NUMBERS):
        refuse("inexpressible", "a range of dates within two months; give each month its own")
    return _dated(numbers, (MONTHS[month - 1],))


def _dated(numbers: list[tuple[int, int]], months: tuple[str, ...]) -> list[Day]:
    days = [_day_of_month(first, last) for first, last in numbers]
    return [day._replace(months=months) for day in days]


def _numbers(cursor: Cursor, *, month_first: bool) -> list[tuple[int, int]]:
    """Days of a month in digits or as ordinals, and ranges of them, in a list."""
    ranges: list[tuple[int, int]] = []
    ahead = 0
    while (day_number := _day_number(cursor, ahead)) is not None:
        first, length = day_number
        last, ahead = first, ahead + length
        if cursor.to(ahead) and (end := _day_number(cursor, ahead + 1)) is not None:
            last, ahead = end[0], ahead + 1 + end[1]
        if month_first and ranges and _month_follows(cursor, ahead):
            break  # "jan 1, 4 july": that number belongs to the month behind it.
        ranges.append((first, last))
        cursor.take(ahead)
        ahead = _separators(cursor)
        if ahead == 0:
            break
    return ranges


def _month_follows(cursor: Cursor, ahead: int) -> bool:
    return cursor.word(ahead + (cursor.word(ahead) == "of")) in MONTH_NUMBERS


def _day_number(cursor: Cursor, ahead: int) -> tuple[int, int] | None:
    ordinal, number = cursor.ordinal(ahead), cursor.whole(ahead)
    if ordinal is not None:
        follows = cursor.word(ahead + ordinal[1])
        if weekday(follows) is not None or follows in (*WORKDAYS, *WORKING, "day", "days"):
            return None
        return ordinal
    if number is None or len(cursor.word(ahead)) > 2:
        return None
    follows = cursor.word(ahead + 1)
    if follows in ("am", "pm", "o'clock", "past", "times") or follows in UNITS:
        return None
    return number, 1


def _refuse_year(cursor: Cursor, days: list[Day]) -> None:
    year = cursor.whole(1 if cursor.word() == "," else 0)
    if days[0].months and year is not None and 1900 <= year <= 2199:
        named = days[0].months[0][:3]
        month = MONTHS.index(named) + 1 if named in MONTHS else 1  # "*/3" begins with January
        day = int(days[0].text) if days[0].text.isdigit() else 1
        date = f"{year}-{month:02}-{day:02}T09:00"
        refuse("once", f"the year {year} makes it one time; write its date, as in {date}")


# -- the rest of the cron reference ------------------------------------------------------------


def _end_of(cursor: Cursor, choices: Choices) -> list[Day] | None:
    """ "end of the month", "start of the quarter", "month end"."""
    word = cursor.word()
    if word not in ("end", *_STARTS):
        return None
    cursor.take()
    unit = _tail(cursor)
    last = word == "end"
    if unit == "week":
        names = ("FRI", "SUN") if last else ("MON", "SUN")
        return [Day("week", names[choices.choose(f"the {word} of the week is not one day", 2)])]
    day = Day("month", "L" if last else "1", last=last)
    if unit:
        return [of_period(day, unit)]
    months = _months_after(cursor)
    if not months:
        refuse("incomplete", f'"{word}" of what? Say "{word} of the month", or a time of day')
    return [day._replace(months=months)]


def _back(cursor: Cursor) -> int | None:
    count, length = cursor.number() or (-1, 0)
    cursor.take(length)
    if count < 0 or not cursor.skip(("day", "days")) or not cursor.take_words("before"):
        return None
    if not (cursor.take_words("the", "last", "day") or cursor.take_words("the", "end")):
        return None
    if count > 30:
        refuse("invalid", f"no month has a day {count} days before its last")
    return count


def _nearest(cursor: Cursor) -> list[Day] | None:
    """ "weekday nearest the 15th"."""
    if not (cursor.word() in ("weekday", "workday") and cursor.word(1) == "nearest"):
        return None
    cursor.take(2)
    start = cursor.at
    back = _back(cursor)
    if back is not None:
        return _bound(cursor, Day("month", f"L-{back}W", last=True))
    cursor.at = start
    cursor.skip(("the", "to"))
    ordinal = _ordinal(cursor, 0)
    if ordinal is None or ordinal[0] < 0:
        return None
    cursor.take(ordinal[1])
    return _bound(cursor, Day("month", f"{ordinal[0]}W"))


def _bound(cursor: Cursor, day: Day) -> list[Day]:
    tail = _tail(cursor)
    if tail:
        return [of_period(day, tail)]
    return [day._replace(months=_months_after(cursor))]


def _stepped(cursor: Cursor) -> list[Day] | None:
    """ "every 3rd day from the 1st of the month", "every 2nd day from the 4th to the 20th"."""
    step = cursor.ordinal()
    if step is None or not 2 <= step[0] <= 31:
        return None
    cursor.take(step[1])
    if not cursor.take_words("day", "from", "the"):
        return None
    start = _ordinal(cursor, 0)
    if start is None or start[0] < 1:
        refuse("incomplete", "every so many days from which day of the month?")
    first, last = start[0], 31
    cursor.take(start[1])
    if cursor.to():
        end = _range_end(cursor, 0)
        if end is None or end[0] < 1:
            refuse("incomplete", "every so many days to which day of the month?")
        last = end[0]
        cursor.take(end[1])
    if last < first:
        refuse("inexpressible", f"a range from {first} to {last} reaches into the next month")
    span = "*" if (first, last) == (1, 31) else f"{first}-{last}"
    return _bound(cursor, Day("month", f"{span}/{step[0]}"))
