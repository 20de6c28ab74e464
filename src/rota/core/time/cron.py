"""Cron text: five fields, or six with seconds first, read into sets of numbers. Pure.

Owns the grammar and its error messages, which name the field, what it takes, and the column.
Knows no dates and no zones: `calendar` finds the wall times, `resolve` the instants.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple, NoReturn

from rota.core.plurals import counted
from rota.errors import BadSchedule

MONTH_NAMES = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
WEEKDAY_NAMES = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
MONTHS = tuple(name[:3].upper() for name in MONTH_NAMES)
WEEKDAYS = tuple(name[:3].upper() for name in WEEKDAY_NAMES)
FULL_NAMES = {name.upper(): name[:3].upper() for name in (*MONTH_NAMES, *WEEKDAY_NAMES)}


class CronField(NamedTuple):
    """One of the six places of an expression: its name and the values it takes."""

    name: str
    low: int
    high: int
    names: tuple[str, ...]
    takes: str

    @property
    def size(self) -> int:
        """How many different values there are; 7 is Sunday again."""
        return 7 if self.name == "day of week" else self.high - self.low + 1


_FORMS = "a list {0}, a range {1}, a step {2}, or *"
SECOND = CronField("second", 0, 59, (), "0-59: a value, " + _FORMS.format("0,30", "10-20", "*/15"))
MINUTE = CronField("minute", 0, 59, (), "0-59: a value, " + _FORMS.format("0,30", "10-20", "*/15"))
HOUR = CronField("hour", 0, 23, (), "0-23: a value, " + _FORMS.format("9,17", "9-17", "*/2"))
DAY = CronField(
    *("day of month", 1, 31, ()),
    "1-31: a value, " + _FORMS.format("1,15", "1-7", "*/2") + "; also L, L-3, LW, 15W and ?",
)
MONTH = CronField(
    *("month", 1, 12, MONTHS),
    "1-12 or JAN-DEC: a value, " + _FORMS.format("JAN,JUL", "JUN-AUG", "*/3"),
)
WEEKDAY = CronField(
    *("day of week", 0, 7, WEEKDAYS),
    "0-7 or SUN-SAT (0 and 7 are Sunday): a value, "
    + _FORMS.format("MON,THU", "MON-FRI", "*/2")
    + "; also FRIL, FRI#2 and ?",
)
PLACES = (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY)
_NUMBERED_DAY = re.compile(r"(?<![#/\d])\d", re.ASCII)  # not the 2 of FRI#2 or */2
_QUARTZ = (
    "beside ? a number may be that of Quartz (1 is Sunday) or of cron (1 is Monday); name the day"
)


class Item(NamedTuple):
    """One member of a list. The meaning of `first`, `last` and `step` depends on the kind.

    any, range: first to last by step, wrapping past the end. value: first. end: `first` days
    before the last of the month. near, near-end: the weekday nearest day `first`, or nearest
    the day `first` before the last. nth: the `last`-th weekday `first`. final: the last one.
    """

    kind: str
    first: int = 0
    last: int = 0
    step: int = 1


class Field(NamedTuple):
    """One place of an expression, read."""

    text: str  # normalised
    items: tuple[Item, ...]
    bits: int  # the plain values; Sunday is 0
    starred: bool  # begins with `*` or `?`, which decides how the two day fields combine
    stepping: bool  # holds a wildcard, a range or a step of more than one value

    @property
    def values(self) -> list[int]:
        """The plain values in rising order."""
        return [number for number in range(60) if self.bits >> number & 1]


class Cron(NamedTuple):
    """A whole expression, read."""

    text: str  # normalised; five fields when the seconds are a plain 0
    second: Field
    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

    @property
    def fixed(self) -> bool:
        """True when it names its times of day, rather than stepping through hour or minute."""
        return not (self.minute.stepping or self.hour.stepping)

    @property
    def meaning(self) -> tuple[object, ...]:
        """Equal for expressions that fire at the same times in every zone."""
        special = tuple(
            frozenset(item for item in one.items if item.kind not in ("any", "range", "value"))
            for one in (self.day, self.weekday)
        )
        either = not (self.day.starred or self.weekday.starred)
        return (*(one.bits for one in self[1:]), special, either, self.fixed)


ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class _Piece(NamedTuple):
    """A part of the expression, and where it is, so that an error can point at it."""

    expression: str
    column: int
    text: str
    place: CronField

    def part(self, start: int, text: str) -> _Piece:
        return self._replace(column=self.column + start, text=text)

    def refuse(self, what: str) -> NoReturn:
        pointer = " " * self.column + "^" * max(len(self.text), 1)
        raise BadSchedule(
            f"{self.place.name}: {what}\n    {self.expression}\n    {pointer}",
            hint=f"The {self.place.name} takes {self.place.takes}.",
            field=self.place.name,
            column=self.column,
            expression=self.expression,
        )


@lru_cache(maxsize=65_536)
def read_cron(text: str) -> Cron:
    """An expression read, or BadSchedule that points at what is wrong."""
    expression = " ".join(text.split())
    words = expression.split(" ") if expression else []
    if len(words) not in (5, 6):
        _refuse_count(expression, len(words))
    places = PLACES[6 - len(words) :]
    fields = []
    column = 0
    for word, place in zip(words, places, strict=True):
        try:
            fields.append(_field_alone(word, place))
        except BadSchedule:
            fields.append(_field(_Piece(expression, column, word, place)))  # Points at the place.
        column += len(word) + 1
    if len(words) == 6 and words[3] == "?" and _NUMBERED_DAY.search(words[-1]):
        _Piece(expression, column - len(words[-1]) - 1, words[-1], WEEKDAY).refuse(_QUARTZ)
    if len(fields) == 5:
        fields.insert(0, _field_alone("0", SECOND))
    shown = fields[1:] if fields[0].text == "0" else fields
    return Cron(" ".join(field.text for field in shown), *fields)


@lru_cache(maxsize=8_192)
def _field_alone(word: str, place: CronField) -> Field:
    """Many expressions share their fields, so that most are read once."""
    return _field(_Piece(word, 0, word, place))


def _refuse_count(expression: str, count: int) -> NoReturn:
    hint = "The order is: [second] minute hour day-of-month month day-of-week."
    if count == 7:
        hint += " There is no field for years: use an end time."
    raise BadSchedule(
        f"{expression!r} has {counted(count, 'field')}; cron has 5, or 6 with seconds first",
        hint=hint,
        expression=expression,
    )


def _field(piece: _Piece) -> Field:
    items: list[Item] = []
    texts: list[str] = []
    start = 0
    for text in piece.text.split(","):
        part = piece.part(start, text)
        if not text:
            part.refuse("an item of the list is empty")
        item, normal = _item(part)
        items.append(item)
        texts.append(normal)
        start += len(text) + 1
    numbers = [_numbers(item, piece.place) for item in items]
    bits = sum(1 << number for number in set().union(*numbers))
    stepping = any(len(each) > 1 for each in numbers)
    normal = ",".join(texts)
    return Field(normal, tuple(items), bits, normal.startswith("*"), stepping)


def _item(piece: _Piece) -> tuple[Item, str]:
    """One member of a list, and its normal form."""
    special = _special(piece)
    if special is not None:
        return special
    body, slash, step_text = piece.text.partition("/")
    step = _step(piece.part(len(body) + 1, step_text)) if slash else 1
    tail = f"/{step}" if slash else ""
    place = piece.place
    if body in ("*", "?"):
        if body == "?" and place not in (DAY, WEEKDAY):
            piece.part(0, body).refuse("? is for the two day fields; write * here")
        high = 6 if place is WEEKDAY else place.high
        return Item("any", place.low, high, step), f"*{tail}"
    first_text, dash, last_text = body.partition("-")
    first, first_normal = _value(piece.part(0, first_text))
    if dash:
        last, last_normal = _value(piece.part(len(first_text) + 1, last_text))
        return Item("range", first, last, step), f"{first_normal}-{last_normal}{tail}"
    if slash:
        high = 6 if place is WEEKDAY else place.high
        return Item("range", first % 7 if place is WEEKDAY else first, high, step), (
            f"{first_normal}{tail}"
        )
    return Item("value", first), first_normal


def _numbers(item: Item, place: CronField) -> list[int]:
    """The plain values of an item. A range that ends before it begins goes round the end."""
    if item.kind not in ("any", "range", "value"):
        return []
    if item.kind == "value":
        return [item.first % 7 if place is WEEKDAY else item.first]
    first, last = item.first, item.last
    if place is WEEKDAY and first == 7:
        first, last = 0, last % 7
    length = last - first if last >= first else last - first + place.size
    numbers = [first + step for step in range(0, length + 1, item.step)]
    return [(number - place.low) % place.size + place.low for number in numbers]


def _step(piece: _Piece) -> int:
    if not piece.text:
        piece.refuse("the step after / is missing")
    if not _is_number(piece.text):
        piece.refuse(f"{piece.text} is not a step; write a number after the /")
    step = int(piece.text)
    if step == 0:
        piece.refuse("a step of 0 goes nowhere")
    if step > piece.place.size:
        piece.refuse(f"a step of {step} is longer than the field, which has {piece.place.size}")
    return step


def _value(piece: _Piece) -> tuple[int, str]:
    """A number or a name, and its normal form."""
    text, place = piece.text.upper(), piece.place
    if not text:
        piece.refuse("a value is missing")
    if _is_number(text):
        number = int(text)
        if not place.low <= number <= place.high:
            extra = "; midnight is 0" if place is HOUR and number == 24 else ""
            piece.refuse(f"{text} is outside {place.low}-{place.high}{extra}")
        return number, str(number)
    name = FULL_NAMES.get(text, text)
    if name in place.names:
        return place.names.index(name) + place.low, name
    if place.names:
        piece.refuse(f"{piece.text} is neither a number nor a name such as {place.names[1]}")
    return piece.refuse(f"{piece.text} is not a number")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


def _special(piece: _Piece) -> tuple[Item, str] | None:
    """The forms that depend on the month: L, L-3, LW, L-3W, 15W, FRIL, FRI#2."""
    text = piece.text.upper()
    if piece.place is DAY:
        return _special_day(piece, text)
    if piece.place is WEEKDAY:
        return _special_weekday(piece, text)
    if text in ("L", "W", "LW"):
        piece.refuse(f"{text} is for the two day fields")
    return None


def _special_day(piece: _Piece, text: str) -> tuple[Item, str] | None:
    if text in ("L", "LW"):
        return Item("end" if text == "L" else "near-end"), text
    if text == "W":
        piece.refuse("W needs a day to be near to: 15W, or LW for the last weekday")
    near = text.endswith("W")
    digits = text.removesuffix("W")
    if text.startswith("L-"):
        count = piece.part(2, digits[2:])
        if not _is_number(count.text) or int(count.text) > 30:
            count.refuse("L-n counts back from the last day; n is 0 to 30")
        back = int(count.text)
        return Item("near-end" if near else "end", back), f"L-{back}{'W' if near else ''}"
    if near:
        if not _is_number(digits):
            piece.refuse("W goes with one day, as in 15W")
        number, normal = _value(piece.part(0, digits))
        return Item("near", number), f"{normal}W"
    if "L" in text or "#" in text:
        piece.refuse(f"{piece.text} is not a day of the month")
    return None


def _special_weekday(piece: _Piece, text: str) -> tuple[Item, str] | None:
    if text == "L":
        piece.refuse("L alone could mean Saturday or Sunday; name the day, as in FRIL or 5L")
    body, hash_sign, count = text.partition("#")
    if hash_sign:
        number, normal = _value(piece.part(0, body))
        if count not in ("1", "2", "3", "4", "5"):
            piece.part(len(body) + 1, count).refuse("the number after # is 1 to 5")
        return Item("nth", number % 7, int(count)), f"{normal}#{count}"
    name = text.removesuffix("L")
    if text.endswith("L") and (name in WEEKDAYS or name in FULL_NAMES or _is_number(name)):
        number, normal = _value(piece.part(0, name))
        return Item("final", number % 7), f"{normal}L"
    if text.endswith("W"):
        piece.refuse("W is for the day of month; MON-FRI are the weekdays")
    return None
