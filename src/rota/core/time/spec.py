"""The timing of a schedule, as intent: wall times with their zone, never only instants."""

from __future__ import annotations

import msgspec

GAPS = ("auto", "next", "skip")
REPEATS = ("auto", "first", "second", "both")


class Timing(msgspec.Struct, frozen=True, omit_defaults=True):
    """One of: a cron expression, an interval, or one instant. Exactly one of the three is set."""

    cron: str | None = None  # normalised text
    every_us: int | None = None  # elapsed time, counted from anchor_at
    anchor_at: int = 0
    at: int | None = None
    zone: str = "UTC"  # IANA name; what cron is read in, and what people are shown
    gap: str = "auto"  # a wall time that does not exist: auto | next | skip
    repeat: str = "auto"  # a wall time that happens twice: auto | first | second | both


class Spec(msgspec.Struct, frozen=True, omit_defaults=True):
    """Several timings in one. An instant that two of them name is one occurrence."""

    timings: tuple[Timing, ...]
    start_at: int | None = None  # earlier occurrences do not count
    end_at: int | None = None  # later occurrences do not count
