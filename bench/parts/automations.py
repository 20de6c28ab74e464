"""Automations: from an event to its consumer, events per second, and what idle ones cost.

Publisher and worker are one process. Everything is repeated inside the one round, both sides in
turns; only the many idle automations are made once.
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
    make_idle_app,
    publish,
    publish_together,
    raw_waker,
)
from bench.children import TookTooLong, until
from bench.measure import Sample, Sizes, Target, percentile, rate
from bench.places import Place
from bench.schedules import hand
from rota import Rota

CALLERS = 64
LINES = 100
TAKE = 100
TURNS = {"latency": 3, "events": 3, "start": 3}
WARM_UP = 10
# Longer than a turn takes: an event that finds its automation at work would wait for that.
PAUSE_S = (0.015, 0.025)
SETTLE_S = 12.0
PATIENCE_S = 900.0
AT_WORK = "select count(*) from runs where status in ('pending', 'running')"
UNUSED = "select count(*) from events where status <> 'consumed'"


class Load(NamedTuple):
    """So many events through so many automations, up to `take` of them in a turn."""

    name: str
    events: int
    lines: int
    take: int


class Automations:
    """Events through consumers, and automations that have nothing to do."""

    name = "automations"
    about = "event to consumer, events per second, and the cost of idle automations"
    once = True

    async def round(self, places: Sequence[Place], sizes: Sizes) -> list[Sample]:
        """Each database by itself."""
        samples = []
        for place in places:
            for _ in range(TURNS["latency"]):
                samples += await _latency(place, sizes.latency)
            for load in _loads(sizes.events):
                for _ in range(TURNS["events"]):
                    samples += await _throughput(place, load)
            samples += await _idle(place, sizes.automations, sizes.idle_s)
        return samples


def _loads(count: int) -> list[Load]:
    return [
        Load("one consumer, an event a turn", count // 4, 1, 1),
        Load(f"one consumer, {TAKE} events a turn", count, 1, TAKE),
        Load(f"{LINES} automations, an event a turn", count, LINES, 1),
    ]


# -- latency ---------------------------------------------------------------------------------


async def _latency(place: Place, count: int) -> list[Sample]:
    """From the call of `publish` to the first line of `prepare`, both sides in turns."""
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
        # Asked only when the last is taken: the question costs more the more events there are.
        await until(lambda: len(began) >= load.events, "every event taken")
        await _none(url, UNUSED, "every event consumed", every_s=0.002)
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


async def _none(url: str, question: str, what: str, every_s: float) -> None:
    """Wait until the database counts none of these."""
    mine = await hand(url)
    deadline = time.monotonic() + PATIENCE_S
    while (await mine.rows(question))[0][0]:
        if time.monotonic() > deadline:
            raise TookTooLong(f"{what}: not within {PATIENCE_S:.0f} s")
        await asyncio.sleep(every_s)
    await mine.close()


# -- idle ------------------------------------------------------------------------------------


async def _idle(place: Place, count: int, idle_s: float) -> list[Sample]:
    url = place.url()
    many = f"{count:,} automations"
    app = make_idle_app(url, count)
    began = time.monotonic()
    async with app:
        deployed_s = time.monotonic() - began
        await _none(url, AT_WORK, "every handler run once", every_s=0.1)
        quiet_s = time.monotonic() - began
    samples = [
        Sample(f"{many}, first start: deployed", place.name, "s", deployed_s),
        Sample(f"{many}, first start: every handler run", place.name, "s", quiet_s),
    ]
    samples += [
        Sample(f"{many}, start-up", place.name, "s", await _start_up(url, count), None,
               Target("<=", 5))
        for _ in range(TURNS["start"])
    ]  # fmt: skip
    samples += await _rest(place, url, count, idle_s)
    await place.drop(url)
    return samples


async def _start_up(url: str, count: int) -> float:
    """From declarations that are there already to a worker that works; the same code as before."""
    app = make_idle_app(url, count)
    began = time.monotonic()
    async with app:
        await app.automations.run_now("line-00000")
        await _none(url, AT_WORK, "the first run", every_s=0.005)
        return time.monotonic() - began


async def _rest(place: Place, url: str, count: int, idle_s: float) -> list[Sample]:
    """This process alone: the bench does nothing meanwhile. Then one event to one of them."""
    seen: dict[int, float] = {}
    app = make_idle_app(url, count, seen.__setitem__)
    async with app:
        await asyncio.sleep(SETTLE_S)
        began, used = time.monotonic(), time.process_time()
        await asyncio.sleep(idle_s)
        cpu = 100 * (time.process_time() - used) / (time.monotonic() - began)
        late_ms = [await _first_line(app, number, count, seen) for number in range(WARM_UP)]
    return [
        Sample(f"{count:,} automations, idle CPU", place.name, "%", cpu, None, Target("<=", 1)),
        Sample(
            f"event to consumer among {count:,}, p50", place.name, "ms", percentile(late_ms, 50)
        ),
    ]


async def _first_line(app: Rota, number: int, count: int, seen: dict[int, float]) -> float:
    await asyncio.sleep(0.05)
    began = time.monotonic()
    await publish(app, number * (count // WARM_UP), number)
    await until(lambda: number in seen, "the event")
    return 1000 * (seen[number] - began)
