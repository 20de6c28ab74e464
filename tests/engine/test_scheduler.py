"""The scheduler's loop: wakes precisely, rests otherwise, is notified of changes, survives bad
times.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota import Rota
from rota.core.time.instants import HOUR, MINUTE, moment
from rota.engine import scheduler
from rota.errors import StoreUnreachable
from rota.store.backend.database import Tx
from rota.testing import VirtualClock
from tests.engine.kit import StoreTap, beside, eventually, live, pass_time, timer_set
from tests.kit.builders import opened, raw

# Nothing happens by polling here: a test that passes was woken.
QUIET: dict[str, Any] = {"poll_s": 100_000, "heartbeat_s": 100_000, "lease_s": 300_000}
HOURLY = "0 * * * *"


def make_app(**settings: Any) -> tuple[Rota, list[str]]:
    app = Rota(**(QUIET | settings))
    seen: list[str] = []

    @app.workflow
    async def report(label: str = "") -> None:
        seen.append(label)

    return app, seen


@pytest.mark.wall_clock("nothing may happen in a moment of real time")
async def test_it_fires_at_the_instant_and_rests_until_then(database_url: str) -> None:
    app, seen = make_app()
    async with live(app, database_url) as clock:
        await app.schedules.create("s", "report", HOURLY, timezone="UTC")
        await timer_set(clock, "1h")
        tap = StoreTap(app)
        clock.move_to(clock.now() + HOUR - 1)
        await asyncio.sleep(0.05)
        assert tap.count("fire") == 0
        clock.move_to(clock.now() + 1)
        await eventually(lambda: len(seen) == 1)
        [run] = await app.schedules.history("s")
        assert run.created_at == run.due_at == run.started_at


@pytest.mark.wall_clock("nothing may happen in a moment of real time")
async def test_at_rest_it_asks_nothing(database_url: str) -> None:
    app, _ = make_app()
    async with live(app, database_url) as clock:
        await app.schedules.create("s", "report", HOURLY, timezone="UTC")
        await timer_set(clock, "1h")
        tap = StoreTap(app)
        for _ in range(
            3
        ):  # the last notification may lag; a scheduler that spins is caught all the same
            tap.calls.clear()
            await asyncio.sleep(0.2)
            if not tap.calls:
                break
        assert tap.calls == []


async def test_a_firing_costs_a_handful_of_calls(database_url: str) -> None:
    app, seen = make_app()
    async with live(app, database_url) as clock:
        for n in range(50):
            await app.schedules.create(f"s{n}", "report", HOURLY, timezone="UTC")
        await timer_set(clock, "1h")
        tap = StoreTap(app)
        clock.move_to(clock.now() + HOUR)
        await eventually(lambda: len(seen) == 50)
        await timer_set(clock, "1h")
        assert tap.count("fire") <= 3


async def test_a_new_schedule_wakes_it(database_url: str) -> None:
    app, seen = make_app()
    async with live(app, database_url) as clock:
        await app.schedules.create("late", "report", "0 12 * * *", timezone="UTC")
        await timer_set(clock, "12h")
        await app.schedules.create("soon", "report", HOURLY, timezone="UTC")
        await timer_set(clock, "1h")
        clock.move_to(clock.now() + HOUR)
        await eventually(lambda: len(seen) == 1)


async def test_a_schedule_made_by_another_process_wakes_it(database_url: str) -> None:
    app, seen = make_app()
    other, _ = make_app()
    async with live(app, database_url) as clock, beside(other, database_url, clock):
        await other.schedules.create("s", "report", HOURLY, timezone="UTC")
        await timer_set(clock, "1h")
        clock.move_to(clock.now() + HOUR)
        await eventually(lambda: len(seen) == 1)


async def test_resume_and_update_wake_it(database_url: str) -> None:
    app, seen = make_app()
    async with live(app, database_url) as clock:
        await app.schedules.create("s", "report", HOURLY, timezone="UTC", paused=True)
        await app.schedules.resume("s")
        await timer_set(clock, "1h")
        await app.schedules.update("s", when="30 * * * *")
        await timer_set(clock, "30m")
        clock.move_to(clock.now() + 30 * MINUTE)
        await eventually(lambda: len(seen) == 1)


async def test_the_end_of_a_pause_wakes_it(database_url: str) -> None:
    app, _ = make_app()
    async with live(app, database_url) as clock:
        await app.schedules.create("s", "report", "0 12 * * *", timezone="UTC")
        await app.schedules.pause("s", until=moment(clock.now() + 20 * MINUTE))
        await timer_set(clock, "20m")
        clock.move_to(clock.now() + 20 * MINUTE)

        async def awake() -> bool:
            return (await app.schedules.get("s")).schedule.status == "scheduled"

        await eventually(awake)


async def test_polling_alone_is_enough(database_url: str) -> None:
    app, seen = make_app(poll_s=60)
    async with live(app, database_url) as clock:
        app.connection.database.notify_soon = lambda topic: None  # type: ignore[method-assign]
        app.connection.wakeups.notify_soon = lambda topic: None  # type: ignore[method-assign]
        await app.schedules.create("s", "report", HOURLY, timezone="UTC")
        for _ in range(58):
            await pass_time(clock, "1m")

        async def a_minute_later() -> bool:
            await pass_time(clock, "1m")  # each minute is a poll; a slow machine may need more
            return len(seen) == 1

        await eventually(a_minute_later)
        [run] = await app.schedules.history("s")
        assert run.due_at is not None


async def test_more_than_a_batch_is_fired_in_one_tick(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "BATCH", 7)
    app, seen = make_app()
    async with live(app, database_url) as clock:
        for n in range(20):
            await app.schedules.create(f"s{n}", "report", HOURLY, timezone="UTC")
        await timer_set(clock, "1h")
        clock.move_to(clock.now() + HOUR)
        await eventually(lambda: len(seen) == 20)


async def test_a_database_that_fails_for_a_while_stops_nothing_for_good(database_url: str) -> None:
    app, seen = make_app()
    async with live(app, database_url) as clock:
        await app.schedules.create("s", "report", HOURLY, timezone="UTC")
        await timer_set(clock, "1h")
        tap = StoreTap(app)
        failures = 0

        async def fail(name: str) -> None:
            nonlocal failures
            if name == "fire" and failures < 2:
                failures += 1
                raise StoreUnreachable("gone for a while")

        tap.before = fail
        clock.move_to(clock.now() + HOUR)
        await eventually(lambda: len(seen) == 1)
        assert failures == 2


async def test_two_schedulers_on_one_database_fire_each_occurrence_once(database_url: str) -> None:
    first, seen = make_app()
    second, also = make_app()
    clock = VirtualClock()
    async with live(first, database_url, clock), live(second, database_url, clock):
        await first.schedules.create("s", "report", HOURLY, timezone="UTC")
        for count in range(1, 4):
            await timer_set(clock, "1h")
            clock.move_to(clock.now() + HOUR)
            await eventually(lambda count=count: len(seen) + len(also) == count)
        assert len(await first.schedules.history("s")) == 3


@pytest.mark.wall_clock("counts attempts in a moment of real time")
@pytest.mark.pg
async def test_it_does_not_spin_while_another_has_the_due_schedule_in_hand(
    postgres_url: str, database_url: str
) -> None:
    if database_url.startswith("sqlite"):
        pytest.skip("SQLite has one writer at a time")
    app, seen = make_app()
    async with live(app, database_url) as clock, opened(database_url, migrated=False) as other:
        await app.schedules.create("s", "report", HOURLY, timezone="UTC")
        await timer_set(clock, "1h")
        locked, release = asyncio.Event(), asyncio.Event()

        async def hold(tx: Tx) -> None:
            await raw(tx, "select id from runs where kind = 'schedule' for update")
            locked.set()
            await release.wait()

        holder = asyncio.create_task(other.write(hold))
        await locked.wait()
        tap = StoreTap(app)
        clock.move_to(clock.now() + HOUR)
        await asyncio.sleep(0.3)
        looks = tap.count("fire")
        release.set()
        await holder
        assert 1 <= looks < 20, f"{looks} looks in 0.3 s at what somebody else has in hand"
        # And the scheduler that held it may have died: it is looked at again, soon.
        await eventually(lambda: len(seen) == 1)
