"""How many claims one start costs while several workers have nothing to do (PostgreSQL)."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from pathlib import Path

from bench import hits
from bench.children import until, workers
from bench.measure import Sample, Sizes, Target
from bench.ours import Ours
from bench.parts.idle import log_statements
from bench.places import Place, PostgresPlace, opened

FLEETS = (1, 4, 8)
STARTS = 20
# Workers learn of one another at their heartbeat, every 5 s.
SETTLE_S = 11.0
# Longer than the pause of the workers that were asked.
BETWEEN_S = 0.1
CLAIM = "with picked as"


class Herd:
    """Single starts beside idle workers."""

    name = "herd"
    about = "claims per start with idle workers"
    once = True

    async def round(self, places: Sequence[Place], sizes: Sizes) -> list[Sample]:
        """One fleet after the other."""
        return [
            await _claims(place, count)
            for place in places
            if isinstance(place, PostgresPlace)
            for count in FLEETS
        ]


def _reached(path: Path, count: int) -> bool:
    return hits.count(path) == count


async def _claims(place: PostgresPlace, count: int) -> Sample:
    name = f"herd{count}"
    url = f"{place.server.create_database(name)}?schema={name}"
    await log_statements(url, name)
    side = Ours(url)
    path: Path = place.scratch / f"{name}.hits"
    async with opened(place, side):
        with workers(side, "noop", path, count=count):
            await asyncio.sleep(SETTLE_S)
            before = place.server.log().count(CLAIM)
            for number in range(STARTS):
                await side.start(number)
                await until(functools.partial(_reached, path, number + 1), "a run")
                await asyncio.sleep(BETWEEN_S)
            claims = place.server.log().count(CLAIM) - before
    target = Target("<=", 6) if count > 1 else None
    line = f"claims per start, {count} idle worker{'s' if count > 1 else ''}"
    return Sample(line, place.name, "claims", claims / STARTS, target=target)
