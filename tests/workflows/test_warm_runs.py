"""Runs that wait stay in memory: their code continues there, and only there where it is current."""

from __future__ import annotations

import asyncio
from typing import Any

from rota import RetryPolicy, Rota, sleep, wait_for
from rota.core.runs.model import Outcome
from rota.store.runs.settle import settle_runs
from rota.store.runs.wake import poke
from rota.testing import virtual
from rota.workflows.warm_runs import WarmRuns
from tests.engine.kit import ghost_claim
from tests.workflows.kit import result, sound

ALL = ["first", "second", "told", "third"]


class Counted:
    """A workflow that counts how often its code begins, and which of its steps are executed."""

    def __init__(self, **settings: Any) -> None:
        self.app = Rota(**settings)
        self.begun = 0
        self.calls: list[Any] = []
        self.dropped = 0

        @self.app.step
        async def note(value: Any) -> Any:
            self.calls.append(value)
            return value

        @self.app.workflow
        async def flow() -> list[Any]:
            self.begun += 1
            try:
                found = [await note("first")]
                await sleep("1h")
                found.append(await note("second"))
                found.append(await wait_for("go"))
                found.append(await note("third"))
            except asyncio.CancelledError:
                self.dropped += 1
                raise
            return found

        self.flow = flow

    @property
    def warm(self) -> WarmRuns:
        """The runs that its worker keeps."""
        assert self.app._executor is not None
        return self.app._executor.warm


async def test_a_run_that_waits_continues_in_memory(database_url: str) -> None:
    counted = Counted()
    async with virtual(counted.app, url=database_url, warm=True) as world:
        run = await counted.flow.start()
        await world.advance("2h")
        assert (await run.run()).status == "sleeping"
        await run.signal("go", "told")
        await world.drain()
        assert await result(run) == ALL
        assert (counted.begun, counted.calls) == (1, ["first", "second", "third"])
        assert len(counted.warm) == 0
        await sound(counted.app)


async def test_another_worker_replays_the_run(database_url: str) -> None:
    counted = Counted()
    async with virtual(counted.app, url=database_url, warm=True) as world:
        run = await counted.flow.start()
        await world.advance("2h")
        now = world.clock.now()
    assert counted.dropped == 1, "the code is told when its worker stops"
    async with virtual(counted.app, url=database_url, warm=True, start=now) as world:
        await run.signal("go", "told")
        await world.drain()
        assert await result(run) == ALL
        assert (counted.begun, counted.calls) == (2, ["first", "second", "third"])
        await sound(counted.app)


async def test_a_claim_in_between_makes_the_code_in_memory_stale(database_url: str) -> None:
    counted = Counted()
    async with virtual(counted.app, url=database_url, warm=True) as world:
        run = await counted.flow.start()
        await world.advance("2h")
        database = counted.app.connection.database
        await database.write(poke, [run.id], now=world.clock.now())
        [stolen] = await ghost_claim(counted.app, "thief")
        given_back = await database.write(
            settle_runs, [Outcome(stolen, "release")], now=world.clock.now()
        )
        assert given_back.ids == {run.id}
        await run.signal("go", "told")
        await world.drain()
        assert await result(run) == ALL
        assert (counted.begun, counted.calls) == (2, ["first", "second", "third"])
        assert counted.dropped == 1
        await sound(counted.app)


async def test_the_least_recently_used_run_goes_first(database_url: str) -> None:
    counted = Counted(warm_runs=2)
    async with virtual(counted.app, url=database_url, warm=True) as world:
        runs = []
        for _ in range(3):
            runs.append(await counted.flow.start())
            await world.settle()
        assert {run.claim.id for run in counted.warm.oldest(9)} == {runs[1].id, runs[2].id}
        await world.advance("2h")
        for run in runs:
            await run.signal("go", "told")
        await world.drain()
        assert [await result(run) for run in runs] == [ALL] * 3
        assert len(counted.calls) == 9
        await sound(counted.app)


async def test_no_run_stays_in_memory_when_there_is_too_little(database_url: str) -> None:
    counted = Counted(warm_memory_mb=1)  # less than any Python process has
    async with virtual(counted.app, url=database_url, warm=True) as world:
        runs = await counted.app.start_many(counted.flow, [()] * 200)
        await world.settle()
        assert len(counted.warm) < 200
        await world.advance("2h")
        for run in runs:
            await run.signal("go", "told")
        await world.drain()
        assert [await result(run) for run in runs] == [ALL] * 200
        assert len(counted.calls) == 600


async def test_a_heartbeat_drops_what_has_ended(database_url: str) -> None:
    counted = Counted()
    async with virtual(counted.app, url=database_url, warm=True) as world:
        gone, stays = await counted.flow.start(), await counted.flow.start()
        await world.settle()
        await gone.cancel()
        await world.beat()
        await world.settle()
        assert [run.claim.id for run in counted.warm.oldest(9)] == [stays.id]
        assert counted.dropped == 1


async def test_children_and_retries_continue_in_memory(database_url: str) -> None:
    app = Rota()
    begun: list[str] = []
    tries: list[int] = []

    @app.step(retries=RetryPolicy(attempts=3, delay_s=60))
    async def shaky() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("down")
        return len(tries)

    @app.workflow
    async def child(n: int) -> int:
        begun.append("child")
        await sleep("1h")
        return n

    @app.workflow
    async def parent() -> list[int]:
        begun.append("parent")
        first = await child.start(1)
        found = [await shaky(), await child(2)]
        return [*found, await first.result()]

    async with virtual(app, url=database_url, warm=True) as world:
        run = await parent.start()
        await world.drain()
        assert await result(run) == [3, 2, 1]
        assert sorted(begun) == ["child", "child", "parent"]
        await sound(app)


async def test_a_child_that_ends_while_its_parent_sleeps_is_seen(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def quick() -> str:
        return "done"

    @app.workflow
    async def parent() -> str:
        begun = await quick.start()
        await asyncio.sleep(0.5)
        return await begun.result()

    async with virtual(app, url=database_url, warm=True) as world:
        run = await parent.start()
        await world.drain()
        assert await result(run) == "done"
