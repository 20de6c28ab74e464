"""A spec in plain English: "at 09:00, Monday to Friday (Europe/Berlin)". Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from rota.core.plurals import counted
from rota.core.time.cron import (
    MONTH_NAMES,
    WEEKDAY_NAMES,
    Cron,
    Field,
    Item,
    read_cron,
)
from rota.core.time.instants import SECOND, clock_text, moment
from rota.core.time.spec import Spec, Timing
from rota.core.time.zones import zone_named

_OF_THE_MONTH = "of the month"
_COUNTS = ("first", "second", "third", "fourth", "fifth")
_UNITS = (("week", 604_800), ("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
TIMES_MAX = 6  # More times of day than this are described as a pattern.


def describe(spec: Spec) -> str:
    """The whole spec in one sentence without a full stop."""
    zones = {timing.zone for timing in spec.timings}
    shared = zones.pop() if len(zones) == 1 else None
    parts = []
    for timing in spec.timings:
        text = _timing(timing)
        parts.append(text if shared else f"{text} ({timing.zone})")
    sentence = "; and ".join(dict.fromkeys(parts))
    zone = shared or "UTC"
    if shared and any(timing.every_us is None for timing in spec.timings):
        sentence += f" ({shared})"
    if spec.start_at is not None:
        sentence += f", from {_moment(spec.start_at, zone)}"
    if spec.end_at is not None:
        sentence += f", until {_moment(spec.end_at, zone)}"
    if (spec.start_at is not None or spec.end_at is not None) and f"({zone})" not in sentence:
        sentence += f" ({zone})"
    return sentence


def describe_cron(text: str) -> str:
    """A cron expression alone, without its zone."""
    cron = _unwrapped(read_cron(text))
    days, months = _days(cron), _months(cron.month)
    counted = all(item.kind in ("nth", "final") for item in cron.weekday.items)
    alone = _is_every(cron.weekday) or (_is_every(cron.day) and counted)
    if alone and months.startswith("in ") and _OF_THE_MONTH in days:
        days, months = days.replace(_OF_THE_MONTH, f"of {months[3:]}"), ""
    return ", ".join(part for part in (_times(cron), days, months) if part)


def describe_timings(timings: Sequence[str | int]) -> str:
    """Cron texts and intervals (in microseconds) in words, without their zone."""
    texts = [_timing(Timing(cron=t) if isinstance(t, str) else Timing(every_us=t)) for t in timings]
    return "; and ".join(dict.fromkeys(texts))


def _timing(timing: Timing) -> str:
    if timing.every_us is not None:
        return f"every {_length(timing.every_us)}"
    if timing.at is not None:
        return f"once at {_moment(timing.at, timing.zone)}"
    text = describe_cron(timing.cron or "")
    if timing.gap != "auto":
        gap = {"next": "run after the gap", "skip": "are skipped"}[timing.gap]
        text += f", times that the clock skips {gap}"
    if timing.repeat != "auto":
        repeat = "run both times" if timing.repeat == "both" else f"run the {timing.repeat} time"
        text += f", times that come twice {repeat}"
    return text


def _moment(at: int, zone: str) -> str:
    local = moment(at).astimezone(zone_named(zone))
    shown = f"{local:%Y-%m-%d} {clock_text(local)}"
    # A time that comes twice says which of the two it is.
    if local.utcoffset() != local.replace(fold=1 - local.fold).utcoffset():
        shown += f" UTC{local:%z}"
    return shown


def _length(duration_us: int) -> str:
    """ "minute", "15 minutes", "1 hour 30 minutes"."""
    seconds, rest = divmod(duration_us, SECOND)
    if rest:
        return f"{seconds}.{f'{rest:06}'.rstrip('0')} seconds"
    words = []
    for unit, size in _UNITS:
        count, seconds = divmod(seconds, size)
        if count:
            words.append(counted(count, unit))
    return words[0].removeprefix("1 ") if len(words) == 1 else " ".join(words)


def _times(cron: Cron) -> str:
    second, minute, hour = cron.second, cron.minute, cron.hour
    sets = (hour.values, minute.values, second.values)
    few = len(sets[0]) * len(sets[1]) * len(sets[2]) <= TIMES_MAX
    few = few or len(sets[1]) == len(sets[2]) == 1
    if few and not (hour.stepping or minute.stepping or second.stepping):
        return f"at {_listed([_clock(*time) for time in product(*sets)])}"
    if second.text != "0":
        text = f"{_places('second', second)}{_of_minutes(minute)}"
        return f"{text}{_of_hours(hour, minute, second.values[-1])}"
    if _is_every(minute) or _even_step(minute, 60) is not None:
        return f"{_places('minute', minute)}{_of_hours(hour, minute)}"
    if minute.values == [0] and (step := _even_step(hour, 24)) is not None:
        return f"every {step} hours, on the hour"
    if minute.values == [0] and _is_every(hour):
        return "every hour, on the hour"
    if minute.values == [0] and (stepped := _stepped(hour)) is not None:
        return stepped
    past = f"at {_numbers('minute', minute)} past"
    return f"{past} every hour" if _is_every(hour) else f"{past} {_hours(hour, minute)}"


def _places(unit: str, field: Field) -> str:
    if _is_every(field):
        return f"every {unit}"
    if (step := _even_step(field, 60)) is not None:
        return f"every {step} {unit}s"
    return f"at {_numbers(unit, field)}"


def _of_minutes(minute: Field) -> str:
    if _is_every(minute):
        return ""
    if (step := _even_step(minute, 60)) is not None:
        return f" of every {_nth(step)} minute"
    return f" of {_numbers('minute', minute)}"


def _of_hours(hour: Field, minute: Field, second: int = 0) -> str:
    """ ", from 09:00 to 17:45": the first and the last time that it comes to."""
    if _is_every(hour):
        return ""
    values = hour.values
    spans = _spans(hour) or [(value, value) for value in values]
    if len(spans) > 3:
        return f", during the hours {_listed([_clock(value) for value in values])}"
    first, last = minute.values[0], minute.values[-1]
    texts = [f"from {_clock(low, first)} to {_clock(high, last, second)}" for low, high in spans]
    return f", {_listed(texts)}"


def _hours(hour: Field, minute: Field) -> str:
    if (step := _even_step(hour, 24)) is not None:
        return f"every {step} hours"
    # One hour that is written as a range (9-9) steps, which words cannot tell from one that is not.
    single = len(hour.values) == 1 or any(low == high for low, high in _spans(hour))
    stepped = None if single else _stepped(hour, minute.values[0], minute.values[-1])
    if stepped is not None:
        return stepped.replace("every hour", "each hour")
    values = hour.values
    return f"the hour{'s' if len(values) > 1 else ''} {_listed([_clock(v) for v in values])}"


def _stepped(hour: Field, first: int = 0, last: int = 0) -> str | None:
    """ "every hour from 09:00 to 17:00", "every 2 hours from 09:15 to 17:15"."""
    [item, *more] = hour.items
    spans, rate = _spans(hour), "every hour"
    if not spans:
        if more or item.kind not in ("any", "range"):
            return None
        length = (item.last - item.first) % 24
        spans = [(item.first, (item.first + length - length % item.step) % 24)]
        rate = f"every {item.step} hours"
    texts = [f"from {_clock(low, first)} to {_clock(high, last)}" for low, high in spans]
    return f"{rate} {_listed(texts)}"


def _spans(hour: Field) -> list[tuple[int, int]]:
    """The ranges of hours, when it is a list of ranges without steps."""
    plain = [item.kind == "range" and item.step == 1 for item in hour.items]
    return [(item.first, item.last) for item in hour.items] if all(plain) else []


def _unwrapped(cron: Cron) -> Cron:
    """The same with the hours of each calendar day in order: 0-6,22-23 for 22-6.

    On some days only, "from 22:00 to 06:00" would seem to continue into the day after."""
    whole_days = _is_every(cron.day) and _is_every(cron.weekday)
    wraps = any(item.kind == "range" and item.first > item.last for item in cron.hour.items)
    if whole_days or not wraps or not _spans(cron.hour):
        return cron
    spans = sorted(
        span
        for low, high in _spans(cron.hour)
        for span in ([(low, high)] if low <= high else [(0, high), (low, 23)])
    )
    hours = ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)
    minutes, rest = f"{cron.second.text} {cron.minute.text}", cron.text.split(" ")[-3:]
    return read_cron(f"{minutes} {hours} {' '.join(rest)}")


def _numbers(unit: str, field: Field) -> str:
    """ "minute 15", "minutes 0 to 10", "minutes 5, 20 and 40"."""
    span = _span(field)
    if span is not None:
        return f"{unit}s {span[0]} to {span[1]}"
    values = field.values
    return f"{unit}{'s' if len(values) > 1 else ''} {_listed([str(value) for value in values])}"


def _is_every(field: Field) -> bool:
    return field.text in ("*", "*/1")


def _even_step(field: Field, size: int) -> int | None:
    """The step of `*/n` where it divides the field, so that the last gap is like the others."""
    [item, *more] = field.items
    starts = item.kind in ("any", "range") and item.first == 0 and item.last == size - 1
    return (
        item.step if starts and not more and 1 < item.step < size > size % item.step == 0 else None
    )


def _span(field: Field) -> tuple[int, int] | None:
    [item, *more] = field.items
    plain = item.kind == "range" and item.step == 1 and not more and item.first != item.last
    return (item.first, item.last) if plain else None


def _days(cron: Cron) -> str:
    day, weekday = cron.day, cron.weekday
    if _is_every(day) and _is_every(weekday):
        return "" if _is_often(cron) else "every day"
    by_day = "" if _is_every(day) else _on_days(day)
    by_weekday = "" if _is_every(weekday) else _on_weekdays(weekday)
    if not by_day or not by_weekday:
        return by_day or by_weekday
    both = day.starred or weekday.starred
    return f"{by_day}, but only {by_weekday}" if both else f"{by_day} or {by_weekday}"


def _is_often(cron: Cron) -> bool:
    """ "Every hour" needs no "every day" after it; without it "every 15 minutes" is an interval."""
    plain = cron.second.text == "0" and _even_step(cron.minute, 60) is None
    return plain and (_is_every(cron.hour) or _even_step(cron.hour, 24) is not None)


def _on_days(field: Field) -> str:
    text = f"{_listed([_day(item) for item in field.items])} {_OF_THE_MONTH}"
    return text if text[0].isdigit() else f"on {text}"  # "3 days before the last day"


def _day(item: Item) -> str:
    count = counted(item.first, "day")
    back = "the last day" if item.first == 0 else f"{count} before the last day"
    if item.kind == "value":
        return f"the {_nth(item.first)}"
    if item.kind == "end":
        return back
    if item.kind == "near":
        return f"the weekday nearest the {_nth(item.first)}"
    if item.kind == "near-end":
        return "the last weekday" if item.first == 0 else f"the weekday nearest {back}"
    if item.kind == "any":
        return f"every {_nth(item.step)} day from the 1st" if item.step > 1 else "every day"
    if item.step > 1:
        return f"every {_nth(item.step)} day from the {_nth(item.first)} to the {_nth(item.last)}"
    return f"the {_nth(item.first)} to {_nth(item.last)}"


def _on_weekdays(field: Field) -> str:
    counted, words = _counted_weekdays(field.items)
    if all(counted):  # It is named once, at the end.
        words[-1] += f" {_OF_THE_MONTH}"
    else:
        words = [f"{w} {_OF_THE_MONTH}" if c else w for w, c in zip(words, counted, strict=True)]
    text = _listed(words)
    return f"on {text}" if _span(field) is None else text


def _counted_weekdays(items: Sequence[Item]) -> tuple[list[bool], list[str]]:
    """The words of each item, and whether they are counted: "the first and third Monday"."""
    counted: list[bool] = []
    words: list[str] = []
    before = -1
    for item in items:
        is_counted = item.kind in ("nth", "final")
        if is_counted and item.first % 7 == before:
            ahead = words[-1].rpartition(" ")[0]
            words[-1] = f"{ahead} and {_weekday(item).removeprefix('the ')}"
        else:
            counted.append(is_counted)
            words.append(_weekday(item))
        before = item.first % 7 if is_counted else -1
    return counted, words


def _weekday(item: Item) -> str:
    name = WEEKDAY_NAMES[item.first % 7]
    if item.kind == "nth":
        return f"the {_COUNTS[item.last - 1]} {name}"
    if item.kind == "final":
        return f"the last {name}"
    if item.kind == "value":
        return name
    if item.kind == "any" or item.step > 1:
        last = item.last if item.last >= item.first else item.last + 7
        numbers = range(item.first, last + 1, item.step)
        return _listed([WEEKDAY_NAMES[number % 7] for number in numbers])
    if item.first == item.last:
        return name
    last = min(item.last, item.first + 6)  # 0-7 names Sunday twice
    return f"{name} to {WEEKDAY_NAMES[last % 7]}"


def _months(field: Field) -> str:
    if _is_every(field):
        return ""
    span = _span(field)
    if span is not None:
        return f"{MONTH_NAMES[span[0] - 1]} to {MONTH_NAMES[span[1] - 1]}"
    return f"in {_listed([MONTH_NAMES[number - 1] for number in field.values])}"


def _clock(hour: int, minute: int = 0, second: int = 0) -> str:
    shown = f"{hour:02}:{minute:02}"
    return f"{shown}:{second:02}" if second else shown


def _nth(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if 10 < number < 20 else ending}"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
