"""Changes are looked for chunk by chunk; where a chunk ends must not show."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from rota.core.time import dst
from rota.core.time.calendar import Walls
from rota.core.time.cron import read_cron
from rota.core.time.dst import Timeline
from rota.core.time.instants import HOUR, instant
from rota.core.time.resolve import CronTimes

RULES = [(gap, repeat) for gap in ("next", "skip") for repeat in ("first", "second", "both")]
MOVES = [
    ("Europe/Berlin", datetime(2027, 10, 31, 1, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2027, 3, 28, 1, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2027, 4, 3, 15, tzinfo=UTC)),
    ("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)),
]


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Chunks of some 17 minutes, so that they cut through every gap and repeat."""
    dst._chunk_changes.cache_clear()
    monkeypatch.setattr(dst, "CHUNK_BITS", 10)
    yield
    dst._chunk_changes.cache_clear()


def walked(zone: str, move: datetime, gap: str, repeat: str) -> list[list[int]]:
    """Forward, backward and counted piece by piece, around a move of the clock."""
    times = CronTimes(Walls(read_cron("*/20 * * * *")), Timeline(zone, gap, repeat))
    start, stop = instant(move) - 27 * HOUR, instant(move) + 27 * HOUR
    forward, at = [], times.after(start)
    while at is not None and at <= stop:
        forward.append(at)
        at = times.after(at)
    backward, at = [], times.before(stop + 1)
    while at is not None and at > start:
        backward.append(at)
        at = times.before(at)
    counts = [times.count(a, b) for a, b in pairwise(range(start, stop + 1, HOUR // 2))]
    return [forward, backward[::-1], counts]


@pytest.mark.parametrize(("zone", "move"), MOVES)
@pytest.mark.parametrize(("gap", "repeat"), RULES)
def test_where_a_chunk_ends_does_not_show(
    zone: str, move: datetime, gap: str, repeat: str, request: pytest.FixtureRequest
) -> None:
    usual = walked(zone, move, gap, repeat)
    assert usual[0] == usual[1]
    assert sum(usual[2]) == len(usual[0])
    request.getfixturevalue("small_chunks")
    assert walked(zone, move, gap, repeat) == usual
