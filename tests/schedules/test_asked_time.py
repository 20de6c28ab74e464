"""Times and spans as people say them, and what is not read because it could mean two things."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rota.core.time.instants import instant
from rota.errors import BadInput
from rota.schedules.asked_time import said_span
from rota.schedules.preview import read_time

NOW = instant(datetime(2027, 3, 2, 7, 30, tzinfo=UTC))  # Tuesday, 08:30 in Berlin
BERLIN = "Europe/Berlin"


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("9am", "2027-03-02T09:00"), ("9 pm", "2027-03-02T21:00"), ("12am", "2027-03-02T00:00"),
        ("12:15 PM", "2027-03-02T12:15"), ("yesterday 9:00", "2027-03-01T09:00"),
        ("yesterday at 9:30pm", "2027-03-01T21:30"), ("today 02:30", "2027-03-02T02:30"),
        ("tomorrow at noon", "2027-03-03T12:00"), ("02:30", "2027-03-02T02:30"),
        ("midnight", "2027-03-02T00:00"), ("2027-03-28T02:30", "2027-03-28T02:30"),
        ("2027-03-28 02:30", "2027-03-28T02:30"), ("9:00:15", "2027-03-02T09:00:15"),
    ],
)  # fmt: skip
def test_a_time_is_read_on_the_wall_of_the_zone(text: str, means: str) -> None:
    assert read_time(text, BERLIN, NOW) == datetime.fromisoformat(means)


@pytest.mark.parametrize(
    "text",
    ["9", "yesterday 9", "13pm", "0am", "25:00", "9:75", "monday 9:00", "noonish", "", "²am"],
)
def test_what_may_mean_two_things_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is not a time"):
        read_time(text, BERLIN, NOW)


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("last night", "2027-03-01T18:00", "2027-03-02T06:00"),
        ("Last  Night", "2027-03-01T18:00", "2027-03-02T06:00"),
        ("yesterday", "2027-03-01T00:00", "2027-03-01T23:59:59.999999"),
        ("2027-02-28", "2027-02-28T00:00", "2027-02-28T23:59:59.999999"),
        ("this morning", "2027-03-02T05:00", "2027-03-02T12:00"),
        ("last 12h", "2027-03-01T20:30", "2027-03-02T08:30"),
    ],
)
def test_a_span_has_two_ends(text: str, first: str, last: str) -> None:
    ends = tuple(map(datetime.fromisoformat, (first, last)))
    assert said_span(text, BERLIN, NOW) == ends


@pytest.mark.parametrize("text", ["9am", "nightly", "2027-02-30", "last", "last night at 9"])
def test_anything_else_is_no_span(text: str) -> None:
    assert said_span(text, BERLIN, NOW) is None
