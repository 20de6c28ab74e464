"""Fairness: which runs begin first out of a backlog, with weights, turns of keys and ageing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from bench.measure import Sample, Sizes, Target
from bench.places import Place
from rota import Rota, Start

SLOTS = 20
Begun = list[str]


class Fairness:
    """Shares of the slots, in percent."""

    name = "fairness"
    about = "shares of queues by weight, of keys that take turns, of a run that ages"
    once = False

    async def round(self, places: Sequence[Place], sizes: Sizes) -> list[Sample]:
        """Each on an empty database."""
        samples = []
        for place in places:
            for line, measure, target in LINES:
                share = await measure(place.url(), sizes.fair)
                samples.append(Sample(line, place.name, "%", share, None, target))
        return samples


async def _begun(
    url: str, count: int, declare: Callable[[Rota], None], store: Callable[[Any, Any], Any]
) -> Begun:
    """Labels of runs in the order in which they began."""
    app = Rota(url, migrate=True, slots=SLOTS)
    declare(app)
    begun: Begun = []

    @app.workflow
    async def flow(label: str) -> None:
        begun.append(label)

    await app.connect()
    runs = await store(app, flow)
    assert len(runs) == count
    async with app:
        for run in runs:
            await run.result()
    return begun


async def _weights(url: str, count: int) -> float:
    def declare(app: Rota) -> None:
        app.queue("heavy", weight=3)
        app.queue("light", weight=1)

    async def store(app: Rota, flow: Any) -> list[Any]:
        half = count // 2
        light = await app.options(queue="light").start_many(flow, [("light",)] * half)
        heavy: list[Any] = await app.options(queue="heavy").start_many(
            flow, [("heavy",)] * (count - half)
        )
        return light + heavy

    first = (await _begun(url, count, declare, store))[: count // 2]
    return 100 * first.count("heavy") / len(first)


async def _turns(url: str, count: int) -> float:
    async def store(app: Rota, flow: Any) -> list[Any]:
        busy = [Start(("busy",), key=f"busy{n % 2}") for n in range(count - 4)]
        few = [Start(("few",), key=f"few{n}") for n in range(4)]
        return list(await app.options(queue="q").start_many(flow, busy + few))

    begun = await _begun(url, count, lambda app: app.queue("q", round_robin=True), store)
    return _before_last(begun, "few")


async def _ageing(url: str, count: int) -> float:
    async def store(app: Rota, flow: Any) -> list[Any]:
        low = await app.options(queue="q", priority=0).start_many(flow, [("low",)])
        high: list[Any] = await app.options(queue="q", priority=5).start_many(
            flow, [("high",)] * (count - 1)
        )
        return low + high

    begun = await _begun(url, count, lambda app: app.queue("q", age="1us"), store)
    return _before_last(begun, "low")


def _before_last(begun: Begun, label: str) -> float:
    """The share of all others that began before the last of these."""
    last = len(begun) - 1 - begun[::-1].index(label)
    others = len(begun) - begun.count(label)
    return 100 * sum(other != label for other in begun[:last]) / others


LINES: tuple[tuple[str, Callable[[str, int], Awaitable[float]], Target], ...] = (
    ("weights 3 to 1: share of the heavier queue", _weights, Target("<=", 80)),
    ("keys take turns: backlog before four late keys", _turns, Target("<=", 5)),
    ("priority ages: backlog before the oldest", _ageing, Target("<=", 5)),
)
