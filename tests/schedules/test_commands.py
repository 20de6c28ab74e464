"""Create, upsert, preview, upcoming, trigger, backfill, delete, history; limits and bad input."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from rota import RetryPolicy, Transient, this_run
from rota.core.time.instants import HOUR, MINUTE, instant
from rota.errors import BadInput, BadSchedule, RotaError, UnknownSchedule, UnknownZone
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
    shown_at,
    sound,
    sql,
)

# -- create ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "first"),
    [
        ("15 9 * * MON-FRI", "01 09:15:00"), ("30 */6 * * * *", "01 00:00:30"),
        ("@hourly", "01 01:00:00"), ("@midnight", "02 00:00:00"), ("@every 5m", "01 00:05:00"),
        ("90s", "01 00:01:30"), ("1h30m", "01 01:30:00"), (timedelta(hours=2), "01 02:00:00"),
        ("2030-01-05T09:00", "05 09:00:00"), (datetime(2030, 1, 6, tzinfo=UTC), "06 00:00:00"),
        ("weekdays at 9:30", "01 09:30:00"), ("every 15 minutes", "01 00:15:00"),
        (["0 12 * * *", "0 6 * * *"], "01 06:00:00"),
    ],
)  # fmt: skip
async def test_every_kind_of_spec_makes_a_schedule(
    database_url: str, when: Any, first: str
) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        shown = await app.schedules.create("s", "report", when, **PLAIN)
        assert shown_at(shown.schedule.due_at) == first
        assert shown.text
        assert await app.schedules.get("s") == shown
        await world.advance_to(at(first))
        assert app.dues == [first]
        await sound(app)


async def test_a_taken_name_is_refused_and_replace_makes_it_an_upsert(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        first = await app.schedules.create("s", "report", HOURLY, **PLAIN)
        with pytest.raises(BadSchedule, match="already"):
            await app.schedules.create("s", "report", "5m", **PLAIN)
        assert (await app.schedules.get("s")) == first
        second = await app.schedules.create(
            "s", "long", "30 * * * *", replace=True, args=[], priority=4, **PLAIN
        )
        assert second.schedule.id == first.schedule.id
        assert (second.intent.workflow, second.schedule.priority) == ("long", 4)
        assert await due(app, "s") == "01 00:30:00"


async def test_replacing_pauses_a_schedule_only_if_asked_to(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        words: dict[str, Any] = {"replace": True, **PLAIN}
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        row = (await app.schedules.create("s", "report", HOURLY, **words)).schedule
        assert row.status == "scheduled"
        shown = await app.schedules.create("s", "report", "30 * * * *", paused=True, **words)
        assert (shown.schedule.status, shown.schedule.reason) == ("paused", "by request")
        assert (shown.schedule.available_at, shown.intent.paused_at) == (None, app.clock.now())
        await world.advance("2h")
        row = (await app.schedules.create("s", "report", HOURLY, **words)).schedule
        assert (row.status, row.reason) == ("paused", "by request")
        await app.schedules.resume("s")
        await world.advance("1h")
        assert app.dues == ["01 03:00:00"]
        await sound(app)


async def test_replacing_with_paused_keeps_the_note_of_a_pause(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        await app.schedules.pause("s", note="mine", until=at("01 05:00"))
        row = (
            await app.schedules.create("s", "report", "5m", paused=True, replace=True, **PLAIN)
        ).schedule
        assert (row.status, row.reason) == ("paused", "mine")
        assert row.available_at == instant(at("01 05:00"))


async def test_replacing_with_paused_pauses_a_schedule_that_has_ended(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, max_runs=1, **PLAIN)
        await world.advance("2h")
        assert (await schedule(app, "s")).reason == "all its runs are done"
        words: dict[str, Any] = {"replace": True, "paused": True, **PLAIN}
        await app.schedules.create("s", "report", HOURLY, max_runs=1, **words)
        row = (await app.schedules.update("s", max_runs=5)).schedule
        assert (row.status, row.reason) == ("paused", "by request")


async def test_creating_the_same_again_changes_nothing(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        for when in (HOURLY, "7m"):
            first = await app.schedules.create(when, "report", when, **PLAIN)
            await world.advance("3m")
            again = await app.schedules.create(when, "report", when, replace=True, **PLAIN)
            assert again.schedule == first.schedule


async def test_a_deleted_name_is_free_again_with_an_empty_ledger(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        await world.advance("1h")
        await app.schedules.delete("s")
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        assert await app.schedules.history("s") == []
        await world.advance("1h")
        assert app.dues == ["01 01:00:00", "01 02:00:00"]
        await sound(app)


@pytest.mark.parametrize(
    ("when", "words", "error", "says"),
    [
        ("99 * * * *", {}, BadSchedule, "minute"),
        ("* * 32 * *", {}, BadSchedule, "day"),
        ("0 0 31 2 *", {}, BadSchedule, "never"),
        ("whenever it rains", {}, BadSchedule, "whenever"),
        (HOURLY, {"timezone": "Europe/Berln"}, UnknownZone, "Europe/Berlin"),
        ("2029-01-01T00:00", {}, BadSchedule, "last occurrence"),
        ("100ms", {}, BadSchedule, "once a second"),
        (HOURLY, {"start": at("02 00:00"), "end": at("01 00:00")}, BadSchedule, "before"),
        (HOURLY, {"end": at("01 00:30")}, BadSchedule, "last occurrence"),
        (HOURLY, {"overlap": "sometimes"}, BadSchedule, "sometimes"),
        (HOURLY, {"max_delay": "-5m"}, RotaError, "-5m"),
        (HOURLY, {"jitter": "soon"}, BadInput, "soon"),
    ],
)
async def test_bad_input_is_named_and_nothing_is_made(
    database_url: str, when: str, words: dict[str, Any], error: type[RotaError], says: str
) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        with pytest.raises(error) as caught:
            await app.schedules.create("s", "report", when, **(PLAIN | words))
        text = f"{caught.value} {caught.value.advice}"
        assert any(word in text for word in says.split("|")), text
        assert await app.schedules.list() == []


async def test_an_unknown_workflow_is_refused(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        with pytest.raises(RotaError, match="reprot") as caught:
            await app.schedules.create("s", "reprot", HOURLY, **PLAIN)
        assert "report" in str(caught.value.advice)
        assert await app.schedules.list() == []


async def test_unknown_names_come_with_the_nearest(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        await app.schedules.create("morning-report", "report", HOURLY, **PLAIN)
        with pytest.raises(UnknownSchedule) as caught:
            await app.schedules.get("mornin-report")
        assert "morning-report" in str(caught.value.advice)


async def test_namespaces_do_not_see_each_other(database_url: str) -> None:
    app, other = Noted(), Noted(namespace="other")
    async with virtual(app, url=database_url) as world, virtual(other, url=database_url) as beside:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        await other.schedules.create("s", "report", "30 * * * *", **PLAIN)
        await other.schedules.create("theirs", "report", HOURLY, **PLAIN)
        assert [shown.schedule.name for shown in await app.schedules.list()] == ["s"]
        with pytest.raises(UnknownSchedule):
            await app.schedules.delete("theirs")
        await other.schedules.pause("s")
        await world.advance("2h")
        await beside.advance("2h")
        assert app.dues == ["01 01:00:00", "01 02:00:00"]
        assert other.dues == ["01 01:00:00", "01 02:00:00"]  # of `theirs`
        assert {one.schedule for one in await app.schedules.upcoming()} == {"s"}
        await sound(app)
        await sound(other)


# -- limits ----------------------------------------------------------------------------------


async def test_start_and_end_bound_the_occurrences(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        bounds: dict[str, Any] = {"start": at("01 02:00"), "end": at("01 04:00")}
        await app.schedules.create("s", "report", HOURLY, **bounds, **PLAIN)
        await world.advance("9h")
        assert app.dues == ["01 02:00:00", "01 03:00:00", "01 04:00:00"]
        await sound(app)


async def test_max_runs_counts_runs_not_skips(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "long", HOURLY, max_runs=3, overlap="skip", **PLAIN)
        await world.advance("24h")
        assert app.dues == ["01 01:00:00", "01 03:00:00", "01 05:00:00"]
        row = await schedule(app, "s")
        assert (row.status, row.reason) == ("paused", "all its runs are done")
        await sound(app)


async def test_max_runs_holds_when_many_are_owed(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        rules: dict[str, Any] = {"max_runs": 2, "missed": "all", "overlap": "allow"}
        await app.schedules.create("s", "report", HOURLY, **rules, **PLAIN)
        outage(world, "5h30m")
        await resume_work(world)
        assert len(app.seen) == 2
        assert sum((await outcomes(app, "s")).values()) == 5
        await sound(app)


async def test_a_run_can_show_the_occurrence_before_its_own(database_url: str) -> None:
    app = Noted()
    seen: list[list[str | None]] = []

    @app.workflow
    async def window() -> None:
        run: Any = this_run()
        seen.append(
            [
                None if one is None else f"{one:%d %H:%M}"
                for one in (run.previous_due_at, run.due_at)
            ]
        )

    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", window, HOURLY, **PLAIN)
        await world.advance("2h")
        assert seen == [[None, "01 01:00"], ["01 01:00", "01 02:00"]]


async def test_the_occurrence_before_is_the_last_one_fired_and_never_changes(
    database_url: str,
) -> None:
    app = Noted()
    seen: list[str] = []
    failing = True

    @app.workflow(retries=1)
    async def window() -> None:
        run = this_run()
        due = "-" if run.due_at is None else f"{run.due_at:%H:%M}"
        before = "-" if run.previous_due_at is None else f"{run.previous_due_at:%H:%M}"
        seen.append(f"{before} {due} {run.trigger}")
        if failing and due == "05:00":
            raise Transient("once more")

    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", window, HOURLY, timeout="10m", **PLAIN)
        await world.advance("1h")
        outage(world, "4h10m")  # 02:00, 03:00 and 04:00 are missed, and 05:00 runs late
        await resume_work(world)
        await sql(app, "delete from runs where kind <> 'schedule' and status = 'completed'")
        failing = False
        await world.advance("55m")
        # Whatever retention took away, and whatever attempt it is: the last one that fired.
        assert seen[:2] == ["- 01:00 schedule", "01:00 05:00 schedule"]
        assert seen[2:] == ["01:00 05:00 retry", "05:00 06:00 schedule"]
        await app.schedules.trigger("s")
        await app.schedules.backfill("s", at("01 02:00"), at("01 03:00"))
        await world.settle()
        assert seen[4:] == ["06:00 - manual", "01:00 02:00 backfill", "02:00 03:00 backfill"]
        [run, *_] = await app.schedules.history("s", start=at("01 06:00"), end=at("01 06:00"))
        assert msgspec.json.decode(run.options or "")["timeout_us"] == 600_000_000


async def test_of_several_fired_at_once_each_knows_the_one_before(database_url: str) -> None:
    app = Noted()
    seen: list[str] = []

    @app.workflow
    async def window() -> None:
        run = this_run()
        before = "-" if run.previous_due_at is None else f"{run.previous_due_at:%H:%M}"
        seen.append(f"{before} {run.due_at:%H:%M}")

    async with virtual(app, url=database_url) as world:
        rules: dict[str, Any] = {"missed": "all", "overlap": "allow"}
        await app.schedules.create("s", window, HOURLY, **rules, **PLAIN)
        outage(world, "3h10m")
        await resume_work(world)
        assert sorted(seen) == ["- 01:00", "01:00 02:00", "02:00 03:00"]


# -- preview and upcoming --------------------------------------------------------------------


async def test_preview_shows_the_next_and_remarks_about_the_clock(database_url: str) -> None:
    app = Noted()
    start = datetime(2030, 3, 29, tzinfo=UTC)
    async with virtual(app, url=database_url, start=start):
        await app.schedules.create("s", "report", "30 2 * * *", timezone="Europe/Berlin")
        found = await app.schedules.preview("s", 4)
        assert [f"{one.due_at:%d %H:%M}" for one in found] == [
            "29 01:30", "30 01:30", "31 01:00", "01 00:30",
        ]  # fmt: skip
        assert [bool(one.notes) for one in found] == [False, False, True, False]


async def test_upcoming_is_in_order_across_all_schedules(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        await app.schedules.create("b", "report", "30 * * * *", **PLAIN)
        await app.schedules.create("a", "report", HOURLY, **PLAIN)
        await app.schedules.create("rests", "report", HOURLY, paused=True, **PLAIN)
        await app.schedules.create("later", "report", "0 12 * * *", **PLAIN)
        found = await app.schedules.upcoming(within="2h")
        assert [(one.schedule, f"{one.due_at:%H:%M}") for one in found] == [
            ("b", "00:30"), ("a", "01:00"), ("b", "01:30"), ("a", "02:00"),
        ]  # fmt: skip
        assert len(await app.schedules.upcoming(within="2h", limit=3)) == 3


async def test_upcoming_is_right_while_schedules_are_overdue(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        for n in range(5):
            await app.schedules.create(f"daily{n}", "report", f"{n} 1 * * *", **PLAIN)
        await app.schedules.create("hourly", "report", "10 * * * *", **PLAIN)
        await app.schedules.create("soon", "report", "11 3 * * *", **PLAIN)
        outage(world, "3h5m")  # All but one are overdue, and no scheduler fires.
        found = await app.schedules.upcoming(limit=3)
        assert [(one.schedule, f"{one.runs_at:%d %H:%M}") for one in found] == [
            ("hourly", "01 03:10"), ("soon", "01 03:11"), ("hourly", "01 04:10"),
        ]  # fmt: skip
        everything = await app.schedules.upcoming(within="1d", limit=100)
        assert len(everything) == 5 + 24 + 1


async def test_upcoming_names_an_occurrence_that_its_jitter_still_holds_back(
    database_url: str,
) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        shown = await app.schedules.create("spread", "report", HOURLY, jitter="50m", **PLAIN)
        runs_at = shown.schedule.available_at or 0
        assert runs_at - (shown.schedule.due_at or 0) > MINUTE, "choose another name"
        await world.advance("60m")  # Its time has come, its jitter has not.
        [first, *_] = await app.schedules.upcoming(within="3h")
        assert shown_at(instant(first.due_at)) == "01 01:00:00"
        assert instant(first.runs_at) == runs_at


async def test_upcoming_names_the_soonest_even_among_many(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        for n in range(30):
            await app.schedules.create(f"s{n:02d}", "report", f"{59 - n} * * * *", **PLAIN)
        found = await app.schedules.upcoming(within="2h", limit=5)
        assert [one.schedule for one in found] == ["s29", "s28", "s27", "s26", "s25"]


# -- trigger ---------------------------------------------------------------------------------


async def test_trigger_runs_now_and_never_moves_the_schedule(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, args=["x"], **PLAIN)
        before = await schedule(app, "s")
        run_id = await app.schedules.trigger("s")
        await world.settle()
        assert await app.runs.handle(run_id).result(timeout=60) == "x"
        assert await schedule(app, "s") == before
        await world.advance("1h")
        assert app.seen == [("-", "manual"), ("01 01:00:00", "schedule")]
        await sound(app)


async def test_a_paused_schedule_can_be_triggered(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, paused=True, **PLAIN)
        for _ in range(2):
            await app.schedules.trigger("s")
        await world.settle()
        assert app.seen == [("-", "manual")] * 2
        assert (await schedule(app, "s")).status == "paused"


# -- history ---------------------------------------------------------------------------------


async def test_history_shows_the_outcome_of_the_chain_not_of_its_first_attempt(
    database_url: str,
) -> None:
    app = Noted()
    once_more = RetryPolicy(attempts=2, delay_s=60, delay_s_max=60, factor=1)
    async with virtual(app, url=database_url) as world:

        @app.workflow(name="again", retries=once_more)
        async def again() -> str:
            if this_run().attempt == 1:
                raise Transient("not yet")
            return "at last"

        await app.schedules.create("s", "again", HOURLY, **PLAIN)
        await world.advance("2h30s")
        newest, oldest = await app.schedules.history("s")
        assert (newest.label, newest.attempt) == ("sleeping:retry", 2)
        assert (oldest.label, oldest.attempt) == ("completed", 2)
        assert (oldest.trigger, oldest.output, oldest.error) == ("schedule", '"at last"', None)
        assert oldest.id == oldest.root_id
        assert (oldest.finished_at or 0) - (oldest.started_at or 0) >= MINUTE
        await sound(app)


# -- delete and history ----------------------------------------------------------------------


async def test_deleting_stops_the_firing_and_lets_created_runs_end(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "long", HOURLY, **PLAIN)
        await world.advance("1h10m")
        [run] = await app.schedules.history("s")
        await app.schedules.delete("s")
        await world.drain("24h")
        assert (await app.runs.get(run.id)).status == "completed"
        assert app.dues == ["01 01:00:00"]
        with pytest.raises(UnknownSchedule):
            await app.schedules.delete("s")


async def test_history_is_newest_first_with_every_outcome(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        await world.advance("1h")
        outage(world, "1h30m")
        await resume_work(world)
        await app.schedules.trigger("s")
        await world.settle()
        rows = await app.schedules.history("s")
        ordered = [row.due_at or row.created_at for row in rows]
        assert ordered == sorted(ordered, reverse=True)
        assert {row.trigger for row in rows} == {"schedule", "manual"}
        some = await app.schedules.history("s", start=at("01 01:30"), end=at("01 02:15"))
        assert [shown_at(row.due_at) for row in some] == ["01 02:00:00"]


async def test_retries_are_one_occurrence(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        app.broken = True

        @app.workflow(name="flaky", retries=2)
        async def flaky() -> None:
            app._note()
            if len(app.seen) < 3:
                raise RuntimeError("not yet")

        await app.schedules.create("s", "flaky", HOURLY, **PLAIN)
        await world.advance("1h30m")
        assert app.dues == ["01 01:00:00"] * 3
        assert len(await lines(app, "s")) == 1
        assert (await schedule(app, "s")).due_at == (app.clock.now() // HOUR + 1) * HOUR
        await sound(app)
