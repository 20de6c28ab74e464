"""Growth: CPU time and memory of long conversations, wide fan-outs and many waiting runs.

Worker and client are one process, which belongs to Rota as with `rota up`. The raw column holds the
smaller size of the same thing, so a ratio says how much more the larger size costs.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence

from bench.measure import Sample, Sizes, Target
from bench.ours import SLOTS
from bench.places import Place
from rota import Rota, gather, wait_for
from rota.engine.process_identity import resident_bytes

MESSAGES = 200
# Messages of one conversation: the tenth and the last, each with its neighbours.
EARLY, LATE = slice(5, 15), slice(MESSAGES - 10, MESSAGES)
TALKS = 10  # conversations that take turns
WIDE, WIDER = 2_000, 8_000
MEGABYTE = 2**20


class Growth:
    """CPU milliseconds and megabytes."""

    name = "growth"
    about = "message 199 of a conversation against 10, fan-out of 8,000 against 2,000, warm runs"
    once = False

    async def round(self, places: Sequence[Place], sizes: Sizes) -> list[Sample]:
        """A fresh database for each line."""
        samples = []
        for place in places:
            early, late = await _conversations(place.url())
            samples.append(
                Sample("message 199 / 10", place.name, "CPU ms", late, early, Target("<=", 1.5))
            )
            wide, wider = [await _fan_out(place.url(), count) for count in (WIDE, WIDER)]
            samples.append(
                Sample(
                    "fan-out 8,000 / 2,000", place.name, "CPU ms", wider, wide, Target("<=", 4.4)
                )
            )
            used = await _waiting(place.url(), sizes.waiting)
            line = f"{sizes.waiting:,} warm runs"
            samples.append(Sample(line, place.name, "MB", used, None, Target("<=", 1024)))
        return samples


def _ms(began: float) -> float:
    return 1000 * (time.process_time() - began)


async def _conversations(url: str) -> tuple[float, float]:
    """The CPU time of an early and of a late message."""
    app = Rota(url, migrate=True, slots=SLOTS)
    answered = asyncio.Semaphore(0)

    @app.step
    async def answer(text: str) -> str:
        answered.release()
        return text.upper()

    @app.workflow
    async def talk() -> int:
        for _ in range(MESSAGES):
            await answer(await wait_for("message", type=str))
        return MESSAGES

    costs = []
    with app.own_process():
        async with app:
            runs = [await app.start(talk) for _ in range(TALKS)]
            for _ in range(MESSAGES):
                began = time.process_time()
                for run in runs:
                    await run.signal("message", "hello")
                    await answered.acquire()
                costs.append(_ms(began) / TALKS)
            for run in runs:
                assert await run.result() == MESSAGES
    return statistics.median(costs[EARLY]), statistics.median(costs[LATE])


async def _fan_out(url: str, count: int) -> float:
    """The CPU time of a parent with so many children, which it awaits together."""
    app = Rota(url, migrate=True, slots=SLOTS)

    @app.workflow
    async def child(number: int) -> int:
        return number

    @app.workflow
    async def parent() -> int:
        return sum(await gather(*[child(number) for number in range(count)]))

    with app.own_process():
        async with app:
            began = time.process_time()
            run = await app.start(parent)
            assert await run.result() == count * (count - 1) // 2
            return _ms(began)


async def _waiting(url: str, count: int) -> float:
    """The megabytes that this process has when so many runs wait in its memory."""
    app = Rota(url, migrate=True, slots=SLOTS, warm_runs=count)

    @app.workflow
    async def waits(number: int) -> int:
        await wait_for("go")
        return number

    with app.own_process():
        async with app:
            await app.start_many(waits, [(number,) for number in range(count)])
            while (await app.runs.counts()).get("sleeping", 0) < count:
                await asyncio.sleep(0.05)
            return resident_bytes() / MEGABYTE
