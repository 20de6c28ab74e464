"""The meaning of a schedule text and its occurrences, before there is a schedule. Needs no
database.

Also owns how people write a time (`2027-03-28T02:30`, `2027-03-28`, `02:30`) and how they read one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, time
from typing import NamedTuple

from rota.client.schedule_view import Occurrence, ScheduleView, next_of
from rota.core.schedules.intent import Intent
from rota.core.time.describe import describe
from rota.core.time.instants import DAY, clock_text, instant, moment
from rota.core.time.recurrence import Remark, Spec, Timing, parse, skipped_between
from rota.core.time.zones import zone_named
from rota.engine.clock import SystemClock
from rota.errors import BadInput, RotaError
from rota.schedules.asked_time import said_time
from rota.schedules.host_zone import zone_or_host
from rota.schedules.wall_time import to_instant

REMARKS_MAX = 20


class Preview(NamedTuple):
    """A schedule text understood."""

    spec: Spec
    text: str  # in plain English
    forms: list[str]  # what it is kept as: cron, intervals, instants
    zone: str
    now: int
    occurrences: list[Occurrence]
    remarks: list[Remark]  # moves of the clock that no occurrence above reports


def look_ahead(
    words: Sequence[str],
    *,
    zone: str | None = None,
    start: str | None = None,
    count: int = 5,
    gap: str = "auto",
    repeat: str = "auto",
    now: int | None = None,
) -> Preview:
    """The next occurrences of an expression, from now or from `start`."""
    zone = zone_or_host(zone)
    zone_named(zone)
    now = SystemClock().now() if now is None else now
    # An occurrence at the very instant asked for is wanted, too.
    after = now if start is None else to_instant(read_time(start, zone, now), zone) - 1
    spec = parse(
        read_when(words, zone=zone), zone=zone, now=after, gap=gap, repeat=repeat,
        anchor_at=None if start is None else after + 1,
    )  # fmt: skip
    found = next_of("", Intent("", spec, ""), after, count)
    last = instant(found[-1].due_at)
    noted = [instant(one.due_at) for one in found if one.notes]
    remarks = [
        remark
        for remark in skipped_between(spec, after, last, REMARKS_MAX)
        if not any(abs(at - remark.at) < DAY for at in noted)
    ]
    forms = [form_of(timing) for timing in spec.timings]
    return Preview(spec, describe(spec), forms, zone, now, found, remarks)


def form_of(timing: Timing) -> str:
    """The stored form of a timing, as short as possible."""
    if timing.cron is not None:
        return timing.cron
    if timing.every_us is not None:
        return describe(Spec((timing,)))
    return moment(timing.at or 0).astimezone(zone_named(timing.zone)).isoformat()


def reading(shown: ScheduleView) -> str:
    """How a schedule was understood: what was written, its forms, English, the next occurrence."""
    spec = shown.intent.spec
    forms = "; ".join(form_of(timing) for timing in spec.timings)
    kept = "" if forms in (shown.intent.text, shown.text) else f" [{forms}]"
    at = shown.schedule.due_at
    upcoming = "" if at is None else f"; next {wall(at, zone_of(spec))}"
    return f'"{shown.intent.text}" means: {shown.text}{kept}{upcoming}'


# -- what people write -------------------------------------------------------------------------


def read_when(words: Sequence[str], *, zone: str) -> str | list[str]:
    """Words of a command line as one text or as several: `weekdays at 9:30` needs no quotes.

    Words with spaces in them were quoted, so each is a timing of its own.
    """
    if len(words) == 1 or any(" " in word.strip() for word in words):
        return words[0] if len(words) == 1 else list(words)
    joined = " ".join(words)
    try:
        _understood(joined, zone)
    except RotaError as error:
        try:
            _understood(list(words), zone)
        except RotaError:
            # A star that the shell replaced by file names is the usual reason.
            if len(words) > 5 and words[0][:1] in "0123456789*":
                error.advice = f'{error.advice} Put cron in quotes: "0 9 * * *".'
            raise error from None
        return list(words)
    return joined


def _understood(when: str | list[str], zone: str) -> None:
    parse(when, zone=zone, now=0, sub_second=True)


def read_time(text: str, zone: str, now: int) -> datetime:
    """A written time; without an offset it is wall time, and stays naive.

    A time of day alone means today, in `zone`; `9am` and `yesterday 9:00` are read, too.
    """
    said = said_time(text, zone, now)
    if said is not None:
        return said
    written = text.strip().replace(" ", "T", 1)
    try:
        if ":" in written and "-" not in written.partition(":")[0] and "T" not in written:
            today = moment(now).astimezone(zone_named(zone)).date()
            return datetime.combine(today, time.fromisoformat(written))
        return datetime.fromisoformat(written)
    except ValueError as error:
        raise BadInput(
            f"{text!r} is not a time",
            hint="Write 2027-03-28T02:30, 2027-03-28, 02:30 or 9am (today), or yesterday 9:00; "
            "with an offset as +02:00 or Z, or as wall time in the schedule's zone.",
        ) from error


def time_in(text: str, zone: str, now: int) -> datetime:
    """A written time; without an offset it is wall time in the zone."""
    return moment(to_instant(read_time(text, zone, now), zone))


# -- what people read --------------------------------------------------------------------------


def wall(at: int, zone: str) -> str:
    """An instant on the wall of a zone: `Sun 2027-03-28 03:00 CEST`."""
    local = moment(at).astimezone(zone_named(zone))
    return f"{local:%a %Y-%m-%d} {clock_text(local)} {zone_label(local)}"


def zone_label(local: datetime) -> str:
    """`CET`, or `UTC+05` where the zone has no letters."""
    name = local.tzname() or ""
    return f"UTC{name}" if name[:1] in "+-" else name


def utc(at: int) -> str:
    """An instant in UTC: `2027-03-28 01:00Z`."""
    when = moment(at)
    return f"{when:%Y-%m-%d} {clock_text(when)}Z"


def zone_of(spec: Spec) -> str:
    """The zone of a schedule's wall times; UTC when it has none that is known."""
    try:
        zone_named(spec.timings[0].zone)
        return spec.timings[0].zone
    except (IndexError, RotaError):
        return "UTC"
