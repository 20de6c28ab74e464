"""A rolling deploy under load: old workers are replaced one by one while runs continue."""

from __future__ import annotations

from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest

from rota import Rota, patched, sleep
from rota.core.time.instants import SECOND
from rota.testing import START, World, virtual
from tests.workflows.kit import sound

RUNS = 150


def app_with(version: str, effects: Counter[tuple[str, int]], warm_runs: int = 0) -> Rota:
    """The code of one version; the newer one has one step more at two places."""
    app = Rota(code_version=version, warm_runs=warm_runs)

    def make(name: str) -> Any:
        async def step(n: int) -> str:
            effects[name, n] += 1
            return name

        return app.step(name=name)(step)

    a, b, c, first, second = (make(name) for name in ("a", "b", "c", "first", "second"))

    @app.workflow(name="flow")
    async def flow(n: int) -> list[str]:
        found = [await a(n)]
        if version == "v2" and await patched("first"):
            found.append(await first(n))
        for _ in range(6):  # each time another worker may continue it
            await sleep("1s")
        found.append(await b(n))
        if version == "v2" and await patched("second"):
            found.append(await second(n))
        for _ in range(6):
            await sleep("1s")
        return [*found, await c(n)]

    return app


class Fleet:
    """Workers on one database that take turns: each time another one is the first to claim."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._now = START
        self._worlds: list[World] = []
        self._stacks: list[AsyncExitStack] = []

    async def add(self, app: Rota) -> None:
        """Start a worker."""
        stack = AsyncExitStack()
        world = await stack.enter_async_context(
            virtual(app, url=self._url, start=self._now, warm=app.settings.warm_runs > 0)
        )
        self._worlds.append(world)
        self._stacks.append(stack)

    async def remove_first(self) -> None:
        """Stop the oldest worker."""
        del self._worlds[0]
        await self._stacks.pop(0).aclose()

    async def pass_second(self, number: int) -> None:
        """Let a second pass, and all work be done that is due then."""
        self._now += SECOND
        for world in self._worlds:
            world.clock.move_to(self._now)
            await world.beat()
        first = number % len(self._worlds)
        for world in (*self._worlds[first:], *self._worlds[:first]):
            await world.settle()


@pytest.mark.parametrize("warm_runs", [0, 10_000])
async def test_no_run_of_a_rolling_deploy_is_stranded(database_url: str, warm_runs: int) -> None:
    effects: Counter[tuple[str, int]] = Counter()
    old_1, old_2, new_1, new_2 = (
        app_with(version, effects, warm_runs) for version in ("v1", "v1", "v2", "v2")
    )
    fleet = Fleet(database_url)
    await fleet.add(old_1)
    await fleet.add(old_2)
    started = 0
    for second in range(60):
        if second == 5:
            await fleet.add(new_1)
        if second in (15, 35):
            await fleet.remove_first()
        if second == 25:
            await fleet.add(new_2)
        while started < min(RUNS, 5 * (second + 1)):
            await (old_2 if second < 20 else new_1).start("flow", started)
            started += 1
        await fleet.pass_second(second)
    runs = await new_1.runs.list(limit=1000)
    assert Counter(run.label for run in runs) == {"completed": RUNS}
    assert sum(bool(run.refused_versions) for run in runs) > 10  # otherwise this tests nothing
    assert set(effects.values()) == {1}
    for name in ("a", "b", "c"):
        assert sum(key[0] == name for key in effects) == RUNS
    await sound(new_1)
    await fleet.remove_first()
    await fleet.remove_first()
