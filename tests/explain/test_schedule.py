"""`why`: one sentence for every reason a schedule ran or did not, and for the state of a run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from rota import Rota
from rota.core.time.instants import MINUTE, instant
from rota.errors import UnknownSchedule, UsageError
from rota.explain.run import BLOCKED
from rota.explain.why import why
from rota.testing import World, virtual
from tests.explain.kit import BERLIN, NOON, ask, limit, make

# -- what happened -----------------------------------------------------------------------------


async def test_a_fired_occurrence_shows_how_its_run_ended(database_url: str) -> None:
    app = make()
    async with virtual(app, url=database_url, start=NOON) as world:
        await app.schedules.create("hourly", "works", "@hourly", timezone="UTC")
        await app.schedules.create("broken", "fails", "@hourly", timezone="UTC")
        await world.advance("1h")
        found = await ask(app, "hourly", "2027-03-01T13:00")
        assert found.verdict == "fired_completed"
        assert found.sentence.startswith("hourly fired at Mon 2027-03-01 13:00 UTC, and run ")
        assert "completed at Mon 2027-03-01 13:00 UTC" in found.sentence
        assert found.facts["due_at"] == "2027-03-01T13:00:00.000Z"
        broken = await ask(app, "broken")
        assert broken.verdict == "fired_failed"
        assert "ValueError: disk full; next: Mon 2027-03-01 14:00 UTC (in 1h)." in broken.sentence
        assert broken.hint
        assert f"rota run retry {broken.facts['run_id']}" in broken.hint


async def test_a_late_one_says_how_late(database_url: str) -> None:
    app = make()
    async with virtual(app, url=database_url, start=NOON) as world:
        await app.schedules.create("hourly", "works", "@hourly", timezone="UTC")
        world.clock.jump("80m")
        await world.advance("1s")
        found = await ask(app, "hourly", "2027-03-01T13:00")
        assert "fired for Mon 2027-03-01 13:00 UTC, 20m late" in found.sentence


async def test_one_that_is_due_in_a_disarmed_database_names_that_and_no_missing_worker(
    database_url: str,
) -> None:
    app = make()
    async with virtual(app, url=database_url, start=NOON) as world:
        await app.schedules.create("hourly", "works", "@hourly", timezone="UTC")
        await app.operations.disarm(reason="restored")
        world.clock.jump("80m")
        found = await ask(app, "hourly")
        assert found.verdict == "disarmed"
        assert found.sentence.startswith(
            "hourly has been due since Mon 2027-03-01 13:00 UTC (20m), but the database has been "
            "disarmed"
        )
        assert "worker" not in found.sentence
        assert found.facts["disarmed_at"] == "2027-03-01T12:00:00.000Z"
        assert found.hint
        assert "rota arm" in found.hint


async def test_what_was_missed_names_the_policy_and_the_range(database_url: str) -> None:
    app = make()
    async with virtual(app, url=database_url, start=NOON) as world:
        await app.schedules.create("often", "works", "*/5 * * * *", timezone="UTC")
        await app.schedules.create("never", "works", "@hourly", timezone="UTC", missed="skip")
        await app.schedules.create("brief", "works", "@hourly", timezone="UTC", max_delay="10m")
        world.clock.jump("3h2m")
        await world.advance("1s")
        found = await ask(app, "often", "2027-03-01T12:35")
        assert found.verdict == "skipped"
        assert "did not run 35 times from Mon 2027-03-01 12:05 UTC to Mon 2027-03-01 14:55 UTC" in (
            found.sentence
        )
        assert "only the latest missed occurrence runs (missed: run)" in found.sentence
        assert found.facts["count"] == 35
        assert found.hint == (
            "To run them now: `rota schedule backfill often "
            "--from 2027-03-01T12:05:00Z --to 2027-03-01T14:55:00Z`."
        )
        never = await ask(app, "never", "2027-03-01T15:00")
        assert "skipped (missed: skip)" in never.sentence
        brief = await ask(app, "brief", "2027-03-01T13:00")
        assert "later than 10m, the most it allows" in brief.sentence


async def test_overlap_is_reported_by_its_policy(database_url: str) -> None:
    app = make()
    async with virtual(app, url=database_url, start=NOON) as world:
        await app.schedules.create("skips", "naps", "*/30 * * * *", overlap="skip", timezone="UTC")
        await app.schedules.create("queues", "naps", "*/30 * * * *", timezone="UTC")
        await world.advance("95m")
        skipped = await ask(app, "skips", "2027-03-01T13:00")
        assert (skipped.verdict, skipped.facts["reason"]) == ("skipped", "overlap")
        assert "the run before it had not ended (overlap: skip)" in skipped.sentence
        waits = await ask(app, "queues", "2027-03-01T13:00")
        assert waits.verdict == "fired_waits_behind"
        first = (await app.schedules.history("queues"))[-1]
        assert f"is queued behind run {first.id}" in waits.sentence
        merged = await ask(app, "queues", "2027-03-01T13:30")
        assert merged.verdict == "merged"
        assert f"(run {waits.facts['run_id']}, for Mon 2027-03-01 13:00 UTC)" in merged.sentence


async def test_a_backfilled_one_says_so(database_url: str) -> None:
    app = make()
    async with virtual(app, url=database_url, start=NOON) as world:
        await app.schedules.create("hourly", "works", "@hourly", timezone="UTC")
        day = datetime(2027, 2, 28, tzinfo=UTC)
        await app.schedules.backfill("hourly", day, day + timedelta(hours=1))
        waits = await ask(app, "hourly", "2027-02-28T01:00")
        assert "waits for earlier runs of its backfill" in waits.sentence
        await world.settle()
        found = await ask(app, "hourly", "2027-02-28T00:00")
        assert "was backfilled for Sun 2027-02-28 00:00 UTC, requested at" in found.sentence


async def test_a_run_by_hand_is_distinguished(database_url: str) -> None:
    app = make()
    async with virtual(app, url=database_url, start=NOON) as world:
        await app.schedules.create("hourly", "works", "@hourly", timezone="UTC")
        await world.advance("17m")
        run_id = await app.schedules.trigger("hourly")
        await world.settle()
        for at in (None, "2027-03-01T12:17"):
            found = await ask(app, "hourly", at)
            assert f"was run by hand at Mon 2027-03-01 12:17 UTC, and run {run_id} completed" in (
                found.sentence
            )


# -- not an occurrence ---------------------------------------------------------------------


async def test_a_time_that_is_no_occurrence_names_its_neighbours(database_url: str) -> None:
    app = make()
    async with virtual(app, url=database_url, start=NOON):
        await app.schedules.create("hourly", "works", "@hourly", timezone="UTC")
        found = await ask(app, "hourly", "2027-03-01T10:17")
        assert found.verdict == "no_occurrence"
        assert "Mon 2027-03-01 10:00 UTC (before) and Mon 2027-03-01 11:00 UTC (after)" in (
            found.sentence
        )
        assert "it was created only at Mon 2027-03-01 12:00 UTC" in found.sentence
        later = await ask(app, "hourly", "2027-03-01T14:17")
        assert "created" not in later.sentence


async def test_bounds_and_creation_are_shown(database_url: str) -> None:
    app = make()
    async with virtual(app, url=database_url, start=NOON):
        await app.schedules.create(
            "spring", "works", "@daily", timezone="UTC",
            start=datetime(2027, 3, 10, tzinfo=UTC), end=datetime(2027, 3, 20, tzinfo=UTC),
        )  # fmt: skip
        await app.schedules.create("daily", "works", "@daily", timezone="UTC")
        assert (await ask(app, "spring", "2027-03-05T00:00")).verdict == "before_start"
        assert (await ask(app, "spring", "2027-03-25T00:00")).verdict == "after_end"
        early = await ask(app, "daily", "2027-02-01T00:00")
        assert early.verdict == "not_made_yet"
        assert "it was created only at Mon 2027-03-01 12:00 UTC" in early.sentence
        fresh = await ask(app, "daily")
        assert fresh.verdict == "not_yet"
        assert "first: Tue 2027-03-02 00:00 UTC (in 12h)" in fresh.sentence


# -- when the clock is moved -------------------------------------------------------------------


async def test_a_time_that_does_not_exist_leads_to_the_one_that_ran(database_url: str) -> None:
    app = make()
    async with virtual(app, url=database_url, start=NOON) as world:
        await app.schedules.create("nightly", "works", "30 2 * * *", timezone=BERLIN)
        await app.schedules.create("strict", "works", "30 2 * * *", gap="skip", timezone=BERLIN)
        await world.advance_to(datetime(2027, 3, 29, tzinfo=UTC))
        moved = await ask(app, "nightly", "2027-03-28T02:30")
        assert moved.verdict == "fired_completed"
        assert moved.sentence.startswith(
            "02:30 does not exist on 2027-03-28 in Europe/Berlin; runs at 03:00 instead: "
            "nightly fired at Sun 2027-03-28 03:00 CEST, and run "
        )
        skipped = await ask(app, "strict", "2027-03-28T02:30")
        assert skipped.verdict == "gap"
        assert skipped.sentence == (
            "strict did not run: 02:30 does not exist on 2027-03-28 in Europe/Berlin; not run."
        )
        other = await ask(app, "nightly", "2027-03-28T02:10")
        assert other.verdict == "no_occurrence"
        assert other.sentence.startswith("02:10 does not exist on 2027-03-28 in Europe/Berlin: ")
        plain = await ask(app, "nightly", "2027-03-28T03:00")
        assert "(02:30 does not exist on 2027-03-28" in plain.sentence


@pytest.mark.parametrize(("repeat", "utc"), [("first", "00:30"), ("second", "01:30")])
async def test_a_time_that_happens_twice_says_which_one_runs(repeat: str, utc: str) -> None:
    app = make()
    async with virtual(app, start=NOON):
        await app.schedules.create("nightly", "works", "30 2 * * *", repeat=repeat, timezone=BERLIN)
        found = await ask(app, "nightly", "2027-10-31T02:30")
        assert found.verdict == "future"
        assert found.facts["due_at"] == f"2027-10-31T{utc}:00.000Z"
        assert f"happens twice on 2027-10-31 in Europe/Berlin; runs the {repeat} time only" in (
            found.sentence
        )


# -- what rests, and what is to come -----------------------------------------------------------


async def test_a_pause_is_reported_with_its_note(database_url: str) -> None:
    app = make()
    async with virtual(app, url=database_url, start=NOON) as world:
        await app.schedules.create("hourly", "works", "@hourly", timezone="UTC")
        await app.schedules.pause("hourly", note="holidays")
        early = await ask(app, "hourly")
        since = "is paused since Mon 2027-03-01 12:00 UTC (holidays): it has skipped nothing yet"
        assert since in early.sentence
        await world.advance("2h")
        found = await ask(app, "hourly")
        assert found.verdict == "paused"
        assert "the first occurrence it skipped was Mon 2027-03-01 13:00 UTC" in found.sentence
        assert found.hint == "To continue: `rota schedule resume hourly`."
        assert (await ask(app, "hourly", "2027-03-01T14:00")).verdict == "paused"
        future = await ask(app, "hourly", "2027-03-01T20:00")
        assert "so it will not run at Mon 2027-03-01 20:00 UTC (in 6h) unless" in future.sentence
        await app.schedules.pause("hourly", until=datetime(2027, 3, 1, 18, tzinfo=UTC))
        assert (await ask(app, "hourly", "2027-03-01T20:00")).verdict == "future"
        timed = (await ask(app, "hourly")).sentence
        assert "since Mon 2027-03-01 12:00 UTC until Mon 2027-03-01 18:00 UTC" in timed


async def test_one_that_paused_itself_or_was_quarantined_says_why(database_url: str) -> None:
    app = make()
    async with virtual(app, url=database_url, start=NOON) as world:
        await app.schedules.create(
            "broken", "fails", "@hourly", timezone="UTC", pause_after_failures=2
        )
        await app.schedules.create("gone", "works", "@hourly", timezone="UTC")
        await app.schedules.pause("gone", note="quarantined: workflow works is gone from the code")
        await world.advance("4h")
        assert "failed 2 times in a row" in (await ask(app, "broken")).sentence
        gone = await ask(app, "gone")
        assert gone.verdict == "quarantined"
        assert gone.hint == "Fix it, then `rota schedule resume gone`."


async def test_one_that_has_done_all_its_runs_has_ended(database_url: str) -> None:
    app = make()
    async with virtual(app, url=database_url, start=NOON) as world:
        await app.schedules.create("twice", "works", "@hourly", timezone="UTC", max_runs=2)
        late = await ask(app, "twice", "2027-03-01T15:00")
        assert "all its 2 runs will be done by then" in late.sentence
        await world.advance("4h")
        assert (await ask(app, "twice")).verdict == "ended"


async def test_the_future_says_when_and_how_jitter_moves_it(database_url: str) -> None:
    app = make()
    async with virtual(app, url=database_url, start=NOON) as world:
        await app.schedules.create("spread", "works", "@hourly", timezone="UTC", jitter="30m")
        [one] = await app.schedules.preview("spread", 1)
        found = await ask(app, "spread", "2027-03-01T13:00")
        assert found.verdict == "future"
        assert "will run at Mon 2027-03-01 13:00 UTC (in 1h), " in found.sentence
        assert instant(datetime.fromisoformat(found.facts["runs_at"])) // MINUTE == (
            instant(one.runs_at) // MINUTE
        )
        really = await why(app, "spread", at=one.runs_at)
        assert really.facts["due_at"] == "2027-03-01T13:00:00.000Z"
        world.clock.move_to(instant(one.due_at) + 1)
        moved = await ask(app, "spread")
        assert moved.verdict == "jitter"
        assert "its jitter moves it to Mon 2027-03-01 13:" in moved.sentence


async def test_without_a_worker_nobody_fires(database_url: str) -> None:
    app = make()
    async with virtual(app, url=database_url, start=NOON) as world:
        await app.schedules.create("hourly", "works", "@hourly", timezone="UTC")
        world.clock.jump("61m")
        found = await ask(app, "hourly")  # the worker has not reported for an hour
        assert found.verdict == "no_worker"
        assert (
            "has been due since Mon 2027-03-01 13:00 UTC (1m), but no worker is running"
            in found.sentence
        )
        await world.beat()
        assert (await ask(app, "hourly")).verdict == "due"


# -- runs --------------------------------------------------------------------------------------


async def test_a_run_says_what_it_waits_for(database_url: str) -> None:
    app = make()
    async with virtual(app, url=database_url, start=NOON) as world:
        runs = {name: await app.start(name) for name in ("naps", "asks", "login", "parent")}
        await world.settle()
        found = {name: await ask(app, run.id) for name, run in runs.items()}
        assert [found[name].verdict for name in runs] == [
            "sleeps", "waits_signal", "needs_person", "waits_child",
        ]  # fmt: skip
        assert "sleeps until " in found["naps"].sentence
        assert "(in 1h30m)" in found["naps"].sentence
        assert found["asks"].hint == f"`rota run signal {runs['asks'].id} answer VALUE`."
        assert "renew the credentials" in found["login"].sentence
        [child] = found["parent"].facts["children"]
        assert f"waits for its child run {child}" in found["parent"].sentence
        await app.runs.cancel(runs["naps"].id, reason="no need")
        assert "was cancelled at" in (await ask(app, runs["naps"].id)).sentence


async def test_a_pending_run_says_who_is_missing(database_url: str) -> None:
    app = make()
    async with virtual(app, url=database_url, start=NOON) as world:
        lonely = await app.options(queue="lonely").start("works")
        assert "no worker serves queue lonely" in (await ask(app, lonely.id)).sentence
        run = await app.start("works")
        assert (await ask(app, run.id)).verdict == "ready"
        world.clock.jump("1h")
        alone = await ask(app, run.id)
        assert alone.verdict == "no_worker"
        assert "waits for 1h: no worker is running" in alone.sentence


async def test_a_run_of_a_workflow_that_no_worker_knows(database_url: str) -> None:
    app = make()
    async with virtual(app, url=database_url, start=NOON):
        app.workflows.clear()  # the client no longer objects, and neither does the worker know it
        run_id = await _foreign(app)
        found = await ask(app, run_id)
        assert found.verdict == "unknown_workflow"
        assert "no worker that serves queue default knows workflow elsewhere" in found.sentence


async def _foreign(app: Rota) -> str:
    from rota.client.client import Client

    async with Client(app.url, clock=app.clock, settings=app.settings) as client:
        return (await client.start("elsewhere")).id


@pytest.mark.parametrize(
    ("limits", "verdict", "says"),
    [
        ({"running_max": 2}, "ready", "about to be claimed"),
        ({"running_max": 1}, "queue_limit", "queue mail runs 1 at the same time, its limit"),
        ({"key_running_max": 1}, "key_limit", "1 run of key ann is executing, which is the limit"),
        ({"key_open_max": 1}, "key_open_limit", "1 of key ann may be open at a time, and"),
        ({"paused": 1}, "queue_paused", "queue mail is paused"),
        ({"rate_count": 1, "rate_per_us": 60 * MINUTE}, "rate_limit", "may start 1 per 1h"),
    ],
)
async def test_a_pending_run_names_the_limit_in_its_way(
    database_url: str, limits: dict[str, int], verdict: str, says: str
) -> None:
    app = make()
    if "key_open_max" in limits:  # a run holds its key from its first claim on
        app.queue("mail", open_per_key=1)
    async with virtual(app, url=database_url, start=NOON) as world:
        held = await app.options(key="ann").start("holds")
        await world.settle()
        assert (await ask(app, held.id)).verdict == "running"
        await limit(app, **({"running_max": 9} if "paused" in limits else limits))
        if "paused" in limits:
            await app.pause_queue("mail")
        if "rate_count" in limits:
            await _use_up(world)
        run = await app.options(key="ann").start("holds")
        found = await ask(app, run.id)
        assert found.verdict == verdict
        assert says in found.sentence
        assert (verdict in BLOCKED) == (verdict != "ready")


async def test_a_pending_run_names_all_open_runs_that_hold_its_key(database_url: str) -> None:
    app = make()
    app.queue("mail", open_per_key=2)
    async with virtual(app, url=database_url, start=NOON) as world:
        held = [await app.options(key="ann").start("holds") for _ in range(2)]
        await world.settle()
        run = await app.options(key="ann").start("holds")
        found = await ask(app, run.id)
        assert sorted(found.facts["holders"]) == sorted(one.id for one in held)
        assert found.sentence == (
            f"run {run.id} (holds) waits: 2 of key ann may be open at a time, and "
            f"{', '.join(found.facts['holders'])} have not ended."
        )


async def test_slots_that_are_all_taken_are_reported(database_url: str) -> None:
    app = make()
    app.settings = msgspec.structs.replace(app.settings, slots=1)
    async with virtual(app, url=database_url, start=NOON) as world:
        await app.start("holds")
        await world.settle()
        waits = await app.start("holds")
        found = await ask(app, waits.id)
        assert found.verdict == "slots"
        assert "the only slot of the worker that serves queue mail is taken" in found.sentence


async def _use_up(world: World) -> None:
    """Let the queue's clock be an hour ahead, as after a start."""

    async def move(tx: Any) -> None:
        await tx.rows(
            "move_queue_clock", namespace="default", name="mail",
            ready_at=world.clock.now() + 60 * MINUTE,
        )  # fmt: skip

    await world.app.connection.database.write(move)


async def test_a_schedule_whose_run_waits_shows_both(database_url: str) -> None:
    app = make()
    async with virtual(app, url=database_url, start=NOON) as world:
        await app.schedules.create("lonely", "works", "@hourly", timezone="UTC", queue="lonely")
        await world.advance("1h5m")
        await world.beat()
        found = await ask(app, "lonely")
        assert found.verdict == "fired_no_worker"
        assert "waits for 5m: no worker serves queue lonely" in found.sentence
        assert found.hint == "Start one: `rota up --queue lonely`."


async def test_what_nobody_knows_is_an_error_with_the_nearest_name(database_url: str) -> None:
    app = make()
    async with virtual(app, url=database_url, start=NOON):
        await app.schedules.create("nightly", "works", "@daily", timezone="UTC")
        with pytest.raises(UnknownSchedule) as caught:
            await why(app, "nigthly")
        assert caught.value.message == "there is no schedule, no automation and no run 'nigthly'"
        assert caught.value.advice == "Did you mean nightly?"
        run = await app.start("works")
        with pytest.raises(UsageError, match="not for a run"):
            await why(app, run.id, at=NOON)
        assert (
            "nightly"
            in (await why(app, (await app.schedules.get("nightly")).schedule.id)).facts["schedule"]
        )
