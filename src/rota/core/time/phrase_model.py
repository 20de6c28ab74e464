"""The parts that a phrase is made of, and the clause that gathers them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from rota.core.time.phrase_choices import refuse
from rota.core.time.phrase_clock import ClockTime, in_part

# The slots of a clause, by their fields.
DAYS, TIMES, MONTHS, RATE, WINDOWS, PAST = "days", "times", "months", "rate", "windows", "past"
WITHIN_DAY = ("us", "second", "minute", "hour")


class Day(NamedTuple):
    """One item of the day-of-month field or of the day-of-week field."""

    of: str  # "month" or "week": the field
    text: str  # its cron text
    months: tuple[str, ...] = ()  # the months it is bound to: "15 june"
    unbound: bool = False  # "of the month" or "of every month" was said
    last: bool = False  # counted from the end of the month
    counted: bool = False  # "first monday" rather than "monday"
    every: bool = False  # "every monday"


class PhraseRate(NamedTuple):
    """ "every N units", "daily", "twice a day"."""

    number: int
    unit: str
    times_a: int | None = None  # 2 in "twice a day": so many times or days must be named


DAILY = PhraseRate(1, "day")


@dataclass
class Clause:
    """Days, times and so on that belong together, in any order. A slot is empty or filled."""

    before: str = ""  # what joins it to the one before it: "", ",", "and" or ";"
    days: list[Day] = field(default_factory=list)
    times: list[ClockTime] = field(default_factory=list)
    months: list[str] = field(default_factory=list)
    windows: list[tuple[ClockTime, ClockTime]] = field(default_factory=list)
    past: list[str] = field(default_factory=list)  # minutes past the hour
    rate: PhraseRate | None = None
    daily: bool = False  # "every day" beside another rate
    part: str = ""  # morning, afternoon, evening or night; not a slot
    order: list[str] = field(default_factory=list)  # the slots as they were said

    @property
    def slots(self) -> set[str]:
        """The slots that are filled."""
        return set(self.order)

    @property
    def single(self) -> str:
        """The slot, when only one is filled."""
        return self.order[0] if len(self.slots) == 1 else ""

    @property
    def first(self) -> str:
        """The slot that was said first."""
        return self.order[0] if self.order else ""

    @property
    def last(self) -> str:
        """The slot that was said last."""
        return self.order[-1] if self.order else ""

    @property
    def within_day(self) -> bool:
        """Whether its rate is one of seconds, minutes or hours."""
        return bool(self.past) or (self.rate is not None and self.rate.unit in WITHIN_DAY)

    def joined(self, other: Clause) -> Clause:
        """Both as one clause; what `other` says comes last."""
        if self.part and not self.times and other.part not in ("", self.part):
            refuse("incomplete", f'"{self.part}" needs a time: "every {self.part} at 8"')
        mine, others = self.times, other.times
        if other.part and not others:
            mine = [in_part(clock, other.part) for clock in mine]
        if self.part and not other.part:
            others = [in_part(clock, self.part) for clock in others]
        rates = {rate for rate in (self.rate, other.rate) if rate is not None}
        return Clause(
            self.before, self.days + other.days, mine + others, self.months + other.months,
            self.windows + other.windows, self.past + other.past, _one_rate(self.rate, other.rate),
            self.daily or other.daily or (DAILY in rates and len(rates) > 1),
            self.part or other.part, self.order + other.order,
        )  # fmt: skip


def _one_rate(first: PhraseRate | None, second: PhraseRate | None) -> PhraseRate | None:
    """ "every hour every day" is every hour; other pairs of rates contradict each other."""
    if first is None or second is None or first == second:
        return first or second
    for fine, coarse in ((first, second), (second, first)):
        if fine.unit in WITHIN_DAY and coarse == DAILY:
            return fine
    return refuse("conflict", "it names two different rates")
