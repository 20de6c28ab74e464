"""Random expressions, zones and dates against the oracle, and laws that hold for all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rota.core.time.calendar import Walls
from rota.core.time.cron import read_cron
from rota.core.time.describe import describe, describe_cron
from rota.core.time.instants import DAY, HOUR, MINUTE, SECOND
from rota.core.time.recurrence import (
    Spec,
    Timing,
    between,
    count_between,
    next_after,
    notes,
    parse,
    previous_before,
)
from rota.errors import BadSchedule
from tests.core.time.kit import oracle
from tests.core.time.kit import strategies as some
from tests.core.time.kit.backwards import latest_between
from tests.kit.sampling import examples

# Whole hours and half hours, a day skipped, midnight gaps, negative DST, Ramadan, odd seconds.
ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia",
    "Asia/Beirut", "America/Sao_Paulo", "America/Santiago", "Europe/Dublin", "Africa/Casablanca",
    "Asia/Tehran", "Asia/Kathmandu", "America/St_Johns", "Pacific/Chatham", "Africa/Cairo",
    "Antarctica/Troll", "Europe/Moscow", "Asia/Pyongyang", "America/Caracas", "Asia/Gaza",
)  # fmt: skip
gaps = st.sampled_from(["auto", "next", "skip"])
repeats = st.sampled_from(["auto", "first", "second", "both"])


def at(*numbers: int) -> int:
    return oracle.micros(datetime(*numbers, tzinfo=UTC))  # type: ignore[arg-type,misc]


@st.composite
def near_a_change(draw: st.DrawFn) -> tuple[str, int]:
    """A zone, and an instant that is often within a day of a move of its clock."""
    zone = draw(st.sampled_from(ZONES))
    year = draw(st.integers(1975, 2037))
    start = draw(st.integers(at(year, 1, 1), at(year + 1, 1, 1)))
    moves = oracle.moves(ZoneInfo(zone), year, year)
    if draw(st.booleans()) and moves:
        move = moves[draw(st.integers(0, len(moves) - 1))]
        start = move[0] * SECOND - draw(st.integers(0, 30 * HOUR))
    return zone, start


@settings(max_examples=examples(150))
@given(some.expressions, near_a_change(), gaps, repeats)
def test_a_day_and_a_half_of_any_expression_is_as_the_wall_says(
    text: str, where: tuple[str, int], gap: str, repeat: str
) -> None:
    zone, start = where
    start -= start % MINUTE
    stop = start + 36 * HOUR
    spec = Spec((Timing(cron=text, zone=zone, gap=gap, repeat=repeat),))
    looks = oracle.walk(ZoneInfo(zone), start, stop)
    wanted = oracle.occurrences(text, oracle.rule_for(text, gap, repeat), looks)
    assert between(spec, start - 1, stop - 1, limit=5_000) == wanted
    assert latest_between(spec, start - 1, stop - 1, 5_000) == wanted
    assert count_between(spec, start - 1, stop - 1) == len(wanted)


@settings(max_examples=examples(40))
@given(some.six_fields, near_a_change(), gaps, repeats)
def test_an_hour_of_any_expression_with_seconds_is_as_the_wall_says(
    text: str, where: tuple[str, int], gap: str, repeat: str
) -> None:
    zone, start = where
    start -= start % SECOND
    stop = start + 60 * MINUTE
    spec = Spec((Timing(cron=text, zone=zone, gap=gap, repeat=repeat),))
    looks = oracle.walk(ZoneInfo(zone), start, stop, step_s=1)
    wanted = oracle.occurrences(text, oracle.rule_for(text, gap, repeat), looks)
    assert between(spec, start - 1, stop - 1, limit=9_000) == wanted
    assert count_between(spec, start - 1, stop - 1) == len(wanted)


ODD_SECONDS = [
    ("Africa/Monrovia", at(1972, 1, 7, 0, 44)),  # -0:44:30 until then
    ("Europe/Amsterdam", at(1937, 6, 30, 22)),  # +1:19:32 to +1:20
    ("Asia/Kolkata", at(1905, 12, 31, 18)),
    ("America/New_York", at(1883, 11, 18, 16, 40)),
    ("Pacific/Apia", at(1892, 7, 5, 11)),  # The same day twice.
]


@settings(max_examples=examples(25))
@given(some.named_times, st.sampled_from(ODD_SECONDS), gaps, repeats)
def test_changes_at_odd_seconds_in_history_are_as_the_wall_says(
    text: str, where: tuple[str, int], gap: str, repeat: str
) -> None:
    zone, middle = where
    start, stop = middle - 40 * MINUTE, middle + 40 * MINUTE
    minute, _, rest = text.partition(" ")
    text = f"{minute} * {rest.partition(' ')[2]}"  # Any hour, so that something is met.
    spec = Spec((Timing(cron=text, zone=zone, gap=gap, repeat=repeat),))
    looks = oracle.walk(ZoneInfo(zone), start, stop, step_s=1)
    wanted = oracle.occurrences(text, oracle.rule_for(text, gap, repeat), looks)
    assert between(spec, start - 1, stop - 1, limit=5_000) == wanted


@settings(max_examples=examples(100))
@given(some.day_fields, st.integers(1890, 2110))
def test_the_days_of_four_years_are_those_that_the_calendar_gives(fields: str, year: int) -> None:
    text = f"0 0 {fields}"
    wanted = oracle.expression(text)
    day, days = datetime(year, 1, 1, tzinfo=UTC), []
    while day.year < year + 4:
        if wanted.on_day(day.date()):
            days.append(oracle.micros(day))
        day += timedelta(days=1)
    spec = Spec((Timing(cron=text),))
    assert between(spec, at(year, 1, 1) - 1, oracle.micros(day) - 1, limit=3_000) == days


def loose(low: int = at(1900, 1, 1), high: int = at(2150, 1, 1)) -> st.SearchStrategy[int]:
    return st.integers(low, high)


@settings(max_examples=examples(400))
@given(some.expressions | some.six_fields, st.sampled_from(ZONES), gaps, repeats, loose())
def test_next_and_previous_are_inverses(
    text: str, zone: str, gap: str, repeat: str, when: int
) -> None:
    spec = Spec((Timing(cron=text, zone=zone, gap=gap, repeat=repeat),))
    later = next_after(spec, when)
    assume(later is not None)
    assert later is not None
    assert later > when
    earlier = previous_before(spec, later)
    if earlier is not None:
        assert earlier <= when
        assert next_after(spec, earlier) == later
        assert count_between(spec, earlier, later) == 1
    assert count_between(spec, when, later) == 1
    assert count_between(spec, when, later - 1) == 0
    assert previous_before(spec, later + 1) == later


@settings(max_examples=examples(150))
@given(
    st.lists(
        st.builds(lambda text, zone: Timing(cron=text, zone=zone), some.expressions,
                  st.sampled_from(ZONES))
        | st.builds(lambda every, anchor: Timing(every_us=every, anchor_at=anchor),
                    st.integers(7 * MINUTE, 3 * DAY), loose())
        | st.builds(lambda when: Timing(at=when), loose(at(2026, 1, 1), at(2026, 2, 1))),
        min_size=1, max_size=4,
    ),
    loose(at(2025, 12, 25), at(2026, 1, 10)),
    st.integers(0, 5 * DAY),
    st.none() | loose(at(2025, 12, 25), at(2026, 1, 10)),
    st.none() | loose(at(2025, 12, 25), at(2026, 1, 20)),
)  # fmt: skip
def test_several_timings_are_the_union_of_each(
    timings: list[Timing], after: int, length: int, start: int | None, end: int | None
) -> None:
    until = after + length
    spec = Spec(tuple(timings), start, end)
    union = {t for each in timings for t in between(Spec((each,)), after, until, limit=9_000)}
    wanted = sorted(t for t in union if (start is None or start <= t) and (end is None or t <= end))
    assert between(spec, after, until, limit=40_000) == wanted
    assert count_between(spec, after, until) == len(wanted)
    assert latest_between(spec, after, until, 5) == wanted[-5:]
    assert between(spec, after, until, limit=5) == wanted[:5]


@settings(max_examples=examples(200))
@given(some.expressions | some.six_fields)
def test_the_normal_form_means_the_same_and_is_its_own_normal_form(text: str) -> None:
    once = read_cron(text)
    again = read_cron(once.text)
    assert again == once
    assert read_cron(f"  {text.lower()} ".replace(" ", "  ")) == once


@settings(max_examples=examples(300))
@given(some.expressions | some.six_fields, st.sampled_from(ZONES))
def test_every_spec_can_be_reported_in_words_and_written_as_json(text: str, zone: str) -> None:
    spec = Spec(
        (Timing(cron=text, zone=zone), Timing(every_us=5 * MINUTE), Timing(at=at(2027, 1, 1)))
    )
    assert describe(spec)
    seen = describe_cron(text)
    assert "  " not in seen
    assert not seen.endswith((",", " "))
    assert msgspec.json.decode(msgspec.json.encode(spec), type=Spec) == spec
    found = next_after(spec, at(2026, 1, 1))
    assert found is not None
    assert notes(spec, found) == notes(spec, found)


def test_an_expression_that_never_fits_is_distinguished_from_one_that_is_rare() -> None:
    assert Walls(read_cron("0 0 31 2 *")).days.never()
    assert Walls(read_cron("0 0 30 2 ?")).days.never()
    assert Walls(read_cron("0 0 31W 4,6,9,11 *")).days.never()
    assert not Walls(read_cron("0 0 29 2 *")).days.never()
    assert not Walls(read_cron("0 0 * 2 MON#5")).days.never()
    assert not Walls(read_cron("0 0 31 2 MON")).days.never()  # Either of the two is enough.


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("TZ=UTC 0 9 * * *", "begins with a time zone", "--timezone Europe/Berlin"),
        ("2027-12-25 at 9", "'2027-12-25 at 9' is not a time", "Write 2027-03-28T09:00"),
        ("@every 5M", "5M may be minutes or months", '"5m"; "every 5 months"'),
        ("every 15 M on weekdays", "15 M may be minutes or months", '"15m"'),
        ("30m 1h", "it may be one interval or several", "largest unit first"),
        ("1h30m5h", "it may be one interval or several", "give a list"),
        ("2027-02-30", "'2027-02-30' is not a time: day is out of range", "2027-03-28T09:00"),
    ],
)
def test_the_error_names_the_option_or_the_form_to_write(text: str, said: str, hint: str) -> None:
    with pytest.raises(BadSchedule) as caught:
        parse(text, zone="UTC", now=0)
    assert said in str(caught.value)
    assert "isoformat" not in str(caught.value)
    assert hint in caught.value.advice
