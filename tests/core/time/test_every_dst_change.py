"""Every change of every zone's clock from 2000 to 2037, against the oracle."""

from __future__ import annotations

import importlib.resources
import struct
import zoneinfo
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from rota.core.time.dst import changes_between
from rota.core.time.recurrence import (
    Spec,
    Timing,
    between,
    count_between,
    next_after,
)
from tests.core.time.kit import oracle
from tests.core.time.kit.backwards import latest_between
from tests.kit.sampling import sample

pytestmark = pytest.mark.slow

SECOND, HOUR = 1_000_000, 3_600_000_000
ZONES = sorted(zoneinfo.available_timezones() - {"localtime", "Factory"})
SHARDS = 16
EXPRESSIONS = (
    "*/15 * * * *",
    "0 * * * *",
    "0 */2 * * *",
    "20 */3 * * *",
    "0 1-3 * * *",
    "*/30 2 * * *",
    "30 2 * * *",
    "0 0 * * *",
    "15,45 0,1,2,3 * * *",
    "0 3 * * SUN",
)
RULES = [(gap, repeat) for gap in ("next", "skip") for repeat in ("first", "second", "both")]


@cache
def expected(
    at: int, was: int, now: int, zone: str
) -> list[tuple[int, int, str, str, str, list[int]]]:
    """The oracle's occurrences around one move of the clock: window, expression, rule, instants."""
    moved = abs(now - was)
    start = (at - moved - 3600 - at % 60) * SECOND
    stop = (at + moved + 3600) * SECOND
    looks = oracle.walk(ZoneInfo(zone), start, stop)
    cases = [(text, "auto", "auto") for text in EXPRESSIONS]
    low, high = at + min(was, now), at + max(was, now)
    for wall in (low, (low + high) // 2, high - 60, high):  # The edges and the middle of it.
        shown = datetime.fromtimestamp(wall, UTC)
        for gap, repeat in RULES if wall in (low, high - 60) else [("auto", "auto")]:
            cases.append((f"{shown.minute} {shown.hour} * * *", gap, repeat))
    return [
        (start, stop, *case, oracle.occurrences(case[0], oracle.rule_for(*case), looks))
        for case in cases
    ]


@pytest.mark.parametrize("shard", sample(range(SHARDS), "around every change"))
def test_around_every_change_of_every_zone_all_is_as_the_wall_says(shard: int) -> None:
    wrong = []
    for zone in ZONES[shard::SHARDS]:
        for move in oracle.moves(ZoneInfo(zone), 2000, 2037):
            # The result depends on the move alone, so zones that share it share the walk.
            for start, stop, text, gap, repeat, instants in cached(*move, zone):
                spec = Spec((Timing(cron=text, zone=zone, gap=gap, repeat=repeat),))
                found = between(spec, start - 1, stop - 1, limit=1_000)
                if found != instants:
                    wrong.append((zone, text, gap, repeat, found, instants))
    assert wrong[:5] == []


_seen: dict[tuple[int, int, int], str] = {}


def cached(
    at: int, was: int, now: int, zone: str
) -> list[tuple[int, int, str, str, str, list[int]]]:
    return expected(at, was, now, _seen.setdefault((at, was, now), zone))


@pytest.mark.parametrize("shard", sample(range(SHARDS), "counting"))
def test_counting_and_walking_back_agree_with_walking_forward(shard: int) -> None:
    for zone in ZONES[shard::SHARDS]:
        for at, *_ in oracle.moves(ZoneInfo(zone), 2010, 2012):
            start, stop = at * SECOND - 50 * HOUR, at * SECOND + 50 * HOUR
            for text in ("30 */2 * * *", "0 0,2,3 * * *"):
                for gap, repeat in RULES:
                    spec = Spec((Timing(cron=text, zone=zone, gap=gap, repeat=repeat),))
                    forward = between(spec, start, stop, limit=1_000)
                    assert latest_between(spec, start, stop, 1_000) == forward
                    assert count_between(spec, start, stop) == len(forward)
                    assert next_after(spec, forward[0]) == forward[1]


def zone_file(name: str) -> bytes:
    for folder in zoneinfo.TZPATH:
        path = Path(folder) / name
        if path.is_file():
            return path.read_bytes()
    return importlib.resources.files("tzdata").joinpath("zoneinfo", name).read_bytes()


def transitions(name: str) -> list[tuple[int, int, int]]:
    """The changes of offset that the zone file lists, read by hand."""
    raw = zone_file(name)
    counts = struct.unpack(">6l", raw[20:44])
    skip = 44 + counts[3] * 5 + counts[4] * 6 + counts[5] + counts[2] * 8 + counts[1] + counts[0]
    _, _, _, times, types, _ = struct.unpack(">6l", raw[skip + 20 : skip + 44])
    at = skip + 44
    instants = struct.unpack(f">{times}q", raw[at : at + 8 * times])
    kinds = raw[at + 8 * times : at + 9 * times]
    base = at + 9 * times
    offsets = [struct.unpack(">l", raw[base + 6 * n : base + 6 * n + 4])[0] for n in range(types)]
    found, was = [], offsets[0]
    for instant, kind in zip(instants, kinds, strict=True):
        if offsets[kind] != was:
            found.append((instant, was, offsets[kind]))
            was = offsets[kind]
    return found


def test_every_change_that_the_zone_files_list_is_found_by_asking_every_other_day() -> None:
    first = int(datetime(1950, 1, 1, tzinfo=UTC).timestamp())
    last = int(datetime(2037, 12, 1, tzinfo=UTC).timestamp())
    seen: dict[bytes, str] = {}
    for zone in ZONES:
        if seen.setdefault(zone_file(zone), zone) != zone:
            continue  # Another name of the same file.
        listed = [move for move in transitions(zone) if first <= move[0] < last]
        found = {tuple(change) for change in changes_between(zone, first, last)}
        assert set(listed) <= found, zone


def test_no_offset_lasts_less_than_four_days_nor_is_a_clock_moved_by_more_than_one() -> None:
    """Facts that `dst` and `resolve` rely on; a new zone database that breaks it fails here."""
    for zone in ZONES:
        moves = transitions(zone)
        assert all(abs(now - was) <= 86_400 for _, was, now in moves), zone
        shortest = min((later[0] - earlier[0] for earlier, later in pairwise(moves)), default=None)
        if shortest is not None:
            assert timedelta(seconds=shortest) > timedelta(days=3, hours=12), zone
