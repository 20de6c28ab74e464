"""Children: one workflow starts many child runs, and awaits the result of each.

The clock runs from the start of the parent until its result. Worker and client are one process,
which belongs to Rota as with `rota up`. The raw side inserts rows with a commit each, before and
after: a worker that writes each child on its own needs several such commits for each.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from bench.measure import Sample, Sizes, Target
from bench.ours import SLOTS
from bench.places import Place, commits_around
from rota import Rota, gather

# Ten times the 0.1 of the version that wrote each child on its own.
TARGETS = {"postgres": Target(">=", 1.0), "sqlite": None}


class FanOut:
    """Child runs per second, from the start of the parent to its result."""

    name = "children"
    about = "child runs of one workflow, by gather and by start_many"
    once = False

    async def round(self, places: Sequence[Place], sizes: Sizes) -> list[Sample]:
        """A fresh database for each form."""
        samples = []
        for place in places:
            for form in ("gather", "start_many"):
                async with commits_around(place) as commits:
                    rate = await _rate(place.url(), form, sizes.children)
                target = TARGETS[place.name] if form == "start_many" else None
                raw = commits.a_second
                samples.append(Sample(form, place.name, "children/s", rate, raw, target))
        return samples


def _app(url: str) -> tuple[Rota, dict[str, Any]]:
    app = Rota(url, migrate=True, slots=SLOTS)

    @app.workflow
    async def child(number: int) -> int:
        return number

    @app.workflow
    async def gathers(count: int) -> int:
        return sum(await gather(*[child(number) for number in range(count)]))

    @app.workflow
    async def starts_many(count: int) -> int:
        handles = await app.start_many(child, [(number,) for number in range(count)])
        return sum(await gather(*[handle.result() for handle in handles]))

    return app, {"gather": gathers, "start_many": starts_many}


async def _rate(url: str, form: str, count: int) -> float:
    app, flows = _app(url)
    with app.own_process():
        return await _parent_rate(app, flows[form], count)


async def _parent_rate(app: Rota, parent: Any, count: int) -> float:
    async with app:
        began = time.perf_counter()
        run = await app.start(parent, count)
        assert await run.result() == count * (count - 1) // 2
        return count / (time.perf_counter() - began)
