"""The effect of clock changes on a spec, as text for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import NamedTuple

from rota.core.time.calendar import Walls
from rota.core.time.cron import read_cron
from rota.core.time.dst import DAY_S, OffsetChange, changes_between, offset_at
from rota.core.time.instants import SECOND, clock_text
from rota.core.time.occurrences import times_of
from rota.core.time.resolve import rule_of
from rota.core.time.spec import Spec, Timing
from rota.core.time.zones import zone_named

YEARS_MAX = 100  # No preview reaches further ahead than this.
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Remark(NamedTuple):
    """One clock change that affects a spec."""

    at: int  # when the clock is moved
    kind: str  # "gap": wall times do not exist; "repeat": they happen twice
    text: str


def notes(spec: Spec, at: int) -> list[str]:
    """Remarks about one occurrence: that it was moved out of a gap, or that it comes twice."""
    texts: dict[str, None] = {}
    second = at // SECOND
    for timing in spec.timings:
        if timing.every_us is not None or not times_of(timing).count(at - 1, at):
            continue
        for change in changes_between(timing.zone, second - DAY_S, second + DAY_S + 1):
            text = _note(timing, change, second)
            if text:
                texts[text] = None
    return list(texts)


def skipped_between(spec: Spec, after: int, until: int, limit: int) -> list[Remark]:
    """The clock changes with after < at <= until that drop, shift or double wall times."""
    start = after // SECOND + 1
    stop = min(until // SECOND + 1, start + YEARS_MAX * 366 * DAY_S)
    remarks: list[Remark] = []
    for timing in spec.timings:
        if timing.cron is not None:
            remarks.extend(islice(_affecting(timing, start, stop), limit))
    return sorted(dict.fromkeys(remarks))[:limit]


def _affecting(timing: Timing, start: int, stop: int) -> Iterator[Remark]:
    while start < stop:  # Year by year, so that a short answer does not search far.
        until = min(start + 366 * DAY_S, stop)
        for change in changes_between(timing.zone, start, until):
            text = _change_text(timing, change)
            if text:
                kind = "gap" if change.gap else "repeat"
                yield Remark(change.at * SECOND, kind, text)
        start = until


def _note(timing: Timing, change: OffsetChange, second: int) -> str | None:
    if change.gap:
        if second != change.at or timing.cron is None:
            return None
        return _change_text(timing, change)
    wall = second + offset_at(zone_named(timing.zone), second)
    low, high = change.walls
    if not low <= wall < high:
        return None
    which = "first" if second < change.at else "second"
    rule = "both" if timing.cron is None else _rule(timing)[1]
    ending = f"this is the {which}" if rule == "both" else f"runs the {which} time only"
    return f"{_one(wall, 'happens twice', timing.zone)}; {ending}"


def _rule(timing: Timing) -> tuple[str, str]:
    return rule_of(read_cron(timing.cron or ""), timing.gap, timing.repeat)


def _change_text(timing: Timing, change: OffsetChange) -> str | None:
    """The outcome of the wall times that this clock change skips or repeats."""
    low, high = change.walls
    walls = Walls(read_cron(timing.cron or ""))
    count = walls.count(low, high)
    if not count:
        return None
    first, last = walls.at_or_after(low), walls.at_or_before(high - 1)
    assert first is not None
    assert last is not None
    gap, repeat = _rule(timing)
    verb = ("does not exist", "do not exist") if change.gap else ("happens twice", "happen twice")
    if count == 1:
        text = _one(first, verb[0], timing.zone)
    else:
        text = f"{count} times from {_one(last, verb[1], timing.zone, since=first)}"
    return f"{text}; {_outcome(change, gap if change.gap else repeat, count, first)}"


def _outcome(change: OffsetChange, rule: str, count: int, first: int) -> str:
    if change.gap and rule == "skip":
        return "not run" if count == 1 else "not run: the clock is moved past them"
    if change.gap:
        lands = change.at + change.now
        same_day = lands // DAY_S == first // DAY_S
        shown = _clock(lands) if same_day else f"{_clock(lands)} on {_date(lands)}"
        return f"runs {'' if count == 1 else 'once, '}at {shown} instead"
    verb = "runs" if count == 1 else "each runs"
    return f"{verb} both times" if rule == "both" else f"{verb} the {rule} time only"


def _one(wall: int, verb: str, zone: str, since: int | None = None) -> str:
    clock = _clock(wall) if since is None else f"{_clock(since)} to {_clock(wall)}"
    return f"{clock} {verb} on {_date(wall)} in {zone}"


def _clock(wall: int) -> str:
    return clock_text(_EPOCH + timedelta(seconds=wall))


def _date(wall: int) -> str:
    return f"{_EPOCH + timedelta(seconds=wall):%Y-%m-%d}"
