"""Producers: each on its own schedule. The names follow the lines of the plan for their
scheduling.
"""

from __future__ import annotations

from typing import Any

import pytest

from rota import Rota
from rota.automations import Automation, Context
from rota.errors import WrongState
from rota.testing import virtual
from tests.automations.kit import QUIET, open_run_state, sound, statuses


class Two(Rota):
    """Producers `fast` (5 min) and `slow` (1 h) that note when they ran, into one drain."""

    def __init__(self, fast: str = "5m", *, slow: bool = True, extra: bool = False) -> None:
        super().__init__(**QUIET)
        self.ran: list[tuple[str, str]] = []
        self.auto: Automation = self.automation("line", timezone="UTC")
        self.out = self.auto.topic("out")
        self._declare("fast", every=fast)
        if slow:
            self._declare("slow", every="1h")
        if extra:
            self._declare("extra", cron="0 12 * * *")
        self.auto.consumer("drain", subscribes=[self.out], prepare=drain)

    def _declare(self, name: str, **when: Any) -> None:
        async def produce(ctx: Context, state: Any) -> int:
            self.ran.append((name, f"{ctx.now:%H:%M}"))
            ctx.publish(self.out, f"{name}-{state or 0}")
            return (state or 0) + 1

        self.auto.producer(name=name, publishes=[self.out], **when)(produce)

    def times(self, name: str) -> list[str]:
        return [at for who, at in self.ran if who == name]


async def drain(ctx: Context, state: Any) -> dict[str, Any]:
    events = await ctx.peek("out")
    return {"reservations": [{"topic": "out", "ids": [one.id for one in events]}], "data": {}}


async def due(app: Rota, name: str) -> int | None:
    return {one.name: one.next_run_at for one in (await app.automations.show("line")).handlers}[
        name
    ]


async def test_two_producers_with_different_intervals_run_independently(database_url: str) -> None:
    app = Two()
    async with virtual(app, url=database_url) as world:
        await world.advance("62m")
        assert app.times("fast") == [f"00:{m:02d}" for m in range(0, 60, 5)] + ["01:00"]
        assert app.times("slow") == ["00:00", "01:00"]
        await sound(app)


async def test_a_producer_of_5_min_does_not_affect_the_schedule_of_one_of_1_hour(
    database_url: str,
) -> None:
    app = Two()
    async with virtual(app, url=database_url) as world:
        await world.settle()
        before = await due(app, "slow")
        await world.advance("31m")
        assert await due(app, "slow") == before


async def test_a_producer_that_comes_due_during_a_run_is_queued_once(database_url: str) -> None:
    """Busy for three of its own intervals, `fast` owes one run, not three."""
    app = Two()
    async with virtual(app, url=database_url) as world:
        await world.settle()
        app.ran.clear()
        world.clock.move_to(world.clock.now() + 17 * 60_000_000)  # the loop did not run
        await world.settle()
        assert app.times("fast") == ["00:17"]
        await world.advance("4m")
        assert app.times("fast") == ["00:17", "00:20"]
        await sound(app)


async def test_the_queued_flag_is_per_producer(database_url: str) -> None:
    """The end of one's run clears its own and no other's."""
    app = Two()
    seen: list[tuple[str, set[str]]] = []

    async def queued() -> set[str]:
        found = (await app.automations.show("line")).handlers
        return {one.name for one in found if one.queued_at is not None}

    def looking(name: str) -> Any:
        async def look(ctx: Context, state: Any) -> None:
            seen.append((name, await queued()))

        return look

    async with virtual(app, url=database_url) as world:
        await world.settle()
        for name in ("fast", "slow"):
            app.auto.handlers[name].functions["run"] = looking(name)
        await app.automations.run_now("line")
        await world.settle()
        assert seen == [("fast", {"fast", "slow"}), ("slow", {"slow"})]
        assert await queued() == set()


async def test_a_restart_queues_the_producers_that_came_due_and_no_other(database_url: str) -> None:
    first = Two()
    async with virtual(first, url=database_url) as world:
        await world.advance("2m")
        stopped_at = world.clock.now()
    second = Two()
    async with virtual(second, url=database_url, start=stopped_at + 20 * 60_000_000) as world:
        await world.settle()
        assert second.ran == [("fast", "00:22")]
        await sound(second)


async def test_a_restart_with_the_same_code_runs_nothing_that_is_not_due(database_url: str) -> None:
    first = Two()
    async with virtual(first, url=database_url) as world:
        await world.advance("2m")
        stopped_at = world.clock.now()
    second = Two()
    async with virtual(second, url=database_url, start=stopped_at) as world:
        await world.settle()
        assert second.ran == []
        assert (await second.automations.show("line")).automation.version == 1


async def test_run_now_queues_all_producers_and_each_is_timed_again(database_url: str) -> None:
    app = Two()
    async with virtual(app, url=database_url) as world:
        await world.advance("2m")
        app.ran.clear()
        assert sorted(await app.automations.run_now("line")) == ["fast", "slow"]
        await world.settle()
        assert sorted(app.ran) == [("fast", "00:02"), ("slow", "00:02")]
        found = await app.automations.activity("line")
        causes = {one.run.handler: one.run.cause for one in reversed(found)}
        assert causes["fast"] == causes["slow"] == "manual"
        await world.advance("10m")
        assert app.times("fast") == ["00:02", "00:05", "00:10"]
        await sound(app)


async def test_run_now_is_rejected_while_a_run_is_active(database_url: str) -> None:
    app = Two(slow=False)
    refused: list[str] = []
    async with virtual(app, url=database_url) as world:
        await world.settle()

        async def impatient(ctx: Context, state: Any) -> None:
            with pytest.raises(WrongState) as caught:
                await app.automations.run_now("line")
            refused.append(str(caught.value))

        app.auto.handlers["fast"].functions["run"] = impatient
        await world.advance("5m")
        assert refused == ["automation line has a run in progress"]
        await sound(app)


async def test_a_changed_config_adds_updates_and_removes_producers(database_url: str) -> None:
    first = Two()
    async with virtual(first, url=database_url) as world:
        await world.advance("2m")
        stopped_at = world.clock.now()
        state_before = (await first.automations.show("line")).handlers[0].state
    second = Two(fast="10m", slow=False, extra=True)
    async with virtual(second, url=database_url, start=stopped_at) as world:
        view = await second.automations.show("line")
        names = [one.name for one in view.handlers]
        assert names == ["fast", "extra", "drain"]
        assert view.handlers[0].state == state_before
        await world.settle()
        assert sorted(second.ran) == [("extra", "00:02"), ("fast", "00:02")]
        assert view.automation.version == 2
        await sound(second)


async def test_a_changed_config_leaves_the_schedules_of_the_others_alone(database_url: str) -> None:
    first = Two()
    async with virtual(first, url=database_url) as world:
        await world.advance("2m")
        stopped_at = world.clock.now()
        before = await due(first, "slow")
    second = Two(fast="7m")
    async with virtual(second, url=database_url, start=stopped_at) as world:
        await world.settle()
        assert second.ran == [("fast", "00:02")]
        assert await due(second, "slow") == before


async def test_a_cron_producer_follows_its_zone(database_url: str) -> None:
    app = Rota(**QUIET)
    auto = app.automation("line", timezone="America/New_York")
    out = auto.topic("out")
    ran: list[str] = []

    @auto.producer(cron="0 9 * * *", publishes=[out])
    def morning(ctx: Context, state: Any) -> None:
        ran.append(f"{ctx.now:%d %H:%M}")

    auto.consumer("drain", subscribes=[out], prepare=drain)
    async with virtual(app, url=database_url) as world:
        await world.advance("2d")
        assert ran == ["01 00:00", "01 14:00", "02 14:00"]


async def test_state_events_and_next_run_of_a_producer_commit_together_or_not_at_all(
    database_url: str,
) -> None:
    app = Rota(**QUIET)
    auto = app.automation("line", timezone="UTC")
    out = auto.topic("out")
    fails = [True]

    @auto.producer(every="1h", publishes=[out])
    async def half(ctx: Context, state: Any) -> int:
        ctx.publish(out, "one")
        if fails:
            raise ConnectionError("the line broke")
        return 7

    auto.consumer("drain", subscribes=[out], prepare=drain)
    async with virtual(app, url=database_url) as world:
        await world.settle()
        assert await app.automations.events("line") == []
        view = await app.automations.show("line")
        assert view.handlers[0].state is None
        assert view.handlers[0].next_run_at == world.clock.now()  # still due
        assert await open_run_state(app) == "sleeping:transient"
        fails.clear()
        await world.advance("11s")
        assert [one.message_id for one in await app.automations.events("line")] == ["one"]
        assert (await app.automations.show("line")).handlers[0].state == "7"
        lines = [line for line in await statuses(app) if line.startswith("half")]
        assert lines == ["half executing paused:transient", "half committed committed"]
        await sound(app)


async def test_returning_nothing_keeps_the_state(database_url: str) -> None:
    app = Rota(**QUIET)
    auto = app.automation("line", timezone="UTC")
    out = auto.topic("out")
    seen: list[Any] = []

    @auto.producer(every="1m", publishes=[out])
    async def once(ctx: Context, state: Any) -> Any:
        seen.append(state)
        return {"n": 1} if state is None else None

    auto.consumer("drain", subscribes=[out], prepare=drain)
    async with virtual(app, url=database_url) as world:
        await world.advance("2m")
        assert seen == [None, {"n": 1}, {"n": 1}]
