"""Rota's side, through its public names only.

Settings that differ from the defaults: `slots=500` in workers, as large as the limit's batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal

from bench.hits import Pen
from bench.sides import BULK, STEPS, Work
from rota import Rota

SLOTS = 500
FINAL = {"completed", "failed", "cancelled", "crashed", "skipped"}


def _nobody(*_: int) -> None:
    raise AssertionError("a client performs nothing")


def make_app(url: str, pen: Pen = _nobody) -> tuple[Rota, dict[Work, Any]]:
    """An app with the two workflows that are measured, and those by the work they do."""
    # Without retention, which is a part of its own: history is older than it keeps.
    app = Rota(url, migrate=True, slots=SLOTS, keep_days=0)

    @app.workflow
    async def noop(number: int) -> None:
        pen(number, 0)

    @app.step
    async def tick(number: int, step: int) -> str:
        pen(number, step)
        return "ok"

    @app.workflow
    async def steps(number: int) -> None:
        for step in range(STEPS):
            await tick(number, step)

    return app, {"noop": noop, "steps": steps, "steps-grouped": steps}


class Ours:
    """The starting side of Rota: a client."""

    kind: Literal["raw", "ours"] = "ours"

    def __init__(self, url: str) -> None:
        self.url = url
        self.app, self.workflows = make_app(url)

    async def open(self) -> None:
        """Migrate and connect."""
        await self.app.connect()

    async def close(self) -> None:
        """Disconnect; the database goes with the place."""
        await self.app.close()

    async def start(self, number: int) -> None:
        """One run."""
        await self.app.start(self.workflows["noop"], number)

    async def start_one_by_one(self, count: int) -> None:
        """Each awaited."""
        for number in range(count):
            await self.start(number)

    async def start_together(self, count: int, starters: int) -> None:
        """Concurrent callers, each awaiting its own."""
        numbers = iter(range(count))

        async def starter() -> None:
            for number in numbers:
                await self.start(number)

        await asyncio.gather(*(starter() for _ in range(starters)))

    async def start_bulk(self, count: int, work: Work = "noop") -> None:
        """`start_many`, `BULK` in a call."""
        for begin in range(0, count, BULK):
            numbers = range(begin, min(begin + BULK, count))
            await self.app.start_many(self.workflows[work], [(number,) for number in numbers])

    async def unfinished(self) -> int:
        """Runs that are not final."""
        counts = await self.app.runs.counts()
        return sum(many for status, many in counts.items() if status not in FINAL)


async def work(url: str, _: Work, pen: Pen, ready: Callable[[], None]) -> None:
    """The worker process of Rota: it executes whatever was started."""
    app = make_app(url, pen)[0]
    await app.connect()
    ready()
    await app.run_forever(asyncio.Event())


class Embedded(Ours):
    """Client and worker in one process, as `async with app:` makes it."""

    def __init__(self, url: str, pen: Pen) -> None:
        super().__init__(url)
        self.app, self.workflows = make_app(url, pen)

    async def open(self) -> None:
        """Connect and work."""
        await self.app.start_worker()
