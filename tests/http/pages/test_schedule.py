"""The page of a schedule: the sentence about recent occurrences, and the calendar."""

from __future__ import annotations

from collections import Counter

import pytest

from rota.client.schedule_pages import OutcomeCalendar
from rota.core.schedules.intent import Intent, Policies
from rota.core.time.instants import HOUR
from rota.core.time.recurrence import parse
from rota.http.pages.occurrence_view import calendar_of
from rota.http.pages.schedule import follows_of
from rota.http.pages.text import WallClock


@pytest.mark.parametrize(
    ("totals", "sentence"),
    [
        ({}, ""),
        ({"fired": 1}, "The only occurrence of the last 14 days ran."),
        ({"fired": 4_032}, "All 4,032 occurrences of the last 14 days ran."),
        ({"fired": 2, "missed": 1}, "1 occurrence of the last 14 days was missed."),
        ({"fired": 2, "failed": 3}, "3 occurrences failed."),
        ({"fired": 2, "skipped": 3}, "3 occurrences were skipped."),
        ({"fired": 2, "paused": 1}, "1 occurrence was skipped during a pause."),
        ({"fired": 2, "cancelled": 1}, "1 occurrence was cancelled."),
    ],
)
def test_only_occurrences_without_exception_all_ran(totals: dict[str, int], sentence: str) -> None:
    assert follows_of(Counter(totals), [], WallClock("UTC", 0)) == sentence


@pytest.mark.parametrize(("runs_max", "cells"), [(None, 14), (1, 1), (3, 3)])
def test_the_calendar_shows_no_more_occurrences_than_may_fire(
    runs_max: int | None, cells: int
) -> None:
    clock = WallClock("UTC", 9 * HOUR + HOUR // 2)
    spec = parse("every hour", zone="UTC", now=0)
    intent = Intent("work", spec, "every hour", Policies(runs_max=runs_max))
    empty = OutcomeCalendar("UTC", "hour", [], True)
    today = calendar_of(empty, intent, clock, href="/", is_paused=False).days[0]
    assert sum(cell.kind == "future" for cell in today.cells) == cells
