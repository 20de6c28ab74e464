"""The missed-execution lines of the pipeline scheduler's design, and what the consolidation plan
put off to its second version: natural language, catching up, a zone for each schedule."""

from __future__ import annotations

from typing import Any

import pytest

from rota.testing import virtual
from tests.schedules.kit import (
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
)

BUSINESS = "*/15 9-17 * * 1-5"


# -- handle missed executions: for each schedule where nextRun < now ---------------------------


async def test_missed_execution_default_run(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        shown = await app.schedules.create("s", "report", BUSINESS, **PLAIN)
        assert shown.intent.policies.missed == "run"
        assert shown.intent.policies.delay_us_max is None


@pytest.mark.parametrize(
    ("missed", "dues"), [("run", ["01 09:15:00"]), ("skip", [])], ids=["run", "skip"]
)
async def test_at_startup_run_queues_for_immediate_execution_and_skip_calculates_next_future_run(
    database_url: str, missed: str, dues: list[str]
) -> None:
    async with virtual(Noted(), url=database_url) as world:
        await world.app.schedules.create("s", "report", BUSINESS, missed=missed, **PLAIN)
    app = Noted()
    async with virtual(app, url=database_url, start=at("01 09:20")) as world:
        await world.settle()
        assert app.dues == dues
        assert await due(app, "s") == "01 09:30:00"
        await sound(app)


async def test_gracefully_handle_executions_missed_during_downtime(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        for name, missed in (("checks", "skip"), ("digest", "run")):
            await app.schedules.create(name, "report", BUSINESS, missed=missed, **PLAIN)
        outage(world, "34h10m")  # a day of work, and a morning until 10:10
        await resume_work(world)
        assert await outcomes(app, "checks") == {"skipped:missed": 41}
        assert await outcomes(app, "digest") == {"skipped:missed": 40, "completed": 1}
        await sound(app)


# -- pre-execution check -----------------------------------------------------------------------


async def test_verify_schedule_still_enabled(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", BUSINESS, **PLAIN)
        outage(world, "9h5m")  # due, and not fired yet
        await app.schedules.pause("s", note="disabled")
        await resume_work(world)
        assert app.dues == []


@pytest.mark.parametrize(("late", "ran"), [("30m", True), ("30m1s", False)])
async def test_check_window_max_delay_minutes_skip_if_too_late(
    database_url: str, late: str, ran: bool
) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", "0 9 * * *", max_delay="30m", **PLAIN)
        outage(world, "9h")
        outage(world, late)
        await resume_work(world)
        outcome = "completed" if ran else "skipped:too late"
        assert await lines(app, "s") == [f"01 09:00:00 {outcome}"]
        await sound(app)


# -- deferred to v2 ----------------------------------------------------------------------------


async def test_timezone_per_schedule(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        for zone in ("America/Los_Angeles", "Asia/Kolkata", "Australia/Lord_Howe"):
            await app.schedules.create(zone, "report", "0 9 * * *", timezone=zone)
        await world.advance("24h")
        assert app.dues == ["01 03:30:00", "01 17:00:00", "01 22:00:00"]
        await sound(app)


@pytest.mark.parametrize(("most", "ran"), [(0, 0), (2, 2), (50, 5)])
async def test_catchup_max_catchup(database_url: str, most: int, ran: int) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        rules: dict[str, Any] = {"missed": "all", "missed_max": most, "overlap": "allow"}
        await app.schedules.create("s", "report", "0 * * * *", **rules, **PLAIN)
        outage(world, "5h10m")
        await resume_work(world)
        assert len(app.dues) == ran
        assert sum((await outcomes(app, "s")).values()) == 5
        await sound(app)


async def test_natural_language_is_kept_as_it_was_written_and_shown_back(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        shown = await app.schedules.create("s", "report", "every friday at 5pm", **PLAIN)
        assert shown.intent.spec.timings[0].cron == "0 17 * * FRI"
        assert (shown.text, (await schedule(app, "s")).cron_expr) == (
            "at 17:00, on Friday (UTC)", "every friday at 5pm",
        )  # fmt: skip
