"""The schedule consolidation plan, line by line: its decisions, and its sections 1 and 4 to 6.

If Rota keeps the promise of a line in another way, the test says so.
"""

from __future__ import annotations

import msgspec
import pytest

from rota.core.time.recurrence import Timing
from rota.errors import BadSchedule, UnknownRun, UnknownSchedule
from rota.store.backend.database import Tx
from rota.store.schedules import fire
from rota.store.schedules import templates as store
from rota.testing import virtual
from tests.schedules.kit import (
    HOURLY,
    PLAIN,
    Noted,
    at,
    due,
    lines,
    schedule,
    shown_at,
    sound,
    sql,
)

FRIDAYS = "0 17 * * FRI"
NOONS = "0 12 * * *"


async def _fire(app: Noted, limit: int = 1000) -> fire.Fired:
    now = app.clock.now()
    return await app.connection.database.write(
        fire.fire, namespace="default", now=now, limit=limit, new_ids=app.ids.endless(now)
    )


# -- Decisions -------------------------------------------------------------------------------


async def test_timezone_server_timezone(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The zone is asked for once, stored with the schedule, never guessed again."""
    app = Noted()
    async with virtual(app, url=database_url) as world:
        monkeypatch.setenv("TZ", "Asia/Tokyo")
        shown = await app.schedules.create("s", "report", "0 9 * * *")
        assert [timing.zone for timing in shown.intent.spec.timings] == ["Asia/Tokyo"]
        assert shown_at(shown.schedule.due_at) == "02 00:00:00"
        monkeypatch.setenv("TZ", "America/New_York")
        await app.schedules.update("s", overlap="skip")
        await app.schedules.pause("s")
        await app.schedules.resume("s")
        await world.advance("2d")
        assert app.dues == ["02 00:00:00", "03 00:00:00"]


async def test_deletion_keep_fired_instances_on_delete_set_null(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        await world.advance("2h")
        fired = [run.id for run in await app.schedules.history("s")]
        await app.schedules.delete("s")
        kept = [await app.runs.get(run_id) for run_id in fired]
        assert [(run.schedule_id, run.status) for run in kept] == [(None, "completed")] * 2
        assert [shown_at(run.due_at) for run in kept] == ["01 02:00:00", "01 01:00:00"]
        with pytest.raises(UnknownSchedule):
            await app.schedules.get("s")


async def test_multiple_schedules_allowed_no_unique_constraint(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        for name in ("one", "two"):
            await app.schedules.create(name, "report", HOURLY, **PLAIN)
        await world.advance("1h")
        assert app.dues == ["01 01:00:00"] * 2
        await sound(app)


async def test_deduplication_unique_on_schedule_id_and_due_at(database_url: str) -> None:
    """The plan keys it on available_at, which a claim moves; the nominal time never moves."""
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        before = await schedule(app, "s")
        await world.advance("1h")
        assert len(app.seen) == 1
        # As if the advance had been lost: the same slot comes again, though its run has moved on.
        await sql(
            app,
            f"update runs set due_at = {before.due_at}, available_at = {before.available_at} "
            "where kind = 'schedule'",
        )
        await _fire(app)
        await world.settle()
        assert await lines(app, "s") == ["01 01:00:00 completed"]
        with pytest.raises(Exception, match=r"(?i)unique"):
            await sql(
                app,
                "insert into runs (id, namespace, kind, name, queue, priority, status, due_at, "
                "schedule_id, root_id, attempt, recoveries, trigger, created_at, available_at) "
                "select 'x', namespace, kind, name, queue, priority, 'pending', due_at, "
                "schedule_id, 'x', 1, 0, trigger, created_at, 5 from runs "
                "where schedule_id is not null",
            )


async def test_resume_from_pause_skip_missed_wait_for_next_occurrence(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        await app.schedules.pause("s")
        await world.advance("5h30m")
        await app.schedules.resume("s")
        await world.settle()
        assert app.seen == []
        assert await due(app, "s") == "01 06:00:00"
        await world.advance("30m")
        assert app.dues == ["01 06:00:00"]
        await sound(app)


async def test_natural_language_every_friday_at_5pm(database_url: str) -> None:
    """The plan defers it; here it is understood, and shown back as cron."""
    app = Noted()
    async with virtual(app, url=database_url) as world:
        shown = await app.schedules.create("s", "report", "every friday at 5pm", **PLAIN)
        [timing] = shown.intent.spec.timings
        assert isinstance(timing, Timing)
        assert timing.cron is not None
        assert shown.intent.text == "every friday at 5pm"
        assert "Friday" in shown.text
        await world.advance("7d")
        assert app.dues == ["04 17:00:00"]


async def test_catchup_always_skip_to_next_unless_it_is_asked_for(database_url: str) -> None:
    """The plan defers it (`max_catchup`); here `missed` and `missed_max` say it."""
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("skips", "report", HOURLY, missed="skip", **PLAIN)
        await app.schedules.create(
            "all", "report", HOURLY, missed="all", missed_max=2, overlap="allow", **PLAIN
        )
        world.clock.jump("5h30m")
        assert app.runtime is not None
        app.runtime.scheduler.poll()
        await world.settle()
        assert sorted(app.dues) == ["01 04:00:00", "01 05:00:00"]
        await sound(app)


# -- 1. How it works -------------------------------------------------------------------------


async def test_schedule_template_has_cron_expr_no_schedule_id_scheduled_next_fire_time(
    database_url: str,
) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        await app.schedules.create("s", "report", FRIDAYS, **PLAIN)
        [row] = await sql(app, "select cron_expr, schedule_id, status, available_at from runs")
        assert row[:3] == (FRIDAYS, None, "scheduled")
        assert shown_at(row[3]) == "04 17:00:00"


async def test_fired_instance_has_no_cron_expr_its_template_pending_and_fire_time(
    database_url: str,
) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        template = (await app.schedules.create("s", "report", FRIDAYS, **PLAIN)).schedule
        world.clock.move_to(template.due_at or 0)
        await _fire(app)
        [row] = await sql(
            app,
            "select cron_expr, schedule_id, status, available_at, due_at from runs "
            "where kind <> 'schedule'",
        )
        assert row == (None, template.id, "pending", template.due_at, template.due_at)


async def test_normal_workflow_has_no_cron_expr_no_schedule_id_pending(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        await app.start("report")
        [row] = await sql(
            app, "select cron_expr, schedule_id, status, available_at, created_at from runs"
        )
        assert row[:3] == (None, None, "pending")
        assert row[3] == row[4]


async def test_paused_schedule_has_cron_expr_no_schedule_id_paused_no_time(
    database_url: str,
) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        await app.schedules.create("s", "report", NOONS, **PLAIN)
        await app.schedules.pause("s")
        [row] = await sql(app, "select cron_expr, schedule_id, status, available_at from runs")
        assert row == (NOONS, None, "paused", None)


# -- 4. Repository ---------------------------------------------------------------------------


async def test_find_due_schedules_of_the_namespace_in_order_up_to_the_limit(
    database_url: str,
) -> None:
    app, other = Noted(), Noted(namespace="other")
    async with virtual(app, url=database_url) as world:
        for hour in (3, 1, 2, 9):
            await app.schedules.create(f"at{hour}", "report", f"0 {hour} * * *", **PLAIN)
        await app.schedules.create("rests", "report", "0 1 * * *", paused=True, **PLAIN)
        async with virtual(other, url=database_url):
            await other.schedules.create("theirs", "report", "0 1 * * *", **PLAIN)
        world.clock.move_to(world.clock.now() + 4 * 3600_000_000)
        assert (await _fire(app, limit=2)).due_count == 2
        fired = [run.schedule_id for run in reversed(await app.runs.list())]
        ids = {shown.schedule.id: shown.schedule.name for shown in await app.schedules.list()}
        assert [ids[str(schedule_id)] for schedule_id in fired] == ["at1", "at2"]
        assert (await _fire(app, limit=2)).due_count == 1
        assert (await _fire(app, limit=2)).due_count == 0


async def test_create_fired_instance_from_template_idempotent_none_if_already_fired(
    database_url: str,
) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        shown = await app.schedules.create("s", "report", HOURLY, **PLAIN)
        world.clock.move_to(shown.schedule.due_at or 0)

        async def create_schedule_instance(run_id: str) -> list[str]:
            row = store.extra_row(
                shown.schedule, shown.intent, id=run_id, available_at=world.clock.now(),
                due_at=shown.schedule.due_at, trigger="schedule",
            )  # fmt: skip
            return await app.connection.database.write(store.add_runs, [row], now=world.clock.now())

        assert await create_schedule_instance("a" * 32) == ["a" * 32]
        assert await create_schedule_instance("b" * 32) == []


async def test_an_instance_copies_namespace_queue_type_retry_policy_and_input(
    database_url: str,
) -> None:
    app = Noted(namespace="shop")
    async with virtual(app, url=database_url) as world:
        await app.schedules.create(
            "s", "report", HOURLY, args=["hello"], queue="slow", priority=3, retries=4, **PLAIN
        )
        template = await schedule(app, "s")
        world.clock.move_to(template.due_at or 0)
        now = world.clock.now()
        await app.connection.database.write(
            fire.fire, namespace="shop", now=now, limit=9, new_ids=app.ids.endless(now)
        )
        [run] = await app.runs.list()
        assert (run.namespace, run.name, run.queue, run.priority) == ("shop", "report", "slow", 3)
        assert (run.input, run.options) == (template.input, template.options)
        assert '"hello"' in (run.input or "")
        assert (run.kind, run.status, run.trigger) == ("workflow", "pending", "schedule")


async def test_update_the_schedules_next_fire_time_with_the_instance_in_one_transaction(
    database_url: str,
) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        shown = await app.schedules.create("s", "report", HOURLY, **PLAIN)
        world.clock.move_to(shown.schedule.due_at or 0)
        now = world.clock.now()

        async def fire_and_fail(tx: Tx) -> None:
            new_ids = app.ids.endless(now)
            await fire.fire(tx, namespace="default", now=now, limit=9, new_ids=new_ids)
            raise RuntimeError("the transaction does not commit")

        with pytest.raises(RuntimeError, match="does not commit"):
            await app.connection.database.write(fire_and_fail)
        assert await due(app, "s") == "01 01:00:00"
        assert await lines(app, "s") == []
        await _fire(app)
        assert await due(app, "s") == "01 02:00:00"
        assert len(await lines(app, "s")) == 1


# -- 5. Coordinator --------------------------------------------------------------------------


async def test_try_to_fire_will_skip_if_already_fired(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        shown = await app.schedules.create("s", "report", HOURLY, **PLAIN)
        world.clock.move_to(shown.schedule.due_at or 0)
        assert (await _fire(app)).run_count == 1
        assert (await _fire(app)).run_count == 0
        assert len(await app.runs.list()) == 1


async def test_notify_the_queue_so_that_a_worker_begins_at_once(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        await world.advance("1h")
        [run] = await app.schedules.history("s")
        assert run.started_at == run.due_at


async def test_update_to_next_occurrence_from_now(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        world.clock.move_to(world.clock.now() + 3 * 3600_000_000 + 600_000_000)
        await _fire(app)
        assert await due(app, "s") == "01 04:00:00"


async def test_no_next_occurrence_ends_the_schedule_instead_of_a_year_from_now(
    database_url: str,
) -> None:
    """The plan moves it a year ahead, which is an occurrence that does not exist."""
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", "2030-01-01T05:00", **PLAIN)
        await world.advance("800d")
        assert app.dues == ["01 05:00:00"]
        row = await schedule(app, "s")
        assert (row.status, row.available_at, row.due_at) == ("paused", None, None)
        assert row.reason == "no further occurrence"
        await sound(app)


# -- 6. Service ------------------------------------------------------------------------------


async def test_create_schedule_invalid_cron(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        with pytest.raises(BadSchedule, match="minute"):
            await app.schedules.create("s", "report", "99 * * * *", **PLAIN)
        assert await app.schedules.list() == []


async def test_create_schedule_cron_has_no_future_occurrences(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        for never in ("0 0 31 2 *", "2029-12-31T23:59"):
            with pytest.raises(BadSchedule):
                await app.schedules.create("s", "report", never, **PLAIN)
        assert await app.schedules.list() == []


async def test_create_schedule_creates_the_template_as_a_run_with_status_scheduled(
    database_url: str,
) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        shown = await app.schedules.create("s", "report", HOURLY, args=["x"], **PLAIN)
        [row] = await sql(app, "select id, kind, status, cron_expr, available_at, input from runs")
        assert row[:4] == (shown.schedule.id, "schedule", "scheduled", HOURLY)
        assert shown_at(row[4]) == "01 01:00:00"
        assert msgspec.json.decode(row[5])


async def test_get_schedule_finds_only_schedules(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.start("report")
        await world.settle()
        with pytest.raises(UnknownSchedule):
            await app.schedules.get("report")


async def test_list_schedules_where_status_in_scheduled_paused(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("a", "report", HOURLY, **PLAIN)
        await app.schedules.create("b", "report", HOURLY, **PLAIN)
        await app.schedules.pause("b")
        await world.advance("2h")
        found = {shown.schedule.name: shown.schedule.status for shown in await app.schedules.list()}
        assert found == {"a": "scheduled", "b": "paused"}


async def test_update_schedule_enabled_false_pauses_and_true_resumes(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        assert (await app.schedules.pause("s")).schedule.status == "paused"
        assert (await app.schedules.resume("s")).schedule.status == "scheduled"


async def test_on_resume_calculate_next_fire_from_now_skip_missed(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        await app.schedules.pause("s")
        await world.advance("2h40m")
        shown = await app.schedules.resume("s")
        assert shown_at(shown.schedule.due_at) == "01 03:00:00"
        assert shown_at(shown.schedule.available_at) == "01 03:00:00"


async def test_delete_template_fired_instances_become_orphaned_schedule_id_null(
    database_url: str,
) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        template = (await app.schedules.create("s", "report", HOURLY, **PLAIN)).schedule
        await world.advance("1h")
        await app.schedules.delete("s")
        with pytest.raises(UnknownRun):
            await app.runs.get(template.id)
        assert await sql(app, "select schedule_id, status from runs") == [(None, "completed")]
        await world.advance("5h")
        assert len(app.seen) == 1


async def test_get_schedule_history_where_schedule_id_order_by_created_at_desc(
    database_url: str,
) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        await app.schedules.create("other", "report", "30 * * * *", **PLAIN)
        await world.advance("3h")
        runs = await app.schedules.history("s")
        assert [shown_at(run.due_at) for run in runs] == [
            "01 03:00:00", "01 02:00:00", "01 01:00:00",
        ]  # fmt: skip
        assert [run.created_at for run in runs] == sorted(
            (r.created_at for r in runs), reverse=True
        )
        assert [shown_at(r.due_at) for r in await app.schedules.history("s", limit=1)] == [
            "01 03:00:00"
        ]
        some = await app.schedules.history("s", start=at("01 01:30"), end=at("01 02:30"))
        assert [shown_at(run.due_at) for run in some] == ["01 02:00:00"]
