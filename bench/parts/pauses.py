"""From the call of `start` to the first line of user code, with pauses of 0 to 300 ms in between.

Measured twice. The event loop of the caller lives, or it runs only during the calls, as in a script
that starts runs between other work. The sides take turns of a few starts each. So a pause is one
between two starts of a side, and some starts come while the worker has the one before.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bench import hits
from bench.children import until, workers
from bench.measure import Sample, Sizes, Target, percentile
from bench.ours import Ours
from bench.places import Place
from bench.sides import Side

WARM_UP = 10
SLICE = 10
PAUSE_S_MAX = 0.3
TARGETS = {50: Target("<=", 1.6), 99: Target("<=", 2.5)}


class Pauses:
    """Milliseconds from start to the first user line."""

    name = "pauses"
    about = (
        "start to first user line with pauses of 0 to 300 ms, the caller's loop alive or stopped"
    )
    once = False

    async def round(self, places: Sequence[Place], sizes: Sizes) -> list[Sample]:
        """Between two processes."""
        samples = []
        for place in places:
            for loop in ("alive", "stopped"):
                script = asyncio.to_thread(_script, place, sizes.paused, loop == "alive")
                samples += _samples(place, loop, *await script)
        return samples


def _samples(
    place: Place, loop: str, raws: Sequence[float], rotas: Sequence[float]
) -> list[Sample]:
    return [
        Sample(
            f"loop {loop}, p{percent}", place.name, "ms", percentile(rotas, percent),
            percentile(raws, percent), target if place.name == "postgres" else None,
        )
        for percent, target in TARGETS.items()
    ]  # fmt: skip


def _script(place: Place, count: int, alive: bool) -> list[list[float]]:
    """The latencies of both sides, from a thread with an event loop of its own."""
    sides: list[Side] = [place.raw(), Ours(place.url())]
    paths = [place.scratch / f"pauses-{side.kind}.hits" for side in sides]
    total = WARM_UP + count
    with asyncio.Runner() as runner, contextlib.ExitStack() as stack:
        for side, path in zip(sides, paths, strict=True):
            path.unlink(missing_ok=True)
            runner.run(side.open())
            stack.callback(_close, runner, place, side)
            stack.enter_context(workers(side, "noop", path))
        began = _starts(runner, sides, total, alive)
        enough = partial(_performed, paths, total)
        runner.run(until(enough, "every run performed"))
    return [_latencies(path, times)[WARM_UP:] for path, times in zip(paths, began, strict=True)]


def _close(runner: asyncio.Runner, place: Place, side: Side) -> None:
    runner.run(side.close())
    runner.run(place.drop(side.url))


def _performed(paths: Sequence[Path], count: int) -> bool:
    return min(hits.count(path) for path in paths) >= count


def _starts(
    runner: asyncio.Runner, sides: Sequence[Side], count: int, alive: bool
) -> list[list[float]]:
    """When each run was started. The loop runs during the pauses, or only during the calls."""
    began: list[list[float]] = [[], []]
    for side, number, pause_s in _turns(count):
        if alive:
            runner.run(asyncio.sleep(pause_s))
        else:
            time.sleep(pause_s)
        began[side].append(time.monotonic())
        runner.run(sides[side].start(number))
    return began


def _turns(count: int) -> list[tuple[int, int, float]]:
    """Which side starts which run, and the pause before it."""
    chance = random.Random(7)
    pauses = [chance.uniform(0, PAUSE_S_MAX) for _ in range(count)]
    return [
        (side, number, pauses[number])
        for begin in range(0, count, SLICE)
        for side in (0, 1)
        for number in range(begin, min(begin + SLICE, count))
    ]


def _latencies(path: Path, began: list[float]) -> list[float]:
    ran = {hit.number: hit.at for hit in hits.read(path)}
    return [1000 * (ran[number] - at) for number, at in enumerate(began)]
