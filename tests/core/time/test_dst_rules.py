"""The daylight-saving rule by name: what people see on the days their clock is moved."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from rota.core.time.instants import instant, moment
from rota.core.time.recurrence import Spec, Timing, between, next_after, notes, skipped_between

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"
APIA = "Pacific/Apia"


def walls(
    cron: str, zone: str, day: str, *, days: int = 1, gap: str = "auto", repeat: str = "auto"
) -> list[str]:
    """The occurrences of some days, as the wall shows them; a ' marks the second of two."""
    spec = Spec((Timing(cron=cron, zone=zone, gap=gap, repeat=repeat),))
    start = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone))
    stop = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone)) + timedelta(days=days)
    shown = []
    for at in between(spec, instant(start) - 1, instant(stop) - 1, limit=200):
        local = moment(at).astimezone(ZoneInfo(zone))
        shown.append(f"{local:%H:%M}" + ("'" if local.fold else ""))
    return shown


CASES = [
    # Fixed times fire once: after the gap, and the first of two.
    ("30 2 * * *", BERLIN, "2027-03-28", {}, ["03:00"]),
    ("30 2 * * *", BERLIN, "2027-10-31", {}, ["02:30"]),
    ("0,30 2 * * *", BERLIN, "2027-03-28", {}, ["03:00"]),
    ("0 2,3 * * *", BERLIN, "2027-03-28", {}, ["03:00"]),
    ("30 1,2,3 * * *", BERLIN, "2027-03-28", {}, ["01:30", "03:00", "03:30"]),
    ("30 2 * * *", NEW_YORK, "2027-03-14", {}, ["03:00"]),
    ("30 1 * * *", NEW_YORK, "2027-11-07", {}, ["01:30"]),
    # The options.
    ("30 2 * * *", BERLIN, "2027-03-28", {"gap": "skip"}, []),
    ("30 2 * * *", BERLIN, "2027-03-28", {"gap": "next"}, ["03:00"]),
    ("30 2 * * *", BERLIN, "2027-10-31", {"repeat": "first"}, ["02:30"]),
    ("30 2 * * *", BERLIN, "2027-10-31", {"repeat": "second"}, ["02:30'"]),
    ("30 2 * * *", BERLIN, "2027-10-31", {"repeat": "both"}, ["02:30", "02:30'"]),
    ("*/30 2 * * *", BERLIN, "2027-03-28", {"gap": "next"}, ["03:00"]),
    ("*/30 2 * * *", BERLIN, "2027-10-31", {"repeat": "first"}, ["02:00", "02:30"]),
    ("*/30 2 * * *", BERLIN, "2027-10-31", {"repeat": "second"}, ["02:00'", "02:30'"]),
    # Steps through the hour or the minute follow the real clock.
    ("0 1-4 * * *", BERLIN, "2027-03-28", {}, ["01:00", "03:00", "04:00"]),
    ("0 1-4 * * *", BERLIN, "2027-10-31", {}, ["01:00", "02:00", "02:00'", "03:00", "04:00"]),
    ("*/30 2 * * *", BERLIN, "2027-03-28", {}, []),
    ("*/30 2 * * *", BERLIN, "2027-10-31", {}, ["02:00", "02:30", "02:00'", "02:30'"]),
    # Half an hour (Lord Howe moves its clock by 30 minutes, at 02:00).
    ("*/15 1-2 * * *", LORD_HOWE, "2027-10-03", {},
     ["01:00", "01:15", "01:30", "01:45", "02:30", "02:45"]),
    ("15 2 * * *", LORD_HOWE, "2027-10-03", {}, ["02:30"]),
    ("45 1 * * *", LORD_HOWE, "2027-04-04", {}, ["01:45"]),
    ("45 1 * * *", LORD_HOWE, "2027-04-04", {"repeat": "both"}, ["01:45", "01:45'"]),
    ("0 */3 * * *", LORD_HOWE, "2027-10-03", {},
     ["00:00", "03:00", "06:00", "09:00", "12:00", "15:00", "18:00", "21:00"]),
    # A day that never was, and gaps at midnight.
    ("0 9 * * *", APIA, "2011-12-31", {}, ["00:00", "09:00"]),
    ("0 9 30 12 *", APIA, "2011-12-31", {}, ["00:00"]),
    ("0 9 30 12 *", APIA, "2011-12-31", {"gap": "skip"}, []),
    ("0 9,17 * * FRI", APIA, "2011-12-31", {}, ["00:00"]),
    ("0 0 * * *", "Asia/Beirut", "2027-03-28", {}, ["01:00"]),
    ("0 0 * * *", "America/Sao_Paulo", "2018-11-04", {}, ["01:00"]),
    ("30 0 * * *", "America/Santiago", "2022-09-11", {}, ["01:00"]),
    ("0 0 * * *", "America/Santiago", "2022-09-11", {"gap": "skip"}, []),
    ("30 23 * * *", "America/Santiago", "2022-04-02", {}, ["23:30"]),
    # Summer is standard time in Dublin; only the clock counts.
    ("30 1 * * *", "Europe/Dublin", "2027-03-28", {}, ["02:00"]),
    ("30 1 * * *", "Europe/Dublin", "2027-10-31", {}, ["01:30"]),
    # An offset that changes for good, without daylight saving.
    ("15 0 * * *", "Asia/Pyongyang", "2018-05-04", {}, ["00:15"]),
    ("45 23 * * *", "Asia/Pyongyang", "2018-05-04", {}, []),
    ("45 2 * * *", "America/Caracas", "2016-05-01", {}, ["03:00"]),
    ("30 1 * * *", "Europe/Moscow", "2014-10-26", {}, ["01:30"]),
    ("0 * * * *", "Antarctica/Troll", "2027-03-28", {},
     ["00:00", "03:00", *(f"{hour:02}:00" for hour in range(4, 24))]),
]  # fmt: skip


@pytest.mark.parametrize(("cron", "zone", "day", "options", "shown"), CASES)
def test_the_wall_shows(
    cron: str, zone: str, day: str, options: dict[str, str], shown: list[str]
) -> None:
    assert walls(cron, zone, day, **options) == shown  # type: ignore[arg-type]


def test_stepping_expressions_keep_their_pace_in_elapsed_time() -> None:
    spec = Spec((Timing(cron="*/15 * * * *", zone=BERLIN),))
    for day in ("2027-03-28T00:00+01:00", "2027-10-31T00:00+02:00"):
        start = instant(datetime.fromisoformat(day))
        found = between(spec, start, start + 6 * 3_600_000_000, limit=100)
        gaps = {later - earlier for earlier, later in pairwise(found)}
        assert gaps == {15 * 60_000_000}


def test_a_question_asked_within_the_repeat_is_answered_from_there() -> None:
    fixed = Spec((Timing(cron="30 2 * * *", zone=BERLIN),))
    second = instant(datetime.fromisoformat("2027-10-31T02:10+01:00"))
    answer = next_after(fixed, second)
    assert answer == instant(datetime.fromisoformat("2027-11-01T02:30+01:00"))


def remark(cron: str, zone: str, since: str, **options: str) -> list[str]:
    spec = Spec((Timing(cron=cron, zone=zone, **options),))  # type: ignore[arg-type]
    start = instant(datetime.fromisoformat(since).replace(tzinfo=ZoneInfo(zone)))
    return [each.text for each in skipped_between(spec, start, start + 200 * 86_400_000_000, 1)]


REMARKS = [
    ("30 2 * * *", BERLIN, "2027-01-01", {},
     "02:30 does not exist on 2027-03-28 in Europe/Berlin; runs at 03:00 instead"),
    ("30 2 * * *", BERLIN, "2027-01-01", {"gap": "skip"},
     "02:30 does not exist on 2027-03-28 in Europe/Berlin; not run"),
    ("30 2 * * *", BERLIN, "2027-07-01", {},
     "02:30 happens twice on 2027-10-31 in Europe/Berlin; runs the first time only"),
    ("30 2 * * *", BERLIN, "2027-07-01", {"repeat": "second"},
     "02:30 happens twice on 2027-10-31 in Europe/Berlin; runs the second time only"),
    ("30 2 * * *", BERLIN, "2027-07-01", {"repeat": "both"},
     "02:30 happens twice on 2027-10-31 in Europe/Berlin; runs both times"),
    ("0,30 2 * * *", BERLIN, "2027-01-01", {},
     ("2 times from 02:00 to 02:30 do not exist on 2027-03-28 in Europe/Berlin; "
      "runs once, at 03:00 instead")),
    ("*/15 * * * *", BERLIN, "2027-01-01", {},
     ("4 times from 02:00 to 02:45 do not exist on 2027-03-28 in Europe/Berlin; "
      "not run: the clock is moved past them")),
    ("*/15 * * * *", BERLIN, "2027-07-01", {},
     ("4 times from 02:00 to 02:45 happen twice on 2027-10-31 in Europe/Berlin; "
      "each runs both times")),
    ("0 9 * * *", APIA, "2011-12-01", {},
     ("09:00 does not exist on 2011-12-30 in Pacific/Apia; "
      "runs at 00:00 on 2011-12-31 instead")),
]  # fmt: skip


@pytest.mark.parametrize(("cron", "zone", "since", "options", "text"), REMARKS)
def test_a_move_of_the_clock_is_reported_in_words(
    cron: str, zone: str, since: str, options: dict[str, str], text: str
) -> None:
    assert remark(cron, zone, since, **options) == [text]


def test_seconds_are_reported_where_there_are_any() -> None:
    [text] = remark("15 30 2 * * *", BERLIN, "2027-01-01")
    assert text.startswith("02:30:15 does not exist")


def test_a_clock_that_is_moved_past_nothing_of_the_schedule_is_not_reported() -> None:
    assert remark("0 9 * * *", BERLIN, "2027-01-01") == []
    assert remark("30 2 * * *", "UTC", "2027-01-01") == []


def noted(cron: str, when: str, **options: str) -> list[str]:
    spec = Spec((Timing(cron=cron, zone=BERLIN, **options),))  # type: ignore[arg-type]
    return notes(spec, instant(datetime.fromisoformat(when)))


def test_an_occurrence_explains_itself() -> None:
    gap = "02:30 does not exist on 2027-03-28 in Europe/Berlin; runs at 03:00 instead"
    assert noted("30 2 * * *", "2027-03-28T03:00+02:00") == [gap]
    twice = "02:30 happens twice on 2027-10-31 in Europe/Berlin; "
    assert noted("30 2 * * *", "2027-10-31T02:30+02:00") == [twice + "runs the first time only"]
    assert noted("*/30 * * * *", "2027-10-31T02:30+01:00") == [twice + "this is the second"]
    assert noted("30 2 * * *", "2027-03-29T02:30+02:00") == []
    assert noted("30 2 * * *", "2027-03-28T03:30+02:00") == []  # Not an occurrence.
    both = Spec(
        (Timing(at=instant(datetime.fromisoformat("2027-10-31T02:30+01:00")), zone=BERLIN),)
    )
    assert notes(both, both.timings[0].at or 0) == [twice + "this is the second"]


def test_remarks_are_limited_and_in_order() -> None:
    spec = Spec(tuple(Timing(cron="30 2 * * *", zone=zone) for zone in (BERLIN, NEW_YORK)))
    start = instant(datetime.fromisoformat("2027-01-01T00:00Z"))
    remarks = skipped_between(spec, start, start + 10**16, 7)
    assert len(remarks) == 7
    assert [each.at for each in remarks] == sorted(each.at for each in remarks)
    assert {each.kind for each in remarks} == {"gap", "repeat"}
