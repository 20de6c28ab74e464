"""Backfills: once for each occurrence, with a dry run and a bound."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rota.errors import BadSchedule
from rota.testing import virtual
from tests.schedules.kit import (
    HOURLY,
    PLAIN,
    Noted,
    at,
    due,
    outage,
    resume_work,
    sound,
)


async def test_a_dry_run_counts_and_changes_nothing(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url, start=at("03 00:30")) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        planned = await app.schedules.backfill("s", at("01 01:00"), at("01 10:00"), dry_run=True)
        assert planned == (10, 10, [])
        await world.settle()
        assert await app.schedules.history("s") == []


async def test_a_dry_run_counts_what_would_run_and_refuses_what_would_be_refused(
    database_url: str,
) -> None:
    app = Noted()
    async with virtual(app, url=database_url, start=at("01 00:30")) as world:
        await app.schedules.create("s", "report", HOURLY, missed="skip", **PLAIN)
        await world.advance("5h")
        outage(world, "5h")
        await resume_work(world)
        span = at("01 01:00"), at("01 10:00")
        planned = await app.schedules.backfill("s", *span, dry_run=True)
        done = await app.schedules.backfill("s", *span)
        assert planned[:2] == done[:2] == (10, 5)
        await world.settle()
        assert (await app.schedules.backfill("s", *span, dry_run=True))[:2] == (10, 0)
        await app.schedules.create("often", "report", "* * * * * *", **PLAIN)
        far = datetime(2020, 1, 1, tzinfo=UTC)
        with pytest.raises(BadSchedule, match="at most 100,000"):
            await app.schedules.backfill("often", far, at("01 00:00"), dry_run=True)


async def test_a_backfill_runs_each_occurrence_once(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url, start=at("03 00:30")) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        for _ in range(2):
            await app.schedules.backfill("s", at("01 01:00"), at("01 05:00"))
        await app.schedules.backfill("s", at("01 04:00"), at("01 07:00"))
        await world.settle()
        assert sorted(app.seen) == [(f"01 0{hour}:00:00", "backfill") for hour in range(1, 8)]
        assert await due(app, "s") == "03 01:00:00"
        await sound(app)


@pytest.mark.parametrize("parallel", [1, 3])
async def test_a_backfill_has_its_own_concurrency(database_url: str, parallel: int) -> None:
    app = Noted()
    async with virtual(app, url=database_url, start=at("03 00:30")) as world:
        # Its next occurrence is far away: only the backfill runs.
        await app.schedules.create("s", "long", "0 0 1 * *", **PLAIN)
        await app.schedules.update("s", when=HOURLY, start=at("01 00:00"), confirm=True)
        await app.schedules.pause("s")
        await app.schedules.backfill("s", at("01 01:00"), at("01 06:00"), parallel=parallel)
        await world.drain("24h")
        rows = [row for row in await app.schedules.history("s") if row.trigger == "backfill"]
        assert [row.status for row in rows] == ["completed"] * 6
        changes = sorted(
            change
            for row in rows
            for change in ((row.started_at or 0, 1), ((row.finished_at or 0), -1))
        )
        most = level = 0
        for _, change in changes:
            level += change
            most = max(most, level)
        assert most == parallel
        assert {row.started_at for row in rows} != set()


async def test_a_backfill_runs_what_was_skipped(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, missed="skip", **PLAIN)
        await world.advance("2h")
        outage(world, "2h30m")  # 03:00 and 04:00: two rows
        await resume_work(world)
        await world.advance("1h")
        outage(world, "5h")  # 06:00 to 10:00: one row
        await resume_work(world)
        filled = await app.schedules.backfill("s", at("01 01:00"), at("01 10:00"), parallel=9)
        await world.settle()
        assert len(filled.run_ids) == 7
        assert sorted(app.dues) == [f"01 {hour:02d}:00:00" for hour in range(1, 11)]
        await sound(app)


async def test_a_backfill_and_the_schedule_never_run_one_occurrence_twice(
    database_url: str,
) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, missed="all", overlap="allow", **PLAIN)
        outage(world, "3h30m")
        await app.schedules.backfill("s", at("01 01:00"), at("01 02:00"), parallel=9)
        await resume_work(world)
        assert sorted(app.dues) == ["01 01:00:00", "01 02:00:00", "01 03:00:00"]
        await sound(app)


@pytest.mark.parametrize(
    ("start", "end", "says"),
    [
        ("01 05:00", "01 04:00", "range"), ("04 00:00", "05 00:00", "past"),
        ("01 00:00", "09 00:00", "past"),
    ],
)  # fmt: skip
async def test_a_bad_range_is_refused(database_url: str, start: str, end: str, says: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url, start=at("03 00:30")):
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        with pytest.raises(BadSchedule, match=says):
            await app.schedules.backfill("s", at(start), at(end))


async def test_a_range_that_explodes_is_refused(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url, start=at("03 00:30")):
        await app.schedules.create("s", "report", "* * * * * *", **PLAIN)
        far = datetime(2020, 1, 1, tzinfo=UTC)
        with pytest.raises(BadSchedule, match="at most"):
            await app.schedules.backfill("s", far, at("01 00:00"))
        with pytest.raises(BadSchedule, match="parallel"):
            await app.schedules.backfill("s", at("01 00:00"), at("01 00:01"), parallel=0)
        assert await app.schedules.history("s") == []
