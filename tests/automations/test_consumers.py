"""Consumers: woken by events and by the wake time they ask for. The names follow the lines of the
plan for the scheduler's state.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rota import Rota
from rota.automations import Context, Prepared
from rota.core.time.instants import DAY, SECOND, iso
from rota.testing import virtual
from tests.automations.kit import (
    QUIET,
    Line,
    begun,
    event_statuses,
    open_run_state,
    sound,
    statuses,
)


async def wake_of(app: Rota, handler: str = "worker") -> int | None:
    found = (await app.automations.show("line")).handlers
    return {one.name: one.wake_at for one in found}[handler]


async def is_dirty(app: Rota, handler: str = "worker") -> bool:
    found = (await app.automations.show("line")).handlers
    return {one.name: one.is_dirty for one in found}[handler]


@pytest.mark.parametrize(
    ("asked", "granted_us"),
    [
        (timedelta(seconds=-5), 30 * SECOND),
        (timedelta(seconds=29), 30 * SECOND),
        (timedelta(minutes=5), 300 * SECOND),
        (timedelta(days=365), DAY),
    ],
    ids=["in the past", "minimum interval", "between them", "maximum interval"],
)
async def test_wake_at_is_clamped_to_its_bounds(
    database_url: str, asked: timedelta, granted_us: int
) -> None:
    app = Line()
    async with virtual(app, url=database_url) as world:
        app.wake_at = world.clock.moment() + asked
        await world.settle()
        assert await wake_of(app) == world.clock.now() + granted_us
        [run] = await app.automations.activity("line")
        assert (run.run.remark is None) == (asked == timedelta(minutes=5))
        await sound(app)


@pytest.mark.parametrize("asked", ["soon", 12, "2030-01-01T00:10:00", b"x"], ids=str)
async def test_a_wake_at_that_is_no_time_is_ignored_and_remarked(
    database_url: str, asked: Any
) -> None:
    app = Line()
    async with virtual(app, url=database_url) as world:
        app.wake_at = asked
        await world.settle()
        assert await wake_of(app) is None
        [run] = await app.automations.activity("line")
        assert run.status == "completed"
        assert "was ignored" in (run.run.remark or "")


async def test_a_wake_at_given_as_iso_text_is_honoured(database_url: str) -> None:
    app = Line()
    async with virtual(app, url=database_url) as world:
        app.wake_at = iso(world.clock.now() + 60 * SECOND)
        await world.settle()
        assert await wake_of(app) == world.clock.now() + 60 * SECOND


class Pair(Rota):
    """Consumers `a` and `b`, each with its own topic, that look again after their own time."""

    def __init__(self) -> None:
        super().__init__(**QUIET)
        self.looked: list[tuple[str, str]] = []
        auto = self.automation("line", timezone="UTC")
        for name, minutes in (("a", 10), ("b", 25)):
            topic = auto.topic(f"for_{name}", external=True)
            auto.consumer(name, subscribes=[topic], prepare=self._looker(name, minutes))

    def _looker(self, name: str, minutes: int) -> Any:
        async def prepare(ctx: Context, state: Any) -> Prepared:
            self.looked.append((name, f"{ctx.now:%H:%M}"))
            return Prepared(wake_at=ctx.now + timedelta(minutes=minutes))

        return prepare


async def test_consumer_a_wakes_at_its_time_while_b_keeps_its_own(database_url: str) -> None:
    app = Pair()
    async with virtual(app, url=database_url) as world:
        await world.settle()
        b_before = await wake_of(app, "b")
        await world.advance("10m")
        assert app.looked == [("a", "00:00"), ("b", "00:00"), ("a", "00:10")]
        assert await wake_of(app, "b") == b_before


async def test_several_consumers_have_different_wake_times(database_url: str) -> None:
    app = Pair()
    async with virtual(app, url=database_url) as world:
        await world.advance("30m")
        assert [at for who, at in app.looked if who == "a"] == ["00:00", "00:10", "00:20", "00:30"]
        assert [at for who, at in app.looked if who == "b"] == ["00:00", "00:25"]
        await sound(app)


async def test_a_new_event_wakes_a_consumer_before_its_wake_time(database_url: str) -> None:
    app = Pair()
    async with virtual(app, url=database_url) as world:
        await world.advance("2m")
        await app.automations.publish("line", "for_b", "x")
        await world.settle()
        assert app.looked[-1] == ("b", "00:02")
        causes = [one.run.cause for one in await app.automations.activity("line")]
        assert causes[0] == "event"


async def test_publishing_marks_the_reader_dirty(database_url: str) -> None:
    app = Line()
    async with virtual(app, url=database_url) as world:
        await world.settle()
        assert not await is_dirty(app)
        await app.feed("e1")
        assert await is_dirty(app)
        assert await open_run_state(app) == "pending"


async def test_a_commit_clears_dirty_when_nothing_is_left(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url, "e1"):
        assert not await is_dirty(app)
        assert app.prepared == [["e1"]]


async def test_a_consumer_that_took_something_is_called_until_nothing_is_left(
    database_url: str,
) -> None:
    app = Line()
    async with begun(app, database_url, "e1", "e2", "e3"):
        assert app.done == [["e1"], ["e2"], ["e3"]]
        assert set((await event_statuses(app)).values()) == {"consumed"}
        await sound(app)


async def test_an_event_that_comes_during_a_run_is_not_lost(database_url: str) -> None:
    """It arrives after the consumer looked, and before it commits that it took nothing."""
    app = Line(mutates=False)
    async with virtual(app, url=database_url) as world:
        await world.settle()
        app.take = 0

        async def late(ctx: Context, state: Any) -> Prepared:
            events = await ctx.peek(app.work)
            app.prepared.append([one.id for one in events])
            if len(app.prepared) == 1:
                await app.feed("late")
            return Prepared()

        app.prepared.clear()
        app.line.handlers["worker"].functions["prepare"] = late
        await app.feed("first")
        await world.settle()
        assert app.prepared == [["first"], ["first", "late"]]
        assert await open_run_state(app) == "sleeping:event"


async def test_a_restart_runs_consumers_that_have_pending_events(database_url: str) -> None:
    first = Line()
    async with virtual(first, url=database_url) as world:
        await world.settle()
        await first.feed("e1")  # the loop did not run any more
        stopped_at = world.clock.now()
    second = Line()
    async with virtual(second, url=database_url, start=stopped_at) as world:
        await world.settle()
        assert second.prepared == [["e1"]]
        await sound(second)


async def test_a_wake_time_survives_a_restart(database_url: str) -> None:
    first = Line()
    async with virtual(first, url=database_url) as world:
        first.wake_at = world.clock.moment() + timedelta(hours=1)
        await world.settle()
        stopped_at = world.clock.now()
    second = Line()
    async with virtual(second, url=database_url, start=stopped_at) as world:
        await world.advance("59m")
        assert second.prepared == []
        await world.advance("1m")
        assert second.prepared == [[]]


async def test_empty_reservations_with_a_wake_time_schedule_the_next_run(database_url: str) -> None:
    app = Line()
    app.take = 0
    async with begun(app, database_url) as world:
        app.wake_at = world.clock.moment() + timedelta(minutes=10)
        await app.feed("e1")
        await world.settle()
        assert app.prepared == [["e1"][:0]]
        app.take, app.wake_at = 1, None
        await world.advance("10m")
        assert app.done == [["e1"]]
        assert await wake_of(app) is None
        await sound(app)


async def test_a_wake_time_that_is_omitted_is_cleared(database_url: str) -> None:
    app = Line()
    async with virtual(app, url=database_url) as world:
        app.wake_at = world.clock.moment() + timedelta(minutes=10)
        await world.settle()
        app.wake_at = None
        await app.feed("e1")
        await world.settle()
        assert await wake_of(app) is None
        app.prepared.clear()
        await world.advance("1h")
        assert app.prepared == []


async def test_a_wake_time_beside_reservations_is_recorded(database_url: str) -> None:
    app = Line()
    async with begun(app, database_url) as world:
        app.wake_at = world.clock.moment() + timedelta(minutes=10)
        await app.feed("e1")
        await world.settle()
        assert app.done == [["e1"]]
        assert await wake_of(app) == world.clock.now() + 600 * SECOND


async def test_empty_reservations_skip_mutate_run_next_and_never_loop(database_url: str) -> None:
    app = Line()
    app.take = 0
    async with begun(app, database_url, "e1", "e2") as world:
        await world.advance("6h")
        assert len(app.prepared) == 1
        assert [one.status for one in app.reported] == ["none"]
        assert app.outside.calls == 0
        assert set((await event_statuses(app)).values()) == {"pending"}
        assert await open_run_state(app) == "sleeping:event"
        await sound(app)


async def test_a_deploy_runs_prepare_at_once(database_url: str) -> None:
    app = Line()
    async with virtual(app, url=database_url) as world:
        await world.settle()
        assert app.prepared == [[]]
        assert await statuses(app) == ["worker committed committed"]


async def test_many_triggers_during_one_run_make_one_more(database_url: str) -> None:
    app = Line(mutates=False)
    app.take = 0
    async with begun(app, database_url) as world:

        async def busy(ctx: Context, state: Any) -> Prepared:
            app.prepared.append([])
            if len(app.prepared) == 1:
                await app.feed(*(f"e{n}" for n in range(10)))
            return Prepared()

        app.line.handlers["worker"].functions["prepare"] = busy
        await app.feed("go")
        await world.settle()
        assert len(app.prepared) == 2


async def test_a_busy_automation_delays_no_other(database_url: str) -> None:
    """Each turn goes to the end of the line."""
    app = Rota(**(QUIET | {"slots": 1}))
    order: list[str] = []

    def declare(name: str) -> None:
        auto = app.automation(name, timezone="UTC")
        topic = auto.topic("in", external=True)

        async def take(ctx: Context, state: Any) -> Prepared:
            events = await ctx.peek(topic, 1)
            order.extend(name for _ in events)
            return Prepared(events)

        auto.consumer("c", subscribes=[topic], prepare=take)

    declare("busy")
    declare("calm")
    async with virtual(app, url=database_url) as world:
        await world.settle()
        for n in range(5):
            await app.automations.publish("busy", "in", f"b{n}")
        await app.automations.publish("calm", "in", "c0")
        await world.settle()
        assert sorted(order) == ["busy"] * 5 + ["calm"]
        assert order.index("calm") <= 1
