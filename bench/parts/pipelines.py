"""Pipelines: what an item costs beside its call, and memory over the number of items.

A model on loopback answers at once, so all that is left is our own work: reading, rendering,
asking, parsing, recording each item durably, reducing. The bare loop has the same client and
parallelism, and remembers nothing. Memory is the peak of a process of its own, with items that
stream from CSV.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bench import pipelines
from bench.answering import answering
from bench.measure import Sample, Sizes, Target
from bench.places import Place

PARALLEL = 20
GROWTH = Target("<=", 1.25)


class Pipelines:
    """Items through a model that answers at once."""

    name = "pipelines"
    about = "cost of an item beside its call, and memory over the number of items"
    once = True

    async def round(self, places: Sequence[Place], sizes: Sizes) -> list[Sample]:
        """Both sides interleaved, then growing inputs."""
        samples = []
        with answering() as address:
            for place in places:
                samples += await _overhead(place, address, sizes.items)
        for place in places:
            samples += await _memory(place, sizes.items)
        return samples


async def _overhead(place: Place, address: str, count: int) -> list[Sample]:
    folder = pipelines.make(place.scratch, count, PARALLEL)
    bare = await asyncio.to_thread(pipelines.alone, "bare", folder, "", address, PARALLEL)
    url = place.url()
    ours = await asyncio.to_thread(pipelines.alone, "ours", folder, url, address, PARALLEL)
    await place.drop(url)
    many = f"{count:,} items, {PARALLEL} at once"
    samples = []
    for name, what in ((many, "seconds"), (f"{many}, CPU", "cpu_s")):
        mine, raw = (1000 * getattr(took, what) / count for took in (ours, bare))
        samples += [
            Sample(name, place.name, "ms/item", mine, raw),
            Sample(f"{name}: more than the bare loop", place.name, "ms/item", mine - raw),
        ]
    return samples


async def _memory(place: Place, count: int) -> list[Sample]:
    """The least input is the measure for the others: nothing may grow with the items."""
    samples: list[Sample] = []
    least = 0.0
    for size in (count // 10, count, 5 * count):
        folder = pipelines.make(place.scratch, size, PARALLEL)
        url = place.url()
        took = await asyncio.to_thread(pipelines.alone, "lean", folder, url, "offline", PARALLEL)
        await place.drop(url)
        least = least or took.peak_mb
        line = f"peak memory, {size:,} items; raw: {count // 10:,}"
        target = GROWTH if size > count // 10 else None
        samples.append(Sample(line, place.name, "MB", took.peak_mb, least, target))
    return samples
