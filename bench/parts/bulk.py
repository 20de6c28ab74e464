"""Starts in bulk: a thousand in a call, against a multi-row insert of a thousand."""

from __future__ import annotations

from collections.abc import Sequence

from bench.measure import Sample, Sizes, Target, in_turns
from bench.places import Place, a_side
from bench.sides import BULK, Side


class Bulk:
    """Runs stored per second by `start_many`."""

    name = "bulk"
    about = f"start in bulk, {BULK} in a call"
    once = False

    async def round(self, places: Sequence[Place], sizes: Sizes) -> list[Sample]:
        """Raw and ours interleaved, a call each."""
        samples = []
        for place in places:
            async with a_side(place, "raw") as raw, a_side(place, "ours") as ours:
                await in_turns([raw, ours], _bulk, BULK, BULK)
                limit, value = await in_turns([raw, ours], _bulk, sizes.bulk, BULK)
            samples.append(
                Sample(f"{BULK} a call", place.name, "runs/s", value, limit, Target(">=", 0.4))
            )
        return samples


async def _bulk(side: Side, count: int) -> None:
    await side.start_bulk(count)
