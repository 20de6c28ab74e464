"""The vocabulary of schedule phrases, and a phrase cut into tokens. Pure, linear in the text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from rota.core.time.cron import MONTH_NAMES, WEEKDAY_NAMES

T = TypeVar("T")
LENGTH_MAX = 1_000

_UNITS = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")
UNITS = {
    **{form: unit for unit in _UNITS for form in (unit, f"{unit}s")},
    **dict.fromkeys(("sec", "secs"), "second"),
    **dict.fromkeys(("min", "mins"), "minute"),
    **dict.fromkeys(("hr", "hrs"), "hour"),
}
SHORT_UNITS = {"s": "second", "m": "minute", "h": "hour", "d": "day", "w": "week"}
RATES = {
    "hourly": "hour", "daily": "day", "everyday": "day", "nightly": "day", "weekly": "week",
    "monthly": "month", "quarterly": "quarter", "yearly": "year", "annually": "year",
}  # fmt: skip
_ONES = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
         "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
         "nineteen")  # fmt: skip
NUMBERS = {word: number for number, word in enumerate(_ONES, start=1)}
TENS = {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50}
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth",
             "tenth", "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth",
             "seventeenth", "eighteenth", "nineteenth")  # fmt: skip
ORDINALS = {
    **{word: number for number, word in enumerate(_ORDINALS, start=1)},
    "twentieth": 20,
    "thirtieth": 30,
}
WEEKDAYS = {
    **{name.lower(): number for number, name in enumerate(WEEKDAY_NAMES)},
    **{name[:3].lower(): number for number, name in enumerate(WEEKDAY_NAMES)},
    "tues": 2,
    "weds": 3,
    "thur": 4,
    "thurs": 4,
}
MONTH_NUMBERS = {
    **{name.lower(): number for number, name in enumerate(MONTH_NAMES, start=1)},
    **{name[:3].lower(): number for number, name in enumerate(MONTH_NAMES, start=1)},
    "sept": 9,
}
WORKDAYS = ("weekday", "weekdays", "workday", "workdays")
WORKING = ("business", "working", "work", "week")  # in front of "day" or "days"
WEEKENDS = ("weekend", "weekends")
_DAY_PARTS = ("morning", "afternoon", "evening", "night")
DAY_PARTS = {form: part for part in _DAY_PARTS for form in (part, f"{part}s")}
ENDINGS = ("st", "nd", "rd", "th")
TO = ("to", "through", "thru", "until", "till")
EVERY = ("every", "each")
FILLERS = ("on", "the", "of", "in", "at", "during", "run", "runs", "a", "an", "only", *EVERY)
# Abbreviations that people write after a time of day. A phrase has no zone: the schedule has one.
ZONES = (
    "utc", "gmt", "z", "est", "edt", "et", "cst", "cdt", "ct", "mst", "mdt", "mt", "pst", "pdt",
    "pt", "bst", "cet", "cest", "eet", "eest", "ist", "jst", "aest", "aedt",
)  # fmt: skip
_WEEKS = "cron knows no week numbers; 2w counts 14 days of elapsed time"
_EXCEPT = "a phrase has no exceptions; list the days that are meant"
_SUN = "a schedule follows the clock, not the sun"
_WINDOW = 'a window has two ends: "between 9:00 and 17:00"'
# Why each of these is refused: the class, the reason, and what to write instead.
UNCLEAR: dict[str, tuple[str, ...]] = {
    "biweekly": (
        *("ambiguous", "it can mean twice a week or every two weeks"),
        *("every 2 weeks", "monday and thursday"),
    ),
    "bimonthly": (
        *("ambiguous", "it can mean twice a month or every two months"),
        *("every 2 months", "1st and 15th of the month"),
    ),
    "semimonthly": ("incomplete", "say on which days of the month", "1st and 15th of the month"),
    "fortnightly": ("inexpressible", _WEEKS, "every 2 weeks"),
    "fortnight": ("inexpressible", _WEEKS, "every 2 weeks"),
    **dict.fromkeys(("except", "excluding", "but", "not", "without"), ("inexpressible", _EXCEPT)),
    "or": ("inexpressible", "say each time that is meant, joined by and"),
    **dict.fromkeys(("after", "before"), ("incomplete", _WINDOW)),
    **dict.fromkeys(("sunrise", "sunset", "dawn", "dusk"), ("inexpressible", _SUN)),
}
ONE_TIME = ("tomorrow", "today", "tonight", "once", "now", "next", "this")


class Token(NamedTuple):
    """One word, number or sign."""

    # number | decimal | clock | minute | word | offset | separator | dash | place | junk | end
    kind: str
    text: str
    glued: bool = False  # no space in front of it: "9am", "15th", "2h"


END = Token("end", "")
_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<clock>[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?(?![0-9:]))"
    r"|(?P<minute>:[0-9]{2}(?![0-9:]))"
    r"|(?P<decimal>[0-9]{1,9}\.[0-9]{1,9}(?![0-9.]))"
    r"|(?P<number>[0-9]{1,9}(?![0-9]))"
    r"|(?P<place>[a-z]{2,20}(?:/[a-z_]{2,30}){1,2})"
    r"|(?P<word>[^\W\d_]{1,40}(?:'[a-z]{1,9})?)"
    r"|(?P<offset>[+][0-9]{1,2}(?::?[0-9]{2})?(?![0-9:a-z]))"
    r"|(?P<separator>[,;&+])"
    r"|(?P<dash>[-–—])"
    r"|(?P<junk>[0-9]+|.)",
    re.DOTALL,
)  # fmt: skip
_SAME = {"&": "and", "+": "and", "plus": "and", "oclock": "o'clock"}
_DAY_NAMES = "|".join(sorted(WEEKDAYS, key=len, reverse=True))
_SLASHED = re.compile(rf"\b(?:{_DAY_NAMES})(?:/(?:{_DAY_NAMES}))+\b")  # "mon/wed/fri"
_HYPHENED = re.compile(r"\b(bi|semi)-(?=(?:week|month)ly\b)")
_DOTTED = ("a.m.", "p.m.", "a.m", "p.m")


def tokens_of(phrase: str) -> list[Token]:
    """The tokens of a phrase; characters without a meaning become junk, which no rule takes."""
    text = phrase.lower().replace("’", "'")
    for dotted in _DOTTED:
        text = text.replace(dotted, dotted[0] + "m")
    tokens: list[Token] = []
    glued = False
    text = _HYPHENED.sub(r"\1", text)
    text = _SLASHED.sub(lambda days: days.group().replace("/", ","), text)
    for match in _TOKEN.finditer(text.rstrip(" .!?")):
        kind, piece = match.lastgroup or "junk", match.group()
        if kind == "space":
            glued = False
            continue
        if piece == "." and tokens and _is_short_name(tokens[-1].text):
            continue  # "mon.", "dec."
        piece = _SAME.get(piece, piece)
        if piece == "and":
            kind = "separator"
        tokens.append(Token(kind, piece, glued))
        glued = True
    return tokens


def _is_short_name(word: str) -> bool:
    return len(word) <= 5 and (word in WEEKDAYS or word in MONTH_NUMBERS or word in UNITS)


def weekday(word: str) -> int | None:
    """Sunday is 0."""
    return WEEKDAYS.get(word, WEEKDAYS.get(word.removesuffix("s")))


class Cursor:
    """A place in the tokens of one phrase."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self.at = 0

    def peek(self, ahead: int = 0) -> Token:
        """The token at the cursor, or further on; END behind the last one."""
        index = self.at + ahead
        return self._tokens[index] if 0 <= index < len(self._tokens) else END

    def word(self, ahead: int = 0) -> str:
        """The text of a token, whatever its kind."""
        return self.peek(ahead).text

    def take(self, count: int = 1) -> None:
        """Move on."""
        self.at += count

    def take_words(self, *words: str) -> bool:
        """Move past these words if they come next, in this order."""
        if all(self.word(ahead) == word for ahead, word in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def skip(self, words: tuple[str, ...]) -> bool:
        """Move past any of these words; whether there were some."""
        start = self.at
        while self.word() in words:
            self.at += 1
        return self.at > start

    def first_of(self, *rules: Callable[[], T | None]) -> T | None:
        """The result of the first rule that reads something; a rule that fails moves nothing."""
        start = self.at
        for rule in rules:
            found = rule()
            if found is not None:
                return found
            self.at = start
        return None

    def number(self) -> tuple[int, int] | None:
        """A whole number in digits or letters, and how many tokens it has."""
        whole = self.whole()
        return self.number_word() if whole is None else (whole, 1)

    def whole(self, ahead: int = 0) -> int | None:
        """A whole number in digits."""
        token = self.peek(ahead)
        return int(token.text) if token.kind == "number" else None

    def number_word(self) -> tuple[int, int] | None:
        """A number in letters and how many tokens it has: "nine", "forty five", "forty-five"."""
        word = self.word()
        if word in NUMBERS:
            return NUMBERS[word], 1
        if word not in TENS:
            return None
        dash = 1 if self.peek(1).kind == "dash" else 0
        ones = NUMBERS.get(self.word(1 + dash), 10)
        return (TENS[word] + ones, 2 + dash) if ones < 10 else (TENS[word], 1)

    def ordinal(self, ahead: int = 0) -> tuple[int, int] | None:
        """An ordinal and how many tokens it has: "3rd", "third", "twenty-first"."""
        number, after = self.whole(ahead), self.peek(ahead + 1)
        if number is not None:
            return (number, 2) if after.glued and after.text in ENDINGS else None
        word = self.word(ahead)
        if word in ORDINALS:
            return ORDINALS[word], 1
        dash = 1 if after.kind == "dash" else 0
        ones = ORDINALS.get(self.word(ahead + 1 + dash), 10)
        return (TENS[word] + ones, 2 + dash) if word in TENS and ones < 10 else None

    def to(self, ahead: int = 0) -> bool:
        """Whether "to", or a dash, is there."""
        return self.word(ahead) in TO or self.peek(ahead).kind == "dash"
