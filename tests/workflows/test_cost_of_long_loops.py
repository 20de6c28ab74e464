"""The cost of workflows that loop for long: statements and loaded steps, not seconds."""

from __future__ import annotations

from typing import Any

import pytest

import rota
from rota import Rota, sleep, wait_for
from rota.store.backend.postgres import PostgresTx
from rota.store.backend.sqlite_threads import SqliteTx
from rota.testing import World, virtual
from tests.workflows.kit import result, sound


@pytest.fixture
def read_steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each statement: the number of steps that it loads."""
    found: list[int] = []

    def counted(ask: Any) -> Any:
        async def count(tx: Any, query: str, *args: Any, **values: Any) -> Any:
            answer = await ask(tx, query, *args, **values)
            found.append(len(answer) if query == "steps_of" else 0)
            return answer

        return count

    for kind in (SqliteTx, PostgresTx):
        for method in ("rows", "many", "change"):
            monkeypatch.setattr(kind, method, counted(getattr(kind, method)))
    return found


class Loops:
    """Loops of sleeps and of signals, with a new segment after each `every`."""

    def __init__(self) -> None:
        self.app = Rota()

        @self.app.workflow
        async def sleeps(n: int, last: int, every: int) -> int:
            for _ in range(min(every, last - n)):
                await sleep(1)
            if n + every < last:
                raise rota.continue_as_new(n + every, last, every)
            return last

        @self.app.workflow
        async def signals(n: int, last: int, every: int) -> int:
            for _ in range(min(every, last - n)):
                await wait_for("go")
            if n + every < last:
                raise rota.continue_as_new(n + every, last, every)
            return last

        self.sleeps, self.signals = sleeps, signals

    async def live(self, world: World, which: Any, last: int, every: int) -> None:
        run = await which.start(0, last, every)
        if which is self.signals:
            for _ in range(last):
                await world.settle()
                await run.signal("go")
        await world.drain()
        assert await result(run) == last


@pytest.mark.parametrize("which", ["sleeps", "signals"])
@pytest.mark.parametrize(("warm", "every"), [(True, 1000), (False, 25)])
async def test_the_cost_of_a_long_loop_is_linear(
    database_url: str, which: str, warm: bool, every: int, read_steps: list[int]
) -> None:
    """Warm runs load nothing; the others load their segment at most."""
    loops = Loops()
    workflow = getattr(loops, which)
    async with virtual(loops.app, url=database_url, warm=warm) as world:
        costs = []
        for last in (100, 400):
            read_steps.clear()
            await loops.live(world, workflow, last, every)
            costs.append((len(read_steps), sum(read_steps)))
        (few, few_loaded), (many, many_loaded) = costs
        assert many < 4.4 * few
        assert many_loaded <= 4.4 * few_loaded
        assert few_loaded == 0 if warm else few_loaded > 0
        await sound(loops.app)
