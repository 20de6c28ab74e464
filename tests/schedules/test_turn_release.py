"""A firing that waits for its turn gets it, however the run before it ends."""

from __future__ import annotations

import pytest

from rota import RetryPolicy, Rota, Transient
from rota.client.doctor import examine, repair
from rota.store import invariants
from rota.testing import World, virtual
from tests.schedules.kit import HOURLY, PLAIN, Noted, at, lines, outage, resume_work, sound, sql

ONCE_MORE = RetryPolicy(attempts=2, delay_s=3600, delay_s_max=3600, factor=1)


async def _waits_behind_a_run_by_hand(app: Noted, world: World) -> str:
    """A run by hand rests until 02:10; the occurrence of 01:00 waits behind it."""
    await app.schedules.create("s", "long", HOURLY, **PLAIN)
    await world.advance("40m")
    by_hand = await app.schedules.trigger("s")
    await world.advance("40m")
    assert "01 01:00:00 sleeping:turn" in await lines(app, "s")
    return by_hand


async def test_the_end_of_a_run_by_hand_releases_the_firing_behind_it(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await _waits_behind_a_run_by_hand(app, world)
        await world.advance("51m")
        assert app.dues == ["-", "01 01:00:00"]
        await sound(app)
        await world.advance("6h")
        assert len(app.dues) > 4  # The schedule continues.
        await sound(app)


async def test_cancelling_a_run_by_hand_releases_the_firing_behind_it(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        by_hand = await _waits_behind_a_run_by_hand(app, world)
        await app.runs.cancel(by_hand)
        await world.settle()
        assert app.dues == ["-", "01 01:00:00"]
        await sound(app)


async def test_a_crashed_run_by_hand_releases_the_firing_behind_it(database_url: str) -> None:
    app = Noted(recoveries_max=0)
    async with virtual(app, url=database_url) as world:
        by_hand = await _waits_behind_a_run_by_hand(app, world)
        # A worker that never comes back has claimed it.
        await sql(
            app,
            "update runs set status = 'running', reason = null, lease_owner = 'gone', "
            f"lease_until = 1, claim_count = claim_count + 1 where id = '{by_hand}'",
        )
        assert app.runtime is not None
        await app.runtime.maintenance.reap()
        await world.settle()
        assert (await app.runs.get(by_hand)).status == "crashed"
        assert app.dues == ["-", "01 01:00:00"]
        await sound(app)


async def test_a_failed_run_by_hand_releases_the_firing_behind_it(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:

        @app.workflow(name="again", retries=ONCE_MORE)
        async def again() -> None:
            app._note()
            raise Transient("not yet")

        await app.schedules.create("s", "again", HOURLY, **PLAIN)
        await world.advance("30m")
        await app.schedules.trigger("s")
        await world.advance("40m")
        assert "01 01:00:00 sleeping:turn" in await lines(app, "s")
        await world.advance("21m")  # The second attempt by hand fails at 01:30.
        assert app.dues == ["-", "-", "01 01:00:00"]
        await sound(app)


async def test_the_retry_of_a_backfill_keeps_no_firing_waiting(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url, start=at("03 00:30")) as world:

        @app.workflow(name="again", retries=ONCE_MORE)
        async def again() -> None:
            app._note()
            raise Transient("not yet")

        await app.schedules.create("s", "again", HOURLY, **PLAIN)
        await app.schedules.backfill("s", at("01 01:00"), at("01 01:00"))
        await world.advance("31m")
        assert app.seen[1:] == [("03 01:00:00", "schedule")]
        await sound(app)


async def test_a_cancel_running_schedule_leaves_the_retry_of_a_backfill_alone(
    database_url: str,
) -> None:
    app = Noted()
    async with virtual(app, url=database_url, start=at("03 00:30")) as world:

        @app.workflow(name="again", retries=ONCE_MORE)
        async def again() -> None:
            app._note()
            raise Transient("not yet")

        await app.schedules.create("s", "again", HOURLY, overlap="cancel-running", **PLAIN)
        await app.schedules.backfill("s", at("01 01:00"), at("01 01:00"))
        await world.advance("61m")
        assert app.dues == ["01 01:00:00", "03 01:00:00", "01 01:00:00"]
        await sound(app)


async def test_a_backfill_whose_first_occurrences_have_run_begins_with_the_others(
    database_url: str,
) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, missed="skip", **PLAIN)
        await world.advance("2h")
        outage(world, "3h30m")
        await resume_work(world)
        filled = await app.schedules.backfill("s", at("01 01:00"), at("01 05:00"))
        await world.settle()
        assert len(filled.run_ids) == 3
        assert app.dues == [f"01 0{hour}:00:00" for hour in range(1, 6)]
        await sound(app)


async def test_cancelling_a_backfilled_run_that_waits_begins_no_other(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url, start=at("03 00:30")) as world:
        await app.schedules.create("s", "long", "0 0 1 * *", **PLAIN)
        await app.schedules.update("s", when=HOURLY, start=at("01 00:00"), confirm=True)
        await app.schedules.pause("s")
        filled = await app.schedules.backfill("s", at("01 01:00"), at("01 06:00"))
        await world.settle()
        await app.runs.cancel(filled.run_ids[3])
        await world.settle()
        assert app.dues == ["01 01:00:00"]
        await sound(app)


async def test_an_edit_to_allow_releases_what_waits_in_the_queue(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await _waits_behind_a_run_by_hand(app, world)
        await app.schedules.update("s", overlap="allow")
        await world.settle()
        assert app.dues == ["-", "01 01:00:00"]
        await sound(app)


# -- one that is stuck all the same ------------------------------------------------------------


async def _stuck(app: Noted, world: World) -> None:
    """As left by a version that released no run at the end of a run by hand."""
    by_hand = await _waits_behind_a_run_by_hand(app, world)
    await sql(
        app,
        "update runs set status = 'completed', reason = null, available_at = null, "
        f"finished_at = {world.clock.now()} where id = '{by_hand}'",
    )
    broken = await app.connection.database.read(invariants.broken)
    assert [one.name for one in broken] == ["broken_turn"]


async def test_a_stuck_occurrence_heals_when_a_worker_starts(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await _stuck(app, world)
        await app._make_runtime().register()
        await world.settle()
        assert app.dues == ["-", "01 01:00:00"]
        await sound(app)


async def test_a_stuck_occurrence_heals_at_the_next_occurrence(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await _stuck(app, world)
        await world.advance("41m")
        assert app.dues == ["-", "01 01:00:00"]
        assert "01 02:00:00 sleeping:turn" in await lines(app, "s")
        await sound(app)


async def test_a_stuck_backfill_heals_when_a_worker_starts(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url, start=at("03 00:30")) as world:
        await app.schedules.create("s", "long", HOURLY, **PLAIN)
        await app.schedules.pause("s")
        filled = await app.schedules.backfill("s", at("01 01:00"), at("01 03:00"))
        await world.settle()
        await sql(
            app,
            "update runs set status = 'completed', reason = null, available_at = null, "
            f"finished_at = {world.clock.now()} where id = '{filled.run_ids[0]}'",
        )
        broken = await app.connection.database.read(invariants.broken)
        assert [one.name for one in broken] == ["broken_backfill"]
        await app._make_runtime().register()
        await world.settle()
        assert app.dues == ["01 01:00:00", "01 02:00:00"]
        await sound(app)


async def test_the_doctor_names_a_stuck_occurrence_and_repairs_it(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await _stuck(app, world)
        report = await examine(database_url, app.settings)
        [found] = [one for one in report.findings if one.what == "invariants"]
        assert found.level == "bad"
        assert "a queued occurrence has a run before it" in found.says
        assert "rota doctor --repair" in (found.hint or "")
        [repaired] = await repair(database_url, app.settings)
        assert "released 1 run" in repaired.says
        assert await repair(database_url, app.settings) == []
        await world.settle()
        report = await examine(database_url, app.settings)
        assert [one.level for one in report.findings if one.what == "invariants"] == ["ok"]
        assert app.dues == ["-", "01 01:00:00"]
        await sound(app)


@pytest.mark.parametrize("namespace", ["default", "other"])
async def test_a_repair_stays_in_its_namespace(database_url: str, namespace: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await _stuck(app, world)
        settings = Rota(namespace=namespace).settings
        found = await repair(database_url, settings)
        assert bool(found) == (namespace == app.settings.namespace)
