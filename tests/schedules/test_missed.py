"""Missed executions: no scheduler was there to fire. The same policy on every path."""

from __future__ import annotations

from typing import Any

import pytest

from rota import Rota, sleep, this_run
from rota.errors import BadSchedule
from rota.explain.why import why
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
    sound,
)


async def test_missed_run_runs_once_the_latest_and_reports_the_others(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        outage(world, "5h30m")
        await resume_work(world)
        assert app.seen == [("01 05:00:00", "schedule")]
        assert await lines(app, "s") == [
            "01 01:00:00 - 01 04:00:00 skipped:missed x4",
            "01 05:00:00 completed",
        ]
        assert await due(app, "s") == "01 06:00:00"
        await sound(app)


async def test_missed_skip_calculates_the_next_future_run(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, missed="skip", **PLAIN)
        outage(world, "5h30m")
        await resume_work(world)
        assert app.seen == []
        assert await lines(app, "s") == ["01 01:00:00 - 01 05:00:00 skipped:missed x5"]
        await world.advance("30m")
        assert app.dues == ["01 06:00:00"]
        await sound(app)


async def test_missed_skip_still_fires_what_is_on_time(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, missed="skip", **PLAIN)
        await world.advance("3h")
        assert app.dues == ["01 01:00:00", "01 02:00:00", "01 03:00:00"]
        await sound(app)


async def test_missed_all_runs_up_to_n_of_them_the_latest(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        rules: dict[str, Any] = {"missed": "all", "missed_max": 3, "overlap": "allow"}
        await app.schedules.create("s", "report", HOURLY, **rules, **PLAIN)
        outage(world, "8h30m")
        await resume_work(world)
        assert sorted(app.dues) == ["01 06:00:00", "01 07:00:00", "01 08:00:00"]
        assert await outcomes(app, "s") == {"skipped:missed": 5, "completed": 3}
        await sound(app)


async def test_missed_all_beyond_a_thousand_runs_as_many_as_it_was_asked(database_url: str) -> None:
    app = Noted(slots=2000)
    async with virtual(app, url=database_url) as world:
        rules: dict[str, Any] = {"missed": "all", "missed_max": 1200, "overlap": "allow"}
        await app.schedules.create("s", "report", "* * * * *", **rules, **PLAIN)
        outage(world, "25h31s")
        await resume_work(world)
        assert await outcomes(app, "s") == {"skipped:missed": 300, "completed": 1200}
        await sound(app)


async def test_skip_if_more_than_thirty_minutes_late(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", "0 */2 * * *", max_delay="30m", **PLAIN)
        outage(world, "2h29m")
        await resume_work(world)
        assert app.dues == ["01 02:00:00"]
        outage(world, "4h2m")  # 06:31
        await resume_work(world)
        assert app.dues == ["01 02:00:00"]
        assert await lines(app, "s") == [
            "01 02:00:00 completed",
            "01 04:00:00 skipped:too late",
            "01 06:00:00 skipped:too late",
        ]
        await sound(app)


async def test_a_year_of_missed_seconds_is_one_row(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", "* * * * * *", **PLAIN)
        outage(world, "365d")
        await resume_work(world)
        history = await app.schedules.history("s", limit=1000)
        assert len(history) < 100
        assert sum((await outcomes(app, "s")).values()) == 365 * 24 * 3600
        await sound(app)


@pytest.mark.parametrize("path", ["start-up", "machine sleep", "clock jump", "resume", "pause end"])
@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({}, {"completed": 1, "skipped:missed": 4}),
        ({"missed": "skip"}, {"skipped:missed": 5}),
        ({"missed": "all", "overlap": "allow"}, {"completed": 5}),
        ({"max_delay": "90m", "missed": "all", "overlap": "allow"},
         {"completed": 2, "skipped:too late": 3}),
    ],
)  # fmt: skip
async def test_a_policy_is_the_same_on_every_path(
    database_url: str, path: str, rules: dict[str, Any], expected: dict[str, int]
) -> None:
    if path == "pause end":
        # A pause that ends by itself skips what came meanwhile, whatever the policy.
        expected = {"skipped:paused": 5}
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **rules, **PLAIN)
        if path == "machine sleep":
            outage(world, "5h30m")
        elif path == "clock jump":
            world.clock.jump("5h30m")
        elif path == "resume":
            await app.schedules.pause("s")
            outage(world, "5h30m")
            await app.schedules.resume("s", catch_up=True)
        elif path == "pause end":
            await app.schedules.pause("s", until=at("01 05:30"))
            outage(world, "5h30m")
        if path != "start-up":
            await resume_work(world)
            assert await outcomes(app, "s") == expected
            await sound(app)
    if path == "start-up":
        again = Noted()
        async with virtual(again, url=database_url, start=at("01 05:30")) as world:
            await world.settle()
            assert await outcomes(again, "s") == expected
            await sound(again)


async def test_a_late_occurrence_within_the_tolerance_is_on_time(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        rules: dict[str, Any] = {"missed": "skip", "overlap": "allow"}
        await app.schedules.create("s", "report", "*/10 * * * * *", **rules, **PLAIN)
        outage(world, "25s")
        await resume_work(world)
        assert sorted(app.dues) == ["01 00:00:10", "01 00:00:20"]
        await sound(app)


# -- the grace period --------------------------------------------------------------------------


async def test_the_grace_period_says_what_still_counts_as_on_time(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        rules: dict[str, Any] = {"missed": "skip", "overlap": "allow"} | PLAIN
        every = "*/5 * * * * *"
        await app.schedules.create("usual", "report", every, **rules)
        outage(world, "52s")
        await resume_work(world)
        assert await outcomes(app, "usual") == {"skipped:missed": 4, "completed": 6}
        await app.schedules.pause("usual")
        await app.schedules.create("strict", "report", every, grace="1s", **rules)
        outage(world, "52s")
        await resume_work(world)
        assert await outcomes(app, "strict") == {"skipped:missed": 10}
        await app.schedules.pause("strict")
        await app.schedules.create("patient", "report", every, grace="10m", **rules)
        outage(world, "52s")
        await resume_work(world)
        assert (await outcomes(app, "patient"))["completed"] >= 10
        await sound(app)


async def test_a_grace_period_that_makes_all_of_it_late_is_refused(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        with pytest.raises(BadSchedule, match="shorter than a second"):
            await app.schedules.create("s", "report", HOURLY, grace="10ms", **PLAIN)


@pytest.mark.parametrize("delay", ["0s", "10ms", 0])
async def test_a_delay_that_no_occurrence_keeps_is_refused(
    database_url: str, delay: str | int
) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        with pytest.raises(BadSchedule, match="so no occurrence would run"):
            await app.schedules.create("s", "report", HOURLY, max_delay=delay, **PLAIN)
        await app.schedules.create("s", "report", HOURLY, max_delay="1s", **PLAIN)
        with pytest.raises(BadSchedule, match="so no occurrence would run"):
            await app.schedules.update("s", max_delay=delay)


async def test_max_runs_is_not_exceeded_by_a_second_catch_up(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        rules: dict[str, Any] = {"missed": "all", "max_runs": 3, "overlap": "allow"}
        await app.schedules.create("s", "report", HOURLY, **rules, **PLAIN)
        for _ in range(2):
            outage(world, "2h10m")
            await resume_work(world)
        assert app.dues == ["01 01:00:00", "01 02:00:00", "01 03:00:00"]
        assert (await app.schedules.get("s")).intent.fired_count == 3
        await sound(app)


# -- expiry ------------------------------------------------------------------------------------


async def test_a_fired_run_that_does_not_begin_in_time_is_skipped(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create(
            "s", "report", HOURLY, queue="nowhere", expires_after="20m", **PLAIN
        )
        await world.advance("1h19m")
        assert await lines(app, "s") == ["01 01:00:00 pending"]
        await world.advance("1m")
        assert await lines(app, "s") == ["01 01:00:00 skipped:expired"]
        answer = await why(app, "s", at=at("01 01:00"))
        assert "had not begun in time (expires after)" in answer.sentence
        await world.advance("2h")
        assert await lines(app, "s") == [f"01 0{hour}:00:00 skipped:expired" for hour in (1, 2, 3)]
        await sound(app)


async def test_a_run_that_has_begun_does_not_expire(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "long", "@daily", expires_after="5m", **PLAIN)
        await world.advance("26h")
        assert await lines(app, "s") == ["02 00:00:00 completed"]


async def test_what_waits_in_the_queue_expires_and_the_queue_goes_on(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create(
            "s", "long", HOURLY, overlap="queue-all", expires_after="25m", **PLAIN
        )
        await world.advance("6h")
        # Each takes an hour and a half: every second one would wait for 30 minutes.
        assert app.dues == ["01 01:00:00", "01 03:00:00", "01 05:00:00"]
        assert (await lines(app, "s"))[1] == "01 02:00:00 skipped:expired"
        await sound(app)


async def test_what_expired_while_nobody_was_there_never_begins(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", "@daily", expires_after="1h", **PLAIN)
        await app.pause_queue("default")
        await world.advance("24h1m")
        outage(world, "2h")
        await app.pause_queue("default", paused=False)
        await app._make_runtime().register()  # A worker starts.
        await world.settle()
        assert app.dues == []
        assert await lines(app, "s") == ["02 00:00:00 skipped:expired"]
        await sound(app)


def windows(app: Rota) -> list[str]:
    """Adds a workflow `window` of 90 minutes to an app; the windows of its runs."""
    found: list[str] = []

    @app.workflow
    async def window() -> None:
        run = this_run()
        before = "-" if run.previous_due_at is None else f"{run.previous_due_at:%H:%M}"
        due = "-" if run.due_at is None else f"{run.due_at:%H:%M}"
        if (shown := f"{before} {due}") not in found:  # a replay
            found.append(shown)
        await sleep("90m")

    return found


@pytest.mark.parametrize("overlap", ["queue", "queue-all"])
async def test_the_window_after_an_expired_occurrence_has_no_gap(
    database_url: str, overlap: str
) -> None:
    app = Noted()
    found = windows(app)
    async with virtual(app, url=database_url) as world:
        await app.schedules.create(
            "s", "window", HOURLY, overlap=overlap, expires_after="25m", **PLAIN
        )
        await world.advance("6h26m")
        assert found == ["- 01:00", "01:00 03:00", "03:00 05:00"]
        await app.schedules.trigger("s")
        await world.settle()
        assert found[3:] == ["05:00 -"]
        await sound(app)


@pytest.mark.parametrize("overlap", ["allow", "queue-all"])
async def test_occurrences_that_wait_behind_expired_ones_have_windows_without_a_gap(
    database_url: str, overlap: str
) -> None:
    app = Noted()
    found = windows(app)
    async with virtual(app, url=database_url) as world:
        await app.schedules.create(
            "s", "window", HOURLY, overlap=overlap, expires_after="2h30m", **PLAIN
        )
        await world.advance("1h")
        await app.pause_queue("default")
        await world.advance("5h")  # 02:00 and 03:00 expire, 04:00 to 06:00 wait
        assert (await lines(app, "s"))[1:3] == [
            "01 02:00:00 skipped:expired", "01 03:00:00 skipped:expired",
        ]  # fmt: skip
        await app.pause_queue("default", paused=False)
        await world.beat()
        await world.advance("1m")
        assert found[:2] == ["- 01:00", "01:00 04:00"]
        await world.advance("1h")
        wide = {"allow": ["04:00 05:00", "05:00 06:00", "06:00 07:00"], "queue-all": []}
        assert found[2:] == wide[overlap]


async def test_if_the_first_occurrence_expires_the_next_has_none_before_it(
    database_url: str,
) -> None:
    app = Noted()
    found = windows(app)
    async with virtual(app, url=database_url) as world:
        await app.pause_queue("default")
        await app.schedules.create("s", "window", HOURLY, expires_after="25m", **PLAIN)
        await world.advance("2h30m")
        await app.pause_queue("default", paused=False)
        await world.beat()
        await world.advance("30m")
        assert found == ["- 03:00"]


async def test_a_number_of_missed_occurrences_needs_the_policy_that_runs_all(
    database_url: str,
) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        for missed in ("skip", "run"):
            rules: dict[str, Any] = {"missed": missed, "missed_max": 5}
            with pytest.raises(BadSchedule, match='missed_max=5 needs missed="all"'):
                await app.schedules.create("s", "report", HOURLY, **rules, **PLAIN)
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        with pytest.raises(BadSchedule, match="missed_max=5"):
            await app.schedules.update("s", missed_max=5)
        await app.schedules.update("s", missed="all")
        changed = await app.schedules.update("s", missed_max=5)
        assert changed.intent.policies.missed_max == 5
        await app.schedules.update("s", missed="run")  # the number stays for later
