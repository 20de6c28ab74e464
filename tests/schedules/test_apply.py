"""Schedules declared in code: a deploy makes and updates them, and never resets or destroys one."""

from __future__ import annotations

import logging
import re
from typing import Any

import msgspec
import pytest

from rota import Rota
from rota.errors import BadSchedule, RotaError, UsageError
from rota.store.backend.database import Tx
from rota.store.schedules import templates as store
from rota.testing import virtual
from tests.schedules.kit import HOURLY, PLAIN, at, due, lines, outcomes, schedule, sound


class Program(Rota):
    """A program at one deploy: what it declares, and what its runs noted."""

    def __init__(
        self, seen: list[str], when: Any = HOURLY, *, module: str = __name__, **words: Any
    ) -> None:
        super().__init__(keep_days=0)

        async def report() -> None:
            seen.append("report")

        report.__module__ = module
        self.report = self.workflow(report)
        if when is not None:
            self.schedule(when, name="s", timezone="UTC", **words)(self.report)


async def test_a_declared_schedule_is_made_and_fires(database_url: str) -> None:
    seen: list[str] = []
    app = Program(seen)
    async with virtual(app, url=database_url) as world:
        shown = await app.schedules.get("s")
        assert (shown.intent.owner, shown.schedule.status) == ("code", "scheduled")
        await world.advance("3h")
        assert len(seen) == 3
        await sound(app)


async def test_code_owned_and_operator_owned_are_distinguished(database_url: str) -> None:
    app = Program([])
    async with virtual(app, url=database_url):
        await app.schedules.create("mine", "report", HOURLY, **PLAIN)
        owners = {shown.schedule.name: shown.intent.owner for shown in await app.schedules.list()}
        assert owners == {"mine": "operator", "s": "code"}


@pytest.mark.parametrize("when", [HOURLY, "90m", "@every 90m", "every 90 minutes"])
async def test_deploying_the_same_code_again_and_again_changes_nothing(
    database_url: str, when: str
) -> None:
    seen: list[str] = []
    now = at("01 00:00")
    async with virtual(Program(seen, when), url=database_url, start=now) as world:
        first = await schedule(world.app, "s")
        await world.advance("10m")
        now = world.clock.moment()
    for _ in range(10):  # a busy day: a deploy every twenty minutes
        async with virtual(Program(seen, when), url=database_url, start=now) as world:
            if not seen:
                assert await schedule(world.app, "s") == first
            await world.advance("20m")
            now = world.clock.moment()
            await sound(world.app)
    assert len(seen) == (3 if when == HOURLY else 2)


async def test_a_deploy_with_a_new_time_updates_it_and_keeps_id_and_history(
    database_url: str,
) -> None:
    seen: list[str] = []
    async with virtual(Program(seen), url=database_url) as world:
        await world.advance("1h")
        before = await schedule(world.app, "s")
    app = Program(seen, "30 * * * *")
    async with virtual(app, url=database_url, start=at("01 01:10")) as world:
        after = await schedule(app, "s")
        assert (after.id, after.created_at) == (before.id, before.created_at)
        assert await due(app, "s") == "01 01:30:00"
        assert await lines(app, "s") == ["01 01:00:00 completed"]
        await sound(app)


async def test_a_deploy_never_resets_a_pause(database_url: str) -> None:
    seen: list[str] = []
    async with virtual(Program(seen), url=database_url) as world:
        await world.app.schedules.pause("s", note="by a person")
    for when in (HOURLY, "30 * * * *"):
        app = Program(seen, when)
        async with virtual(app, url=database_url, start=at("01 00:10")) as world:
            row = await schedule(app, "s")
            assert (row.status, row.reason) == ("paused", "by a person")
            await world.advance("5h")
    assert seen == []


async def test_a_deploy_does_not_pause_a_schedule_that_an_operator_resumed(
    database_url: str,
) -> None:
    async with virtual(Program([], paused=True), url=database_url) as world:
        assert (await schedule(world.app, "s")).status == "paused"
        await world.app.schedules.resume("s")
    app = Program([], "30 * * * *", paused=True)
    async with virtual(app, url=database_url, start=at("01 00:10")):
        assert (await schedule(app, "s")).status == "scheduled"
        assert await due(app, "s") == "01 00:30:00"


async def test_a_deploy_never_resets_a_timed_pause(database_url: str) -> None:
    seen: list[str] = []
    async with virtual(Program(seen), url=database_url) as world:
        await world.app.schedules.pause("s", until=at("01 02:30"))
    app = Program(seen, "30 * * * *")
    async with virtual(app, url=database_url, start=at("01 00:10")) as world:
        await world.advance("2h")
        assert seen == []
        await world.advance("1h30m")
        # At 02:30, when the pause has ended, and at 03:30.
        assert len(seen) == 2
        await sound(app)


async def test_a_deploy_after_an_outage_keeps_what_is_owed(database_url: str) -> None:
    seen: list[str] = []
    async with virtual(Program(seen), url=database_url):
        pass
    app = Program(seen)
    async with virtual(app, url=database_url, start=at("01 05:30")) as world:
        await world.settle()
        assert seen == ["report"]
        assert await outcomes(app, "s") == {"completed": 1, "skipped:missed": 4}
        await sound(app)


async def test_a_deploy_with_a_new_time_after_an_outage_reports_what_it_drops(
    database_url: str,
) -> None:
    seen: list[str] = []
    async with virtual(Program(seen), url=database_url):
        pass
    app = Program(seen, "45 * * * *")
    async with virtual(app, url=database_url, start=at("01 05:30")) as world:
        await world.settle()
        assert sum((await outcomes(app, "s")).values()) >= 5
        await sound(app)


@pytest.mark.parametrize(
    ("when", "words"),
    [("2030-01-01T01:00", {}), (HOURLY, {"end": at("01 01:30")}), (HOURLY, {"max_runs": 1})],
)
async def test_a_declaration_that_has_had_its_day_does_not_stop_the_program(
    database_url: str, when: str, words: dict[str, Any]
) -> None:
    seen: list[str] = []
    async with virtual(Program(seen, when, **words), url=database_url) as world:
        await world.advance("3h")
    assert seen == ["report"]
    app = Program(seen, when, **words)
    async with virtual(app, url=database_url, start=at("02 00:00")) as world:
        await world.advance("3h")
        assert seen == ["report"]
        await sound(app)


async def test_an_operators_edit_outlives_a_deploy_of_the_same_declaration(
    database_url: str,
) -> None:
    seen: list[str] = []
    async with virtual(Program(seen), url=database_url) as world:
        await world.app.schedules.update("s", when="0 12 * * *")
    app = Program(seen)
    async with virtual(app, url=database_url, start=at("01 00:10")):
        assert (await app.schedules.get("s")).intent.text == "0 12 * * *"


async def test_a_declaration_does_not_take_an_operators_schedule_over(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = Program([], None)
    async with virtual(app, url=database_url):
        await app.schedules.create("s", "report", "0 12 * * *", **PLAIN)
    later = Program([])
    with caplog.at_level(logging.WARNING, logger="rota"):
        async with virtual(later, url=database_url, start=at("01 00:10")):
            shown = await later.schedules.get("s")
    assert (shown.intent.owner, shown.intent.text) == ("operator", "0 12 * * *")
    said = [record.getMessage() for record in caplog.records]
    assert any("schedule s is declared" in text and "ignored" in text for text in said)


async def test_an_ignored_declaration_is_reported_of_until_it_is_gone(database_url: str) -> None:
    app = Program([], None)
    async with virtual(app, url=database_url):
        await app.schedules.create("s", "report", "0 12 * * *", **PLAIN)
        before = await schedule(app, "s")
    later = Program([])
    async with virtual(later, url=database_url, start=at("01 00:10")):
        shown = await later.schedules.get("s")
        assert shown.intent.ignored == __name__
        assert (shown.schedule.due_at, shown.schedule.status) == (before.due_at, "scheduled")
    without = Program([], None)
    async with virtual(without, url=database_url, start=at("01 00:20")):
        assert (await without.schedules.get("s")).intent.ignored is None
        assert await schedule(without, "s") == before


async def test_a_schedule_whose_workflow_is_gone_is_quarantined_loudly(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []
    async with virtual(Program(seen), url=database_url):
        pass
    app = Rota(keep_days=0)

    @app.workflow
    async def other() -> None:
        pass

    with caplog.at_level(logging.ERROR, logger="rota"):
        async with virtual(app, url=database_url, start=at("01 00:10")) as world:
            row = await schedule(app, "s")
            assert row.status == "paused"
            assert "report is gone" in (row.reason or "")
            await world.advance("3h")
            assert (await app.runs.counts()).get("pending", 0) == 0
            await sound(app)
    assert any("report is gone" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    ("module", "status"),
    [("tests.schedules.removed", "paused"), ("tests.kit.builders", "scheduled")],
    ids=["removed from the package", "of another program in the package"],
)
async def test_schedules_of_a_module_that_was_removed_whole_are_quarantined(
    database_url: str, module: str, status: str
) -> None:
    before = Rota(keep_days=0)

    async def report() -> None:
        pass

    report.__module__ = module
    before.schedule("0 * * * *", name="s", timezone="UTC")(before.workflow(report))
    async with virtual(before, url=database_url):
        assert (await before.schedules.get("s")).intent.origin == module
    after = Rota(keep_days=0)

    @after.workflow
    async def other() -> None:
        pass

    async with virtual(after, url=database_url, start=at("01 00:10")):
        assert (await schedule(after, "s")).status == status


async def test_a_schedule_whose_workflow_came_back_goes_on(database_url: str) -> None:
    seen: list[str] = []
    async with virtual(Program(seen), url=database_url):
        pass
    gone = Rota(keep_days=0)

    @gone.workflow
    async def other() -> None:
        pass

    async with virtual(gone, url=database_url, start=at("01 00:10")):
        assert (await schedule(gone, "s")).status == "paused"
    app = Program(seen)
    async with virtual(app, url=database_url, start=at("01 02:30")) as world:
        # The deploy put it aside, not a person: the deploy that brings its code brings it back.
        assert (await schedule(app, "s")).status == "scheduled"
        await world.advance("1h")
        assert seen == ["report"]
        await sound(app)


async def test_one_no_longer_declared_still_fires_and_is_named(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []
    async with virtual(Program(seen), url=database_url):
        pass
    app = Program(seen, None)
    with caplog.at_level(logging.WARNING, logger="rota"):
        async with virtual(app, url=database_url, start=at("01 00:10")) as world:
            await world.advance("1h")
    assert seen == ["report"]
    assert any("no longer declared" in record.getMessage() for record in caplog.records)


async def test_an_operators_schedule_is_left_alone_by_every_deploy(database_url: str) -> None:
    app = Program([])
    async with virtual(app, url=database_url):
        await app.schedules.create("mine", "report", "0 3 * * *", **PLAIN)
        before = await schedule(app, "mine")
    again = Program([], "30 * * * *")
    async with virtual(again, url=database_url, start=at("01 00:10")):
        assert await schedule(again, "mine") == before


async def test_another_programs_schedules_are_left_alone(database_url: str) -> None:
    app = Program([])
    async with virtual(app, url=database_url):
        before = await schedule(app, "s")

    async def elsewhere() -> None:
        pass

    elsewhere.__module__ = "another.program"
    stranger = Rota(keep_days=0)
    stranger.schedule(HOURLY, timezone="UTC")(stranger.workflow(elsewhere))
    async with virtual(stranger, url=database_url, start=at("01 00:10")):
        assert await schedule(stranger, "s") == before


async def test_a_new_module_with_an_earlier_name_changes_no_origin(database_url: str) -> None:
    async with virtual(Program([]), url=database_url) as world:
        before = await schedule(world.app, "s")

    async def early() -> None:
        pass

    early.__module__ = "aaa.first"
    app = Program([])
    app.workflow(early)
    async with virtual(app, url=database_url, start=at("01 00:10")):
        assert await schedule(app, "s") == before
        assert (await app.schedules.get("s")).intent.origin == __name__


async def test_a_schedule_whose_module_was_renamed_follows_it(database_url: str) -> None:
    async with virtual(Program([]), url=database_url) as world:
        before = await schedule(world.app, "s")
    app = Program([], module="renamed")
    async with virtual(app, url=database_url, start=at("01 00:10")):
        shown = await app.schedules.get("s")
        assert shown.intent.origin == "renamed"
        assert (shown.schedule.id, shown.schedule.due_at) == (before.id, before.due_at)


async def test_the_zone_of_the_host_is_guessed_once(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program(when: str) -> Rota:
        app = Rota(keep_days=0)

        @app.schedule(when)
        @app.workflow
        async def daily() -> None:
            pass

        return app

    monkeypatch.setenv("TZ", "Asia/Tokyo")
    async with virtual(program("0 9 * * *"), url=database_url) as world:
        before = await schedule(world.app, "daily")
        assert (await world.app.schedules.get("daily")).intent.spec.timings[0].zone == "Asia/Tokyo"
    monkeypatch.setenv("TZ", "America/New_York")
    for when in ("0 9 * * *", "0 10 * * *"):
        async with virtual(program(when), url=database_url, start=at("01 00:10")) as world:
            shown = await world.app.schedules.get("daily")
            assert shown.intent.spec.timings[0].zone == "Asia/Tokyo"
            assert (shown.schedule == before) == (when == "0 9 * * *")


async def test_a_deploy_looks_after_its_own_among_thousands(database_url: str) -> None:
    async with virtual(Program([]), url=database_url) as world:
        row = await schedule(world.app, "s")
        many = [
            msgspec.structs.replace(row, id=f"{n:032d}", name=f"a{n:04d}", parent_id=None)
            for n in range(1200)
        ]

        async def put(tx: Tx) -> None:
            for one in many:
                await store.put(tx, one, trigger="manual", now=0)

        await world.app.connection.database.write(put)
    app = Rota(keep_days=0)

    @app.workflow
    async def other() -> None:
        pass

    async with virtual(app, url=database_url, start=at("01 00:10")):
        assert (await schedule(app, "s")).status == "paused"
        assert (await schedule(app, "a0001")).status == "scheduled"


def test_two_schedules_of_one_name_cannot_be_declared() -> None:
    app = Program([])
    with pytest.raises(UsageError, match="declared twice"):
        app.schedule(HOURLY, name="s")(app.report)
    with pytest.raises(UsageError, match="above"):
        app.schedule(HOURLY)(lambda: None)  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("when", "words", "says"),
    [
        ("0 9 * *", {}, "has 4 fields"),
        ("0 0 30 2 *", {}, "30"),
        ("every other friday", {}, "every other friday"),
        (["5m", "61 * * * *"], {}, "61"),
        ("5m", {"gap": "jump"}, "gap='jump'"),
    ],
)
def test_a_timing_that_is_wrong_is_refused_where_the_code_declares_it(
    when: Any, words: dict[str, Any], says: str
) -> None:
    with pytest.raises(BadSchedule, match=re.escape(says)):
        Program([], when, **words)


async def test_a_time_that_is_over_stops_no_deploy(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = Program([], "2020-01-01T09:00")
    async with virtual(app, url=database_url):
        assert not await app.schedules.list()
    assert "schedule s of tests.schedules.test_apply is not applied: " in caplog.text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"overlap": "skp"}, "overlap='skp' is not a policy"),
        ({"missed": "al"}, "missed='al' is not a policy"),
        ({"max_runs": 0}, "max_runs: out of range"),
        ({"jitter": "-5s"}, "'-5s' is not a duration"),
        ({"retries": "3"}, "retries='3' is not a number of tries"),
        ({"start": "tomorrow"}, "'tomorrow' is not a datetime"),
        ({"priority": 2**80}, "is not a priority"),
        ({"queue": ""}, "queue is empty"),
    ],
)
def test_an_option_that_is_wrong_is_refused_where_the_code_declares_it(
    options: Any, said: str
) -> None:
    app = Rota()

    @app.workflow
    async def job() -> None: ...

    with pytest.raises(RotaError, match=re.escape(said)):
        app.schedule("@daily", **options)(job)
