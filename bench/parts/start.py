"""Starts, each durable: one client one by one, then 64 concurrent ones that share commits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from bench.measure import Sample, Sizes, Target, in_turns, rate
from bench.places import Place, a_side
from bench.sides import Side, StartsTogether

STARTERS = 64
WARM_UP = 20
SLICE = 50  # as many in a row before it is the other side's turn


class Start:
    """Runs started per second, against a prepared insert with a commit each."""

    name = "start"
    about = "start one by one, and from 64 concurrent callers"
    once = False

    async def round(self, places: Sequence[Place], sizes: Sizes) -> list[Sample]:
        """Raw and ours one by one, interleaved; then ours together."""
        samples = []
        for place in places:
            async with a_side(place, "raw") as raw, a_side(place, "ours") as ours:
                await in_turns([raw, ours], _one_by_one, WARM_UP, WARM_UP)
                limit, alone = await in_turns([raw, ours], _one_by_one, sizes.one_by_one, SLICE)
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


async def _one_by_one(side: Side, count: int) -> None:
    await side.start_one_by_one(count)
