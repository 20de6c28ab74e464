"""Schedules in words: one reading, or a refusal with the readings to choose from."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.time.cron import read_cron
from rota.core.time.describe import describe, describe_timings
from rota.core.time.instants import DAY, instant
from rota.core.time.phrase_choices import KINDS
from rota.core.time.phrases import EXAMPLES, Reading, same_times, understand
from rota.core.time.recurrence import Spec, Timing, between, parse
from rota.errors import BadSchedule
from tests.core.time.kit import strategies as some
from tests.core.time.kit.phrases import Line, lines
from tests.kit.sampling import examples
from tests.kit.tables import for_each

LINES = lines()
ACCEPTED = [line for line in LINES if line.reading]
REFUSED = [line for line in LINES if not line.reading]
UNITS: dict[Reading, str] = {(DAY,): "every day", (7 * DAY,): "every week"}
NOW = instant(datetime(2027, 1, 15, 12, tzinfo=UTC))


def timings(spec: Spec) -> Reading:
    return tuple(timing.cron or timing.every_us or 0 for timing in spec.timings)


def parsed(text: str) -> Reading:
    return timings(parse(text, zone="UTC", now=NOW))


@for_each(ACCEPTED)
def test_a_phrase_has_the_reading_of_the_file(line: Line) -> None:
    assert understand(line.phrase) == line.reading
    assert parsed(line.phrase) == line.reading


@for_each(REFUSED)
def test_a_phrase_is_refused_as_the_file_says(line: Line) -> None:
    for read in (understand, parsed):
        with pytest.raises(BadSchedule) as caught:
            read(line.phrase)
        error = caught.value
        assert error.facts["refusal"] == line.refusal
        assert error.facts["readings"] == line.offered
        verb = "is ambiguous" if line.refusal == "ambiguous" else "is not understood"
        assert str(error).startswith(f'"{line.phrase}" {verb}: ')
        for offered in line.offered:
            assert f'"{offered}"' in error.advice


@for_each(REFUSED)
def test_every_reading_that_is_offered_is_accepted(line: Line) -> None:
    readings = [parsed(offered) for offered in line.offered]
    assert len(set(readings)) == len(readings)
    if line.refusal == "ambiguous":
        assert len(readings) >= 2


@for_each(ACCEPTED)
def test_a_reading_in_english_is_a_phrase_with_the_same_reading(line: Line) -> None:
    seen = describe_timings(line.reading)
    if line.reading in UNITS:  # As a phrase, "every day" is on the wall clock.
        assert seen == UNITS[line.reading]
    else:
        assert same_times(understand(seen), line.reading)


def test_the_file_has_every_class_of_refusal_and_no_phrase_twice() -> None:
    assert len(LINES) >= 400
    assert {line.refusal for line in REFUSED} == set(KINDS)
    phrases = [line.phrase for line in LINES]
    assert len(set(phrases)) == len(phrases)


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_is_understood(example: str) -> None:
    assert understand(example)


def test_what_is_not_understood_is_refused_with_examples() -> None:
    with pytest.raises(BadSchedule) as caught:
        understand("every friday at teatime")
    for example in EXAMPLES:
        assert example in caught.value.advice


def test_a_zone_in_a_phrase_is_refused_and_its_name_is_reported() -> None:
    for text, zone in (("est", "America/New_York"), ("UTC", "UTC"), ("gmt", "UTC")):
        with pytest.raises(BadSchedule, match="is a time zone") as caught:
            understand(f"every day at 9am {text}")
        assert f"--timezone {zone}" in caught.value.advice
    with pytest.raises(BadSchedule) as caught:
        understand("every day at 9 america/new_york")
    assert "--timezone America/New_York" in caught.value.advice


# -- describe and back -------------------------------------------------------------------------


@settings(max_examples=examples(1_500))
@given(some.five_fields | some.six_fields)
def test_a_described_expression_is_read_back_as_itself_or_refused(text: str) -> None:
    cron = read_cron(text).text
    seen = describe_timings((cron,))
    try:
        back = understand(seen)
    except BadSchedule:
        return
    assert same_times(back, (cron,)), (cron, seen, back)


FIELDS = st.tuples(
    st.sampled_from(["0", "30", "*/15", "5,35"]),
    st.sampled_from(["9", "9,17", "*", "9-17", "9-17/2", "*/6", "22-4"]),
    st.sampled_from(["* * *", "* * MON-FRI", "* * SAT,SUN", "1 * *", "L * *", "15 JUN *", "LW * *",
                     "* * MON#1", "* JAN-MAR *", "* * FRIL", "1,15 * *", "* JUN,JUL MON",
                     "L-3 * *", "*/2 * *", "* * MON#1,MON#3"]),
).map(" ".join)  # fmt: skip


@settings(max_examples=examples(400))
@given(st.lists(FIELDS, min_size=1, max_size=3, unique=True))
def test_ordinary_specs_are_reported_in_words_that_are_read_back(crons: list[str]) -> None:
    spec = Spec(tuple(Timing(cron=cron) for cron in crons))
    seen = describe(spec).removesuffix(" (UTC)")
    assert same_times(parsed(seen), tuple(crons)), (crons, seen)


@settings(max_examples=examples(300))
@given(st.integers(1, 10**13))
def test_a_described_interval_is_read_back_as_itself(every_us: int) -> None:
    assert understand(describe_timings((every_us,))) == (every_us,)


# -- several clauses ---------------------------------------------------------------------------

CLAUSES = (
    "monday at 9am", "every friday at 17:00", "weekdays at 8:30", "weekends at 11am",
    "every day at 12:00", "first monday of the month at 9", "last day of the month at 18:00",
    "25 december at 8am", "the 15th of june at 7am",
    "every 30 minutes between 9am and 5pm on saturdays",
    "every hour on sundays", "last day of the quarter at 17:00", "every wednesday night at 10",
)  # fmt: skip


# With lists inside, "and" no longer tells where a clause ends.
LISTS = (
    "1 jan and 1 jul at 6:00", "tuesday and thursday at 10:15", "weekends at 11am and 4pm",
    "at 7:00 and 19:00 on the 1st and 15th", "every day at 6, 12 and 18",
)  # fmt: skip


@lru_cache
def occurrences(text: str) -> list[int]:
    spec = parse(text, zone="Europe/Berlin", now=NOW)
    return between(spec, NOW, NOW + 400 * DAY, limit=100_000)


def fire_as_one(chosen: list[str], joint: str) -> bool:
    alone = {at for clause in chosen for at in occurrences(clause)}
    return occurrences(joint.join(chosen)) == sorted(alone)


@settings(max_examples=examples(60))
@given(st.lists(st.sampled_from(CLAUSES), min_size=2, max_size=4, unique=True))
def test_several_clauses_fire_exactly_when_each_of_them_does(chosen: list[str]) -> None:
    assert fire_as_one(chosen, " and ")
    assert fire_as_one(chosen, ", ")


@settings(max_examples=examples(60))
@given(st.lists(st.sampled_from(CLAUSES + LISTS), min_size=2, max_size=4, unique=True))
def test_a_semicolon_keeps_clauses_with_lists_apart(chosen: list[str]) -> None:
    assert fire_as_one(chosen, "; ")


def test_a_date_with_a_time_is_not_a_year() -> None:
    assert understand("25 december 2pm") == ("0 14 25 DEC *",)
    assert understand("25 december 9pm") == ("0 21 25 DEC *",)
    assert understand("first day of the quarter 2pm") == ("0 14 1 */3 *",)


def test_a_year_after_a_day_of_the_quarter_is_refused_as_one_time() -> None:
    with pytest.raises(BadSchedule, match="2027-01-01T09:00"):
        understand("first day of the quarter 2027")


# -- hostile text ------------------------------------------------------------------------------


def refusal_of(text: str) -> BadSchedule | None:
    """Nothing but BadSchedule may come out."""
    try:
        parse(text, zone="UTC", now=NOW)
    except BadSchedule as error:
        return error
    return None


WORDS = st.sampled_from(
    [word for line in LINES for word in line.phrase.split()]
    + [",", ";", "-", "\0", "\ud800", "ſ", "٣", "½", "2027", "99999", "1.5", ":30", "("]
)


@settings(max_examples=examples(2_000))
@given(st.text(max_size=60) | st.lists(WORDS, max_size=14).map(" ".join))
def test_any_text_has_a_reading_or_a_clear_refusal(text: str) -> None:
    error = refusal_of(text)
    if error is not None:
        assert error.advice
        assert "refusal" not in error.facts or str(error).isprintable()


@pytest.mark.parametrize(
    "piece",
    ["x", "9", "9 ", "1,", "at ", "every ", "monday at 9 and ", "at 9 and 5 on monday and ", "\0",
     "\ud800", "1st ", "to ", "half past ", "é", "5m", "* ", "1.", "2027-", "@every 9", "-"],
)  # fmt: skip
def test_long_text_is_refused_at_once(piece: str) -> None:
    with pytest.raises(BadSchedule):
        parse(piece * (100_000 // len(piece)), zone="UTC", now=NOW)
    with pytest.raises(BadSchedule):
        understand(piece * (100_000 // len(piece)))
    for length in (900, 999):  # long enough to cost, short enough to be read
        refusal_of((piece * 1_000)[:length])


def test_a_number_too_large_for_a_duration_is_refused() -> None:
    for text in ("9" * 400 + "h", "@every " + "9" * 400 + "h", "every " + "9" * 400 + " hours"):
        with pytest.raises(BadSchedule):
            parse(text, zone="UTC", now=NOW)
