"""Several worker processes and no kills: nothing twice, nothing lost, limits hold at all times."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rota import Client, Start
from tests.faults.kit import (
    Hire,
)
from tests.kit import Effect, Effects, broken, until

CREW = 3


def peak(effects: Sequence[Effect], group: Callable[[Effect], str]) -> dict[str, int]:
    """The most that were between begin and end at one instant, per group."""
    now: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for effect in sorted(effects, key=lambda e: e.at):
        now[group(effect)] += 1 if effect.mark == "begin" else -1
        most[group(effect)] = max(most[group(effect)], now[group(effect)])
    return dict(most)


async def _is_ready(log: Path) -> bool:
    return "ready" in log.read_text()


def key_of(effect: Effect) -> str:
    return effect.label.partition(":")[0]


async def _slots(client: Client, count: int, seconds: float, keys: int) -> None:
    items = [
        Start(kwargs={"label": f"k{n % keys}:{n}", "seconds": seconds}, key=f"k{n % keys}")
        for n in range(count)
    ]
    runs = await client.options(queue="narrow").start_many("slot", items)
    await asyncio.gather(*(run.result(timeout=60) for run in runs))


async def test_no_run_is_executed_twice_or_lost_by_rival_workers(
    database_url: str, hire: Hire, effects: Effects
) -> None:
    crew = [hire("--set", "slots=7") for _ in range(CREW)]
    async with Client(database_url, migrate=True) as client:
        for worker in crew:  # otherwise the first might have done everything
            await until(lambda log=worker.log: _is_ready(log))  # type: ignore[misc]
        items = [Start(kwargs={"label": f"r{n}"}) for n in range(1200)]
        runs = await client.start_many("two", items)
        await asyncio.gather(*(run.result(timeout=60) for run in runs))
        assert await client.runs.counts() == {"completed": 1200}
    labels = [effect.label for effect in effects.read()]
    assert sorted(labels) == sorted(f"r{n}/note#{k}" for n in range(1200) for k in range(2))
    assert len({effect.pid for effect in effects.read()}) == len(crew), "one did everything"
    assert await broken(database_url) == []


async def test_a_limit_on_running_holds_across_workers(
    database_url: str, hire: Hire, effects: Effects
) -> None:
    for _ in range(CREW):
        hire("--limit", json.dumps({"concurrency": 4}))
    async with Client(database_url, migrate=True) as client:
        await _slots(client, 120, 0.02, keys=3)
    assert peak(effects.read(), lambda _: "all")["all"] == 4
    assert len(effects.read()) == 240


async def test_a_limit_per_key_holds_across_workers(
    database_url: str, hire: Hire, effects: Effects
) -> None:
    for _ in range(CREW):
        hire("--limit", json.dumps({"concurrency_per_key": 2}))
    async with Client(database_url, migrate=True) as client:
        await _slots(client, 120, 0.02, keys=5)
    most = peak(effects.read(), key_of)
    assert most == {f"k{n}": 2 for n in range(5)}
    assert len(effects.read()) == 240


@pytest.mark.wall_clock("a rate is counted in real seconds across processes")
async def test_a_rate_holds_across_workers(database_url: str, hire: Hire, effects: Effects) -> None:
    count, per_s = 10, 0.5
    for _ in range(CREW):
        hire("--limit", json.dumps({"rate": [count, f"{int(per_s * 1000)}ms"]}))
    async with Client(database_url, migrate=True) as client:
        await _slots(client, 60, 0.0, keys=1)
    begun = sorted(e.at / 1e9 for e in effects.read() if e.mark == "begin")
    assert len(begun) == 60
    # After a rest as many as `count` may come at once, then `count` per `per_s` flow in: in any
    # window there are at most twice as many. Runs after the burst keep the pace.
    took_s = begun[-1] - begun[0]
    assert took_s >= (60 - count) / count * per_s * 0.9
    assert took_s <= (60 - count) / count * per_s + 3
    # The instant of a claim and that of its effect differ by the scheduling of a busy machine.
    slack_s = 0.15
    for index, at in enumerate(begun):
        within = sum(at <= other <= at + per_s - slack_s for other in begun[index:])
        assert within <= 2 * count


@pytest.mark.parametrize("limit", [{"concurrency": 1}, {"concurrency_per_key": 1}])
async def test_a_limited_queue_with_a_dead_holder_goes_on(
    database_url: str, hire: Hire, effects: Effects, limit: dict[str, int]
) -> None:
    victim = hire("--limit", json.dumps(limit))
    async with Client(database_url, migrate=True) as client:
        first = await client.options(queue="narrow", key="k0").start(
            "slot", label="k0:0", seconds=1
        )
        second = await client.options(queue="narrow", key="k0").start(
            "slot", label="k0:1", seconds=0
        )

        async def begun() -> bool:
            return bool(effects.read())

        await until(begun)
        victim.kill()
        hire("--limit", json.dumps(limit))
        await first.result(timeout=60)
        await second.result(timeout=60)
