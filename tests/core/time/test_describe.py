"""Plain English for any spec."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rota.core.time.describe import describe, describe_cron
from rota.core.time.instants import DAY, HOUR, MINUTE, SECOND, instant
from rota.core.time.recurrence import Spec, Timing, parse

CRON = [
    ("* * * * *", "every minute"),
    ("*/1 * * * *", "every minute"),
    ("*/15 * * * *", "every 15 minutes, every day"),
    ("*/25 * * * *", "at minutes 0, 25 and 50 past every hour"),
    ("0 * * * *", "every hour, on the hour"),
    ("15 * * * *", "at minute 15 past every hour"),
    ("0-10 * * * *", "at minutes 0 to 10 past every hour"),
    ("0 9 * * *", "at 09:00, every day"),
    ("0 9 * * MON-FRI", "at 09:00, Monday to Friday"),
    ("0 9 * * 0-7", "at 09:00, Sunday to Saturday"),
    ("0 9 * JUN-JUN SUN-SUN", "at 09:00, on Sunday, in June"),
    ("0 9,17 * * *", "at 09:00 and 17:00, every day"),
    ("0,30 9,17 * * *", "at 09:00, 09:30, 17:00 and 17:30, every day"),
    ("*/15 9-17 * * 1-5", "every 15 minutes, from 09:00 to 17:45, Monday to Friday"),
    ("* 9 * * *", "every minute, from 09:00 to 09:59, every day"),
    ("*/10 9,17 * * *",
     "every 10 minutes, from 09:00 to 09:50 and from 17:00 to 17:50, every day"),
    ("* 1,3,5,7 * * *",
     "every minute, during the hours 01:00, 03:00, 05:00 and 07:00, every day"),
    ("0 */2 * * *", "every 2 hours, on the hour"),
    ("15 */2 * * *", "at minute 15 past every 2 hours"),
    ("0 */5 * * *", "every 5 hours from 00:00 to 20:00, every day"),
    ("0 9-17 * * *", "every hour from 09:00 to 17:00, every day"),
    ("30 9-17 * * *", "at minute 30 past each hour from 09:30 to 17:30, every day"),
    ("0 0 1 * *", "at 00:00, on the 1st of the month"),
    ("0 0 1,15,22 * *", "at 00:00, on the 1st, the 15th and the 22nd of the month"),
    ("0 0 11-13 * *", "at 00:00, on the 11th to 13th of the month"),
    ("0 0 */3 * *", "at 00:00, on every 3rd day from the 1st of the month"),
    ("0 0 L * *", "at 00:00, on the last day of the month"),
    ("0 0 L-1 * *", "at 00:00, 1 day before the last day of the month"),
    ("0 0 L-3 * *", "at 00:00, 3 days before the last day of the month"),
    ("0 0 LW * *", "at 00:00, on the last weekday of the month"),
    ("0 0 15W * *", "at 00:00, on the weekday nearest the 15th of the month"),
    ("0 0 * * FRIL", "at 00:00, on the last Friday of the month"),
    ("0 12 * * MON#1", "at 12:00, on the first Monday of the month"),
    ("0 12 * * MON#1,MON#3", "at 12:00, on the first and third Monday of the month"),
    ("0 12 * * MON#1,FRI", "at 12:00, on the first Monday of the month and Friday"),
    ("0 12 * JAN MON#1", "at 12:00, on the first Monday of January"),
    ("0 0 13 * FRI", "at 00:00, on the 13th of the month or on Friday"),
    ("0 0 13 JAN FRI", "at 00:00, on the 13th of the month or on Friday, in January"),
    ("0 0 */2 * MON",
     "at 00:00, on every 2nd day from the 1st of the month, but only on Monday"),
    ("0 0 1 JAN *", "at 00:00, on the 1st of January"),
    ("0 0 29 2 *", "at 00:00, on the 29th of February"),
    ("0 0 * JUN-AUG *", "at 00:00, every day, June to August"),
    ("0 0 * */3 SUN", "at 00:00, on Sunday, in January, April, July and October"),
    ("0 0 * * */3", "at 00:00, on Sunday, Wednesday and Saturday"),
    ("0 22 * * FRI-MON", "at 22:00, Friday to Monday"),
    ("* * * * * *", "every second, every day"),
    ("*/10 * * * * *", "every 10 seconds, every day"),
    ("30 0 9 * * *", "at 09:00:30, every day"),
    ("*/5 30 2 * * *", "every 5 seconds of minute 30, from 02:30 to 02:30:55, every day"),
]  # fmt: skip


@pytest.mark.parametrize(("cron", "text"), CRON)
def test_an_expression_in_words(cron: str, text: str) -> None:
    assert describe_cron(cron) == text
    assert describe(Spec((Timing(cron=cron, zone="Asia/Tokyo"),))) == f"{text} (Asia/Tokyo)"


@pytest.mark.parametrize(
    ("every", "text"),
    [
        (SECOND, "every second"),
        (MINUTE, "every minute"),
        (15 * MINUTE, "every 15 minutes"),
        (90 * MINUTE, "every 1 hour 30 minutes"),
        (HOUR, "every hour"),
        (2 * DAY, "every 2 days"),
        (7 * DAY, "every week"),
        (1_500_000, "every 1.5 seconds"),
    ],
)
def test_an_interval_in_words(every: int, text: str) -> None:
    assert describe(Spec((Timing(every_us=every),))) == text


def test_a_whole_spec_in_words() -> None:
    now = instant(datetime(2027, 1, 1, tzinfo=UTC))
    berlin = "Europe/Berlin"
    made = parse(["0 9 * * MON-FRI", "0 12 * * SAT"], zone=berlin, now=now)
    assert describe(made) == "at 09:00, Monday to Friday; and at 12:00, on Saturday (Europe/Berlin)"
    end = instant(datetime(2027, 6, 30, 22, tzinfo=UTC))
    ends = parse("5m", zone=berlin, now=now, end_at=end)
    assert describe(ends) == "every 5 minutes, until 2027-07-01 00:00 (Europe/Berlin)"
    starts = parse("0 9 * * *", zone=berlin, now=now, start_at=end)
    assert describe(starts) == "at 09:00, every day (Europe/Berlin), from 2027-07-01 00:00"
    once = parse("2027-10-31T02:30", zone=berlin, now=now)
    assert describe(once) == "once at 2027-10-31 02:30 UTC+0200 (Europe/Berlin)"
    mixed = Spec((Timing(cron="0 9 * * *", zone=berlin), Timing(cron="0 9 * * *", zone="UTC")))
    assert describe(mixed) == "at 09:00, every day (Europe/Berlin); and at 09:00, every day (UTC)"


def test_rules_other_than_the_usual_are_reported() -> None:
    timing = Timing(cron="30 2 * * *", zone="Europe/Berlin", gap="skip", repeat="both")
    assert describe(Spec((timing,))) == (
        "at 02:30, every day, times that the clock skips are skipped, "
        "times that come twice run both times (Europe/Berlin)"
    )
