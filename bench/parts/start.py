"""Starts, each durable: one client one by one, then 64 concurrent ones that share commits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from bench.measure import Sample, Sizes, Target, rate
from bench.places import Place, a_side
from bench.sides import Side, StartsTogether

STARTERS = 64
WARM_UP = 20


class Start:
    """Runs started per second, against a prepared insert with a commit each."""

    name = "start"
    about = "start one by one, and from 64 concurrent callers"
    once = False

    async def round(self, places: Sequence[Place], sizes: Sizes) -> list[Sample]:
        """Raw one by one, ours one by one, ours together."""
        samples = []
        for place in places:
            async with a_side(place, "raw") as raw:
                limit = await _one_by_one(raw, sizes.one_by_one)
            async with a_side(place, "ours") as ours:
                alone = await _one_by_one(ours, sizes.one_by_one)
            async with a_side(place, "ours") as ours:
                await ours.start_one_by_one(WARM_UP)
                many = cast(StartsTogether, ours)
                together = await rate(sizes.together, many.start_together(sizes.together, STARTERS))
            samples += [
                Sample("one by one", place.name, "runs/s", alone, limit, Target(">=", 0.7)),
                Sample(
                    f"{STARTERS} starters, raw one by one", place.name, "runs/s", together, limit,
                    Target(">=", 5),
                ),
            ]  # fmt: skip
        return samples


async def _one_by_one(side: Side, count: int) -> float:
    await side.start_one_by_one(WARM_UP)
    return await rate(count, side.start_one_by_one(count))
