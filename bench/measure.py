"""The result of a round, and of many rounds together."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from bench.places import Place
from bench.sides import Side


class Target(NamedTuple):
    """The target: of the ratio, or of our own value where there is no raw one."""

    sense: Literal[">=", "<="]
    value: float

    def met_by(self, value: float) -> bool:
        """Whether it is good enough."""
        return value >= self.value if self.sense == ">=" else value <= self.value

    def __str__(self) -> str:
        return f"{self.sense} {self.value:.3g}"


class Sample(NamedTuple):
    """One line of one round."""

    line: str
    database: str
    unit: str
    ours: float
    raw: float | None = None
    target: Target | None = None


class Line(NamedTuple):
    """Many rounds of one line: medians, and ratios taken inside a round."""

    part: str
    line: str
    database: str
    unit: str
    ours: float
    raw: float | None
    ratio: float | None
    ratios: list[float]
    target: Target | None
    verdict: Literal["ok", "short", ""]

    @property
    def spread(self) -> str:
        """The least and the greatest ratio of all rounds: how far to trust the median."""
        return f"{min(self.ratios):.2f}-{max(self.ratios):.2f}" if self.ratios else ""

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        target = None if self.target is None else str(self.target)
        return self._asdict() | {"target": target}


class Sizes(NamedTuple):
    """How much is done in one round."""

    one_by_one: int = 1_000
    together: int = 10_000
    bulk: int = 20_000
    drain: int = 20_000
    flows: int = 6_000
    flows_commit_each: int = 200
    latency: int = 80
    idle_s: float = 20.0
    due: int = 100_000
    stored: int = 1_000_000
    late_s: int = 5
    events: int = 2_000
    automations: int = 10_000
    items: int = 10_000
    children: int = 2_000
    fair: int = 4_000
    churn: int = 200_000
    history: int = 5_000_000
    paused: int = 150
    waiting: int = 10_000


QUICK = Sizes(
    300,
    3_000,
    5_000,
    10_000,
    500,
    50,
    30,
    10.0,
    10_000,
    100_000,
    3,
    400,
    300,
    1_000,
    500,
    1_000,
    30_000,
    50_000,
    60,
    2_000,
)


class Part(Protocol):
    """Something that can be measured round by round."""

    name: str
    about: str
    once: bool  # In the first round only.

    async def round(self, places: Sequence[Place], sizes: Sizes) -> list[Sample]:
        """Measure both sides once on every database, one straight after the other."""
        ...


def combine(part: str, samples: Sequence[Sample]) -> Line:
    """One line from the samples of all rounds."""
    first = samples[0]
    ours = statistics.median(sample.ours for sample in samples)
    raws = [sample.raw for sample in samples if sample.raw is not None]
    ratios = [sample.ours / sample.raw for sample in samples if sample.raw]
    raw = statistics.median(raws) if raws else None
    ratio = statistics.median(ratios) if ratios else None
    verdict: Literal["ok", "short", ""] = ""
    if first.target is not None:
        verdict = "ok" if first.target.met_by(ours if ratio is None else ratio) else "short"
    return Line(
        part, first.line, first.database, first.unit, ours, raw, ratio, ratios, first.target,
        verdict,
    )  # fmt: skip


async def in_turns(
    sides: Sequence[Side], work: Callable[[Side, int], Awaitable[None]], count: int, slice_: int
) -> list[float]:
    """How many per second each side does, a slice at a time interleaved: whatever else happens on
    the machine then happens to all of them."""
    took = [0.0] * len(sides)
    for _ in range(0, count, slice_):
        for index, side in enumerate(sides):
            began = time.perf_counter()
            await work(side, slice_)
            took[index] += time.perf_counter() - began
    return [count / seconds for seconds in took]


async def rate(count: int, work: Awaitable[None]) -> float:
    """How many per second."""
    began = time.perf_counter()
    await work
    return count / (time.perf_counter() - began)


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which `percent` of them lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(percent / 100 * (len(ordered) - 1)))]
