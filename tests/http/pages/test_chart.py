"""Geometry of drawings: inside of the box, and never invisible."""

from __future__ import annotations

from datetime import UTC, datetime

from rota.core.time.instants import DAY, HOUR, MINUTE, instant
from rota.http.pages import chart
from rota.http.pages.text import WallClock

NOW = instant(datetime(2026, 11, 16, 13, 32, tzinfo=UTC))


def test_lane_bars_stay_inside_and_are_never_invisible() -> None:
    for begin, end in ((0, 0), (DAY - 1, 2 * DAY), (-HOUR, HOUR), (2 * DAY, 3 * DAY)):
        bar = chart.lane_bar(NOW + begin, NOW + end, first=NOW, last=NOW + DAY, tone="run")
        assert 0 <= bar.x <= 100
        assert chart.LANE_MIN <= bar.width <= 100.01 - bar.x


def test_bars_of_nothing_have_no_height() -> None:
    assert [bar.height for bar in chart.spark_bars([0, 0])] == [0, 0]
    assert max(bar.height for bar in chart.spark_bars([1, 1000])) == chart.SPARK_HEIGHT
    assert min(bar.height for bar in chart.spark_bars([1, 1000])) > 1


def test_the_axis_counts_full_hours_of_the_readers_wall() -> None:
    ticks = chart.hour_ticks(WallClock("Europe/Berlin", NOW))
    assert [tick.text for tick in ticks][:3] == ["now", "18", "21"]
    assert all(0 <= tick.x <= 100 for tick in ticks)
    assert [tick.text for tick in chart.span_ticks(4 * MINUTE)] == [
        "0 s", "", "2 min 00 s", "", "4 min 00 s",
    ]  # fmt: skip
