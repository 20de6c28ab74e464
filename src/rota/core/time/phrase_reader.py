"""Reads the tokens of a phrase into segments: what is between "and", commas and semicolons.

Each rule reads one part (days, a time, a rate …) as a clause with one filled slot; parts that are
side by side make up a segment. Pure.
"""

from __future__ import annotations

from typing import Any, NoReturn

from rota.core.time.phrase_choices import Choices, refuse
from rota.core.time.phrase_clock import ClockTime, in_part, moved
from rota.core.time.phrase_days import read_days, read_days_back, read_months
from rota.core.time.phrase_model import (
    DAILY,
    DAYS,
    MONTHS,
    PAST,
    RATE,
    TIMES,
    WINDOWS,
    Clause,
    Day,
)
from rota.core.time.phrase_rates import read_amount, read_rate
from rota.core.time.phrase_times import read_clock, read_past, read_window
from rota.core.time.phrase_tokens import (
    DAY_PARTS,
    EVERY,
    FILLERS,
    MONTH_NUMBERS,
    ONE_TIME,
    TO,
    UNCLEAR,
    ZONES,
    Cursor,
    Token,
    weekday,
)

_STRENGTH = ("", ",", "and", ";")
_EITHER = "a day of the month and one of the week; cron fires on either of them"
_ONCE = "it is one time; write its date: 2027-03-28T09:00"


class Reader:
    """Reads one phrase, from left to right."""

    def __init__(self, tokens: list[Token], choices: Choices) -> None:
        self._cursor = Cursor(tokens)
        self._choices = choices
        self._segments: list[Clause] = []
        self._expect_time = False  # a number alone is a time: after "at", and in a list of times
        self._every = False

    @property
    def _before(self) -> Clause:
        """The segment that was read last; an empty one at the beginning."""
        return self._segments[-1] if self._segments else Clause()

    def read(self) -> list[Clause]:
        """The segments of the phrase."""
        joint = ""
        while self._cursor.peek().kind != "end":
            joint = self._separator() or joint
            self._skip_fillers()
            if self._cursor.peek().kind in ("end", "separator"):
                continue
            part = self._part()
            if part is None:
                self._refuse_word()
            self._add(part, joint)
            joint = ""
        if self._expect_time and self._before.last != TIMES:
            refuse("incomplete", '"at" needs a time after it')
        return [_finished(segment) for segment in self._segments]

    def _separator(self) -> str:
        strongest = ""
        while self._cursor.peek().kind == "separator":
            strongest = max(strongest, self._cursor.word(), key=_STRENGTH.index)
            self._cursor.take()
        if strongest:
            self._expect_time = self._before.last == TIMES
        return strongest

    def _skip_fillers(self) -> None:
        cursor = self._cursor
        self._every = False
        while cursor.word() in FILLERS:
            self._every = cursor.word() in EVERY or (self._every and cursor.word() == "the")
            if cursor.word() == "at":
                self._expect_time = True
            if cursor.word() == "in":
                self._refuse_in_amount()
            cursor.take()

    def _refuse_in_amount(self) -> None:
        """ "in 2 hours" is one time."""
        cursor = self._cursor
        start = cursor.at
        cursor.take()
        cursor.skip(("a", "an", "about"))
        if read_amount(cursor) is not None:
            words = " ".join(cursor.word(at - cursor.at) for at in range(start, cursor.at))
            again = "every " + words.removeprefix("in ").removeprefix("an ").removeprefix("a ")
            refuse("once", f'"{words}": {_ONCE}', again)
        cursor.at = start

    def _part(self) -> Clause | None:
        self._refuse_unclear()
        part = self._cursor.first_of(
            self._hours, self._day_part, self._days_back, self._past, self._window, self._time,
            self._rate, self._days, self._months,
        )  # fmt: skip
        if part is not None:
            self._expect_time = self._expect_time and part.last == TIMES
        return part

    def _day_part(self) -> Clause | None:
        word = self._cursor.word()
        alone = not self._segments and self._cursor.peek(1).kind == "end"
        if word == "nightly" and not alone:
            self._cursor.take()
            return Clause(rate=DAILY, part="night", order=[RATE])
        if word not in DAY_PARTS:
            return None
        self._cursor.take()
        part = DAY_PARTS[word]
        # "weekday mornings at 9 and evenings at 6": every evening, or those of the weekdays?
        open_ = any(segment.days for segment in self._segments) and not self._every
        if (self._every or word.endswith("s")) and self._before.last != DAYS and not open_:
            return Clause(rate=DAILY, part=part, order=[RATE])
        return Clause(part=part)

    def _rate(self) -> Clause | None:
        # "5 minutes" needs no "every" in front; "… and 5 minutes" and "at 5 minutes" differ.
        alone = not self._segments and not self._expect_time
        rate = read_rate(self._cursor, every=self._every, alone=alone)
        if rate is not None and rate.number < 1:
            refuse("invalid", f"every {rate.number} {rate.unit}s is not an interval")
        return _clause(RATE, rate)

    def _past(self) -> Clause | None:
        token, number = self._cursor.peek(), self._cursor.whole()
        past = read_past(self._cursor)
        if past is None:
            return None
        if self._every and number is not None:
            refuse(
                "ambiguous", "it may be a rate, or minutes past the hour",
                f"every {number} minutes", f"{past[0]} minutes past every hour",
            )  # fmt: skip
        before = self._before
        if token.kind == "minute" and before.last == TIMES:
            reason = f"{token.text} may be of the hour before it, or of every hour"
            if self._choices.choose(reason, 2) == 0:
                clock = before.times[-1]._replace(minute=int(past[0]), second=0, midnight=False)
                return Clause(times=[clock], order=[TIMES])
        if number is not None and before.single == TIMES and _are_numbers(before.times):
            reason = f"{before.times[-1].hour} may be an hour, or minutes past the hour"
            if self._choices.choose(reason, 2) == 0:
                self._segments.pop()
                past = [*[str(clock.hour) for clock in before.times], *past]
        return Clause(past=past, order=[PAST])

    def _days_back(self) -> Clause | None:
        return _clause(DAYS, read_days_back(self._cursor))

    def _days(self) -> Clause | None:
        cursor = self._cursor
        if cursor.word() == "from":
            cursor.take()
            cursor.skip(("the",))
        return _clause(DAYS, read_days(cursor, self._choices, every=self._every))

    def _window(self) -> Clause | None:
        window = read_window(self._cursor)
        return _clause(WINDOWS, window and [window])

    def _hours(self) -> Clause | None:
        """ "during the hours 9:00, 11:00 and 13:00"."""
        cursor = self._cursor
        if cursor.word() != "hours" or cursor.word(-1) != "the":
            return None
        cursor.take()
        windows = []
        while (clock := read_clock(cursor, bare=False)) is not None and not clock.minute:
            windows.append((ClockTime(clock.wall[0]), ClockTime(clock.wall[0], 59)))
            cursor.take(0 if cursor.peek(1).kind != "clock" else 1)
        return _clause(WINDOWS, windows or None)

    def _time(self) -> Clause | None:
        cursor = self._cursor
        start, number = cursor.at, cursor.number()
        joint, before_joint = cursor.word(-1), cursor.word(-2)
        clock = read_clock(cursor, bare=self._expect_time)
        if clock is None:
            return None
        if clock.offset:
            if joint in (",", "and") and before_joint == "past":
                refuse("incomplete", 'minutes past which hour? Say "9:15 and 9:30"')
            return _clause(
                TIMES, [clock] if number is None else self._past_an_hour(clock, number[0])
            )
        said = [cursor.word(at - cursor.at) for at in range(start, cursor.at)]
        is_hour = number is not None and not clock.minute and "o'clock" not in said
        if is_hour and joint in (",", "and"):
            clock = self._same_minutes(clock)
        return _clause(TIMES, [clock])

    def _past_an_hour(self, clock: ClockTime, number: int) -> list[ClockTime]:
        """ "at 5 and 10 past 9": the 5 may be an hour, or minutes."""
        if self._every:
            shown = f"{clock.wall[0]}:{clock.minute:02}"
            refuse(
                "ambiguous", f"it may be a rate, or the time {shown}",
                f"every {number} minutes", f"every day at {shown}",
            )  # fmt: skip
        before = self._before
        if before.single != TIMES or not _are_numbers(before.times):
            return [clock]
        if self._choices.choose(f"{before.times[-1].hour} may be an hour, or minutes", 2) == 0:
            return [clock]
        self._segments.pop()
        minutes = [one.hour if clock.offset > 0 else 60 - one.hour for one in before.times]
        return [*[clock._replace(minute=minute) for minute in minutes], clock]

    def _same_minutes(self, clock: ClockTime) -> ClockTime:
        """ "at 5 past 9 and 10": the minutes may be meant for both hours."""
        before = self._before
        if before.last != TIMES or not before.times[-1].offset:
            return clock
        reason = f"the minutes before it may be meant for {clock.hour}, too"
        is_moved = self._choices.choose(reason, 2) == 1
        return moved(clock, before.times[-1].offset) if is_moved else clock

    def _months(self) -> Clause | None:
        self._cursor.take(1 if self._cursor.word() == "from" else 0)
        return _clause(MONTHS, read_months(self._cursor))

    def _add(self, part: Clause, joint: str) -> None:
        part.before = joint
        last = self._before
        if joint == "," and last.single == part.single == DAYS:
            _refuse_dated_weekday(last.days[-1], part.days[0])
        if self._segments and not joint and _is_beside(last, part):
            self._segments[-1] = last.joined(part)
        else:
            self._segments.append(part)

    def _refuse_unclear(self) -> None:
        cursor = self._cursor
        word = cursor.word()
        if word in ("business", "working", "office", "work") and cursor.word(1) == "hours":
            refuse("incomplete", f'"{word} hours": say them, as in "between 9:00 and 17:00"')
        after = cursor.word(1 + (cursor.word(1) == "the"))
        if word == "between" and (weekday(after) is not None or after in MONTH_NUMBERS):
            refuse("invalid", f'"between {after} and …": write "{after} to …"')
        if word in UNCLEAR:
            kind, reason, *instead = UNCLEAR[word]
            refuse(kind, f'"{word}": {reason}', *instead)
        number = 2 if word == "other" else cursor.whole()
        if number is not None and self._every and weekday(cursor.word(1)) is not None:
            day = cursor.word(1)
            twice = f"first and third {day.removesuffix('s')} of the month"
            refuse(
                "inexpressible",
                f'every {number} weeks on "{day}" cannot be said in cron, which knows no week '
                "numbers",
                *([twice] if word == "other" else []), f"every {number} weeks",
            )  # fmt: skip

    def _refuse_word(self) -> NoReturn:
        token = self._cursor.peek()
        word = token.text
        if token.kind == "place" or word in ZONES:
            refuse("zone", f'"{word}" is a time zone, which is an option of its own', word)
        if token.kind == "offset":
            reason = f'"{word}" is an offset; the time zone is an option of its own'
            refuse("zone", reason, "Europe/Berlin")
        if word in TO:
            refuse("incomplete", f'"{word}": a window has two ends: "between 9:00 and 17:00"')
        if word in ONE_TIME:
            refuse("once", f'"{word}": {_ONCE}')
        if token.kind == "number":
            refuse("unknown", f'"{word}" may be a time or a day; write "at {word}" or an ordinal')
        refuse("unknown", f'"{word}" has no meaning here')


def _are_numbers(times: list[ClockTime]) -> bool:
    """Whether "at 15 and 45 past the hour" may mean minutes by its first numbers."""
    return all(
        clock.mark in ("bare", "24") and not (clock.minute or clock.midnight) for clock in times
    )


def _clause(slot: str, value: Any) -> Clause | None:
    """A clause with one filled slot; None without a value."""
    return None if value is None else Clause(**{slot: value}, order=[slot])


def _is_beside(segment: Clause, part: Clause) -> bool:
    """Whether a part that follows without a separator says more about the same segment."""
    slot = part.first
    if part.rate == DAILY and segment.days:
        return False
    if slot == DAYS and part.days[0].every and segment.rate == DAILY:
        return False
    if slot not in segment.slots or slot == RATE:
        return True
    if slot != segment.last:
        return False  # "sat 10am sun 11am"
    if slot == DAYS and part.days[0].of != segment.days[-1].of:
        refuse("inexpressible", _EITHER)
    return True


def _refuse_dated_weekday(day: Day, other: Day) -> None:
    """ "monday, 1 june" is a date with its weekday; "monday and 1 june" are two days."""
    mixed = day.of != other.of and not (day.counted or other.counted)
    if mixed and (day.text.isdigit() or other.text.isdigit()):
        refuse("inexpressible", _EITHER)


def _finished(segment: Clause) -> Clause:
    if segment.part:
        segment.times = [in_part(clock, segment.part) for clock in segment.times]
    return segment
