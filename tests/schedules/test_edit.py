"""Updates: any part may change; nothing owed is dropped unseen, nothing floods out unasked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rota import this_run
from rota.core.time.instants import instant
from rota.errors import BadSchedule, UnknownWorkflow, UnknownZone, WrongState
from rota.testing import virtual
from tests.schedules.kit import (
    HOURLY,
    PLAIN,
    Noted,
    at,
    due,
    holes,
    lines,
    outage,
    outcomes,
    resume_work,
    schedule,
    sound,
)


async def test_a_new_time_takes_effect_at_its_next_occurrence(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        await world.advance("1h10m")
        shown = await app.schedules.update("s", when="30 * * * *")
        assert shown.intent.text == "30 * * * *"
        assert shown.schedule.cron_expr == "30 * * * *"
        assert await due(app, "s") == "01 01:30:00"
        await world.advance("1h")
        assert app.dues == ["01 01:00:00", "01 01:30:00"]
        await sound(app)


async def test_a_new_zone_moves_the_wall_clock(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", "0 9 * * *", **PLAIN)
        await app.schedules.update("s", timezone="Asia/Tokyo")
        await world.advance("1h")
        assert app.dues == []
        assert await due(app, "s") == "02 00:00:00"
        await sound(app)


async def test_a_new_zone_keeps_all_of_several_timings(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        await app.schedules.create("s", "report", ["0 9 * * *", "0 17 * * *"], **PLAIN)
        shown = await app.schedules.update("s", timezone="Asia/Tokyo")
        assert [timing.zone for timing in shown.intent.spec.timings] == ["Asia/Tokyo"] * 2
        assert await due(app, "s") == "01 08:00:00"


async def test_a_change_of_policy_alone_does_not_move_the_schedule(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", "7m", **PLAIN)
        await world.advance("3m")
        before = await schedule(app, "s")
        shown = await app.schedules.update("s", overlap="skip", max_delay="10m")
        assert shown.schedule.due_at == before.due_at
        assert shown.schedule.available_at == before.available_at
        assert shown.intent.spec == (msgspec.json.decode(before.spec) and shown.intent.spec)
        await world.advance("20m")
        assert app.dues == ["01 00:07:00", "01 00:14:00", "01 00:21:00"]
        await sound(app)


async def test_what_is_not_named_stays(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        rules: dict[str, Any] = {"jitter": "1m", "max_delay": "5m", "max_runs": 9, "missed": "skip"}
        await app.schedules.create("s", "report", HOURLY, **rules, **PLAIN)
        before = (await app.schedules.get("s")).intent.policies
        after = (await app.schedules.update("s", missed="all")).intent.policies
        assert after == msgspec.structs.replace(before, missed=after.missed)
        assert after.missed == "all"


async def test_every_part_may_change(database_url: str) -> None:
    app = Noted()
    got: list[tuple[str, int]] = []

    @app.workflow
    async def other(label: str) -> None:
        got.append((label, this_run().attempt))

    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", other, HOURLY, args=["old"], **PLAIN)
        await app.schedules.update(
            "s", input={"label": "new"}, priority=7, start=at("01 02:00"), end=at("01 04:00"),
            gap="skip", repeat="both", timeout="10m", retries=2,
        )  # fmt: skip
        await world.advance("9h")
        assert got == [("new", 1)] * 3
        [run, *_] = await app.schedules.history("s")
        assert run.priority == 7
        assert "600" in (run.options or "")
        await sound(app)


async def test_retries_of_an_edit_reach_the_runs(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "shaky", HOURLY, **PLAIN)
        await app.schedules.update("s", retries=0)
        assert (await schedule(app, "s")).options is not None
        await world.advance("1h")
        [run] = await app.schedules.history("s")
        assert run.options == (await schedule(app, "s")).options


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"when": "0 0 31 2 *"}, "never"),
        ({"when": "61 * * * *"}, "minute"),
        ({"when": "2029-01-01T00:00"}, "past|nothing left"),
        ({"timezone": "Europe/Berlni"}, "Berlni"),
        ({"overlap": "both"}, "both"),
        ({"missed": "maybe"}, "maybe"),
        ({"max_runs": 0}, "runs_max|max_runs"),
    ],
)
async def test_a_bad_edit_changes_nothing(
    database_url: str, change: dict[str, Any], error: str
) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        before = await schedule(app, "s")
        with pytest.raises((BadSchedule, UnknownZone), match=error):
            await app.schedules.update("s", **change)
        assert await schedule(app, "s") == before


async def test_an_edit_that_would_release_a_burst_is_shown_and_refused(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, missed="all", **PLAIN)
        outage(world, "5h30m")
        before = await schedule(app, "s")
        with pytest.raises(BadSchedule, match="271"):
            await app.schedules.update("s", when="* * * * *")
        assert await schedule(app, "s") == before
        await resume_work(world)
        await sound(app)


async def test_a_confirmed_burst_is_released_by_the_policies(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        rules: dict[str, Any] = {"missed": "all", "missed_max": 10, "overlap": "allow"}
        await app.schedules.create("s", "report", HOURLY, **rules, **PLAIN)
        outage(world, "3h30m")
        await app.schedules.update("s", when="*/30 * * * *", confirm=True)
        await resume_work(world)
        assert sorted(app.dues)[-1] == "01 03:30:00"
        assert "01 01:00:00" in app.dues
        await sound(app)


async def test_an_edit_of_policy_while_one_is_owed_does_not_drop_it(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        outage(world, "1h10m")
        await app.schedules.update("s", overlap="skip")
        await resume_work(world)
        assert app.dues == ["01 01:00:00"]
        await sound(app)


async def test_an_edit_during_the_jitter_of_an_occurrence_does_not_drop_it(
    database_url: str,
) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("spread", "report", HOURLY, jitter="50m", **PLAIN)
        await world.advance("1h1m")
        assert app.seen == []
        await app.schedules.update("spread", overlap="skip")
        await world.advance("58m")
        assert app.dues == ["01 01:00:00"]
        await sound(app)


@pytest.mark.parametrize("when", ["0 12 * * *", "15 * * * *", "1d"])
async def test_an_edit_that_drops_what_was_owed_reports_it(database_url: str, when: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        outage(world, "3h10m")
        await app.schedules.update("s", when=when, confirm=True)
        await resume_work(world)
        # Under the old definition 01:00, 02:00 and 03:00 were owed: each has an outcome.
        counts = await outcomes(app, "s")
        rows = await lines(app, "s")
        for hour in ("01:00", "02:00", "03:00"):
            assert any(hour in text for text in rows) or sum(counts.values()) >= 3, rows
        await sound(app)


async def test_an_edit_while_paused_keeps_the_pause_and_reports_what_it_drops(
    database_url: str,
) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        await app.schedules.pause("s", note="later")
        await world.advance("5h30m")
        shown = await app.schedules.update("s", when="30 12 * * *")
        assert (shown.schedule.status, shown.schedule.reason) == ("paused", "later")
        await world.advance("1h")
        await app.schedules.resume("s")
        await world.settle()
        assert app.seen == []
        assert (await outcomes(app, "s")).get("skipped:paused", 0) >= 5
        assert await holes(app) == []
        await world.advance("6h")
        assert app.dues == ["01 12:30:00"]


async def test_an_edit_to_a_denser_time_does_not_reach_back_before_itself(
    database_url: str,
) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", "0 12 * * *", **PLAIN)
        await world.advance("20h")
        assert app.dues == ["01 12:00:00"]
        await app.schedules.update("s", when=HOURLY)
        await world.advance("1h30m")
        assert app.dues == ["01 12:00:00", "01 21:00:00"]
        await sound(app)


async def test_an_edit_can_end_and_extend_max_runs(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, max_runs=2, **PLAIN)
        await world.advance("5h30m")
        assert app.dues == ["01 01:00:00", "01 02:00:00"]
        with pytest.raises(WrongState, match=r"has fired all its runs \(2\)"):
            await app.schedules.resume("s")
        shown = await app.schedules.update("s", max_runs=3)
        assert shown.schedule.status == "scheduled"
        await world.advance("5h")
        assert app.dues == ["01 01:00:00", "01 02:00:00", "01 06:00:00"]
        await sound(app)
        await app.schedules.update("s", max_runs=9)
        row = (await app.schedules.update("s", max_runs=3)).schedule
        assert (row.status, row.reason, row.due_at) == ("paused", "all its runs are done", None)
        await sound(app)


@pytest.mark.parametrize("by", ["update", "create"])
async def test_a_later_end_wakes_a_schedule_that_had_ended(database_url: str, by: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, end=at("01 01:30"), **PLAIN)
        await world.advance("5h30m")
        assert (await schedule(app, "s")).status == "paused"
        if by == "update":
            await app.schedules.update("s", end=at("01 07:30"))
        else:
            end = at("01 07:30")
            await app.schedules.create("s", "report", HOURLY, end=end, replace=True, **PLAIN)
        await world.advance("5h")
        assert app.dues == ["01 01:00:00", "01 06:00:00", "01 07:00:00"]
        await sound(app)


async def test_bounds_without_an_offset_are_wall_time_in_the_zone(database_url: str) -> None:
    app = Noted()
    start, end = (at(text).replace(tzinfo=None) for text in ("02 09:00", "03 09:00"))
    async with virtual(app, url=database_url):
        zone = "Asia/Tokyo"
        made = await app.schedules.create(
            "a", "report", HOURLY, timezone=zone, start=start, end=end
        )
        await app.schedules.create("b", "report", HOURLY, timezone=zone)
        edited = await app.schedules.update("b", start=start, end=end)
        assert edited.intent.spec == made.intent.spec
        assert await due(app, "b") == "02 00:00:00"
        moved = await app.schedules.update("b", timezone="UTC", start=start)
        assert moved.intent.spec.start_at == instant(at("02 09:00"))
        assert moved.intent.spec.end_at == made.intent.spec.end_at
        changed = await app.schedules.diff("a", timezone="UTC", start=start)
        assert changed.lost[0] == at("02 00:00")


async def test_an_edit_does_not_end_the_pause_of_a_person(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, max_runs=1, **PLAIN)
        await world.advance("2h")
        await app.schedules.pause("s", note="mine")
        shown = await app.schedules.update("s", max_runs=5)
        assert (shown.schedule.status, shown.schedule.reason) == ("paused", "mine")


async def test_another_workflow_may_be_run(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "shaky", HOURLY, **PLAIN)
        before = await schedule(app, "s")
        with pytest.raises(UnknownWorkflow, match="reprot"):
            await app.schedules.update("s", workflow="reprot")
        assert await schedule(app, "s") == before
        await app.schedules.update("s", workflow="report", input={"label": "x"})
        await world.advance("1h")
        [run] = await app.schedules.history("s")
        assert (run.name, run.output) == ("report", '"x"')


async def test_an_edit_that_ends_a_schedule_notes_since_when_it_rests(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, max_runs=3, **PLAIN)
        await world.advance("1h")
        shown = await app.schedules.update("s", max_runs=1)
        assert (shown.schedule.status, shown.schedule.reason) == ("paused", "all its runs are done")
        assert shown.intent.paused_at == app.clock.now()
