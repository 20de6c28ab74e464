"""Reads times of day, windows and minutes past the hour from the tokens of a phrase. Pure."""

from __future__ import annotations

from rota.core.time.phrase_choices import refuse
from rota.core.time.phrase_clock import ClockTime, moved
from rota.core.time.phrase_tokens import (
    DAY_PARTS,
    ENDINGS,
    EVERY,
    MONTH_NUMBERS,
    SHORT_UNITS,
    UNITS,
    Cursor,
)

_NAMED = ("noon", "midday", "midnight")
_HALVES = ("am", "pm")
_MINUTES = ("minute", "minutes", "min", "mins")
_FRACTIONS = {"quarter": 15, "half": 30}


def read_clock(cursor: Cursor, *, bare: bool) -> ClockTime | None:
    """A time of day. A number alone counts only where `bare` says that a time is expected."""
    return cursor.first_of(
        lambda: _named(cursor),
        lambda: _spoken(cursor, bare),
        lambda: _written(cursor, bare),
        lambda: _in_letters(cursor, bare),
    )


def read_window(cursor: Cursor) -> tuple[ClockTime, ClockTime] | None:
    """ "between 9am and 5pm", "from 9 to 17", "9:00-17:00"."""
    opening = cursor.word() if cursor.word() in ("between", "from") else ""
    cursor.take(1 if opening else 0)
    first = read_clock(cursor, bare=True)
    joint = cursor.to() or (opening == "between" and cursor.word() == "and")
    if first is None or not (joint or opening):
        return None
    cursor.take(1 if joint else 0)
    last = read_clock(cursor, bare=True) if joint else None
    if last is None and opening:
        refuse("incomplete", f'"{opening}" needs two times: "between 9:00 and 17:00"')
    return None if last is None else (first, last)


def read_past(cursor: Cursor) -> list[str] | None:
    """ "15 minutes past every hour", "on the hour", ":30", "minutes 0 and 30 past the hour"."""
    if cursor.peek().kind == "minute":
        cursor.take()
        return [_minute(int(cursor.word(-1)[1:]))]
    if cursor.take_words("top", "of", "the", "hour"):
        return ["0"]
    if cursor.word(-1) == "the" and cursor.take_words("half", "hour"):
        return ["30"]
    if cursor.word(-1) == "the" and cursor.take_words("quarter", "hour"):
        return ["0", "15", "30", "45"]
    if cursor.word() == "hour" and cursor.word(-1) == "the":
        cursor.take()
        return ["0"]
    return _minutes_listed(cursor) if cursor.word() in _MINUTES else _minutes_past(cursor)


def _minutes_past(cursor: Cursor) -> list[str] | None:
    """ "quarter past the hour", "10 minutes to the hour", "half past"."""
    amount = _amount(cursor)
    if amount is None:
        return None
    cursor.skip(_MINUTES)
    side = cursor.word()
    if side not in ("past", "after", "to", "before"):
        return None
    cursor.take()
    the = cursor.skip(("the", *EVERY))
    if not cursor.take_words("hour"):
        if side != "past" or the or cursor.number() is not None or cursor.word() in _NAMED:
            return None
        return [_minute(amount)]
    return [_minute(amount if side in ("past", "after") else 60 - amount)]


def _minutes_listed(cursor: Cursor) -> list[str] | None:
    cursor.take()
    minutes: list[str] = []
    while (number := cursor.whole()) is not None:
        cursor.take()
        last = cursor.whole(1) if cursor.to() else None
        minutes.append(_minute(number) if last is None else f"{_minute(number)}-{_minute(last)}")
        cursor.take(0 if last is None else 2)
        ahead = 0
        while cursor.peek(ahead).kind == "separator":
            ahead += 1
        if not ahead or cursor.whole(ahead) is None or cursor.word(ahead + 1) in _HALVES:
            break
        cursor.take(ahead)
    if not minutes:
        return None
    if cursor.word() in ("past", "of", "after"):
        cursor.take()
        if cursor.word() in ("the", *EVERY) and cursor.word(1) == "hour":
            cursor.take(2)
    return minutes


def _minute(number: int) -> str:
    if not 0 <= number <= 59:
        refuse("invalid", f"{number} minutes past the hour is another hour")
    return str(number)


def _amount(cursor: Cursor) -> int | None:
    """Minutes: "half", "a quarter", "10", "twenty five"."""
    cursor.skip(("a",))
    if cursor.word() in _FRACTIONS:
        cursor.take()
        return _FRACTIONS[cursor.word(-1)]
    number, length = cursor.number() or (100, 0)
    cursor.take(length)
    return number if number < 100 else None


def _named(cursor: Cursor) -> ClockTime | None:
    """ "noon", "12 noon", "12:00 midnight"."""
    if cursor.word() in ("12", "12:00") and cursor.word(1) in _NAMED:
        cursor.take()
    if cursor.word() not in _NAMED:
        return None
    cursor.take()
    if cursor.word(-1) == "midnight":
        return ClockTime(0, midnight=True)
    return ClockTime(12, mark="pm")


def _spoken(cursor: Cursor, bare: bool) -> ClockTime | None:
    """ "half past 8", "quarter to nine", "20 minutes past 8pm"."""
    in_digits = cursor.whole() is not None
    fraction = cursor.word() in _FRACTIONS or cursor.word(1) in _FRACTIONS
    amount = _amount(cursor)
    if amount is None:
        return None
    minutes_said = cursor.skip(_MINUTES)
    side = cursor.word()
    if side not in ("past", "after", "to", "before"):
        return None
    # "10 to 6" is a pair of hours; "10 minutes to 6" and "at ten to six" are times.
    if side == "to" and not (fraction or minutes_said or (bare and not in_digits)):
        return None
    cursor.take()
    hour = read_clock(cursor, bare=True)
    if hour is None or hour.minute or hour.second or amount > 59:
        return None
    return moved(hour, amount if side in ("past", "after") else -amount)


def _written(cursor: Cursor, bare: bool) -> ClockTime | None:
    """ "9", "9am", "9:30", "9.30", "0930", "17:00:30"."""
    token = cursor.peek()
    if token.kind == "clock":
        numbers = token.text.split(":")
    elif (
        token.kind == "decimal" and len(token.text.partition(".")[2]) == 2 and not _is_unit(cursor)
    ):
        numbers = token.text.split(".")
    elif token.kind == "number":
        return _digits(cursor, bare)
    else:
        return None
    cursor.take()
    hour, minute, second = (*[int(number) for number in numbers], 0)[:3]
    exact = len(numbers) > 2 or (numbers[0][0] == "0" and len(numbers[0]) == 2)
    return _checked(cursor, token.text, ClockTime(hour, minute, second), exact=exact)


def _digits(cursor: Cursor, bare: bool) -> ClockTime | None:
    text, after = cursor.word(), cursor.word(1)
    hint = after in (*_HALVES, "o'clock") or (after == "hours" and len(text) == 4)
    if cursor.peek(1).glued and after in ENDINGS:
        return None
    dated = after in MONTH_NUMBERS or (after == "of" and cursor.word(2) in MONTH_NUMBERS)
    if (_is_unit(cursor) and not hint) or dated or len(text) > 4:
        return None
    if len(text) == 4 and not bare and not hint and "1900" <= text <= "2099":
        refuse("invalid", f'"{text}" may be a year or a time', f"at {text[:2]}:{text[2:]}")
    if len(text) < 4 and not bare and not hint:
        return None
    cursor.take()
    cut = max(len(text) - 2, 0) if len(text) > 2 else len(text)
    clock = ClockTime(int(text[:cut]), int(text[cut:] or 0))
    checked = _checked(cursor, text, clock, exact=len(text) == 4 or text[0] == "0")
    if len(text) == 4:
        cursor.skip(("hours", "hrs"))
    return checked


def _is_unit(cursor: Cursor) -> bool:
    word, glued = cursor.word(1), cursor.peek(1).glued
    return word in UNITS or (glued and word in SHORT_UNITS)


def _in_letters(cursor: Cursor, bare: bool) -> ClockTime | None:
    """ "nine", "nine thirty", "nine o'clock", "eight forty-five pm"."""
    spoken = cursor.number_word()
    if spoken is None or spoken[0] > 23:
        return None
    cursor.take(spoken[1])
    minutes = cursor.number_word()
    if minutes is not None and minutes[0] >= 10:
        cursor.take(minutes[1])
    else:
        minutes = (0, 0)
    if cursor.word() in UNITS or cursor.word() in MONTH_NUMBERS:
        return None
    if not bare and cursor.word() not in (*_HALVES, "o'clock", *DAY_PARTS):
        return None
    shown = f"{spoken[0]}:{minutes[0]:02}"
    return _checked(cursor, shown, ClockTime(spoken[0], minutes[0]), exact=False)


def _checked(cursor: Cursor, shown: str, clock: ClockTime, *, exact: bool) -> ClockTime:
    """The time with its am or pm, or a refusal when no clock shows it."""
    cursor.skip(("o'clock",))
    half = cursor.word() if cursor.word() in _HALVES else ""
    cursor.take(1 if half else 0)
    wrong = clock.minute > 59 or clock.second > 59 or clock.hour > 23
    if wrong or (half and not 1 <= clock.hour <= 12):
        refuse("invalid", f'"{shown}{half}" is not a time of day; midnight is 0:00 or "midnight"')
    mark = half or ("24" if exact or not 1 <= clock.hour <= 12 else "bare")
    return clock._replace(mark=mark)
