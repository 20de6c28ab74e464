"""Reads how often: "every 15 minutes", "hourly", "once a day", "every other week". Pure."""

from __future__ import annotations

from rota.core.time.instants import DAY, HOUR, MINUTE, SECOND
from rota.core.time.phrase_choices import refuse
from rota.core.time.phrase_model import PhraseRate
from rota.core.time.phrase_tokens import EVERY, FILLERS, RATES, SHORT_UNITS, UNITS, Cursor, weekday

UNITS_US = {
    "us": 1, "second": SECOND, "minute": MINUTE, "hour": HOUR, "day": DAY, "week": 7 * DAY,
}  # fmt: skip
_ELAPSED = {
    "second": (1, "second"), "minute": (60, "second"), "hour": (60, "minute"), "day": (24, "hour"),
    "week": (7, "day"),
}  # fmt: skip
_AFTER_UNIT = (*FILLERS, "between", "from", "daily", "hourly")
_TIMES_A = {"once": 1, "twice": 2, "thrice": 3}


def read_rate(cursor: Cursor, *, every: bool, alone: bool) -> PhraseRate | None:
    """A rate. `every`: "every" or "each" came before it. `alone`: nothing came before it."""
    bare = every or alone
    rate = cursor.first_of(
        lambda: _named(cursor),
        lambda: _counted(cursor),
        lambda: _fraction(cursor) if bare else None,
        lambda: _amounts(cursor, every) if bare else None,
        lambda: _plain_unit(cursor) if every else None,
    )
    if rate is not None:
        _of_the_day(cursor)
    return rate


def read_amount(cursor: Cursor) -> PhraseRate | None:
    """ "2 hours", "hour", "half an hour"."""
    return _fraction(cursor) or _amounts(cursor, True) or _plain_unit(cursor)


def _named(cursor: Cursor) -> PhraseRate | None:
    unit = RATES.get(cursor.word())
    if unit is None:
        return None
    cursor.take()
    return PhraseRate(1, unit)


def _counted(cursor: Cursor) -> PhraseRate | None:
    """ "once a day", "twice daily", "3 times a week"."""
    count = _TIMES_A.get(cursor.word())
    cursor.take(1 if count else 0)
    if count is None:
        count, length = cursor.number() or (0, 0)
        if not length or cursor.word(length) != "times":
            return None
        cursor.take(length + 1)
    if cursor.word() in RATES:
        rate = _named(cursor)
    else:
        has_per = cursor.skip(("a", "an", "per", *EVERY))
        if has_per and count == 1 and weekday(cursor.word()) is not None:
            return PhraseRate(1, "week")  # "once every monday at 9"
        rate = read_amount(cursor) if has_per else None
    if rate is None:
        return None
    if count != 1 and rate.unit not in ("day", "week"):
        refuse("incomplete", f"{count} times: say at which times")
    return rate if count == 1 else rate._replace(times_a=count)


def _fraction(cursor: Cursor) -> PhraseRate | None:
    """ "half hour", "half an hour", "quarter hour", "quarter of an hour"."""
    number = {"half": 30, "quarter": 15}.get(cursor.word())
    if number is None:
        return None
    cursor.take()
    cursor.skip(("of", "a", "an"))
    return PhraseRate(number, "minute") if cursor.take_words("hour") else None


def _amounts(cursor: Cursor, every: bool) -> PhraseRate | None:
    """ "15 minutes", "2h", "1.5 hours", "1 hour 30 minutes", "third day", "other week"."""
    first = _amount(cursor, every)
    if first is None:
        return None
    number, unit, short = first
    exact = number == int(number)
    if unit not in UNITS_US or unit == "us":
        if not exact:
            refuse("inexpressible", f"{number:g} {unit}s have no fixed length")
        return PhraseRate(int(number), unit)
    total, size = round(number * UNITS_US[unit]), UNITS_US[unit]
    while (more := _more(cursor, size)) is not None:
        total, size = total + more[0], more[1]
    if not exact or size != UNITS_US[unit]:
        return _smallest(total)
    # "every 1h" is an interval as "1h" is; "every 1 hour" is every hour.
    return PhraseRate(*_ELAPSED[unit]) if short and number == 1 else PhraseRate(int(number), unit)


def _amount(cursor: Cursor, every: bool) -> tuple[float, str, bool] | None:
    number = _number(cursor, every)
    if number is None:
        return None
    word, glued = cursor.word(), cursor.peek().glued
    unit = UNITS.get(word) or (SHORT_UNITS.get(word) if glued or len(word) == 1 else None)
    if unit is None:
        return None
    cursor.take()
    return number, unit, word not in UNITS


def _number(cursor: Cursor, every: bool) -> float | None:
    ordinal = cursor.ordinal()
    if ordinal is not None:
        number, length = ordinal
        of_month = cursor.word(length) == "day" and cursor.word(length + 1) in ("of", "from")
        if not every or number < 2 or cursor.word(length) not in UNITS or of_month:
            return None
        cursor.take(length)
        return number
    if cursor.peek().kind in ("number", "decimal"):
        cursor.take()
        return float(cursor.word(-1))
    if every and cursor.word() == "other":
        cursor.take()
        return 2
    spoken = cursor.number_word()
    if spoken is None:
        return None
    cursor.take(spoken[1])
    return spoken[0]


def _more(cursor: Cursor, size: int) -> tuple[int, int] | None:
    """A further amount of a smaller unit: "1 hour [and] 30 minutes", "1h30m"."""
    start = cursor.at
    cursor.take(1 if cursor.word() == "and" else 0)
    amount = _amount(cursor, False) if cursor.peek().kind in ("number", "decimal") else None
    if amount is None or UNITS_US.get(amount[1], size) >= size:
        cursor.at = start
        return None
    return round(amount[0] * UNITS_US[amount[1]]), UNITS_US[amount[1]]


def _smallest(total_us: int) -> PhraseRate:
    """A length in the largest unit that divides it."""
    unit = next(u for u in ("day", "hour", "minute", "second", "us") if total_us % UNITS_US[u] == 0)
    return PhraseRate(total_us // UNITS_US[unit], unit)


def _plain_unit(cursor: Cursor) -> PhraseRate | None:
    """ "every hour"; "hour and a half"."""
    unit = UNITS.get(cursor.word())
    if unit is None:
        return None
    if cursor.word() == "second" and _is_ordinal_of_more(cursor):
        return None  # "every second friday", "every second and fourth friday"
    cursor.take()
    if unit == "hour" and cursor.take_words("and", "a", "half"):
        return PhraseRate(90, "minute")
    return PhraseRate(1, unit)


def _is_ordinal_of_more(cursor: Cursor) -> bool:
    """Whether "second" counts the words behind it."""
    after = cursor.peek(1)
    if after.kind == "separator":
        return cursor.ordinal(2) is not None or cursor.word(2) == "last"
    return after.kind not in ("end", "number", "clock") and after.text not in _AFTER_UNIT


def _of_the_day(cursor: Cursor) -> None:
    """ "every hour of the day" says no more than "every hour"."""
    start = cursor.at
    if cursor.word() == "of":
        cursor.take()
        cursor.skip(("the", "a", *EVERY))
        if cursor.word() in ("day", "week", "month", "year"):
            cursor.take()
            return
    cursor.at = start
