"""Overlap: an occurrence comes due while the run before it has not ended."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from rota import RetryPolicy, Rota, Transient
from rota.testing import World, virtual
from tests.engine.kit import Gate, eventually, live
from tests.schedules.kit import (
    HOURLY,
    PLAIN,
    Noted,
    at,
    lines,
    outage,
    resume_work,
    schedule,
    sound,
)

PATIENT = RetryPolicy(attempts=3, delay_s=1800, delay_s_max=1800, factor=1)


async def _open(app: Rota) -> int:
    counts = await app.runs.counts()
    return sum(counts.get(status, 0) for status in ("pending", "running", "sleeping", "waiting"))


async def test_queue_lets_one_wait_and_merges_the_rest_into_it(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        # Each takes an hour and a half; so the second waits, the third merges into it.
        await app.schedules.create("s", "long", "*/30 * * * *", **PLAIN)
        await world.advance("1h59m")
        assert app.dues == ["01 00:30:00"]
        assert await lines(app, "s") == [
            "01 00:30:00 sleeping:sleep",
            "01 01:00:00 sleeping:turn",
            "01 01:30:00 skipped:merged",
        ]
        await world.advance("1m")
        assert app.dues == ["01 00:30:00", "01 01:00:00"]
        await sound(app)


async def test_queue_runs_never_overlap_and_none_is_lost(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "long", HOURLY, **PLAIN)
        await world.advance("24h")
        rows = await app.schedules.history("s", limit=100)
        spans = sorted((r.started_at, r.finished_at) for r in rows if r.started_at is not None)
        for (_, end), (begin, _) in itertools.pairwise(spans):
            assert end is not None
            assert end <= begin
        assert len(rows) == 24
        await sound(app)


async def test_skip_leaves_the_occurrence_out_and_says_so(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "long", HOURLY, overlap="skip", **PLAIN)
        await world.advance("3h10m")
        assert app.dues == ["01 01:00:00", "01 03:00:00"]
        assert (await lines(app, "s"))[1] == "01 02:00:00 skipped:overlap"
        await sound(app)


async def test_allow_runs_them_beside_each_other(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "long", HOURLY, overlap="allow", **PLAIN)
        await world.advance("2h10m")
        assert app.dues == ["01 01:00:00", "01 02:00:00"]
        assert await _open(app) == 2
        await sound(app)


async def test_cancel_running_calls_off_the_old_one_and_starts_the_new(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "long", HOURLY, overlap="cancel-running", **PLAIN)
        await world.advance("2h10m")
        assert app.dues == ["01 01:00:00", "01 02:00:00"]
        assert (await lines(app, "s"))[0].startswith("01 01:00:00 cancelled")
        assert await _open(app) == 1
        await sound(app)


async def test_cancel_running_interrupts_work_in_hand_at_once(database_url: str) -> None:
    app = Rota(poll_s=1000, heartbeat_s=1000, lease_s=3000)
    gate = Gate()

    @app.workflow
    async def busy() -> None:
        await gate(None)

    async with live(app, database_url) as clock:
        await app.schedules.create("s", busy, HOURLY, overlap="cancel-running", **PLAIN)
        for count in (1, 2):
            clock.move_to(clock.now() + 3600_000_000)
            await eventually(lambda count=count: len(gate.entered) == count)
        # The worker that holds the old one must be notified now, not when its lease is renewed.
        await eventually(lambda: len(gate.interrupted) == 1)


@pytest.mark.parametrize("overlap", ["queue", "skip", "cancel-running"])
async def test_a_schedules_runs_are_not_in_the_way_of_anothers(
    database_url: str, overlap: str
) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        for name in ("a", "b"):
            await app.schedules.create(name, "long", HOURLY, overlap=overlap, **PLAIN)
        await world.advance("1h1m")
        assert app.dues == ["01 01:00:00"] * 2
        await sound(app)


async def _running_and_waiting(app: Noted, world: World) -> None:
    """One run of the schedule rests until 02:30, the next waits for its turn since 02:00."""
    await app.schedules.create("s", "long", HOURLY, **PLAIN)
    await world.advance("2h10m")
    assert [text[12:] for text in await lines(app, "s")] == ["sleeping:sleep", "sleeping:turn"]


async def test_the_end_of_a_run_by_hand_releases_nobody(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await _running_and_waiting(app, world)
        by_hand = await app.schedules.trigger("s")
        await world.settle()
        await app.runs.cancel(by_hand)
        await world.settle()
        assert [text[12:] for text in await lines(app, "s")][:2] == [
            "sleeping:sleep",
            "sleeping:turn",
        ]
        await sound(app)


async def test_calling_off_the_running_one_releases_the_waiting_one(
    database_url: str,
) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await _running_and_waiting(app, world)
        first = (await app.schedules.history("s"))[-1]
        await app.runs.cancel(first.id)
        await world.settle()
        assert app.dues == ["01 01:00:00", "01 02:00:00"]
        await sound(app)


async def test_a_failed_attempt_that_is_retried_keeps_its_place_in_the_queue(
    database_url: str,
) -> None:
    app = Noted()
    app.broken = True

    async with virtual(app, url=database_url) as world:

        @app.workflow(name="again", retries=PATIENT)
        async def again() -> None:
            app._note()
            if app.broken:
                raise Transient("not yet")

        await app.schedules.create("s", "again", "*/10 * * * *", **PLAIN)
        await world.advance("25m")
        assert app.dues == ["01 00:10:00"]
        assert (await lines(app, "s"))[1] == "01 00:20:00 sleeping:turn"
        app.broken = False
        await world.advance("16m")
        assert app.dues[:3] == ["01 00:10:00", "01 00:10:00", "01 00:20:00"]
        await sound(app)


async def test_a_deleted_schedules_waiting_run_still_is_released(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await _running_and_waiting(app, world)
        await app.schedules.delete("s")
        await sound(app)
        await world.drain("12h")
        assert app.dues == ["01 01:00:00", "01 02:00:00"]
        assert await _open(app) == 0


@pytest.mark.parametrize("overlap", ["queue", "skip", "allow"])
async def test_catching_up_obeys_the_overlap_policy(database_url: str, overlap: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        rules: dict[str, Any] = {"missed": "all", "overlap": overlap}
        await app.schedules.create("s", "long", HOURLY, **rules, **PLAIN)
        outage(world, "5h30m")
        await resume_work(world)
        assert len(app.dues) == (5 if overlap == "allow" else 1)
        await sound(app)


async def test_missed_all_runs_every_owed_occurrence_one_after_another(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "long", "@daily", missed="all", **PLAIN)
        outage(world, "5d12h")
        await resume_work(world)
        assert app.dues == ["02 00:00:00"]
        await world.advance("10h")
        assert app.dues == [f"{day:02d} 00:00:00" for day in range(2, 7)]
        rows = await app.schedules.history("s", limit=100)
        assert {row.status for row in rows} == {"completed"}
        spans = sorted((row.started_at or 0, row.finished_at or 0) for row in rows)
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))
        await sound(app)


async def test_queue_all_lets_every_occurrence_wait_in_the_queue(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "long", HOURLY, overlap="queue-all", max_runs=4, **PLAIN)
        await world.advance("4h10m")
        # Each takes an hour and a half: 01:00 to 02:30, 02:30 to 04:00, 04:00 to 05:30.
        assert [text[12:] for text in await lines(app, "s")] == [
            "completed", "completed", "sleeping:sleep", "sleeping:turn",
        ]  # fmt: skip
        await world.drain("12h")
        assert app.dues == [f"01 0{hour}:00:00" for hour in range(1, 5)]
        await sound(app)


async def test_a_waiting_run_outlives_a_pause(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await _running_and_waiting(app, world)
        await app.schedules.pause("s")
        await world.advance("1h")
        assert app.dues == ["01 01:00:00", "01 02:00:00"]
        await app.schedules.resume("s")
        assert (await schedule(app, "s")).status == "scheduled"
        await sound(app)


@pytest.mark.parametrize("overlap", ["queue", "skip", "cancel-running"])
async def test_a_backfill_is_not_in_the_way_of_the_schedule(
    database_url: str, overlap: str
) -> None:
    app = Noted()
    async with virtual(app, url=database_url, start=at("03 00:30")) as world:
        await app.schedules.create("s", "long", HOURLY, overlap=overlap, **PLAIN)
        filled = await app.schedules.backfill("s", at("01 01:00"), at("01 10:00"))
        assert len(filled.run_ids) == 10
        await world.advance("31m")
        # The occurrence of 01:00 is neither skipped nor merged into last week's, nor kills it.
        assert ("03 01:00:00", "schedule") in app.seen
        cancelled = [text for text in await lines(app, "s") if "cancelled" in text]
        assert cancelled == []
        await sound(app)
