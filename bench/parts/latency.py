"""From the call of `start` to the first line of user code, on an idle system.

Both sides are ready at the same time and are asked interleaved, with a random pause in between.
PostgreSQL: NOTIFY on both sides. SQLite: two processes (raw looks at `data_version` every 2 ms),
and starter and worker in one process (raw: a thread woken by an event).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Sequence
from pathlib import Path

from bench import hits, ours, raw_sqlite
from bench.children import until, workers
from bench.measure import Sample, Sizes, Target, percentile
from bench.places import Place, a_side, opened
from bench.sides import Side

WARM_UP = 10
PAUSE_S = (0.008, 0.016)
TARGETS = {"sqlite": Target("<=", 1.4), "postgres": Target("<=", 1.6)}


class Latency:
    """Milliseconds from start to the first user line."""

    name = "latency"
    about = "start to first user line, p50 and p99, idle system"
    once = False

    async def round(self, places: Sequence[Place], sizes: Sizes) -> list[Sample]:
        """Between two processes; on SQLite also within one."""
        samples = []
        for place in places:
            samples += await _between(place, sizes.latency)
            if place.name == "sqlite":
                samples += await _within(place, sizes.latency)
        return samples


async def _between(place: Place, count: int) -> list[Sample]:
    paths = _paths(place)
    async with a_side(place, "raw") as raw, a_side(place, "ours") as rota:
        with workers(raw, "noop", paths[0]), workers(rota, "noop", paths[1]):
            return await _compare("two processes", place, [raw, rota], paths, count)


async def _within(place: Place, count: int) -> list[Sample]:
    paths = _paths(place)
    raw = raw_sqlite.Embedded(place.url(), hits.pen(paths[0]))
    rota = ours.Embedded(place.url(), hits.pen(paths[1]))
    async with contextlib.AsyncExitStack() as stack:
        for side in (raw, rota):
            await stack.enter_async_context(opened(place, side))
        return await _compare("one process", place, [raw, rota], paths, count)


def _paths(place: Place) -> list[Path]:
    paths = [place.scratch / f"latency-{kind}.hits" for kind in ("raw", "ours")]
    for path in paths:
        path.unlink(missing_ok=True)
    return paths


async def _compare(
    name: str, place: Place, sides: list[Side], paths: list[Path], count: int
) -> list[Sample]:
    chance = random.Random(7)
    total = WARM_UP + count
    began: list[list[float]] = [[], []]
    for number in range(total):
        for side, times in zip(sides, began, strict=True):
            await asyncio.sleep(chance.uniform(*PAUSE_S))
            times.append(time.monotonic())
            await side.start(number)
    await until(lambda: min(hits.count(path) for path in paths) >= total, "every run performed")
    raw, rota = (
        _latencies(path, times)[WARM_UP:] for path, times in zip(paths, began, strict=True)
    )
    return [
        Sample(
            f"{name}, p{percent}", place.name, "ms", percentile(rota, percent),
            percentile(raw, percent), TARGETS[place.name] if percent == 50 else None,
        )
        for percent in (50, 99)
    ]  # fmt: skip


def _latencies(path: Path, began: list[float]) -> list[float]:
    ran = {hit.number: hit.at for hit in hits.read(path)}
    return [1000 * (ran[number] - at) for number, at in enumerate(began)]
