"""`why` names the cause: behind a queue of occurrences, of an end, of a deletion, over a span."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from rota import Rota
from rota.errors import UnknownSchedule
from rota.explain import schedule
from rota.explain.why import why
from rota.testing import World, virtual
from tests.explain.kit import BERLIN, NOON, ask, limit, make

at = datetime.fromisoformat


# -- the cause behind a queue of occurrences ---------------------------------------------------


async def _pause_mail(app: Rota, world: World) -> None:
    await limit(app, running_max=9)
    await app.pause_queue("mail")


async def _take_all_slots(app: Rota, world: World) -> None:
    await app.start("holds")
    await world.settle()


async def _nothing(app: Rota, world: World) -> None:
    pass


@pytest.mark.parametrize(
    ("workflow", "queue", "prepare", "cause", "says", "hint"),
    [
        ("works", "nowhere", _nothing, "no_worker", "no worker serves queue nowhere",
            "Start one: `rota up --queue nowhere`."),
        ("works", "mail", _pause_mail, "queue_paused", "queue mail is paused",
            "`rota queue resume mail`."),
        ("elsewhere", "default", _nothing, "unknown_workflow", "knows workflow elsewhere",
            "Start a worker with the code of workflow elsewhere: `rota up`."),
        ("works", "mail", _take_all_slots, "slots", "the only slot of the worker that serves queue",
            "Wait, or"),
        ("login", "default", _nothing, "needs_person", "renew the credentials",
            "Then `rota run retry"),
        ("asks", "default", _nothing, "waits_signal", "waits for the signal answer",
            "`rota run signal"),
    ],
)  # fmt: skip
async def test_why_follows_a_merged_occurrence_to_the_run_that_does_not_move(
    database_url: str, workflow: str, queue: str, prepare: Any, cause: str, says: str, hint: str
) -> None:
    app = make()
    app.settings = msgspec.structs.replace(app.settings, slots=1)
    async with virtual(app, url=database_url, start=NOON) as world:
        await prepare(app, world)
        await _make_foreign(app, "s", workflow, queue)
        await world.advance("15m")
        head = (await app.schedules.history("s"))[-1]
        for asked, expected in (
            (None, f"blocked_{cause}"),
            ("2027-03-01T12:15", f"blocked_{cause}"),
            ("2027-03-01T12:10", f"fired_blocked_{cause}"),
            ("2027-03-01T12:05", f"fired_{cause}"),
        ):
            await world.beat()
            found = await ask(app, "s", asked)
            assert found.verdict == expected
            assert says in found.sentence
            assert (found.hint or "").startswith(hint)
            assert found.facts.get("head", found.facts.get("run_id")) == head.id


async def _make_foreign(app: Rota, name: str, workflow: str, queue: str) -> None:
    """A schedule of a workflow that this program may not know."""
    from rota.client.client import Client

    async with Client(app.url, clock=app.clock, settings=app.settings) as client:
        await client.schedules.create(name, workflow, "*/5 * * * *", timezone="UTC", queue=queue)
    app.connection.wakeups.notify_soon("schedule")


async def test_a_merged_occurrence_says_how_the_run_it_merged_into_ended(
    database_url: str,
) -> None:
    app = make()
    async with virtual(app, url=database_url, start=NOON) as world:
        await app.schedules.create("s", "naps", "*/30 * * * *", timezone="UTC", max_runs=3)
        await world.drain("12h")
        merged = await ask(app, "s", "2027-03-01T13:30")
        assert merged.verdict == "merged"
        assert "for Mon 2027-03-01 13:00 UTC), which completed at" in merged.sentence


# -- what is over, gone or elsewhere -----------------------------------------------------------


async def test_a_one_off_that_ran_shows_its_outcome(database_url: str) -> None:
    app = make()
    async with virtual(app, url=database_url, start=NOON) as world:
        await app.schedules.create("once", "works", "2027-03-01T13:00", timezone="UTC")
        await app.schedules.create("bad", "fails", "2027-03-01T13:00", timezone="UTC")
        await world.advance("2h")
        found = await ask(app, "once")
        assert found.verdict == "ended"
        assert found.facts["last_verdict"] == "fired_completed"
        assert "no further occurrence; it fired at Mon 2027-03-01 13:00 UTC" in found.sentence
        assert "completed at Mon 2027-03-01 13:00 UTC" in found.sentence
        assert "ValueError: disk full" in (await ask(app, "bad")).sentence


async def test_one_that_paused_itself_names_the_error(database_url: str) -> None:
    app = make()
    async with virtual(app, url=database_url, start=NOON) as world:
        await app.schedules.create(
            "broken", "fails", "@hourly", timezone="UTC", pause_after_failures=2
        )
        await world.advance("4h")
        found = await ask(app, "broken")
        assert found.verdict == "paused"
        assert "failed 2 times in a row" in found.sentence
        assert "ValueError: disk full" in found.sentence


async def test_a_deleted_schedule_is_remembered(database_url: str) -> None:
    app = make()
    async with virtual(app, url=database_url, start=NOON) as world:
        await app.schedules.create("nightly", "works", "@hourly", timezone="UTC")
        await world.advance("90m")
        await app.schedules.delete("nightly")
        found = await ask(app, "nightly")
        assert found.verdict == "deleted"
        assert "schedule nightly (works, @hourly) was deleted at Mon 2027-03-01" in found.sentence
        assert found.facts["last_due_at"] == "2027-03-01T13:00:00.000Z"
        assert found.hint == "Its runs stay: `rota run list --name works`."
        await app.schedules.create("nightly", "works", "@hourly", timezone="UTC")
        assert (await ask(app, "nightly")).verdict == "not_yet"


async def test_what_is_kept_of_a_deleted_schedule_is_pruned_like_finished_runs(
    database_url: str,
) -> None:
    app = make()
    app.settings = msgspec.structs.replace(app.settings, keep_days=2)
    async with virtual(app, url=database_url, start=NOON) as world:
        await app.schedules.create("nightly", "works", "@hourly", timezone="UTC")
        await app.schedules.delete("nightly")
        await world.advance("1d")
        assert (await ask(app, "nightly")).verdict == "deleted"
        await world.advance("2d")
        await world.beat()
        with pytest.raises(UnknownSchedule):
            await why(app, "nightly")


async def test_a_schedule_of_another_namespace_is_named(database_url: str) -> None:
    app = make()
    async with virtual(app, url=database_url, start=NOON):
        await app.schedules.create("nightly", "works", "@hourly", timezone="UTC")
        other = make()
        other.settings = msgspec.structs.replace(other.settings, namespace="other")
        async with virtual(other, url=database_url, start=NOON):
            with pytest.raises(UnknownSchedule) as caught:
                await why(other, "nightly")
            assert caught.value.message.endswith("no run 'nightly' in namespace other")
            assert "`rota why nightly --namespace default`" in caught.value.advice


# -- a span ------------------------------------------------------------------------------------


async def test_a_span_shows_every_outcome_with_its_number(database_url: str) -> None:
    app = make()
    async with virtual(app, url=database_url, start=NOON) as world:
        await app.schedules.create("s", "fails", "@hourly", timezone="UTC", overlap="allow")
        await world.advance("3h5m")
        await app.schedules.pause("s", note="holiday", until=datetime(2027, 3, 1, 20, tzinfo=UTC))
        await world.advance("7h")
        night = (at("2027-03-01T14:00"), at("2027-03-01T18:00"))
        found = await why(app, "s", between=night)
        assert found.verdict == "span"
        assert found.facts["outcomes"] == {"skipped: it was paused": 3, "failed:logic": 2}
        assert "3 skipped: it was paused, 2 failed:logic (run " in found.sentence
        assert "ValueError: disk full" in found.sentence
        one = await why(app, "s", between=(night[0], night[0]))
        assert one.verdict == "fired_failed"
        none = await why(app, "s", between=(at("2027-03-01T14:01"), at("2027-03-01T14:09")))
        assert none.verdict == "no_occurrence"
        later = await why(app, "s", between=(at("2027-03-02T00:00"), at("2027-03-03T00:00")))
        assert later.verdict == "future"


async def test_a_span_with_more_outcomes_than_are_read_says_so(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "SPAN_LOOK", 2)
    app = make()
    async with virtual(app, url=database_url, start=NOON) as world:
        await app.schedules.create("s", "works", "@hourly", timezone="UTC")
        await world.advance("4h5m")
        day = (at("2027-03-01T12:30"), at("2027-03-01T18:00"))
        found = await why(app, "s", between=day)
        assert "2 completed" in found.sentence
        assert "only the newest 2 are counted" in found.sentence


# -- what is exact -----------------------------------------------------------------------------


async def test_a_time_in_a_gap_is_shown_as_it_was_asked() -> None:
    app = make()
    async with virtual(app, start=datetime(2027, 3, 27, tzinfo=UTC)):
        await app.schedules.create("s", "works", "0 9 * * *", timezone=BERLIN)
        found = await ask(app, "s", "2027-03-28T02:45")
        assert "does not run at Sun 2027-03-28 02:45" in found.sentence
        assert "01:45" not in found.sentence


async def test_a_time_before_an_edit_names_the_time_of_the_edit() -> None:
    app = make()
    async with virtual(app, start=NOON) as world:
        await app.schedules.create("s", "works", "0 9 * * *", timezone="UTC")
        await world.advance("2h11m")
        await app.schedules.update("s", when="30 * * * *")
        found = await ask(app, "s", "2027-03-01T13:30")
        assert found.verdict == "other_times"
        assert "its timing was changed at Mon 2027-03-01 14:11 UTC" in found.sentence
