"""Ten thousand automations: first start, later starts, idle CPU, and an event to one of them.

Each has a consumer and a producer that looks once a day. They are made once in the one round.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from bench.automations import make_idle_app, publish
from bench.children import until
from bench.measure import Sample, Sizes, Target, percentile
from bench.parts.automations import none_left
from bench.places import Place, commits_around
from rota import Rota

STARTS = 3
FEW = 10
EVENTS = 40
WARM_UP = 10
SETTLE_S = 12.0
AT_WORK = "select count(*) from runs where status in ('pending', 'running')"
# A fifth of the 12 times that it took on PostgreSQL while handler runs shared no statement.
FIRST_START = Target("<=", 2.4)


class ManyAutomations:
    """The cost of many automations, in all and for each."""

    name = "many"
    about = "ten thousand automations: first start, start-up, idle CPU, an event among them"
    once = True

    async def round(self, places: Sequence[Place], sizes: Sizes) -> list[Sample]:
        """Each database by itself."""
        samples = []
        for place in places:
            url = place.url()
            samples += await _first_start(place, url, sizes.automations)
            samples += await _start_up(place, url, sizes.automations)
            samples += await _rest(place, url, sizes.automations, sizes.idle_s)
            samples += await _among(place, url, sizes.automations)
            await place.drop(url)
        return samples


def _app(url: str, count: int, seen: dict[int, float]) -> Rota:
    """The same code each time: another function in a closure would be a new version."""
    return make_idle_app(url, count, seen.__setitem__)


async def _first_start(place: Place, url: str, count: int) -> list[Sample]:
    """In a process that belongs to Rota, as with `rota up`. The raw side inserts a row for each
    automation with a commit each."""
    app = _app(url, count, {})
    async with commits_around(place) as commits:
        began = time.monotonic()
        with app.own_process():
            async with app:
                deployed_s = time.monotonic() - began
                await none_left(url, AT_WORK, "every handler run once", every_s=0.1)
                quiet_s = time.monotonic() - began
    many = f"{count:,} automations, first start"
    raw_s = count / commits.a_second
    # Fewer automations cost more each: the start of the process is in the time.
    target = FIRST_START if place.name == "postgres" and count == Sizes().automations else None
    return [
        Sample(f"{many}: deployed", place.name, "s", deployed_s),
        Sample(f"{many}: every handler run", place.name, "s", quiet_s, raw_s, target),
    ]


async def _start_up(place: Place, url: str, count: int) -> list[Sample]:
    """From declarations that are there already to a worker that works; the same code as before."""
    samples = []
    for _ in range(STARTS):
        app = _app(url, count, {})
        began = time.monotonic()
        async with app:
            await app.automations.run_now("line-00000")
            await none_left(url, AT_WORK, "the first run", every_s=0.005)
            took_s = time.monotonic() - began
        name = f"{count:,} automations, start-up"
        samples.append(Sample(name, place.name, "s", took_s, None, Target("<=", 5)))
    return samples


async def _rest(place: Place, url: str, count: int, idle_s: float) -> list[Sample]:
    """This process alone: the bench does nothing meanwhile."""
    async with _app(url, count, {}):
        await asyncio.sleep(SETTLE_S)
        began, used = time.monotonic(), time.process_time()
        await asyncio.sleep(idle_s)
        cpu = 100 * (time.process_time() - used) / (time.monotonic() - began)
    return [Sample(f"{count:,} automations, idle CPU", place.name, "%", cpu, None, Target("<=", 1))]


async def _among(place: Place, url: str, count: int) -> list[Sample]:
    """An event to one of many, and to one of few, interleaved; from `publish` to `prepare`."""
    few_url = place.url()
    seen: list[dict[int, float]] = [{}, {}]
    late_ms: list[list[float]] = [[], []]
    many = _app(url, count, seen[0])
    few = _app(few_url, FEW, seen[1])
    async with many, few:
        await none_left(few_url, AT_WORK, "every handler run once", every_s=0.1)
        for number in range(WARM_UP + EVENTS):
            for app, lines, side in ((many, count, 0), (few, FEW, 1)):
                line = number * max(1, lines // (WARM_UP + EVENTS)) % lines
                late_ms[side].append(await _first_line(app, line, number, seen[side]))
    await place.drop(few_url)
    ours, raw = (percentile(each[WARM_UP:], 50) for each in late_ms)
    name = f"event to consumer among {count:,}, p50; raw: among {FEW}"
    return [Sample(name, place.name, "ms", ours, raw, Target("<=", 1.3))]


async def _first_line(app: Rota, line: int, number: int, seen: dict[int, float]) -> float:
    await asyncio.sleep(0.05)
    began = time.monotonic()
    await publish(app, line, number)
    await until(lambda: number in seen, "the event")
    return 1000 * (seen[number] - began)
