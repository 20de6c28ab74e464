"""The sentence of a schedule's page about its recent occurrences."""

from __future__ import annotations

from collections import Counter

import pytest

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
