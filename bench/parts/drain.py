"""Drains: runs stored first, then executed by one and by two worker processes.

The clock runs from the first line of user code until the database shows nothing unfinished.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import harmonic_mean

from bench import hits
from bench.children import until, workers
from bench.measure import Sample, Sizes, Target
from bench.places import Place, a_side
from bench.sides import Side, Work

TARGETS = {"postgres": Target(">=", 0.35), "sqlite": Target(">=", 0.25)}


class Drain:
    """No-op runs executed per second."""

    name = "drain"
    about = "drain of no-op runs by one and by two worker processes"
    once = False

    async def round(self, places: Sequence[Place], sizes: Sizes) -> list[Sample]:
        """Raw, ours, raw; with one process, then with two."""
        samples = []
        for place in places:
            for count, name in ((1, "one process"), (2, "two processes")):
                limit, value = await drain_both(place, "noop", sizes.drain, processes=count)
                target = TARGETS[place.name] if count == 1 else None
                samples.append(Sample(name, place.name, "runs/s", value, limit, target))
        return samples


async def drain_both(
    place: Place,
    work: Work,
    count: int,
    *,
    raw_work: Work | None = None,
    processes: int = 1,
    lines: int = 1,
) -> tuple[float, float]:
    """Raw and ours, per second. Raw before ours and after: a machine that grows slower meanwhile
    does so for both."""
    rates = [
        await drain_rate(place, kind, chosen, count, processes=processes, lines=lines)
        for kind, chosen in (("raw", raw_work or work), ("ours", work), ("raw", raw_work or work))
    ]
    return harmonic_mean([rates[0], rates[2]]), rates[1]


async def drain_rate(
    place: Place, kind: str, work: Work, count: int, *, processes: int = 1, lines: int = 1
) -> float:
    """Store `count` runs that report `lines` times each; runs executed per second."""
    path = place.scratch / "drain.hits"
    path.unlink(missing_ok=True)
    async with a_side(place, "raw" if kind == "raw" else "ours") as side:
        await side.start_bulk(count, work)
        with workers(side, work, path, count=processes) as children:
            try:
                ended = await _drained(side, path, count * lines)
            except Exception as error:
                error.add_note("\n".join(child.last_words() for child in children))
                raise
    return count / (ended - min(hit.at for hit in hits.read(path)))


async def _drained(side: Side, path: Path, wanted: int) -> float:
    await until(lambda: hits.count(path) >= wanted, "all runs performed")
    while await side.unfinished():
        await asyncio.sleep(0.002)
    return time.monotonic()
