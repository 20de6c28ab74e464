"""The scheduling defects of the system the plan came from: each must be impossible here."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from rota import Client
from rota.core.schedules.firing_plan import Before, decide
from rota.core.schedules.intent import Intent, Policies
from rota.core.time.instants import DAY, HOUR, SECOND
from rota.core.time.recurrence import parse
from rota.errors import BadSchedule, RotaError, UnknownSchedule
from rota.store.backend.database import Database
from rota.store.schedules import fire as firing
from rota.testing import START, virtual
from tests.kit.builders import opened
from tests.schedules.kit import (
    HOURLY,
    PLAIN,
    Noted,
    at,
    due,
    lines,
    outage,
    outcomes,
    resume_work,
    schedule,
    sound,
    sql,
)

EVERY_SECOND = "* * * * * *"


async def test_11_a_claimed_run_does_not_let_its_slot_fire_again(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "long", HOURLY, overlap="allow", **PLAIN)
        before = await schedule(app, "s")
        await world.advance("1h")  # claimed: it sleeps, and its available_at has moved
        [run] = await app.schedules.history("s")
        assert run.available_at != run.due_at
        now = app.clock.now()
        # A second server, and a crash between the insert and the advance: the slot is due again.
        await sql(
            app,
            f"update runs set due_at = {before.due_at}, available_at = {before.due_at} "
            "where kind = 'schedule'",
        )

        async def fire(database: Database) -> firing.Fired:
            return await database.write(
                firing.fire, namespace="default", now=now, limit=9, new_ids=app.ids.endless(now)
            )

        async with opened(database_url, migrated=False) as second:
            await asyncio.gather(fire(app.connection.database), fire(second))
        assert len(await app.schedules.history("s")) == 1
        await sound(app)


async def test_12_no_catch_up_still_fires_on_time(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("skip", "report", HOURLY, missed="skip", **PLAIN)
        await app.schedules.create("none", "report", HOURLY, missed="all", missed_max=0, **PLAIN)
        await world.advance("3h")
        assert len(app.seen) == 6
        await sound(app)


async def test_13_an_every_second_schedule_loses_no_slot(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", EVERY_SECOND, overlap="allow", **PLAIN)
        await world.advance("60s")
        assert await outcomes(app, "s") == {"completed": 60}
        await sound(app)


async def test_13_a_thousand_jobs_due_at_midnight_are_fired_in_one_pass(database_url: str) -> None:
    app = Noted(slots=2000)
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s0", "report", "0 0 * * *", **PLAIN)
        await sql(
            app,
            "insert into runs (id, namespace, kind, name, queue, priority, status, available_at, "
            "due_at, cron_expr, spec, root_id, attempt, recoveries, trigger, external_id, "
            "created_at) "
            "with recursive many(n) as (select 1 union all select n + 1 from many where n < 1499) "
            "select 'x' || n, namespace, kind, 's' || n, queue, priority, status, available_at, "
            "due_at, cron_expr, spec, 'x' || n, 1, 0, trigger, external_id, created_at "
            "from runs, many",
        )
        outage(world, "24h")
        assert app.runtime is not None
        assert await app.runtime.scheduler.tick() == 1500
        await world.settle()
        assert len(app.seen) == 1500


async def test_14_resume_is_the_same_after_a_short_and_a_long_pause(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        for name, pause in (("short", "2h30m"), ("long one", "200h")):
            await app.schedules.create(name, "report", HOURLY, **PLAIN)
            await app.schedules.pause(name)
            await world.advance(pause)
            await app.schedules.resume(name)
            await world.settle()
            # Nothing is written as fired that never was.
            assert "completed" not in await outcomes(app, name)
            await app.schedules.pause(name)
        assert app.seen == []


async def test_15_a_template_is_never_claimable(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("report", "report", HOURLY, **PLAIN)
        await world.settle()
        assert app.seen == []
        assert await app.runs.ready() == []
        assert await sql(app, "select status from runs") == [("scheduled",)]


async def test_16_update_changes_what_it_says_and_paused_ones_are_listed(
    database_url: str,
) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        shown = await app.schedules.create("s", "report", HOURLY, paused=True, **PLAIN)
        assert shown.schedule.status == "paused"
        assert [one.schedule.name for one in await app.schedules.list()] == ["s"]
        await app.schedules.update("s", when="30 * * * *")
        await app.schedules.resume("s")
        assert await due(app, "s") == "01 00:30:00"


async def test_17_the_verbs_of_schedules_do_not_touch_ordinary_runs(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        run = await app.start("report", "x")
        verbs: list[Any] = [
            app.schedules.pause, app.schedules.resume, app.schedules.delete,
            app.schedules.trigger, app.schedules.history, app.schedules.update,
        ]  # fmt: skip
        for verb in verbs:
            for name in ("report", run.id):
                with pytest.raises(UnknownSchedule):
                    await verb(name)
        await world.settle()
        assert await run.result(timeout=60) == "x"


async def test_17_the_verbs_of_runs_do_not_touch_schedules(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        before = await schedule(app, "s")
        client: Client = app
        verbs: list[Any] = [
            client.runs.cancel, client.runs.retry, lambda run_id: client.runs.signal(run_id, "x"),
            lambda run_id: client.runs.fork(run_id, from_step="a#0"),
        ]  # fmt: skip
        for verb in verbs:
            with pytest.raises(RotaError):
                await verb(before.id)
        assert await schedule(app, "s") == before
        await world.advance("1h")
        assert app.dues == ["01 01:00:00"]


async def test_18_one_bad_template_does_not_block_the_pass(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("oldest and bad", "report", "59 0 * * *", **PLAIN)
        await app.schedules.create("good", "report", HOURLY, **PLAIN)
        await sql(app, "update runs set spec = '{}' where name = 'oldest and bad'")
        await world.advance("3h")
        assert len(app.seen) == 3


async def test_19_a_negative_limit_is_refused_and_counting_is_bounded(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        with pytest.raises(BadSchedule, match="missed_max"):
            await app.schedules.create("s", "report", HOURLY, missed="all", missed_max=-1, **PLAIN)
    now = START
    spec = parse(EVERY_SECOND, zone="UTC", now=now)
    intent = Intent("report", spec, EVERY_SECOND, Policies())
    began = time.perf_counter()
    plan = decide(intent, due_at=now - 3650 * DAY, now=now, before=Before())
    # A bound with room to spare: listing 315 million slots would take minutes.
    assert time.perf_counter() - began < 5
    total = len(plan.fires) + sum(skip.occurrences for skip in plan.skips)
    assert total == (3650 * DAY) // SECOND + 1


async def test_20_a_run_knows_its_nominal_time_and_why_it_was_started(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        await world.advance("1h10m")
        await app.schedules.trigger("s")
        await world.settle()
        await app.schedules.backfill("s", at("01 00:00"), at("01 00:00"))
        await world.settle()
        assert app.seen == [
            ("01 01:00:00", "schedule"), ("-", "manual"), ("01 00:00:00", "backfill"),
        ]  # fmt: skip


async def test_21_the_end_of_a_cron_is_an_end(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, end=at("01 02:00"), **PLAIN)
        await world.advance("400d")
        assert app.dues == ["01 01:00:00", "01 02:00:00"]
        assert (await schedule(app, "s")).due_at is None
        await sound(app)


async def test_13_an_outage_is_caught_up_in_one_pass(database_url: str) -> None:
    app = Noted(slots=500)
    async with virtual(app, url=database_url) as world:
        rules: dict[str, Any] = {"missed": "all", "missed_max": 400, "overlap": "allow"}
        await app.schedules.create("s", "report", "*/10 * * * * *", **rules, **PLAIN)
        outage(world, HOUR // SECOND)
        await resume_work(world)
        assert await outcomes(app, "s") == {"completed": 360}
        assert len(await lines(app, "s")) == 360
        await sound(app)
