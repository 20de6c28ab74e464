"""One clause of a phrase → cron texts, or an interval in microseconds. Pure."""

from __future__ import annotations

import dataclasses

from rota.core.time.cron import MONTH_NAMES, MONTHS, WEEKDAYS, read_cron
from rota.core.time.describe import describe_timings
from rota.core.time.phrase_choices import Choices, refuse
from rota.core.time.phrase_clock import ClockTime, Wall, resolved
from rota.core.time.phrase_days import in_every_month, of_period
from rota.core.time.phrase_model import DAILY, WITHIN_DAY, Clause, Day, PhraseRate
from rota.core.time.phrase_rates import UNITS_US
from rota.core.time.phrase_windows import every, hour_fields, window_fields

_DAY_AFTER = {
    **dict(zip(WEEKDAYS, WEEKDAYS[1:] + WEEKDAYS[:1], strict=True)),
    "MON-FRI": "TUE-SAT",
    "SAT,SUN": "SUN,MON",
}
_LENGTHS = {"FEB": 29, **dict.fromkeys(("APR", "JUN", "SEP", "NOV"), 30)}
_SIZES = {"second": 60, "minute": 60, "hour": 24}


def build(clause: Clause, choices: Choices) -> list[str | int]:
    """The timings of a clause: cron texts, or one interval."""
    if clause.past and clause.rate in (None, DAILY):
        clause.rate = PhraseRate(1, "hour")
    rate = clause.rate or PhraseRate(1, "")
    if rate.unit in WITHIN_DAY:
        return _within_the_day(clause, rate, choices)
    if clause.windows:
        refuse("incomplete", 'a window needs a rate: "every 30 minutes between 9:00 and 17:00"')
    if clause.past:
        refuse("conflict", f"minutes past the hour and every {_amount(rate)} do not go together")
    _check_count(clause, rate)
    if rate.unit in ("day", "week") and rate.number > 1:
        return [_elapsed(clause, rate, choices)]
    if clause.part and not clause.times:
        refuse("incomplete", f'"{clause.part}" needs a time: "every {clause.part} at 8"')
    times = resolved(clause.times, choices)
    _check_night(clause, times)
    if any(clock.midnight for clock in clause.times):
        clause = _of_midnight(clause, choices)
    tails = _day_fields(clause, rate, choices)
    return [f"{front} {tail}" for tail in tails for front in _time_fields(times)]


def _of_midnight(clause: Clause, choices: Choices) -> Clause:
    """ "friday at midnight" may be the beginning of Friday, or its end."""
    if not clause.days or choices.choose("midnight may begin or end the day", 2) == 0:
        return clause
    if len(clause.times) > 1:
        refuse("inexpressible", "the end of one day is the beginning of the next")
    return _days_after(clause)


def _days_after(clause: Clause) -> Clause:
    """The same with the day after each of its days."""
    return dataclasses.replace(clause, days=[_day_after(day) for day in clause.days])


def _day_after(day: Day) -> Day:
    if day.of == "week" and day.text in _DAY_AFTER:
        return day._replace(text=_DAY_AFTER[day.text])
    if day.of == "month" and day.text.isdigit() and int(day.text) < 28:
        return day._replace(text=str(int(day.text) + 1))
    if day.text == "L" and not day.months:
        return day._replace(text="1", last=False)
    return refuse("inexpressible", f"cron cannot say the day after {day.text}")


def _check_night(clause: Clause, times: list[Wall]) -> None:
    """ "sunday night at 1" may be on Sunday or on Monday."""
    if clause.part != "night" or not clause.days or all(hour > 12 for hour, _, _ in times):
        return
    days = [day.text for day in clause.days]
    instead: list[str] = []
    if _DAY_AFTER.keys() >= set(days):
        late, early = ([w for w in times if (w[0] > 12) == is_late] for is_late in (True, False))
        after = [_DAY_AFTER[day] for day in days]
        for parts in ([(times, days)], [(late, days), (early, after)]):
            instead.append(describe_timings([
                f"{front} * * {','.join(names)}"
                for walls, names in parts if walls for front in _time_fields(walls)
            ]))  # fmt: skip
    refuse("ambiguous", "the night after midnight may be that of the day before", *instead)


def _check_count(clause: Clause, rate: PhraseRate) -> None:
    if rate.times_a is None:
        return
    count = len(clause.times) if rate.unit == "day" else len(clause.days)
    if count != rate.times_a:
        what = "times" if rate.unit == "day" else "days"
        refuse("incomplete", f"{rate.times_a} times a {rate.unit}: say at which {what}")


def _elapsed(clause: Clause, rate: PhraseRate, choices: Choices) -> int:
    if clause.times or clause.days or clause.months:
        instead = [f"every {_amount(rate)}"]
        if rate.unit == "day" and not (clause.days or clause.months) and rate.number < 32:
            fronts = _time_fields(resolved(clause.times, choices))
            instead += [describe_timings([f"{front} */{rate.number} * *" for front in fronts])]
        refuse(
            "inexpressible",
            f"every {_amount(rate)} at a wall-clock time cannot be said in cron; "
            f'"{rate.number}{rate.unit[0]}" counts elapsed time',
            *instead,
        )
    return rate.number * UNITS_US[rate.unit]


def _amount(rate: PhraseRate) -> str:
    return rate.unit if rate.number == 1 else f"{rate.number} {rate.unit}s"


# -- within the day ----------------------------------------------------------------------------


def _within_the_day(clause: Clause, rate: PhraseRate, choices: Choices) -> list[str | int]:
    """Every N seconds, minutes or hours: an interval when nothing narrows it, otherwise cron."""
    if clause.times:
        refuse("conflict", f"every {_amount(rate)} and a time of day do not go together")
    narrowed = clause.days or clause.months or clause.windows or clause.past or clause.daily
    if not narrowed and not clause.part:
        if rate.number == 1 and rate.unit in ("minute", "hour"):
            return ["* * * * *" if rate.unit == "minute" else "0 * * * *"]
        return [rate.number * UNITS_US[rate.unit]]
    if clause.part:
        refuse("incomplete", f'which hours are the {clause.part}? Say "between 8:00 and 12:00"')
    if clause.past and rate.unit != "hour":
        refuse("conflict", f"every {_amount(rate)} and minutes past the hour do not go together")
    for fine, coarse in (("second", "minute"), ("minute", "hour")):
        if rate.unit == fine and rate.number % 60 == 0:
            rate = PhraseRate(rate.number // 60, coarse)  # "every 60 minutes on weekdays"
    windows = _resolved_windows(clause.windows, choices)
    fronts = _fronts(clause, rate, windows, choices)
    if clause.days and any(last < first for first, last in windows):
        return _past_midnight(clause, fronts, windows, choices)
    tails = _day_fields(clause, DAILY, choices)
    return [f"{front} {tail}" for tail in tails for front in fronts]


def _past_midnight(
    clause: Clause, fronts: list[str], windows: list[tuple[Wall, Wall]], choices: Choices
) -> list[str | int]:
    """ "every hour from 22:00 to 6:00 on fridays": the hours of Friday, or of its night?"""
    if len(windows) > 1:
        refuse("ambiguous", "the hours after midnight may be of the day before")
    late, early = _parted(fronts, windows[0][0][0])
    reason = "the hours after midnight may be of the same day or of the next"
    is_same_day = choices.choose(reason, 2) == 1
    tails = _day_fields(clause, DAILY, choices)
    if is_same_day:
        return [f"{front} {tail}" for tail in tails for front in _merged([early, late])]
    after = _day_fields(_days_after(clause), DAILY, choices)
    return [
        *(f"{front} {tail}" for tail in tails for front in late),
        *(f"{front} {tail}" for tail in after for front in early),
    ]


def _parted(fronts: list[str], first: int) -> tuple[list[str], list[str]]:
    """The fields before midnight, and those after it; the window begins at the hour `first`."""
    late: list[str] = []
    early: list[str] = []
    for front in fronts:
        minutes, values = front.rpartition(" ")[0], read_cron(f"{front} * * *").hour.values
        for side, chosen in (
            (late, [hour for hour in values if hour >= first]),
            (early, [hour for hour in values if hour < first]),
        ):
            if chosen:
                side.append(f"{minutes} {_hour_text(chosen)}")
    return late, early


def _hour_text(hours: list[int]) -> str:
    if len(hours) > 1 and hours == list(range(hours[0], hours[-1] + 1)):
        return f"{hours[0]}-{hours[-1]}"
    return _joined(hours)


def _fronts(
    clause: Clause, rate: PhraseRate, windows: list[tuple[Wall, Wall]], choices: Choices
) -> list[str]:
    """The fields in front of the day, for each window or for the whole day."""
    past = ",".join(dict.fromkeys(clause.past))
    if windows and rate.unit == "hour":
        return _merged([hour_fields(*window, rate, past, choices) for window in windows])
    size = _SIZES.get(rate.unit, 1)
    if rate.number >= size or size % rate.number:
        refuse(
            "inexpressible",
            f"cron cannot count every {_amount(rate)} within a day without a break",
            f"every {_amount(rate)}",
        )
    if windows:
        return _merged([window_fields(*window, rate, choices) for window in windows])
    step = every(rate.number)
    return [{"second": f"{step} * *", "minute": f"{step} *"}.get(rate.unit, f"{past or 0} {step}")]


def _resolved_windows(
    written: list[tuple[ClockTime, ClockTime]], choices: Choices
) -> list[tuple[Wall, Wall]]:
    """ "from 8 to 12 and from 1 to 5": a window that goes back may be one after noon."""
    windows = [_ends(window, choices) for window in written]
    if any(clock.mark == "24" for window in written for clock in window):
        return windows
    for at, (first, last) in enumerate(windows):
        goes_back = at > 0 and first < windows[at - 1][1] and last[0] < 12
        if goes_back and all(clock.mark == "bare" for clock in written[at]):
            reason = f"{written[at][0].hour} to {written[at][1].hour} may be before or after noon"
            if choices.choose(reason, 2) == 1:
                windows[at] = ((first[0] + 12, *first[1:]), (last[0] + 12, *last[1:]))
    return windows


def _ends(window: tuple[ClockTime, ClockTime], choices: Choices) -> tuple[Wall, Wall]:
    first, last = window
    if first == last:
        return first.wall, last.wall
    first_wall, last_wall = resolved([first, last], choices)
    return first_wall, last_wall


def _merged(fronts: list[list[str]]) -> list[str]:
    """The fields of several windows; those that differ only in their hours are one."""
    hours: dict[str, list[str]] = {}
    for front in dict.fromkeys(text for texts in fronts for text in texts):
        minutes, _, hour = front.rpartition(" ")
        hours.setdefault(minutes, []).append(hour)
    return [f"{minutes} {','.join(listed)}" for minutes, listed in hours.items()]


def _time_fields(times: list[Wall]) -> list[str]:
    """One text when the times share their minutes, otherwise one for each minute."""
    by_minute: dict[tuple[int, int], list[int]] = {}
    for hour, minute, second in sorted(set(times or [(0, 0, 0)])):
        by_minute.setdefault((second, minute), []).append(hour)
    by_hours: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for (second, minute), hours in by_minute.items():
        by_hours.setdefault((second, tuple(hours)), []).append(minute)
    return [
        f"{f'{second} ' if second else ''}{_joined(sorted(minutes))} {_joined(hours)}"
        for (second, hours), minutes in by_hours.items()
    ]


def _joined(numbers: list[int] | tuple[int, ...]) -> str:
    return ",".join(str(number) for number in numbers)


# -- days --------------------------------------------------------------------------------------


def _day_fields(clause: Clause, rate: PhraseRate, choices: Choices) -> list[str]:
    """The last three fields: day of month, month, day of week; one text for each kind of day."""
    months = _months(clause, rate)
    days = _same_bound(_same_count(_of_rate(clause, rate, choices), choices), choices)
    if not days:
        return [_without_days(clause, rate, months)]
    grouped: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for day in days:
        if day.months and clause.months:
            refuse("conflict", "it names the month twice")
        _refuse_missing(day, day.months or tuple(months))
        grouped.setdefault((day.of, day.months or tuple(months)), []).append(day.text)
    tails = []
    for (of, bound), texts in grouped.items():
        listed, month = ",".join(dict.fromkeys(texts)), ",".join(dict.fromkeys(bound)) or "*"
        tails.append(f"{listed} {month} *" if of == "month" else f"* {month} {listed}")
    return tails


def _refuse_missing(day: Day, months: tuple[str, ...]) -> None:
    """ "the 31st of april and may": cron would skip April silently."""
    number = int(day.text) if day.of == "month" and day.text.isdigit() else 0
    for month in months:
        if number > _LENGTHS.get(month, 31):
            name = MONTH_NAMES[MONTHS.index(month)]
            refuse("invalid", f"{name} has no day {number}")


def _months(clause: Clause, rate: PhraseRate) -> list[str]:
    number = 3 * rate.number if rate.unit == "quarter" else rate.number
    if rate.unit not in ("month", "quarter") or number == 1:
        return clause.months
    if number > 12 or 12 % number:
        refuse("inexpressible", f"every {number} months does not fit into a year")
    if clause.months:
        refuse("conflict", "it names both months and a number of months")
    return [f"*/{number}"] if number < 12 else ["JAN"]


def _without_days(clause: Clause, rate: PhraseRate, months: list[str]) -> str:
    """The days of a rate that names none: the 1st of a month, every day."""
    month = ",".join(dict.fromkeys(months)) or "*"
    if rate.unit == "week":
        if clause.times or months:
            refuse("incomplete", 'which day of the week? Say "every monday at 9am"')
        return "* * SUN"
    if rate.unit in ("month", "quarter", "year"):
        if clause.months:
            refuse("incomplete", 'which day of the month? Say "1st of january"')
        return "1 JAN *" if rate.unit == "year" else f"1 {month} *"
    if months and rate.unit != "day":
        refuse(
            "incomplete", 'which day of the month? Say "1st of january" or "every day in january"'
        )
    if not (clause.times or rate.unit):
        refuse("incomplete", "it names neither a time nor a day")
    return f"* {month} *"


def _of_rate(clause: Clause, rate: PhraseRate, choices: Choices) -> list[Day]:
    """The days as the rate takes them: "monthly on friday", "quarterly on the last day"."""
    days = clause.days
    if rate.unit == "year" and rate.number > 1:
        refuse("inexpressible", "cron knows no years")
    if rate.unit == "week" and any(day.of == "month" or day.counted for day in days):
        refuse("conflict", "every week and a day of the month do not go together")
    if rate.unit in ("month", "quarter", "year"):
        return [_of_unit(day, clause, rate, choices) for day in days]
    return days


def _of_unit(day: Day, clause: Clause, rate: PhraseRate, choices: Choices) -> Day:
    unit = "quarter" if (rate.number, rate.unit) == (3, "month") else rate.unit
    if day.of == "week" and not day.counted:
        reason = f"every {rate.unit} has more than one such day"
        form = ("{}", "{}#1", "{}L")[choices.choose(reason, 3)]
        if form == "{}":
            return day._replace(months=("*",))
        if "-" in day.text or "," in day.text:
            refuse("inexpressible", "cron counts one weekday at a time")
        last = form == "{}L"
        day = Day("week", form.format(day.text), last=last, counted=True)
    if day.months or clause.months:
        return day
    if unit != "year":
        day = in_every_month(day, choices)
    if unit == "month" and rate.number == 1:
        return day
    if unit == "year" and not (day.last or day.text in ("1", "1W") or day.text.endswith("#1")):
        refuse("incomplete", 'which month? Say "15 march"')
    if rate.unit == "month" and day.last:
        return _last_of_months(day, rate.number, choices)
    return of_period(day, unit) if unit in ("quarter", "year") and rate.number in (1, 3) else day


def _last_of_months(day: Day, number: int, choices: Choices) -> Day:
    """ "every 2 months on the last day": of January, March … or of February, April …?"""
    first = choices.choose(f"the {number} months may begin or end with that day", 2) == 1
    return day._replace(months=MONTHS[0 if first else number - 1 :: number])


def _same_count(days: list[Day], choices: Choices) -> list[Day]:
    """ "the first monday and friday": is the friday counted, too?"""
    counted_alike: list[Day] = []
    for written in days:
        day = written
        before = counted_alike[-1] if counted_alike else None
        is_open = before is not None and before.counted and not (before.unbound or before.months)
        is_plain = day.of == "week" and not day.counted and not day.every and "-" not in day.text
        if before is not None and is_open and is_plain and "," not in day.text:
            ending = "L" if before.last else f"#{before.text[-1]}"
            if choices.choose("the count may be meant for both weekdays", 2) == 1:
                day = before._replace(text=f"{day.text}{ending}")
        counted_alike.append(day)
    return counted_alike


def _same_bound(days: list[Day], choices: Choices) -> list[Day]:
    """ "the 1st of june and the 15th": is the 15th one of june, too?"""
    bound = [day.months for day in days if day.months]
    unbound = [
        day
        for day in days
        if not day.months and not day.unbound and (day.of == "month" or day.counted)
    ]
    if not bound or not unbound:
        return days
    if choices.choose("the month may be meant for each day", 2) == 0:
        return days
    return [day._replace(months=bound[0]) if day in unbound else day for day in days]
