"""How the dashboard writes numbers, durations, times and stored values. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

import msgspec

from rota.core.redaction import REDACTED, shown
from rota.core.time.instants import DAY, HOUR, MINUTE, SECOND, iso, moment
from rota.core.time.zones import zone_named
from rota.schedules.preview import zone_label

MISSING = "–"
VALUE_CHARS_MAX = 2_000
LONG_CHARS = 1_200
TREE_FIELDS_MAX = 50
TREE_DEPTH_MAX = 4


def number(value: float | None) -> str:
    """`9,871`; a missing value is a dash."""
    if value is None:
        return MISSING
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def percent(part: float, whole: float) -> str:
    """A share for people: `0.17 %`, `38 %`."""
    if not whole:
        return MISSING
    share = 100 * part / whole
    return f"{share:.0f} %" if share >= 10 or share == 0 else f"{share:.2g} %"


def money(dollars: float | None) -> str:
    """`$1.84`, `$0.0051`, `$0`."""
    if dollars is None:
        return MISSING
    if dollars == 0:
        return "$0"
    return f"${dollars:,.4f}" if abs(dollars) < 0.1 else f"${dollars:,.2f}"


def tokens(count: int) -> str:
    """`5,310`, `612 k`, `1.2 M`."""
    if count < 10_000:
        return number(count)
    return f"{count / 1000:,.0f} k" if count < 1_000_000 else f"{count / 1_000_000:,.1f} M"


def counted(count: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number(count)} {noun}" + ("" if count == 1 else "s")


def sentence(clause: str) -> str:
    """A clause as a sentence: `It waits.` for `it waits`."""
    return f"{clause[:1].upper()}{clause[1:]}".rstrip(".") + "."


def duration(duration_us: int | None) -> str:
    """How long something took: `92 ms`, `48.2 s`, `6 min 12 s`, `1 h 04 min`, `2 days 3 h`."""
    if duration_us is None:
        return MISSING
    us = max(0, duration_us)
    if us < SECOND:
        return f"{round(us / 1000)} ms"
    if us < 10 * SECOND:
        return f"{us / SECOND:.2f} s"
    if us < MINUTE:
        return f"{us / SECOND:.1f} s"
    if us < HOUR:
        return f"{us // MINUTE} min {us % MINUTE // SECOND:02} s"
    if us < DAY:
        return f"{us // HOUR} h {us % HOUR // MINUTE:02} min"
    return f"{us // DAY} d {us % DAY // HOUR} h"


def rough(duration_us: int) -> str:
    """A distance in time, one unit: `48 s`, `11 min`, `7 h`, `2 days`. Far ones in two units."""
    us = abs(duration_us)
    if us < MINUTE:
        return f"{us // SECOND} s"
    if us < HOUR:
        return f"{us // MINUTE} min"
    if us < 6 * HOUR and us % HOUR >= MINUTE:
        return f"{us // HOUR} h {us % HOUR // MINUTE} min"
    if us < 2 * DAY:
        return f"{us // HOUR} h"
    return f"{us // DAY} days"


def took(begin_us: int | None, end_us: int | None) -> str:
    """The duration between two instants, if both are known."""
    return MISSING if begin_us is None or end_us is None else duration(end_us - begin_us)


def segment(name: str) -> str:
    """A name as one segment of an address."""
    return quote(name, safe="")


def schedule_href(name: str) -> str:
    """The page of a schedule."""
    return f"/schedules/{segment(name)}"


def automation_href(name: str) -> str:
    """The page of an automation."""
    return f"/automations/{segment(name)}"


def city(zone: str) -> str:
    """A zone for people: `New York` for America/New_York."""
    return zone.rpartition("/")[2].replace("_", " ")


@dataclass(frozen=True)
class Stamp:
    """An instant as a page shows it."""

    iso: str
    ago: str  # `11 min ago`, `in 43 min`
    age: str  # `11 min`
    clock: str  # `14:32:08`
    day: str  # `Mon 16 Nov 14:32`
    title: str  # exact, in the reader's zone and in UTC


class WallClock:
    """Writes instants for one reader: a zone, and the instant of the page."""

    def __init__(self, zone: str, now: int) -> None:
        self.zone = zone
        self.now = now
        self._zone = zone_named(zone)

    def local(self, at: int) -> datetime:
        """The instant on this wall clock."""
        return moment(at).astimezone(self._zone)

    def stamp(self, at: int | None) -> Stamp | None:
        """All forms of an instant."""
        if at is None:
            return None
        local, age = self.local(at), self.now - at
        if abs(age) < SECOND:
            ago = "now"
        else:
            ago = f"{rough(age)} ago" if age > 0 else f"in {rough(age)}"
        exact = f"{local:%a %-d %b %Y %H:%M:%S} {zone_label(local)} · {moment(at):%H:%M:%S} UTC"
        return Stamp(iso(at), ago, rough(age), f"{local:%H:%M:%S}", self.day(at), exact)

    def day(self, at: int) -> str:
        """`14:32` today, `Mon 14:32` this week, `Mon 9 Nov 14:32` otherwise."""
        local, today = self.local(at), self.local(self.now)
        clock = f"{local:%H:%M}" if local.second == 0 else f"{local:%H:%M:%S}"
        if local.date() == today.date():
            return clock
        if abs((local.date() - today.date()).days) < 7:
            return f"{local:%a} {clock}"
        year = "" if local.year == today.year else f"{local: %Y}"
        return f"{local:%a %-d %b}{year} {clock}"


# -- stored values -------------------------------------------------------------------------------


@dataclass(frozen=True)
class ValueField:
    """One field of a stored value: a text, or further fields."""

    name: str
    text: str
    fields: tuple[ValueField, ...] = ()
    kind: str = "text"  # text | tree | redacted | more


@dataclass(frozen=True)
class Value:
    """A stored JSON value, as a page shows it: fields where it has some, a text otherwise."""

    text: str
    fields: tuple[ValueField, ...] = ()
    is_empty: bool = False
    is_long: bool = False  # shown in a frame of its own that scrolls


def stored_value(text: str | None) -> Value:
    """A stored JSON text as fields or as text."""
    if text is None or text in ("", "null", "{}", "[]"):
        return Value("", is_empty=True)
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return Value(_cut(text))
    value = shown(value)
    # Calls are stored as {"args": […], "kwargs": {…}} or as one of them; see `typed`.
    if isinstance(value, dict | list):
        return Value("", fields=_fields(value, 1), is_long=len(text) > LONG_CHARS)
    return Value(_plain(value))


def form_text(text: str | None) -> str:
    """A stored JSON text for a field that a person edits: whole, because it is sent back."""
    if text is None or text in ("", "null", "{}", "[]"):
        return ""
    try:
        return pretty(shown(msgspec.json.decode(text)))
    except (msgspec.DecodeError, RecursionError):
        return text


def pretty(value: Any) -> str:
    """JSON over several rows."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _fields(value: dict[str, Any] | list[Any], depth: int) -> tuple[ValueField, ...]:
    pairs = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    fields = [_field(str(name), field, depth) for name, field in pairs[:TREE_FIELDS_MAX]]
    if len(pairs) > TREE_FIELDS_MAX:
        fields.append(ValueField("…", f"{number(len(pairs) - TREE_FIELDS_MAX)} more", kind="more"))
    return tuple(fields)


def _field(name: str, value: Any, depth: int) -> ValueField:
    if value == REDACTED:
        return ValueField(name, "redacted", kind="redacted")
    if isinstance(value, dict | list) and value:
        simple = isinstance(value, list) and len(value) <= 8
        if simple and all(isinstance(item, str | int | float | bool) for item in value):
            return ValueField(name, _cut(", ".join(_plain(item) for item in value)))
        if depth < TREE_DEPTH_MAX:
            return ValueField(name, "", fields=_fields(value, depth + 1), kind="tree")
        return ValueField(name, _cut(msgspec.json.encode(value).decode()))
    return ValueField(name, _plain(value))


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return _cut(value)
    return _cut(msgspec.json.encode(value).decode())


def _cut(text: str) -> str:
    if len(text) <= VALUE_CHARS_MAX:
        return text
    return f"{text[:VALUE_CHARS_MAX]}… ({number(len(text))} characters)"


def clipped(text: str, width: int) -> str:
    """The beginning of a text, on one row."""
    row = " ".join(text.split())
    return row if len(row) <= width else row[: width - 1] + "…"


# -- sentences with commands and ids in them ------------------------------------------------------

_PIECES = re.compile(r"`([^`]+)`|(?<!worker )\b([0-9a-f]{32})\b|\b([0-9a-f]{32})\b")


@dataclass(frozen=True)
class TextPart:
    """A part of a sentence: plain words, a command to type, the id of a run or of a worker."""

    kind: str  # words | code | run | worker
    text: str


def text_parts(sentence: str) -> Sequence[TextPart]:
    """A sentence cut into words, commands (between backticks) and ids of runs."""
    parts, at = [], 0
    for piece in _PIECES.finditer(sentence):
        if piece.start() > at:
            parts.append(TextPart("words", sentence[at : piece.start()]))
        kinds = zip(("code", "run", "worker"), piece.groups(), strict=True)
        parts += [TextPart(kind, text) for kind, text in kinds if text]
        at = piece.end()
    if at < len(sentence):
        parts.append(TextPart("words", sentence[at:]))
    return parts
