"""Geometry of the drawings: the templates write it as SVG. Percent for x, so that no script is
needed when the width changes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from rota.core.time.instants import DAY
from rota.http.pages.text import WallClock, duration

SPARK_HEIGHT = 40.0
LANE_MIN = 0.35  # percent: a bar is never invisible


@dataclass(frozen=True)
class Bar:
    """A rectangle: x and width in percent, y and height in pixels."""

    x: float
    y: float
    width: float
    height: float
    tone: str = ""


@dataclass(frozen=True)
class Tick:
    """A mark of an axis."""

    x: float
    text: str
    anchor: str
    is_minor: bool


@dataclass(frozen=True)
class Tile:
    """A number with a small drawing and one line of context."""

    name: str
    value: str
    small: str = ""
    note: str = ""
    bars: Sequence[Bar] = ()
    cls: str = ""
    points: str = ""
    table: Sequence[tuple[str, str]] = ()  # the drawing in words, for readers who do not see it
    meter: Sequence[Bar] = ()
    meter_label: str = ""


def spark_bars(values: Sequence[float]) -> list[Bar]:
    """A bar for each value, the highest one as high as the drawing."""
    top = max(values, default=0) or 1
    step = 100 / max(1, len(values))
    bars = []
    for at, value in enumerate(values):
        height = SPARK_HEIGHT * value / top
        height = max(height, 1.5) if value else 0.0
        bars.append(Bar(round(at * step, 2), round(SPARK_HEIGHT - height, 1),
            round(step * 0.72, 2), round(height, 1)))  # fmt: skip
    return bars


def polyline(values: Sequence[float]) -> str:
    """Points in a box of 100 by 40."""
    top = max(values, default=0) or 1
    last = max(1, len(values) - 1)
    return " ".join(
        f"{100 * at / last:.1f},{SPARK_HEIGHT - 2 - (SPARK_HEIGHT - 6) * value / top:.1f}"
        for at, value in enumerate(values)
    )


def lane_bar(begin: int, end: int, *, first: int, last: int, tone: str) -> Bar:
    """A bar on a lane from `first` to `last`."""
    whole = max(1, last - first)
    x = min(100.0, max(0.0, 100 * (begin - first) / whole))
    width = min(100 - x, max(LANE_MIN, 100 * (end - begin) / whole))
    if width < LANE_MIN:
        x, width = 100 - LANE_MIN, LANE_MIN
    return Bar(round(x, 2), 4, round(width, 2), 12, tone)


def span_ticks(whole_us: int) -> list[Tick]:
    """Four parts from 0 to a duration; the beginning, the middle and the end are named."""
    ends = {0: ("0 s", "start"), 2: (duration(whole_us // 2), "middle"),
        4: (duration(whole_us), "end")}  # fmt: skip
    ticks = []
    for at in range(5):
        text, anchor = ends.get(at, ("", "middle"))
        ticks.append(Tick(25.0 * at, text, anchor, at == 2))
    return ticks


def hour_ticks(clock: WallClock) -> list[Tick]:
    """`now`, then every third hour of a day on the wall clock."""
    first, whole = clock.now, DAY
    ticks = [Tick(0, "now", "start", False)]
    local = clock.local(first).replace(minute=0, second=0, microsecond=0)
    at = local + timedelta(hours=3 - local.hour % 3)
    while True:
        offset = int((at - clock.local(first)).total_seconds() * 1_000_000)
        if offset > whole:
            return ticks
        x = 100 * offset / whole
        if 5 < x < 97:
            ticks.append(Tick(round(x, 2), f"{at:%H}", "middle", x < 15 or len(ticks) % 2 == 0))
        at += timedelta(hours=3)


def share(part: float, whole: float) -> float:
    """Percent of a meter, between 0 and 100."""
    return 0.0 if not whole else round(min(100.0, max(0.0, 100 * part / whole)), 2)
