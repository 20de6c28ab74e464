"""Instants and durations: integer microseconds, UTC, everywhere inside Rota.

Owns the one codec between people's times and ours, and the bounds of both: every instant that Rota
stores lies between `FIRST` and `LAST`. Never reads a clock.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta

from rota.errors import BadInput

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

Duration = str | int | float | timedelta

# Python's calendar ends with the year 9999; a time zone may move an instant by a day.
FIRST, LAST = 0, 253_370_764_800 * SECOND - 1  # 1970-01-01 and the end of 9998, in UTC
DURATION_MAX = LAST

_UNITS = {"us": 1, "ms": 1_000, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(us|ms|s|m|h|d|w)")
# Longer texts are not durations. The bound also keeps the search for parts short.
_TEXT_CHARS_MAX = 100
_NUMBER = re.compile(r"\d{1,15}(\.\d{1,6})?")
_EXAMPLES = 'Write "90s", "5m", "1h30m", "24h" or "2d"; in Python also a number, in seconds.'
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(duration: Duration) -> int:
    """`"1h30m"`, seconds as a number, or a timedelta, as microseconds."""
    if isinstance(duration, timedelta):
        duration_us = duration // timedelta(microseconds=1)
    elif isinstance(duration, int | float) and not isinstance(duration, bool):
        duration_us = _micros_of_number(duration)
    else:
        duration_us = _micros_of_text(duration)
    if abs(duration_us) > DURATION_MAX:
        raise BadInput(
            f"a duration of {shown(duration)} is too long",
            hint=f"The longest duration is {DURATION_MAX // DAY:,}d.",
        )
    return duration_us


def _micros_of_number(seconds: float) -> int:
    if isinstance(seconds, int):
        return seconds * SECOND
    if not math.isfinite(seconds):
        raise _not_a_duration(seconds)
    return round(min(max(seconds, -DURATION_MAX), DURATION_MAX) * SECOND)


def _micros_of_text(duration: object) -> int:
    text = str(duration).strip().lower().replace(" ", "") if isinstance(duration, str) else ""
    parts = list(_PART.finditer(text)) if len(text) <= _TEXT_CHARS_MAX else []
    if not parts or "".join(part.group(0) for part in parts) != text:
        raise _not_a_duration(duration)
    return round(sum(float(part.group(1)) * _UNITS[part.group(2)] for part in parts))


def timeout_micros(timeout: Duration, name: str = "timeout") -> int:
    """A timeout of a step or a run as microseconds; it must leave some time."""
    hint = f'Give a time above zero, such as "30s"; leave it out for no {name}.'
    return _at_least(1, timeout, "leaves no time", hint, name)


def patience_micros(timeout: Duration) -> int:
    """How long a caller waits for something, as microseconds; zero checks once."""
    hint = 'Give a time such as "30s"; 0 checks once; leave it out to wait without end.'
    return _at_least(0, timeout, "lies in the past", hint)


def _at_least(
    least_us: int, timeout: Duration, wrong: str, hint: str, name: str = "timeout"
) -> int:
    limit_us = micros(timeout)
    if limit_us < least_us:
        raise BadInput(f"{name}={timeout!r} {wrong}", hint=hint)
    return limit_us


def _not_a_duration(duration: object) -> BadInput:
    if isinstance(duration, str) and _NUMBER.fullmatch(duration.strip()):
        number = duration.strip()
        return BadInput(
            f"{shown(duration)} is a duration without a unit",
            hint=f'Write "{number}s" for seconds, or "{number}m", "{number}h", "1h30m".',
        )
    return BadInput(f"{shown(duration)} is not a duration", hint=_EXAMPLES)


def shown(value: object) -> str:
    """A value for an error message, cut to its beginning if it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python prints no integer of more than 4,300 digits
        return f"a {type(value).__name__} with a huge number"
    return text if len(text) <= _TEXT_CHARS_MAX else f"{text[:_TEXT_CHARS_MAX]}…"


def span(duration_us: int) -> str:
    """A duration for people: the two largest units that matter."""
    if abs(duration_us) < SECOND:
        return f"{duration_us / 1000:.0f}ms"
    words: list[str] = []
    rest = abs(duration_us)
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(rest, _UNITS[unit])
        if count:
            words.append(f"{count}{unit}")
    return ("-" if duration_us < 0 else "") + "".join(words[:2])


def instant(moment: datetime) -> int:
    """An aware datetime as microseconds since the epoch."""
    if getattr(moment, "tzinfo", None) is None:
        wrong = "has no time zone" if isinstance(moment, datetime) else "is not a datetime"
        raise BadInput(
            f"{moment!r} {wrong}", hint="Use an aware datetime, for example datetime.now(UTC)."
        )
    return (moment - _EPOCH) // timedelta(microseconds=1)


def bounded(at: int, asked: str) -> int:
    """An instant that a caller asks for (`asked`, in the caller's words); BadInput if too far."""
    if not FIRST <= at <= LAST:
        raise BadInput(
            f"{asked} is too far away", hint="Give a time between the years 1970 and 9998."
        )
    return at


def after(now: int, duration_us: int) -> int:
    """The instant that long after now, clamped: no instant outside of the bounds is stored."""
    return min(max(now + duration_us, FIRST), LAST)


def moment(at: int) -> datetime:
    """Microseconds since the epoch as an aware datetime in UTC.

    An instant that the calendar does not have becomes the nearest one that it has, so that one odd
    row does not break a listing.
    """
    try:
        return _EPOCH + timedelta(microseconds=at)
    except OverflowError:
        return _EPOCH + timedelta(microseconds=LAST if at > 0 else FIRST)


def clock_text(moment: datetime) -> str:
    """The time of day, with seconds only if there are some: `09:30`, `09:30:15`."""
    return f"{moment:%H:%M:%S}" if moment.second else f"{moment:%H:%M}"


def iso(at: int) -> str:
    """Microseconds since the epoch as ISO 8601 in UTC, for people and JSON."""
    return moment(at).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def iso_if_known(at: int | None) -> str | None:
    """The same for an instant that may be missing."""
    return None if at is None else iso(at)
