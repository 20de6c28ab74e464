"""Durations and instants: what people write, and what they get back."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.time.instants import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    instant,
    iso,
    micros,
    moment,
    span,
)
from rota.errors import BadInput


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        ("90s", 90 * SECOND),
        ("5m", 5 * MINUTE),
        ("1h30m", HOUR + 30 * MINUTE),
        ("1h 30m", HOUR + 30 * MINUTE),
        (" 24H ", DAY),
        ("2d", 2 * DAY),
        ("1w", 7 * DAY),
        ("250ms", 250_000),
        ("10us", 10),
        ("1.5h", 90 * MINUTE),
        ("0s", 0),
        (0, 0),
        (1, SECOND),
        (0.25, 250_000),
        (-2, -2 * SECOND),
        (timedelta(days=1, microseconds=3), DAY + 3),
        (timedelta(seconds=-1), -SECOND),
    ],
)
def test_durations_are_read(duration: Any, expected: int) -> None:
    assert micros(duration) == expected


@pytest.mark.parametrize(
    "duration",
    ["", " ", "5", "m5", "5 minutes", "-5m", "1h-30m", "1,5h", "5mm", "1h30", "1e3s", "now", None,
     True, [], math.nan, math.inf],
    ids=repr,
)  # fmt: skip
def test_what_is_no_duration_is_refused_with_an_example(duration: Any) -> None:
    with pytest.raises(BadInput) as caught:
        micros(duration)
    assert "1h30m" in caught.value.advice


@pytest.mark.parametrize("duration", ["5", " 5 ", "0.5"])
def test_a_number_as_text_needs_a_unit(duration: str) -> None:
    with pytest.raises(BadInput, match="without a unit") as caught:
        micros(duration)
    assert f'"{duration.strip()}s"' in caught.value.advice


@pytest.mark.parametrize(
    ("duration_us", "text"),
    [
        (0, "0ms"),
        (999_000, "999ms"),
        (SECOND, "1s"),
        (90 * SECOND, "1m30s"),
        (HOUR, "1h"),
        (DAY + 5 * HOUR + MINUTE, "1d5h"),
        (DAY + SECOND, "1d1s"),
        (-90 * SECOND, "-1m30s"),
    ],
)
def test_durations_print_in_their_two_largest_units(duration_us: int, text: str) -> None:
    assert span(duration_us) == text


@given(st.integers(0, 10_000 * DAY))
def test_a_printed_duration_reads_back_to_nearly_the_same(duration_us: int) -> None:
    read = micros(span(duration_us))
    assert abs(read - duration_us) <= max(500, duration_us / 2)
    if duration_us >= SECOND:
        assert span(read) == span(duration_us)


@given(st.timedeltas(timedelta(-1000), timedelta(1000)))
def test_a_timedelta_keeps_every_microsecond(duration: timedelta) -> None:
    assert timedelta(microseconds=micros(duration)) == duration


@given(st.datetimes(timezones=st.just(UTC)))
def test_instants_round_trip(when: datetime) -> None:
    assert moment(instant(when)) == when


@given(st.integers(-(2**52), 2**52), st.integers(-14 * 60, 14 * 60))
def test_an_instant_does_not_depend_on_the_zone_it_is_shown_in(at: int, east: int) -> None:
    assert instant(moment(at).astimezone(timezone(timedelta(minutes=east)))) == at


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(BadInput, match="no time zone"):
        instant(datetime(2024, 1, 1))  # noqa: DTZ001


def test_instants_print_as_iso_8601_in_utc() -> None:
    assert iso(1_700_000_000_123_456) == "2023-11-14T22:13:20.123Z"
    assert iso(0) == "1970-01-01T00:00:00.000Z"
