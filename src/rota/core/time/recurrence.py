"""Schedules in time: what people write → a Spec → its occurrences. Pure.

The entry point of this folder. Owns the reading of one schedule text or several. The grammar of
cron is in `cron`, that of words in `phrases`. Wall times become instants in `resolve`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NoReturn

from rota.core.time.calendar import Walls
from rota.core.time.cron import ALIASES, FULL_NAMES, MONTHS, WEEKDAYS, Cron, read_cron
from rota.core.time.dst import FIRST_S, LAST_S, changes_between
from rota.core.time.dst_notes import Remark, notes, skipped_between
from rota.core.time.instants import SECOND, Duration, instant, iso, micros, span
from rota.core.time.occurrences import (
    between,
    check,
    count_between,
    next_after,
    previous_before,
    times_of,
)
from rota.core.time.phrase_tokens import LENGTH_MAX
from rota.core.time.phrases import understand
from rota.core.time.spec import GAPS, REPEATS, Spec, Timing
from rota.core.time.zones import place_named, zone_named
from rota.errors import BadInput, BadSchedule

__all__ = [
    "Remark",
    "Spec",
    "Timing",
    "Written",
    "between",
    "check",
    "count_between",
    "next_after",
    "notes",
    "parse",
    "previous_before",
    "skipped_between",
]

Written = str | timedelta | datetime | Timing
TIMINGS_MAX = 100

_DATE = re.compile(r"\d{4}-?\d{2}-?\d{2}")
_DURATION = re.compile(r"(?:\d{1,18}(?:\.\d{1,18})?(?:us|ms|s|m|h|d|w)\s*)+", re.I | re.ASCII)
_UNIT = re.compile(r"us|ms|[smhdw]", re.I | re.ASCII)
_UNITS_FALLING = ("w", "d", "h", "m", "s", "ms", "us")
_BIG_M = re.compile(r"(?<![\w.])(\d[\d.]*) ?M\b", re.ASCII)
_LARGER_UNIT = re.compile(r"\d ?[wdh]\s*$", re.I | re.ASCII)
_ZONE_PREFIX = re.compile(r"(?:CRON_)?TZ=\S*", re.IGNORECASE)
_NAMES = "|".join((*MONTHS, *WEEKDAYS, *FULL_NAMES))
_CRON_WORD = re.compile(rf"(?:[\d*?,/#LW-]|{_NAMES})+", re.I | re.ASCII)
_NUMERIC = re.compile(r"[\d*?,/-]+", re.ASCII)


def parse(
    text_or_list: Written | Iterable[Written],
    *,
    zone: str,
    now: int,
    anchor_at: int | None = None,
    gap: str = "auto",
    repeat: str = "auto",
    start_at: int | None = None,
    end_at: int | None = None,
    sub_second: bool = False,
) -> Spec:
    """One or several schedules as a Spec, or BadSchedule or UnknownZone that says what is wrong.

    Takes cron, @aliases, intervals, times (ISO text or datetime; without an offset they are wall
    time in `zone`), words, Timings, and lists of these. Intervals count from `anchor_at`, otherwise
    from `start_at`, otherwise from `now`. `sub_second` allows intervals of less than one second.
    """
    place_named(zone)
    _check_options(gap, repeat, start_at, end_at)
    written = _listed(text_or_list)
    if anchor_at is None:
        anchor_at = start_at if start_at is not None else now - now % SECOND
    plain = Timing(anchor_at=anchor_at, zone=zone, gap=gap, repeat=repeat)
    timings: list[Timing] = []
    for each in written:
        timings.extend(_timings(each, plain))
    for timing in timings:
        _check_timing(timing, now, sub_second)
    spec = Spec(tuple(dict.fromkeys(timings)), start_at, end_at)
    if next_after(spec, now) is None:
        _refuse_past(spec, now)
    return spec


def _listed(text_or_list: Written | Iterable[Written]) -> list[Written]:
    if isinstance(text_or_list, str | timedelta | datetime | Timing):
        return [text_or_list]
    if not isinstance(text_or_list, Iterable):
        raise _not_a_schedule(text_or_list)
    written = list(text_or_list)
    if not 1 <= len(written) <= TIMINGS_MAX:
        raise BadSchedule(
            f"a schedule has 1 to {TIMINGS_MAX} timings; this has {len(written)}",
            hint="Make several schedules of it." if written else None,
        )
    return written


def _check_options(gap: str, repeat: str, start_at: int | None, end_at: int | None) -> None:
    for name, rule, rules in (("gap", gap, GAPS), ("repeat", repeat, REPEATS)):
        if rule not in rules:
            raise BadSchedule(
                f"{name}={rule!r} is not a rule", hint=f"Use one of: {', '.join(rules)}."
            )
    if start_at is not None and end_at is not None and end_at < start_at:
        raise BadSchedule(
            f"the schedule would end ({iso(end_at)}) before it starts ({iso(start_at)})",
            hint="Swap the two, or leave one out.",
        )


def _timings(written: object, plain: Timing) -> list[Timing]:
    """The timings of one expression."""
    if isinstance(written, Timing):
        zone_named(written.zone)
        return [written]
    if isinstance(written, timedelta):
        return [_every(plain, _interval(written))]
    if isinstance(written, datetime):
        return _once(plain, written, str(written))
    if isinstance(written, str):
        return _timings_of_text(" ".join(written.split()), plain)
    raise _not_a_schedule(written)


def _interval(written: Duration, before: str = "") -> int:
    try:
        return micros(written)
    except BadInput as error:
        raise BadSchedule(f"{before}{error.message}", hint=error.advice) from error


def _timings_of_text(text: str, plain: Timing) -> list[Timing]:
    if not text:
        raise BadSchedule("the schedule is empty")
    if len(text) > LENGTH_MAX:
        raise BadSchedule(
            f"a schedule of {len(text)} characters is too long; it has at most {LENGTH_MAX}",
            hint="Give several timings as a list.",
        )
    _refuse_big_m(text)
    if text.startswith("@"):
        return [_alias(plain, text)]
    if _DURATION.fullmatch(text):
        _refuse_two_intervals(text)
        return [_every(plain, _interval(text))]
    if _DATE.match(text):
        return _once(plain, _moment(text), text)
    if _ZONE_PREFIX.match(text):
        raise BadSchedule(
            f"{text!r} begins with a time zone",
            hint="Give the zone on its own: --timezone Europe/Berlin, or timezone= in code.",
        )
    if _looks_like_cron(text):
        return [_cron(plain, text)]
    return [_every(plain, m) if isinstance(m, int) else _cron(plain, m) for m in understand(text)]


def _refuse_big_m(text: str) -> None:
    """ "1M" is a month elsewhere, and would be every minute here. "1H 30M" has only minutes."""
    found = _BIG_M.search(text)
    if found is not None and not _LARGER_UNIT.search(text[: found.start()]):
        number = found[1]
        months = "every month" if number == "1" else f"every {number} months"
        raise BadSchedule(
            f'"{text}" is ambiguous: {found[0]} may be minutes or months',
            hint=f'Write one of: "{number}m"; "{months}".',
        )


def _refuse_two_intervals(text: str) -> None:
    """ "1h 30m" is one interval; "5m 7m" may be one or two."""
    units = [_UNITS_FALLING.index(unit.lower()) for unit in _UNIT.findall(text)]
    if units != sorted(set(units)):
        raise BadSchedule(
            f'"{text}" is ambiguous: it may be one interval or several',
            hint="Write one interval with its largest unit first (1h30m), or give a list.",
        )


def _not_a_schedule(written: object) -> BadSchedule:
    return BadSchedule(
        f"{written!r} is not a schedule",
        hint='Write text ("0 9 * * *", "5m", "weekdays at 9:30"), a timedelta or a datetime.',
    )


def _looks_like_cron(text: str) -> bool:
    """Words that only cron has, or nothing else than what cron may hold, with numbers in front.

    "1 jan" is a date in words, "0930" a time; "every", "at" and the like are never in cron.
    """
    words = text.split(" ")
    if any(_NUMERIC.fullmatch(word) and "*" in word for word in words):
        return True
    if not all(_CRON_WORD.fullmatch(word) for word in words):
        return False
    numeric = [bool(_NUMERIC.fullmatch(word)) for word in words]
    return all(numeric[:2]) and not (len(words) == 1 and len(text) == 4)


def _cron(plain: Timing, text: str) -> Timing:
    return Timing(cron=read_cron(text).text, zone=plain.zone, gap=plain.gap, repeat=plain.repeat)


def _every(plain: Timing, every_us: int) -> Timing:
    return Timing(every_us=every_us, anchor_at=plain.anchor_at, zone=plain.zone)


def _alias(plain: Timing, text: str) -> Timing:
    name, _, rest = text.lower().partition(" ")
    if name == "@every" and rest:
        return _every(plain, _interval(rest, f"@every {rest}: "))
    if rest or name not in ALIASES:
        extra = " A worker's start is not a time." if name == "@reboot" else ""
        raise BadSchedule(
            f"{text!r} is not an alias", hint=f"Use {', '.join(ALIASES)} or @every 5m.{extra}"
        )
    return _cron(plain, ALIASES[name])


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text.replace(" ", "T", 1))
    except ValueError as error:
        reason = "" if "isoformat" in str(error) else f": {error}"
        raise BadSchedule(
            f"{text!r} is not a time{reason}",
            hint="Write 2027-03-28T09:00, with an offset (+02:00, Z) or as wall time in the zone.",
        ) from error


def _once(plain: Timing, moment: datetime, text: str) -> list[Timing]:
    """One time; two when it is a wall time that happens twice and both are wanted."""
    if not 2 < moment.year < 9998:
        raise BadSchedule(f"{text} is too far away", hint="Years 3 to 9997 can be planned.")
    if moment.tzinfo is not None:
        ats = [instant(moment)]
    else:
        ats = _instants_of_wall(plain, moment, text)
    return [Timing(at=at, zone=plain.zone) for at in ats]


def _instants_of_wall(plain: Timing, moment: datetime, text: str) -> list[int]:
    zone = zone_named(plain.zone)
    first, second = (instant(moment.replace(tzinfo=zone, fold=fold)) for fold in (0, 1))
    if first == second:
        return [first]
    if first < second:
        wanted = {"second": [second], "both": [first, second]}
        return wanted.get(plain.repeat, [first])
    if plain.gap == "skip":
        raise BadSchedule(
            f"{text} does not exist in {plain.zone}: the clock is moved past it",
            hint="Choose a time that exists, or gap=next for the first instant after the gap.",
        )
    # The two readings lie on both sides of the change.
    [change] = changes_between(plain.zone, second // SECOND, first // SECOND + 1)
    return [change.at * SECOND]


def _check_timing(timing: Timing, now: int, sub_second: bool) -> None:
    """Refuse what could never fire, and what would fire all the time."""
    _check_options(timing.gap, timing.repeat, None, None)
    if timing.cron is not None:
        cron = read_cron(timing.cron)
        if Walls(cron).days.never():
            _refuse_never(cron)
        if next_after(Spec((timing,)), now) is None:
            raise BadSchedule(
                f"{cron.text!r} never fires: its times do not exist in {timing.zone}",
                hint="Use gap=next to run after the clock is moved, or choose another time.",
            )
    elif timing.every_us is not None:
        times_of(timing)
        if timing.every_us < SECOND and not sub_second:
            raise BadSchedule(
                f"an interval of {timing.every_us / 1000:g}ms fires more than once a second",
                hint="Use 1s or more, or allow it with `--sub-second` (sub_second=True).",
            )
        if timing.every_us > (LAST_S - FIRST_S) * SECOND:
            raise BadSchedule(f"an interval of {span(timing.every_us)} is longer than the calendar")


def _refuse_never(cron: Cron) -> NoReturn:
    days = cron.day.text if cron.weekday.starred else f"{cron.day.text} / {cron.weekday.text}"
    column = len(" ".join(cron.text.split(" ")[:-3])) + 1
    width = len(cron.text) - column
    raise BadSchedule(
        f"never fires: day {days} does not come in month {cron.month.text}\n"
        f"    {cron.text}\n    {' ' * column}{'^' * width}",
        hint="For the last day of a month use L, as in 0 0 L * *.",
        expression=cron.text,
    )


def _refuse_past(spec: Spec, now: int) -> NoReturn:
    last = previous_before(spec, now + 1)
    if last is not None:
        raise BadSchedule(
            f"nothing left to fire: the last occurrence was {iso(last)}, and it is {iso(now)}",
            hint="Give a time in the future, or a later end.",
        )
    raise BadSchedule(
        "never fires: no occurrence lies between its start and its end",
        hint="Move the start or the end so that at least one occurrence lies between them.",
    )
