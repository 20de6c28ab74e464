"""Retention: does a worker delete old runs as fast as workers finish new ones?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from bench import hits
from bench.children import until, workers
from bench.measure import Sample, Sizes, Target
from bench.ours import Ours
from bench.places import Place, opened
from rota import Rota

# A worker prunes for half of each heartbeat. A short heartbeat shows many such rounds.
HEARTBEAT_S = 0.5
# A worker deletes nothing before it has run for a lease.
LEASE_S = 2.0
# About a tenth of a second.
KEEP_DAYS = 1e-6
# A pass that leaves nothing prunable behind is followed by the next one a minute later. Runs that
# are too young for the first pass would wait that long, so it begins when all are old.
OLD_S = 0.3


class Retention:
    """Finished runs pruned per second by one worker, against runs drained per second by one."""

    name = "retention"
    about = "finished runs pruned by one worker, against the drain of the same runs"
    once = False

    async def round(self, places: Sequence[Place], sizes: Sizes) -> list[Sample]:
        """Drain, then prune what was drained."""
        samples = []
        for place in places:
            drained, pruned = await _drain_and_prune(place, sizes.drain)
            target = Target(">=", 1 / 3)
            samples.append(Sample("prune", place.name, "runs/s", pruned, drained, target))
        return samples


async def _drain_and_prune(place: Place, count: int) -> tuple[float, float]:
    path = place.scratch / "retention.hits"
    path.unlink(missing_ok=True)
    side = Ours(place.url())
    async with opened(place, side):
        await side.start_bulk(count, "noop")
        with workers(side, "noop", path, count=1):
            await until(lambda: hits.count(path) >= count, "all runs performed")
            while await side.unfinished():
                await asyncio.sleep(0.002)
            drained = count / (time.monotonic() - min(hit.at for hit in hits.read(path)))
        return drained, await _prune(side, count)


async def _prune(side: Ours, count: int) -> float:
    """Runs that a worker with nothing else to do deletes per second, from its first batch on."""
    pruner = Rota(side.url, keep_days=KEEP_DAYS, heartbeat_s=HEARTBEAT_S, lease_s=LEASE_S)
    await asyncio.sleep(OLD_S)
    async with pruner:
        while (left := await _stored(side)) == count:
            await asyncio.sleep(0.005)
        began = time.monotonic()
        while await _stored(side):
            await asyncio.sleep(0.05)
        return left / (time.monotonic() - began)


async def _stored(side: Ours) -> int:
    return sum((await side.app.runs.counts()).values())
