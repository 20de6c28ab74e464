"""Automations: from an event to its consumer, and events per second.

Publisher and worker are one process. Everything is repeated inside the one round, both sides in
turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from bench.automations import (
    OurWaker,
    Waker,
    limit,
    make_app,
    publish_together,
    raw_waker,
)
from bench.children import TookTooLong, until
from bench.measure import Sample, Sizes, percentile, rate
from bench.places import Place
from bench.schedules import hand

CALLERS = 64
LINES = 100
TAKE = 100
ROUNDS = {"latency": 3, "events": 3}
WARM_UP = 10
# Longer than a handler run takes: an event that finds its automation at work would wait for that.
PAUSE_S = (0.015, 0.025)
PATIENCE_S = 900.0
UNUSED = "select count(*) from events where status <> 'consumed'"


class Load(NamedTuple):
    """So many events through so many automations, up to `take` of them in a handler run."""

    name: str
    events: int
    lines: int
    take: int


class Automations:
    """Events through consumers."""

    name = "automations"
    about = "event to consumer, and events per second"
    once = True

    async def round(self, places: Sequence[Place], sizes: Sizes) -> list[Sample]:
        """Each database by itself."""
        samples = []
        for place in places:
            for _ in range(ROUNDS["latency"]):
                samples += await _latency(place, sizes.latency)
            for load in _loads(sizes.events):
                for _ in range(ROUNDS["events"]):
                    samples += await _throughput(place, load)
        return samples


def _loads(count: int) -> list[Load]:
    return [
        Load("one consumer, an event a turn", count // 4, 1, 1),
        Load(f"one consumer, {TAKE} events a turn", count, 1, TAKE),
        Load(f"{LINES} automations, an event a turn", count, LINES, 1),
    ]


# -- latency ---------------------------------------------------------------------------------


async def _latency(place: Place, count: int) -> list[Sample]:
    """From the call of `publish` to the first line of `prepare`, both sides interleaved."""
    began: list[dict[int, float]] = [{}, {}]
    seen: list[dict[int, float]] = [{}, {}]
    chance = random.Random(7)
    async with (
        _awake(place, raw_waker(place.url(), seen[0].__setitem__)) as raw,
        _awake(place, OurWaker(place.url(), seen[1].__setitem__)) as ours,
    ):
        for number in range(WARM_UP + count):
            for side, times in zip((raw, ours), began, strict=True):
                await asyncio.sleep(chance.uniform(*PAUSE_S))
                times[number] = time.monotonic()
                await side.start(number)
        await until(lambda: seen[0].keys() == seen[1].keys() == began[0].keys(), "every event")
    raw_ms, ours_ms = (
        [1000 * (after[number] - before[number]) for number in range(WARM_UP, WARM_UP + count)]
        for before, after in zip(began, seen, strict=True)
    )
    return [
        Sample(
            f"event to consumer, p{percent}", place.name, "ms", percentile(ours_ms, percent),
            percentile(raw_ms, percent),
        )
        for percent in (50, 99)
    ]  # fmt: skip


@contextlib.asynccontextmanager
async def _awake(place: Place, side: Waker) -> AsyncIterator[Waker]:
    await side.open()
    try:
        yield side
    finally:
        await side.close()
        await place.drop(side.url)


# -- events per second -----------------------------------------------------------------------


async def _throughput(place: Place, load: Load) -> list[Sample]:
    """The events are stored first; from the first `prepare` until the last is consumed."""
    raw_in, raw_through = await _raw_throughput(place, load)
    url = place.url()
    began: list[float] = []
    app = make_app(url, load.lines, load.take, lambda _, at: began.append(at))
    async with app.connected():
        await app.automations.deploy_all()
        publishing = publish_together(app, load.lines, load.events, CALLERS)
        ours_in = await rate(load.events, publishing)
    async with app:
        # The question comes only when the last is taken: the question costs more the more events
        # there are.
        await until(lambda: len(began) >= load.events, "every event taken")
        await none_left(url, UNUSED, "every event consumed", every_s=0.002)
        ours_through = load.events / (time.monotonic() - began[0])
    await place.drop(url)
    assert len(began) == load.events, f"{len(began)} of {load.events} events were taken"
    samples = [Sample(load.name, place.name, "events/s", ours_through, raw_through)]
    if load.lines > 1:
        name = f"publish, {CALLERS} callers; raw one by one"
        samples.append(Sample(name, place.name, "events/s", ours_in, raw_in))
    return samples


async def _raw_throughput(place: Place, load: Load) -> tuple[float, float]:
    url = place.url()
    side = limit(url)
    await side.open()
    published = await rate(load.events, side.publish(load.events))
    began = time.perf_counter()
    used = await side.drain(load.lines, load.take)
    took_s = time.perf_counter() - began
    await side.close()
    await place.drop(url)
    assert used == load.events, f"the limit used {used} of {load.events}"
    return published, load.events / took_s


async def none_left(url: str, question: str, what: str, every_s: float) -> None:
    """Wait until the database counts none of these."""
    mine = await hand(url)
    deadline = time.monotonic() + PATIENCE_S
    while (await mine.rows(question))[0][0]:
        if time.monotonic() > deadline:
            raise TookTooLong(f"{what}: not within {PATIENCE_S:.0f} s")
        await asyncio.sleep(every_s)
    await mine.close()
