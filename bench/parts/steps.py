"""Workflows of ten durable steps, against a commit per step and against grouped commits."""

from __future__ import annotations

from collections.abc import Sequence

from bench.measure import Sample, Sizes, Target
from bench.parts.drain import drain_both, drain_rate
from bench.places import Place
from bench.sides import STEPS


class Steps:
    """Workflows finished per second; a step returns after its own result is committed."""

    name = "steps"
    about = f"workflows of {STEPS} durable steps"
    once = False

    async def round(self, places: Sequence[Place], sizes: Sizes) -> list[Sample]:
        """Raw with a commit per step; raw with grouped commits and ours interleaved."""
        samples = []
        for place in places:
            each = await drain_rate(place, "raw", "steps", sizes.flows_commit_each, lines=STEPS)
            grouped, ours = await drain_both(
                place, "steps", sizes.flows, raw_work="steps-grouped", lines=STEPS
            )
            samples += [
                Sample(
                    "raw groups commits", place.name, "flows/s", ours, grouped, Target(">=", 0.3)
                ),
                Sample("raw commits each step", place.name, "flows/s", ours, each),
            ]
        return samples
