"""Pause and resume: by hand, until a time, after failures; and what was missed meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from rota.engine import scheduler
from rota.errors import BadSchedule, UnknownSchedule, WrongState
from rota.explain.why import why
from rota.store.backend.database import Tx
from rota.store.schedules import fire
from rota.testing import virtual
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
)


async def test_a_paused_schedule_fires_nothing_and_keeps_its_note(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        shown = await app.schedules.pause("s", note="quarter end")
        assert (shown.schedule.status, shown.schedule.reason) == ("paused", "quarter end")
        await world.advance("10h")
        assert app.seen == []
        await sound(app)


async def test_resume_skips_what_was_missed_as_one_row(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        await world.advance("1h10m")
        await app.schedules.pause("s")
        await world.advance("10h")
        await app.schedules.resume("s")
        await world.settle()
        assert app.dues == ["01 01:00:00"]
        assert await lines(app, "s") == [
            "01 01:00:00 completed",
            "01 02:00:00 - 01 11:00:00 skipped:paused x10",
        ]
        await world.advance("1h")
        assert app.dues == ["01 01:00:00", "01 12:00:00"]
        await sound(app)


async def test_a_pause_in_which_nothing_was_due_leaves_no_row(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        await app.schedules.pause("s")
        await world.advance("30m")
        await app.schedules.resume("s")
        await world.advance("1h")
        assert await lines(app, "s") == ["01 01:00:00 completed"]
        await sound(app)


@pytest.mark.parametrize("hours", [1, 3, 50, 200])
async def test_resume_does_not_depend_on_how_long_the_pause_was(
    database_url: str, hours: int
) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        await app.schedules.pause("s")
        await world.advance(f"{hours}h30m")
        await app.schedules.resume("s")
        await world.settle()
        assert app.seen == []
        await world.advance("30m")
        assert len(app.seen) == 1
        await sound(app)


async def test_resume_with_catch_up_owes_what_was_missed(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, missed="all", overlap="allow", **PLAIN)
        await app.schedules.pause("s")
        await world.advance("3h30m")
        await app.schedules.resume("s", catch_up=True)
        await world.settle()
        assert sorted(app.dues) == ["01 01:00:00", "01 02:00:00", "01 03:00:00"]
        await sound(app)


async def test_a_second_pause_does_not_forget_what_the_first_missed(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        await app.schedules.pause("s", note="one")
        await world.advance("2h30m")
        await app.schedules.pause("s", note="two")
        await world.advance("2h")
        await app.schedules.resume("s")
        await world.settle()
        assert await lines(app, "s") == ["01 01:00:00 - 01 04:00:00 skipped:paused x4"]
        await sound(app)


async def test_pause_until_resumes_by_itself_at_that_time(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        await app.schedules.pause("s", until=at("01 03:30"))
        await world.advance("3h29m")
        assert (await schedule(app, "s")).status == "paused"
        await world.advance("1m")
        assert (await schedule(app, "s")).status == "scheduled"
        await world.advance("30m")
        assert app.dues == ["01 04:00:00"]
        assert (await lines(app, "s"))[0].endswith("skipped:paused") or (await lines(app, "s")) == [
            "01 01:00:00 - 01 03:00:00 skipped:paused x3",
            "01 04:00:00 completed",
        ]
        await sound(app)


async def test_pause_until_ends_while_nobody_is_there(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        await app.schedules.pause("s", until=at("01 03:30"))
        outage(world, "6h30m")
        await resume_work(world)
        # 1 to 3 fell into the pause; 4 to 6 came after it, when no scheduler was there to fire.
        assert app.dues == ["01 06:00:00"]
        rows = await lines(app, "s")
        assert sum("paused" in text for text in rows) >= 1
        assert sum("missed" in text for text in rows) >= 1
        await sound(app)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({}, {"skipped:paused": 3, "skipped:missed": 2, "completed": 1}),
        ({"missed": "skip"}, {"skipped:paused": 3, "skipped:missed": 3}),
        ({"missed": "all", "overlap": "allow"}, {"skipped:paused": 3, "completed": 3}),
        ({"max_delay": "1h", "missed": "all", "overlap": "allow"},
         {"skipped:paused": 3, "skipped:too late": 2, "completed": 1}),
    ],
)  # fmt: skip
async def test_what_came_after_the_end_of_a_pause_follows_the_missed_policy(
    database_url: str, rules: dict[str, Any], expected: dict[str, int]
) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **rules, **PLAIN)
        await app.schedules.pause("s", until=at("01 03:30"), note="a long lunch")
        outage(world, "6h30m")
        await resume_work(world)
        assert await outcomes(app, "s") == expected
        await sound(app)


async def test_an_occurrence_at_the_very_end_of_a_pause_is_not_in_it(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        await app.schedules.pause("s", until=at("01 03:00"))
        await world.advance("3h")
        assert app.dues == ["01 03:00:00"]
        assert (await outcomes(app, "s"))["skipped:paused"] == 2
        await sound(app)


async def test_the_ledger_shows_since_when_and_why_it_was_paused(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        await world.advance("10m")
        await app.schedules.pause("s", note="a long lunch")
        assert (
            "paused since Tue 2030-01-01 00:10 UTC (a long lunch)" in (await why(app, "s")).sentence
        )
        await world.advance("1h")
        await app.schedules.resume("s")
        seen = await why(app, "s", at=at("01 01:00"))
        assert seen.sentence == (
            "s did not run at Tue 2030-01-01 01:00 UTC: it was paused since "
            "Tue 2030-01-01 00:10 UTC (a long lunch)."
        )
        assert (await app.schedules.get("s")).intent.paused_at == 0


async def test_many_pauses_that_end_together_all_end(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        for n in range(230):
            await app.schedules.create(f"s{n}", "report", HOURLY, **PLAIN)
            await app.schedules.pause(f"s{n}", until=at("01 00:30"))
        await world.advance("1h")
        assert len(app.seen) == 230
        await sound(app)


async def test_pause_until_the_past_is_refused(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        await world.advance("30m")
        with pytest.raises(BadSchedule, match="past"):
            await app.schedules.pause("s", until=at("01 00:10"))
        assert (await schedule(app, "s")).status == "scheduled"


async def test_created_paused_waits_for_its_resume(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, paused=True, **PLAIN)
        await world.advance("2h30m")
        assert app.seen == []
        await app.schedules.resume("s")
        await world.advance("1h")
        assert app.dues == ["01 03:00:00"]
        await sound(app)


async def test_resuming_what_is_not_paused_is_refused(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        with pytest.raises(WrongState, match="not paused"):
            await app.schedules.resume("s")
        with pytest.raises(UnknownSchedule, match="no schedule"):
            await app.schedules.resume("other")


async def test_pause_after_so_many_failures_in_a_row(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "shaky", HOURLY, pause_after_failures=3, **PLAIN)
        app.broken = True
        await world.advance("10h30m")
        assert len(app.seen) == 3
        row = await schedule(app, "s")
        assert row.status == "paused"
        assert "3 times" in (row.reason or "")
        await sound(app)


async def test_a_success_between_failures_starts_the_count_again(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "shaky", HOURLY, pause_after_failures=2, **PLAIN)
        for hour in range(8):
            app.broken = hour % 2 == 0
            await world.advance("1h")
        assert len(app.seen) == 8
        assert (await schedule(app, "s")).status == "scheduled"
        await sound(app)


@pytest.mark.parametrize("catch_up", [False, True])
async def test_after_a_resume_failures_are_counted_again(database_url: str, catch_up: bool) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "shaky", HOURLY, pause_after_failures=2, **PLAIN)
        app.broken = True
        await world.advance("4h30m")
        assert len(app.seen) == 2
        app.broken = False
        await app.schedules.resume("s", catch_up=catch_up)
        await world.advance("2h")
        assert (await schedule(app, "s")).status == "scheduled"
        assert app.dues[-2:] == ["01 05:00:00", "01 06:00:00"]
        await sound(app)


async def test_a_schedule_quarantined_and_resumed_accounts_for_the_time_between(
    database_url: str,
) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "shaky", HOURLY, pause_after_failures=1, **PLAIN)
        app.broken = True
        await world.advance("5h30m")
        app.broken = False
        await app.schedules.resume("s")
        await world.settle()
        assert await lines(app, "s") == [
            "01 01:00:00 failed:fatal",
            "01 02:00:00 - 01 05:00:00 skipped:paused x4",
        ]
        await sound(app)


async def test_resume_of_a_schedule_that_has_ended_says_so(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, end=at("01 02:30"), **PLAIN)
        await world.advance("5h")
        assert app.dues == ["01 01:00:00", "01 02:00:00"]
        row = await schedule(app, "s")
        assert row.status == "paused"
        assert "no further occurrence" in (row.reason or "")
        with pytest.raises((WrongState, BadSchedule), match="occurrence"):
            await app.schedules.resume("s")
        assert (await schedule(app, "s")).status == "paused"
        await sound(app)


async def test_pausing_leaves_the_next_occurrence_on_record(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        await app.schedules.pause("s")
        assert await due(app, "s") == "01 01:00:00"
        assert (await schedule(app, "s")).available_at is None


async def test_pauses_are_looked_at_once_a_tick_however_many_batches_are_due(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    real = fire.end_pauses

    async def counted(tx: Tx, **fields: Any) -> Any:
        asked.append(fields["now"])
        return await real(tx, **fields)

    monkeypatch.setattr(scheduler, "BATCH", 2)
    monkeypatch.setattr(fire, "end_pauses", counted)
    app = Noted()
    async with virtual(app, url=database_url) as world:
        for n in range(5):
            await app.schedules.create(f"s{n}", "report", HOURLY, **PLAIN)
        outage(world, "1h")
        asked.clear()
        assert app.runtime is not None
        assert await app.runtime.scheduler.tick() == 5
        assert len(asked) == 1
        await world.settle()
        await sound(app)


# -- one outcome per occurrence ----------------------------------------------------------------


@pytest.mark.parametrize("verb", ["update", "pause", "resume", "replace", "retime"])
async def test_a_change_after_the_end_of_a_pause_gives_no_occurrence_two_outcomes(
    database_url: str, verb: str
) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        rules: dict[str, Any] = {"missed": "all", "overlap": "allow"} | PLAIN
        await app.schedules.create("s", "report", "*/10 * * * *", **rules)
        await app.schedules.pause("s", note="upgrade", until=at("01 00:15"))
        outage(world, "45m")
        match verb:
            case "update":
                await app.schedules.update("s", priority=3, confirm=True)
            case "retime":
                await app.schedules.update("s", when="*/5 * * * *", confirm=True)
            case "pause":
                await app.schedules.pause("s", note="again")
                await app.schedules.resume("s")
            case "resume":
                await app.schedules.resume("s")
            case "replace":
                await app.schedules.create("s", "report", "*/10 * * * *", replace=True, **rules)
        await resume_work(world)
        await sound(app)
        seen = await lines(app, "s")
        assert seen[0].startswith("01 00:10:00")
        assert "skipped:paused" in seen[0]
        if verb in ("update", "replace"):
            assert app.dues == [f"01 00:{minute}:00" for minute in (20, 30, 40)]


async def test_an_edit_after_the_end_of_a_pause_must_confirm_what_it_releases(
    database_url: str,
) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", "*/10 * * * *", missed="all", **PLAIN)
        await app.schedules.pause("s", until=at("01 00:15"))
        outage(world, "45m")
        with pytest.raises(BadSchedule, match="would release 3 missed occurrences"):
            await app.schedules.update("s", priority=3)
        await resume_work(world)
        await sound(app)
