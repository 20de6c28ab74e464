"""How pages write numbers, times and stored values."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rota.core.time.instants import DAY, HOUR, MINUTE, SECOND, instant
from rota.http.pages import text
from rota.http.pages.text import WallClock

NOW = instant(datetime(2026, 11, 16, 13, 32, 8, tzinfo=UTC))


@pytest.mark.parametrize(
    ("duration_us", "shown"),
    [
        (None, "–"), (0, "0 ms"), (92_000, "92 ms"), (1_870_000, "1.87 s"), (48_200_000, "48.2 s"),
        (6 * MINUTE + 12 * SECOND, "6 min 12 s"), (HOUR + 4 * MINUTE, "1 h 04 min"),
        (2 * DAY + 3 * HOUR, "2 d 3 h"),
    ],
)  # fmt: skip
def test_a_duration_has_the_precision_that_matters(duration_us: int | None, shown: str) -> None:
    assert text.duration(duration_us) == shown


def test_instants_are_relative_in_lists_and_exact_in_their_title() -> None:
    clock = WallClock("Europe/Berlin", NOW)
    past, future = clock.stamp(NOW - 11 * MINUTE), clock.stamp(NOW + 43 * MINUTE)
    assert past is not None
    assert future is not None
    assert (past.ago, past.day) == ("11 min ago", "14:21:08")
    assert past.title == "Mon 16 Nov 2026 14:21:08 CET · 13:21:08 UTC"
    assert future.ago == "in 43 min"
    assert clock.day(NOW - 3 * DAY) == "Fri 14:32:08"
    assert clock.day(NOW - 13 * DAY) == "Tue 3 Nov 14:32:08"


def test_money_and_counts_line_up() -> None:
    assert [text.money(one) for one in (None, 0, 0.0051, 1.84, 1240)] == [
        "–", "$0", "$0.0051", "$1.84", "$1,240.00",
    ]  # fmt: skip
    assert (text.tokens(5_310), text.tokens(612_400)) == ("5,310", "612 k")
    assert (text.percent(17, 9871), text.percent(38, 100)) == ("0.17 %", "38 %")


def test_a_stored_value_is_fields_and_not_a_wall_of_json() -> None:
    found = text.stored_value(
        '{"month":"2026-10","rows":[1,2],"to":{"iban":"DE89"},"k":"[redacted]"}'
    )
    month, rows, to, key = found.fields
    assert (month.text, rows.text, to.fields[0].text) == ("2026-10", "1, 2", "DE89")
    assert key.kind == "redacted"
    assert text.stored_value("null").is_empty
    assert text.stored_value("[" * 5_000).text.startswith("[[")


def test_long_values_are_cut_and_say_so() -> None:
    many = text.stored_value("[" + ",".join(f'{{"n":{n}}}' for n in range(80)) + "]")
    assert many.fields[-1].text == "30 more"
    assert text.stored_value('"' + "x" * 9_000 + '"').text.endswith("(9,000 characters)")


def test_a_name_is_one_segment_of_an_address() -> None:
    assert text.segment("a/b?c#d") == "a%2Fb%3Fc%23d"
    assert text.city("America/New_York") == "New York"
