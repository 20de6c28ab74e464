"""A disarmed database: workers open it and do nothing until it is armed."""

from __future__ import annotations

from typing import Any

import pytest

from rota import Fatal, Rota, sleep
from rota.automations import Context
from rota.core.time.instants import micros
from rota.errors import WrongState
from rota.notifications import Notification
from rota.testing import VirtualClock, World, virtual
from tests.engine.kit import eventually, ghost_claim, ghost_row, live, pass_time, timer_set
from tests.kit import select
from tests.workflows.kit import sound

ALL = "select id, status, available_at, lease_owner, claim_count from runs order by id"


class Busy(Rota):
    """Something of each kind that acts by itself: `acts` notes what did."""

    def __init__(self) -> None:
        super().__init__(keep_days=1, lease_s=30)
        self.acts: list[str] = []
        self.workflow(name="nap")(self._nap)
        self.workflow(name="fails")(self._fails)
        self.schedule("every hour", name="hourly", timezone="UTC")(
            self.workflow(name="tick")(self._tick)
        )
        self.on_notification("failed")(self._noted)
        feed = self.automation("feed", timezone="UTC")
        out = feed.topic("out")
        feed.producer(name="fetch", publishes=[out], every="5m")(self._fetch)
        feed.consumer("read", subscribes=[out], prepare=self._read)

    async def _nap(self) -> None:
        await sleep("1h")
        self.acts.append("nap")

    async def _fails(self) -> None:
        self.acts.append("fails")
        raise Fatal("sold out")

    async def _tick(self) -> None:
        self.acts.append("tick")

    async def _noted(self, notification: Notification) -> None:
        self.acts.append(f"notified of {notification.name}")

    async def _fetch(self, ctx: Context, state: Any) -> None:
        self.acts.append("fetch")
        ctx.publish("out", "one")

    async def _read(self, ctx: Context, state: Any) -> dict[str, Any]:
        self.acts.append("read")
        ids = [one.id for one in await ctx.peek("out")]
        return {"reservations": [{"topic": "out", "ids": ids}], "data": {}}


async def later(world: World, duration: str, beats: int = 4) -> None:
    for _ in range(beats):
        await world.beat()
        await world.advance(micros(duration) / beats / 1e6)


async def test_nothing_acts_on_a_disarmed_copy_until_it_is_armed(database_url: str) -> None:
    app = Busy()
    async with virtual(app, url=database_url) as world:
        await app.start("nap")
        await world.settle()
        await ghost_row(app, "ghost")
        await app.start("fails")
        [held] = await ghost_claim(app, "ghost")
        now = world.clock.now()
    async with virtual(app, url=database_url, start=now) as world:
        await app.operations.disarm(reason="a copy")
    copied = await select(database_url, ALL)
    app.acts.clear()

    async with virtual(app, url=database_url, start=now + micros("2d")) as world:
        await app.start("fails")
        await later(world, "3d")
        assert app.acts == []
        assert len(await select(database_url, ALL)) == len(copied) + 1, "nothing but that start"
        assert copied == (await select(database_url, ALL))[: len(copied)]
        assert await app.operations.arm() is not None
        await later(world, "2h")
        seen = {"nap", "fails", "tick", "fetch", "notified of fails"}
        assert set(app.acts) == seen
        assert app.acts.count("fails") == 2, f"{held.id} was recovered"
        assert await app.operations.arm() is None
        await sound(app)


async def test_a_running_worker_notices_at_its_heartbeat(database_url: str) -> None:
    app = Rota(heartbeat_s=7, poll_s=60)
    done: list[int] = []

    @app.workflow
    async def flow(n: int) -> None:
        done.append(n)

    async with live(app, database_url) as clock:
        await flow.start(1)
        await eventually(lambda: done == [1])
        await app.operations.disarm()
        await next_beat(app, clock)
        await flow.start(2)
        await pass_time(clock, "70s")
        assert done == [1]
        [row] = await app.workers()
        assert row.status == "online"
        with pytest.raises(WrongState, match=r"has been disarmed since .* \(by an operator\)"):
            await app.operations.must_be_armed()
        await app.operations.arm()
        await pass_time(clock, "7s")
        await eventually(lambda: done == [1, 2])


async def next_beat(app: Rota, clock: VirtualClock) -> None:
    await timer_set(clock, "7s")
    await pass_time(clock, "7s")
    runtime = app.runtime
    assert runtime is not None
    await eventually(lambda: not runtime.worker.claiming)
