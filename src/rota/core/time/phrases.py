"""Schedules in words: "every friday at 5pm" → cron text or an interval. Pure.

A phrase is read from left to right into a Draft, and the Draft becomes cron (`drafts`). A word
without a meaning, or a wish that cron cannot express, is refused with examples; nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn

from rota.core.time.cron import MONTHS, WEEKDAYS
from rota.core.time.phrase_builder import Draft, Understood, build
from rota.errors import BadSchedule

EXAMPLES = (
    "every 15 minutes",
    "every friday at 5pm",
    "weekdays at 9:30",
    "first monday of the month at noon",
    "every day at 9am and 5pm",
    "last day of the month at 18:00",
    "every 30 minutes between 9am and 5pm on weekdays",
)

_UNITS = {
    **dict.fromkeys(("second", "seconds", "sec", "secs"), "second"),
    **dict.fromkeys(("minute", "minutes", "min", "mins"), "minute"),
    **dict.fromkeys(("hour", "hours", "hr", "hrs"), "hour"),
    **dict.fromkeys(("day", "days"), "day"),
    **dict.fromkeys(("week", "weeks"), "week"),
    **dict.fromkeys(("month", "months"), "month"),
    **dict.fromkeys(("quarter", "quarters"), "quarter"),
    **dict.fromkeys(("year", "years"), "year"),
}
_NUMBERS = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
    "nine": 9, "ten": 10, "twelve": 12, "fifteen": 15, "twenty": 20, "thirty": 30, "other": 2,
}  # fmt: skip
_ORDINALS = {
    "first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7,
    "eighth": 8, "ninth": 9, "tenth": 10,
}  # fmt: skip
_LAST = -1
_DAY_WORDS = {
    "sunday": 0, "monday": 1, "tuesday": 2, "wednesday": 3, "thursday": 4, "friday": 5,
    "saturday": 6, "sun": 0, "mon": 1, "tue": 2, "tues": 2, "wed": 3, "weds": 3, "thu": 4,
    "thur": 4, "thurs": 4, "fri": 5, "sat": 6,
}  # fmt: skip
_MONTH_WORDS = {
    "january": 1, "february": 2, "march": 3, "april": 4, "may": 5, "june": 6, "july": 7,
    "august": 8, "september": 9, "october": 10, "november": 11, "december": 12, "sept": 9,
    **{name.lower(): number for number, name in enumerate(MONTHS, start=1)},
}  # fmt: skip
_GROUPS = {
    **dict.fromkeys(("weekday", "weekdays", "workday", "workdays"), "MON-FRI"),
    **dict.fromkeys(("weekend", "weekends"), "SAT,SUN"),
}
_RATES = {
    "hourly": (1, "hour"), "daily": (1, "day"), "nightly": (1, "day"), "everyday": (1, "day"),
    "weekly": (1, "week"), "monthly": (1, "month"), "quarterly": (1, "quarter"),
    "yearly": (1, "year"), "annually": (1, "year"),
}  # fmt: skip
_UNCLEAR = {
    "biweekly": "it can mean twice a week or every two weeks",
    "bimonthly": "it can mean twice a month or every two months",
    "fortnightly": "a week's number is nothing cron knows; 2w counts 14 days of elapsed time",
    "except": "exceptions cannot be said; list the days that are meant",
    "twice": "say at which times",
    "tomorrow": "for one time, write the date: 2027-03-28T09:00",
    "today": "for one time, write the date: 2027-03-28T09:00",
}
_FILLERS = {"and", "on", "the", "of", "in", "a", "an", "run", "every", "each", "at", "during"}
_TIME = re.compile(r"(\d{1,2})(?:[:.](\d{2}))?(am|pm)?")


def understand(phrase: str) -> Understood:
    """Cron text, an interval in microseconds, or several of them; BadSchedule if not understood."""
    try:
        return build(_Reader(phrase).read())
    except _NotUnderstood as error:
        shown = "; ".join(f'"{example}"' for example in EXAMPLES)
        raise BadSchedule(
            f'"{phrase}" is not understood: {error}', hint=f"Examples: {shown}.", phrase=phrase
        ) from None


class _NotUnderstood(Exception):
    """Why a phrase has no meaning here."""


def _words(phrase: str) -> list[str]:
    text = phrase.lower().replace("a.m.", "am").replace("p.m.", "pm").replace("o'clock", "")
    text = re.sub(r"[,;&]", " and ", text).rstrip(" .!")
    text = re.sub(r"(?<=\w)\s*[-–]\s*(?=\w)", " to ", text)
    text = re.sub(r"(\d)\s+(am|pm)\b", r"\1\2", text)
    text = re.sub(r"\b(through|thru|until|till)\b", "to", text)
    return re.sub(r"\bbusiness days?\b", "weekdays", text).split()


class _Reader:
    """Reads the words of one phrase, each by the first rule that takes it."""

    def __init__(self, phrase: str) -> None:
        self.words = _words(phrase)
        self.at = 0
        self.draft = Draft(_refuse)

    def read(self) -> Draft:
        rules: tuple[Callable[[], bool], ...] = (
            self._unclear, self._past_the_hour, self._window, self._rate, self._every,
            self._ordinals, self._date, self._days, self._months, self._times, self._filler,
        )  # fmt: skip
        while self.at < len(self.words):
            if not any(rule() for rule in rules):
                _refuse(f'"{self.words[self.at]}" has no meaning here')
        return self.draft

    def _peek(self, ahead: int = 0) -> str:
        return self.words[self.at + ahead] if self.at + ahead < len(self.words) else ""

    def _skip(self, *fillers: str) -> None:
        while self._peek() in fillers:
            self.at += 1

    def _unclear(self) -> bool:
        reason = _UNCLEAR.get(self._peek())
        if reason:
            _refuse(f'"{self._peek()}": {reason}')
        return False

    def _filler(self) -> bool:
        since = self._peek() == "from" and (self._peek(1) in _MONTH_WORDS or _is_day(self._peek(1)))
        if self._peek() not in _FILLERS and not since:
            return False
        self.at += 1
        return True

    def _rate(self) -> bool:
        rate = _RATES.get(self._peek())
        if rate is None:
            return False
        self.draft.set_rate(*rate, named=True)
        self.at += 1
        return True

    def _past_the_hour(self) -> bool:
        """ "15 minutes past every hour", "quarter past the hour", "on the hour"."""
        rest = " ".join(self.words[self.at :])
        found = re.match(
            r"(?:at )?(quarter|half|\d{1,2})(?: minutes?)? past(?: (?:the|every|each))? hour\b",
            rest,
        ) or re.match(r"(on) the hour\b", rest)
        if found is None:
            return False
        word = found.group(1)
        self.draft.past = (
            {"quarter": 15, "half": 30, "on": 0}.get(word) if not word.isdigit() else int(word)
        )
        if self.draft.past is None or self.draft.past > 59:
            _refuse(f"{word} minutes past the hour is another hour")
        self.at += len(found.group(0).split())
        return True

    def _window(self) -> bool:
        """ "between 9am and 5pm", "from 9 to 17"."""
        joint = {"between": ("and", "to"), "from": ("to",)}.get(self._peek())
        if joint is None or self._peek(2) not in joint:
            return False
        start, stop = self._time(self._peek(1), bare=True), self._time(self._peek(3), bare=True)
        if start is None or stop is None:
            return False
        self.draft.window = (start, stop)
        self.at += 4
        return True

    def _every(self) -> bool:
        """ "every 15 minutes", "every other hour", "every half hour", "5 minutes"."""
        start = self.at
        self._skip("every", "each")
        said = self.at > start
        if self._peek() == "half":
            skip = 2 if self._peek(1) in ("a", "an") else 1
            if self._peek(skip) in ("hour", "hours"):
                self.at += skip + 1
                self.draft.set_rate(30, "minute")
                return True
        number = _number(self._peek())
        unit = _UNITS.get(self._peek(0 if number is None else 1))
        if number is None and said and self._peek() in _ORDINALS and self._peek(1):
            number = _ORDINALS[self._peek()]  # "every third day"
            unit = _UNITS.get(self._peek(1))
            if unit is None and self._peek(1) not in ("of", "and", "to", "at", "in", "on"):
                unit = self._other_day(number, self._peek(1))
            elif unit == "day" and self._peek(2) == "of":
                unit = None
        if number is not None and said and _is_day(self._peek(1)):
            self._other_day(number, self._peek(1))
        if unit is None or (number is None and not said):
            self.at = start
            return False
        self.draft.set_rate(1 if number is None else number, unit)
        self.at += 1 if number is None else 2
        return True

    def _other_day(self, number: int, day: str) -> str | None:
        """ "every second friday" may mean of the month; else cron cannot count weeks."""
        if _weekday(day) is not None and "of" in self.words[self.at :] and self._peek() != "other":
            return None
        return _refuse(
            f'every {number} weeks on "{day}" cannot be said in cron, which knows no week numbers; '
            f'say "first and third {day} of the month", or count elapsed time with {number}w'
        )

    def _ordinals(self) -> bool:
        """ "first monday", "1st and 15th", "last day of the month", "last weekday"."""
        numbers: list[int] = []
        ahead = 0
        while (number := _ordinal(self._peek(ahead))) is not None:
            numbers.append(number)
            ahead += 1
            while (
                self._peek(ahead) in ("and", "the") and _ordinal(self._peek(ahead + 1)) is not None
            ):
                ahead += 1
        if not numbers:
            return False
        self.at += ahead
        weekday = _weekday(self._peek())
        if weekday is not None:
            self.draft.nth.extend(self._nth(number, weekday) for number in numbers)
            self.at += 1
        elif self._peek() in ("weekday", "workday"):
            self.draft.days.extend(_nth_weekday(number) for number in numbers)
            self.at += 1
        else:
            self.draft.days.extend("L" if number == _LAST else str(number) for number in numbers)
            self._skip("day", "days")
        self._of_the_month()
        return True

    def _nth(self, number: int, weekday: int) -> str:
        if number == _LAST:
            return f"{WEEKDAYS[weekday]}L"
        if number > 5:
            _refuse(f"no month has {number} of one weekday")
        return f"{WEEKDAYS[weekday]}#{number}"

    def _of_the_month(self) -> None:
        found = re.match(
            r"(of|in) (the |each |every |a )*(months?)\b", " ".join(self.words[self.at :])
        )
        if found:
            self.at += len(found.group(0).split())

    def _date(self) -> bool:
        """ "25 december", "december 25", "january 1st"."""
        first, second = self._peek(), self._peek(1)
        if second == "of":
            second = self._peek(2)
        number, month = _plain(first), _MONTH_WORDS.get(second)
        if number is None or month is None:
            month, number = (
                _MONTH_WORDS.get(first),
                _plain(self._peek(1)) or _ordinal(self._peek(1)),
            )
        if month is None or number is None:
            return False
        self.draft.days.append("L" if number == _LAST else str(number))
        self.draft.months.append(MONTHS[month - 1])
        self.at += 3 if self._peek(1) == "of" else 2
        return True

    def _days(self) -> bool:
        group = _GROUPS.get(self._peek())
        if group is not None:
            self.draft.weekdays.append(group)
            self.at += 1
            return True
        return self._named(_weekday, WEEKDAYS, self.draft.weekdays)

    def _months(self) -> bool:
        return self._named(
            lambda word: None if word not in _MONTH_WORDS else _MONTH_WORDS[word] - 1,
            *(MONTHS, self.draft.months),
        )

    def _named(
        self, meaning: Callable[[str], int | None], names: tuple[str, ...], into: list[str]
    ) -> bool:
        first = meaning(self._peek())
        if first is None:
            return False
        last = meaning(self._peek(2)) if self._peek(1) == "to" else None
        into.append(names[first] if last is None else f"{names[first]}-{names[last]}")
        self.at += 1 if last is None else 3
        return True

    def _times(self) -> bool:
        """ "at 9", "9:30", "5pm and 6pm", "noon"; a bare number counts only after "at"."""
        bare = self.at > 0 and self.words[self.at - 1] == "at"
        found = self._time(self._peek(), bare=bare)
        if found is None:
            return False
        while found is not None:
            self.draft.times.append(found)
            self.at += 1
            ahead = 1 if self._peek() == "and" else 0
            ahead += self._peek(ahead) == "at" if ahead else 0
            found = self._time(self._peek(ahead), bare=bare and ahead > 0)
            self.at += ahead if found else 0
        return True

    def _time(self, word: str, *, bare: bool) -> tuple[int, int] | None:
        if word in ("noon", "midday", "midnight"):
            return (0, 0) if word == "midnight" else (12, 0)
        found = _TIME.fullmatch(word)
        if found is None or (not bare and not found.group(2) and not found.group(3)):
            return None
        hour, minute, half = int(found.group(1)), int(found.group(2) or 0), found.group(3)
        if minute > 59 or (half and not 1 <= hour <= 12) or hour > 23:
            _refuse(f'"{word}" is no time of day; midnight is 0:00 or "midnight"')
        return (hour % 12 + (12 if half == "pm" else 0) if half else hour), minute


def _refuse(reason: str) -> NoReturn:
    raise _NotUnderstood(reason)


def _plain(word: str) -> int | None:
    return int(word) if word.isascii() and word.isdigit() and len(word) <= 6 else None


def _number(word: str) -> int | None:
    return _NUMBERS.get(word, _plain(word))


def _nth_weekday(number: int) -> str:
    if number not in (1, _LAST):
        _refuse("of the weekdays of a month cron knows only the first and the last")
    return "LW" if number == _LAST else "1W"


def _weekday(word: str) -> int | None:
    return _DAY_WORDS.get(word, _DAY_WORDS.get(word.removesuffix("s")))


def _is_day(word: str) -> bool:
    return _weekday(word) is not None or word in _GROUPS


def _ordinal(word: str) -> int | None:
    if word == "last":
        return _LAST
    found = re.fullmatch(r"(\d{1,2})(?:st|nd|rd|th)", word)
    if found is None:
        return _ORDINALS.get(word)
    number = int(found.group(1))
    if not 1 <= number <= 31:
        _refuse(f"no month has a {word}")
    return number
