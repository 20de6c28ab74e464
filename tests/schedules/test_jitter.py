"""Jitter: stable for each schedule; nominal and effective time are both on record."""

from __future__ import annotations

from typing import Any

import pytest

from rota.core.time.instants import MINUTE
from rota.testing import virtual
from tests.schedules.kit import HOURLY, PLAIN, Noted, due, outcomes, schedule, sound


async def test_many_schedules_at_one_instant_spread_out(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        for n in range(20):
            await app.schedules.create(f"s{n}", "report", HOURLY, jitter="10m", **PLAIN)
        rows = [shown.schedule for shown in await app.schedules.list()]
        spread = {(row.available_at or 0) - (row.due_at or 0) for row in rows}
        assert len(spread) > 15
        assert min(spread) >= 0
        assert max(spread) < 10 * MINUTE


async def test_jitter_is_stable_and_both_times_are_recorded(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, jitter="10m", **PLAIN)
        row = await schedule(app, "s")
        assert row.available_at is not None
        assert row.due_at is not None
        spread = row.available_at - row.due_at
        assert spread > 0
        await world.advance("5h")
        runs = await app.schedules.history("s")
        assert len(runs) >= 4
        for run in runs:
            assert run.due_at is not None
            assert run.available_at == run.due_at + spread
            assert (run.started_at or 0) >= run.due_at + spread
        assert app.dues[0] == "01 01:00:00"
        row = await schedule(app, "s")
        assert (row.available_at or 0) - (row.due_at or 0) == spread
        await sound(app)


async def test_jitter_survives_pause_edit_and_a_new_definition(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        shown = await app.schedules.create("s", "report", HOURLY, jitter="10m", **PLAIN)
        first = shown.schedule.available_at
        await app.schedules.pause("s")
        assert (await app.schedules.resume("s")).schedule.available_at == first
        assert (await app.schedules.update("s", overlap="skip")).schedule.available_at == first
        again = await app.schedules.create(
            "s", "report", HOURLY, jitter="10m", replace=True, **PLAIN
        )
        assert again.schedule.available_at == first


@pytest.mark.parametrize(
    "rules", [{"missed": "skip"}, {"max_delay": "1m"}, {"missed": "skip", "max_delay": "1s"}]
)
async def test_an_occurrence_is_not_late_because_of_its_own_jitter(
    database_url: str, rules: dict[str, Any]
) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("spread", "report", HOURLY, jitter="50m", **rules, **PLAIN)
        row = await schedule(app, "spread")
        assert (row.available_at or 0) - (row.due_at or 0) > 2 * MINUTE, "choose another name"
        await world.advance("4h")
        assert app.dues == ["01 01:00:00", "01 02:00:00", "01 03:00:00"]
        assert await due(app, "spread") == "01 04:00:00"
        await sound(app)


async def test_jitter_longer_than_the_period_shifts_all_and_loses_none(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create(
            "spread", "report", "* * * * *", jitter="50m", overlap="allow", **PLAIN
        )
        row = await schedule(app, "spread")
        spread = (row.available_at or 0) - (row.due_at or 0)
        assert spread > 5 * MINUTE, "choose another name"
        await world.advance("1h")
        expected = (60 * MINUTE - spread) // MINUTE
        assert await outcomes(app, "spread") == {"completed": expected}
        await sound(app)


async def test_a_preview_begins_with_the_occurrence_that_waits_for_its_jitter(
    database_url: str,
) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        daily = await app.schedules.create("s", "report", "0 9 * * *", jitter="10h", **PLAIN)
        assert daily.schedule.available_at is not None
        assert daily.schedule.available_at - (daily.schedule.due_at or 0) > 30 * MINUTE
        await world.advance("9h30m")
        assert app.dues == []
        foreseen = await app.schedules.preview("s", 3)
        assert [f"{one.due_at:%d %H:%M}" for one in foreseen] == [
            "01 09:00",
            "02 09:00",
            "03 09:00",
        ]
        assert list(foreseen) == list(await app.schedules.upcoming(within="3d"))[:3]
        await world.advance_to(foreseen[0].runs_at)
        assert app.dues == ["01 09:00:00"]
        paused = await app.schedules.pause("s")
        assert paused.schedule.status == "paused"
        assert len(await app.schedules.preview("s", 3)) == 3
