"""From a text to a spec: every kind, and every way to be refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from rota.core.time.instants import DAY, HOUR, MINUTE, SECOND, instant
from rota.core.time.recurrence import (
    Spec,
    Timing,
    between,
    count_between,
    next_after,
    parse,
    previous_before,
)
from rota.errors import BadSchedule, UnknownZone
from tests.core.time.kit.backwards import latest_between

NOW = instant(datetime(2027, 1, 15, 12, 3, 7, 500_000, tzinfo=UTC))
WHOLE = NOW - 500_000
BERLIN = "Europe/Berlin"


def spec(text: Any, **options: Any) -> Spec:
    return parse(text, **{"zone": BERLIN, "now": NOW, **options})


def utc(*numbers: int) -> int:
    return instant(datetime(*numbers, tzinfo=UTC))  # type: ignore[arg-type,misc]


@pytest.mark.parametrize(
    ("text", "cron"),
    [
        ("0 9 * * mon-fri", "0 9 * * MON-FRI"),
        ("0 0 9 * * 1", "0 9 * * 1"),
        ("* * * * * *", "* * * * * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@Midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
        ("every friday at 5pm", "0 17 * * FRI"),
        ("weekdays at 9:30", "30 9 * * MON-FRI"),
        ("first monday of the month at noon", "0 12 * * MON#1"),
    ],
)
def test_cron_aliases_and_words_become_cron(text: str, cron: str) -> None:
    assert spec(text) == Spec((Timing(cron=cron, zone=BERLIN),))


@pytest.mark.parametrize(
    ("text", "every"),
    [
        ("5m", 5 * MINUTE),
        ("90s", 90 * SECOND),
        ("1h30m", 90 * MINUTE),
        ("1H 30M", 90 * MINUTE),
        ("1.5s", 1_500_000),
        ("2d", 2 * DAY),
        ("@every 5m", 5 * MINUTE),
        ("@every 1h30m", 90 * MINUTE),
        ("every 15 minutes", 15 * MINUTE),
        (timedelta(hours=2), 2 * HOUR),
    ],
)
def test_intervals_count_from_now_by_the_second(text: Any, every: int) -> None:
    made = spec(text)
    assert made == Spec((Timing(every_us=every, anchor_at=WHOLE, zone=BERLIN),))
    assert next_after(made, NOW) == WHOLE + every


def test_an_interval_counts_from_its_anchor_else_from_the_start() -> None:
    assert spec("1h", anchor_at=utc(2020, 1, 1)).timings[0].anchor_at == utc(2020, 1, 1)
    start = utc(2027, 2, 1, 0, 30)
    made = spec("1h", start_at=start)
    assert next_after(made, NOW) == start
    assert next_after(made, start) == start + HOUR


def test_intervals_are_elapsed_time_and_reach_both_ways_from_the_anchor() -> None:
    made = spec("24h", anchor_at=utc(2027, 3, 27, 12))
    days = between(made, utc(2027, 3, 26), utc(2027, 3, 30), limit=9)
    assert days == [utc(2027, 3, day, 12) for day in (26, 27, 28, 29)]
    assert previous_before(made, days[0]) == days[0] - DAY
    assert count_between(made, utc(2027, 1, 1), utc(2028, 1, 1)) == 365


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2027-03-01T09:00", utc(2027, 3, 1, 8)),
        ("2027-07-01 09:00", utc(2027, 7, 1, 7)),
        ("2027-07-01", utc(2027, 6, 30, 22)),
        ("2027-07-01T09:00:30Z", utc(2027, 7, 1, 9, 0, 30)),
        ("2027-07-01T09:00+05:30", utc(2027, 7, 1, 3, 30)),
        (datetime(2027, 7, 1, 9, tzinfo=UTC), utc(2027, 7, 1, 9)),
        (datetime(2027, 7, 1, 9, tzinfo=timezone(timedelta(hours=-3))), utc(2027, 7, 1, 12)),
        (datetime(2027, 7, 1, 9), utc(2027, 7, 1, 7)),  # noqa: DTZ001
        ("2027-03-28T02:30", utc(2027, 3, 28, 1)),  # In the gap: the first instant after it.
        ("2027-10-31T02:30", utc(2027, 10, 31, 0, 30)),  # Twice: the first.
    ],
)
def test_one_time_is_an_instant_and_wall_time_is_read_in_the_zone(text: Any, at: int) -> None:
    made = spec(text)
    assert made == Spec((Timing(at=at, zone=BERLIN),))
    assert next_after(made, NOW) == at
    assert next_after(made, at) is None
    assert previous_before(made, at) is None
    assert previous_before(made, at + 1) == at
    assert count_between(made, at - 1, at) == 1


def test_one_time_follows_the_options_too() -> None:
    assert spec("2027-10-31T02:30", repeat="second").timings[0].at == utc(2027, 10, 31, 1, 30)
    both = spec("2027-10-31T02:30", repeat="both")
    assert [timing.at for timing in both.timings] == [
        utc(2027, 10, 31, 0, 30),
        utc(2027, 10, 31, 1, 30),
    ]
    with pytest.raises(BadSchedule, match="does not exist in Europe/Berlin"):
        spec("2027-03-28T02:30", gap="skip")


def test_several_are_one_spec_and_doubles_are_dropped() -> None:
    made = spec(["0 9 * * *", "@hourly", "30m", "daily at 9am and 5:30pm", "0  9 * * *"])
    assert [timing.cron for timing in made.timings] == [
        "0 9 * * *", "0 * * * *", None, "30 17 * * *",
    ]  # fmt: skip


def test_a_timing_is_taken_as_it_is() -> None:
    timing = Timing(cron="0 9 * * *", zone="Asia/Tokyo", gap="skip")
    assert spec([timing, "5m"]).timings[0] is timing


def test_start_and_end_belong_to_the_spec() -> None:
    start, end = utc(2027, 2, 1, 9), utc(2027, 2, 3, 9)
    made = spec("0 9 * * *", zone="UTC", start_at=start, end_at=end)
    assert between(made, NOW, utc(2028, 1, 1), limit=9) == [start, start + DAY, end]
    assert previous_before(made, utc(2030, 1, 1)) == end
    assert previous_before(made, start) is None
    assert next_after(made, end) is None
    assert latest_between(made, NOW, utc(2028, 1, 1), 2) == [start + DAY, end]
    assert count_between(made, NOW, utc(2028, 1, 1)) == 3


def test_a_spec_is_json_and_back() -> None:
    made = spec(["0 9 * * *", "5m", "2027-07-01"], end_at=utc(2028, 1, 1))
    assert msgspec.json.decode(msgspec.json.encode(made), type=Spec) == made


REFUSED = [
    ("", "the schedule is empty"),
    ("   ", "the schedule is empty"),
    ("0 9 * *", "has 4 fields"),
    ("0 0 9 * * * 2027", "has 7 fields"),
    ("61 9 * * *", "minute: 61 is outside 0-59"),
    ("MON 9 * * *", "minute: MON is not a number"),
    ("*/5", "has 1 field;"),
    ("5", "has 1 field;"),
    ("0 0 31 2 *", "never fires: day 31 does not come in month 2"),
    ("0 0 30,31 FEB ?", "never fires: day 30,31 does not come in month FEB"),
    ("0 0 31 4,6,9,11 *", "never fires"),
    ("@reboot", "'@reboot' is not an alias"),
    ("@dayly", "'@dayly' is not an alias"),
    ("@every", "'@every' is not an alias"),
    ("@every banana", "@every banana"),
    ("@daily 5m", "is not an alias"),
    ("CRON_TZ=Asia/Tokyo 0 9 * * *", "begins with a time zone"),
    ("100ms", "an interval of 100ms fires more than once a second"),
    ("0s", "longer than zero"),
    (timedelta(0), "longer than zero"),
    (timedelta(seconds=-5), "longer than zero"),
    (timedelta(days=99_999_999), "is too long"),
    ("2020-01-01T00:00", "the last occurrence was 2019-12-31T23:00:00.000Z"),
    ("2027-13-01", "is not a time"),
    ("2027-02-30T09:00", "is not a time"),
    ("9999-12-31", "too far away"),
    ("banana", "is not understood"),
    ("every other friday", "is not understood"),
    (5, "5 is not a schedule"),
    (None, "None is not a schedule"),
    ([], "1 to 100 timings"),
    ([5], "5 is not a schedule"),
    (["5m"] * 101, "1 to 100 timings"),
]


@pytest.mark.parametrize(("text", "said"), REFUSED, ids=str)
def test_what_cannot_be_is_refused(text: Any, said: str) -> None:
    with pytest.raises(BadSchedule) as caught:
        spec(text)
    assert said in str(caught.value)
    assert caught.value.advice


def test_what_never_fires_is_pointed_at() -> None:
    with pytest.raises(BadSchedule) as caught:
        spec("0 0 31 2 *")
    assert str(caught.value) == (
        "never fires: day 31 does not come in month 2\n    0 0 31 2 *\n        ^^^^^^"
    )
    assert "L" in caught.value.advice


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"gap": "shift"}, "gap='shift' is not a rule"),
        ({"repeat": "once"}, "repeat='once' is not a rule"),
        ({"start_at": NOW + DAY, "end_at": NOW}, "before it starts"),
        ({"end_at": NOW - DAY}, "nothing left to fire: the last occurrence was"),
        ({"start_at": NOW + 1, "end_at": NOW + 2}, "no occurrence lies between"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadSchedule) as caught:
        spec("0 9 * * *", **options)
    assert said in str(caught.value)


def test_a_time_that_is_always_in_the_gap_never_fires_unless_moved() -> None:
    with pytest.raises(BadSchedule, match="do not exist in Europe/Berlin"):
        spec("30 2 * MAR SUNL", gap="skip")
    assert next_after(spec("30 2 * MAR SUNL"), NOW) == utc(2027, 3, 28, 1)


def test_less_than_a_second_can_be_said_on_purpose() -> None:
    assert spec("100ms", sub_second=True).timings[0].every_us == 100_000


def test_an_unknown_zone_is_refused_before_anything_else() -> None:
    with pytest.raises(UnknownZone, match="Europe/Berln"):
        spec("banana", zone="Europe/Berln")
    with pytest.raises(UnknownZone):
        spec(Timing(cron="0 9 * * *", zone="Mars/Base"))


def test_a_stored_timing_that_makes_no_sense_says_so_when_asked() -> None:
    for timing in (Timing(), Timing(every_us=0), Timing(cron="nonsense")):
        with pytest.raises(BadSchedule):
            next_after(Spec((timing,)), NOW)


def test_the_leap_day_is_found_across_the_year_2100() -> None:
    made = spec("0 0 29 2 *", zone="UTC", now=utc(2096, 3, 1))
    assert next_after(made, utc(2096, 3, 1)) == utc(2104, 2, 29)
    rare = spec("0 0 * 2 MON#5", zone=BERLIN, now=utc(2072, 3, 1))
    assert next_after(rare, utc(2072, 3, 1)) == utc(2112, 2, 28, 23)


def test_the_ends_of_the_calendar_are_ends_and_not_errors() -> None:
    far, early = utc(9999, 12, 31), utc(1, 1, 1)
    for text in ("* * * * *", "0 0 29 2 *", "5m"):
        made = spec(text)
        assert next_after(made, far) is None
        assert previous_before(made, early) is None
        assert next_after(made, early) is not None
        assert previous_before(made, far) is not None
    assert count_between(spec("0 0 1 1 *", zone="UTC"), early, far) == 9_997


def test_an_instant_that_three_timings_name_is_counted_once() -> None:
    made = spec(["0 * * * *", "30 9,10 * * *", "30 9 * * *"], zone="UTC")
    assert count_between(made, utc(2027, 5, 1) - 1, utc(2027, 5, 2) - 1) == 24 + 2


def test_long_gaps_are_counted_without_being_walked() -> None:
    every_second = spec("* * * * * *", zone=BERLIN)
    assert (
        count_between(every_second, utc(2000, 1, 1), utc(2030, 1, 1))
        == (utc(2030, 1, 1) - utc(2000, 1, 1)) // SECOND
    )
    assert count_between(spec("1s"), utc(2000, 1, 1), utc(2000, 1, 2)) == 86_400
