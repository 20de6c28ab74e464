"""The preview of a schedule that is typed."""

from __future__ import annotations

from datetime import UTC, datetime

from rota.core.time.instants import instant
from rota.core.time.recurrence import parse
from rota.http.pages.schedule_edit import ScheduleForm, preview_of
from rota.http.pages.text import WallClock

HERE = WallClock("Europe/Berlin", instant(datetime(2026, 11, 16, 13, 32, tzinfo=UTC)))


def test_words_next_and_the_count_of_a_week() -> None:
    found = preview_of(ScheduleForm(when="weekdays at 07:30", zone="America/New_York"), None, HERE)
    assert found.words == "At 07:30, Monday to Friday, New York."
    assert found.next == "Tue 07:30 (Tue 13:30 yours), in 22 h"
    assert (found.week, found.two_zones, len(found.diff)) == ("5 firings", True, 5)


def test_the_difference_names_what_comes_and_goes() -> None:
    old = parse("15 * * * *", zone="Europe/Berlin", now=HERE.now)
    found = preview_of(ScheduleForm(when="15,45 8-18 * * *", zone="Europe/Berlin"), old, HERE)
    kinds = [row.kind for row in found.diff]
    assert found.diff_line == "22 instead of 24"
    assert (kinds.count("add"), kinds.count("del")) == (11, 13)
    same = preview_of(ScheduleForm(when="15 * * * *", zone="Europe/Berlin"), old, HERE)
    assert same.is_same


def test_what_cannot_be_read_is_said_with_a_hint() -> None:
    found = preview_of(ScheduleForm(when="sometimes", zone="Europe/Berlin"), None, HERE)
    assert found.problem is not None
    assert found.problem.advice.startswith('Examples: "every 15 minutes"; "every friday at 5pm"')
    found = preview_of(ScheduleForm(zone="Europe/Berln", when="daily"), None, HERE)
    assert found.problem is not None
    assert found.problem.advice.startswith("Did you mean Europe/Berlin")
    assert preview_of(ScheduleForm(), None, HERE).is_empty


def test_moves_of_the_clock_are_said() -> None:
    found = preview_of(ScheduleForm(when="daily at 02:30", zone="Europe/Berlin"), None, HERE)
    assert any("2027-03-28" in note for note in found.notes)
