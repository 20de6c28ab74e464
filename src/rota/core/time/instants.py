"""Instants and durations: integer microseconds, UTC, everywhere inside Rota.

Owns the one codec between people's times and ours. Never reads a clock.
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

_UNITS = {"us": 1, "ms": 1_000, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY}
_PART = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|d|w)")
_EXAMPLES = 'Write "90s", "5m", "1h30m", "24h" or "2d", or a number of seconds.'
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(duration: Duration) -> int:
    """`"1h30m"`, seconds as a number, or a timedelta, as microseconds."""
    if isinstance(duration, timedelta):
        return duration // timedelta(microseconds=1)
    if isinstance(duration, int | float) and not isinstance(duration, bool):
        if not math.isfinite(duration):
            raise BadInput(f"{duration!r} is not a duration", hint=_EXAMPLES)
        return round(duration * SECOND)
    text = str(duration).strip().lower().replace(" ", "")
    parts = list(_PART.finditer(text))
    if not parts or "".join(part.group(0) for part in parts) != text:
        raise BadInput(f"{duration!r} is not a duration", hint=_EXAMPLES)
    total = sum(float(part.group(1)) * _UNITS[part.group(2)] for part in parts)
    if not math.isfinite(total):
        raise BadInput(f"{duration!r} is not a duration", hint=_EXAMPLES)
    return round(total)


def timeout_micros(timeout: Duration) -> int:
    """A timeout of a step or a run as microseconds; it must leave some time."""
    limit_us = micros(timeout)
    if limit_us <= 0:
        raise BadInput(
            f"timeout={timeout!r} leaves no time",
            hint='Give a time above zero, such as "30s"; leave it out for no timeout.',
        )
    return limit_us


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
    if moment.tzinfo is None:
        raise BadInput(
            f"{moment!r} has no time zone",
            hint="Use an aware datetime, for example datetime.now(UTC).",
        )
    return (moment - _EPOCH) // timedelta(microseconds=1)


def moment(at: int) -> datetime:
    """Microseconds since the epoch as an aware datetime in UTC."""
    return _EPOCH + timedelta(microseconds=at)


def iso(at: int) -> str:
    """Microseconds since the epoch as ISO 8601 in UTC, for people and JSON."""
    return moment(at).isoformat(timespec="milliseconds").replace("+00:00", "Z")
