"""A schedule that cannot be evaluated is quarantined with its reason; all others live on."""

from __future__ import annotations

import logging

import pytest

from rota.errors import BadSchedule
from rota.explain.why import why
from rota.testing import World, virtual
from tests.schedules.kit import HOURLY, PLAIN, Noted, at, lines, schedule, sound, sql

NOT_JSON = "{this is not json"
# It was understood once; the zone has been taken out of the zone database since.
NO_SUCH_ZONE = 'replace(spec, \'"zone":"Europe/Berlin"\', \'"zone":"Europe/Atlantis"\')'


async def _poison(app: Noted, how: str, name: str = "bad") -> None:
    await app.schedules.create(name, "report", HOURLY, timezone="Europe/Berlin")
    text = f"'{NOT_JSON}'" if how == "unreadable" else NO_SUCH_ZONE
    await sql(app, f"update runs set spec = {text} where kind = 'schedule' and name = '{name}'")


async def _status(app: Noted, name: str) -> tuple[str, str]:
    found = await sql(
        app, f"select status, reason from runs where kind = 'schedule' and name = '{name}'"
    )
    return found[0][0], found[0][1] or ""


@pytest.mark.parametrize("how", ["unreadable", "unknown zone"])
async def test_it_is_quarantined_with_its_reason_and_the_others_fire(
    database_url: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await _poison(app, how)
        for n in range(5):
            await app.schedules.create(f"good{n}", "report", HOURLY, **PLAIN)
        with caplog.at_level(logging.ERROR, logger="rota"):
            await world.advance("3h")
        assert len(app.seen) == 15
        status, reason = await _status(app, "bad")
        assert status == "paused"
        assert reason.startswith("quarantined: ")
        assert any("bad" in record.getMessage() for record in caplog.records)
        await sound(app)


@pytest.mark.parametrize("by", ["create", "update"])
@pytest.mark.parametrize("how", ["unreadable", "unknown zone"])
async def test_it_is_never_deleted_and_can_be_mended(database_url: str, how: str, by: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await _poison(app, how)
        before = await schedule(app, "bad")
        await world.advance("2h30m")
        if by == "create":
            shown = await app.schedules.create("bad", "report", HOURLY, replace=True, **PLAIN)
        elif how == "unreadable":
            shown = await app.schedules.update("bad", workflow="report", timezone="UTC")
        else:
            shown = await app.schedules.update("bad", timezone="UTC")
        # The cause of the quarantine is gone, so it continues.
        assert (shown.schedule.id, shown.schedule.status) == (before.id, "scheduled")
        assert shown.intent.text == HOURLY
        await world.advance("1h")
        assert app.dues == ["01 03:00:00"]
        assert (await lines(app, "bad"))[0] == "01 01:00:00 skipped:quarantined"
        await sound(app)


async def test_mending_an_unreadable_one_says_what_was_lost(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await _poison(app, "unreadable")
        await world.advance("1h")
        before = await schedule(app, "bad")
        with pytest.raises(BadSchedule, match="cannot be read") as raised:
            await app.schedules.update("bad", overlap="skip")
        assert raised.value.advice == (
            "Give these fields again with `rota schedule update bad`: workflow, timezone."
        )
        assert await schedule(app, "bad") == before


@pytest.mark.parametrize("how", ["unreadable", "unknown zone"])
async def test_every_verb_says_that_it_cannot_be_read(database_url: str, how: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await _poison(app, how)
        assert await app.schedules.upcoming() == []  # it is not known to be poison yet
        await world.advance("1h")
        for verb in ("resume", "preview"):
            with pytest.raises(BadSchedule, match="cannot be read any more"):
                await getattr(app.schedules, verb)("bad")
        with pytest.raises(BadSchedule, match="cannot be read any more"):
            await app.schedules.backfill("bad", at("01 00:10"), at("01 00:20"))
        assert (await app.schedules.pause("bad", note="mine")).schedule.reason == "mine"
        assert (await why(app, "bad")).verdict == "paused"
        assert (await why(app, "bad", at=at("01 01:00"))).verdict == "paused"
        if how == "unreadable":
            with pytest.raises(BadSchedule, match="cannot be read any more"):
                await app.schedules.trigger("bad")
        else:  # what it runs is known
            await app.schedules.trigger("bad")


async def test_mending_does_not_end_the_pause_of_a_person(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await _poison(app, "unknown zone")
        await app.schedules.pause("bad", note="mine")
        await world.advance("1h")
        shown = await app.schedules.update("bad", timezone="UTC")
        assert (shown.schedule.status, shown.schedule.reason) == ("paused", "mine")


@pytest.mark.parametrize("how", ["unreadable", "unknown zone"])
async def test_it_can_be_listed_shown_and_deleted(database_url: str, how: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await _poison(app, how)
        await app.schedules.create("good", "report", HOURLY, **PLAIN)
        await world.advance("1h")
        assert [shown.schedule.name for shown in await app.schedules.list()] == ["bad", "good"]
        assert (await schedule(app, "bad")).status == "paused"
        assert [one.schedule for one in await app.schedules.upcoming(within="2h")][:1] == ["good"]
        assert await app.schedules.history("bad") == []
        await app.schedules.delete("bad")
        assert [shown.schedule.name for shown in await app.schedules.list()] == ["good"]


@pytest.mark.parametrize("how", ["unreadable", "unknown zone"])
async def test_a_worker_starts_beside_it(database_url: str, how: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        await _poison(app, how)
        await app.schedules.create("good", "report", HOURLY, **PLAIN)
    again = Noted()
    async with virtual(again, url=database_url, start=at("01 00:10")) as world:
        await world.advance("1h")
        assert again.dues == ["01 01:00:00"]


@pytest.mark.parametrize("how", ["unreadable", "unknown zone"])
async def test_one_whose_pause_ends_does_not_stop_the_others(database_url: str, how: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("good", "report", HOURLY, **PLAIN)
        await app.schedules.create("bad", "report", HOURLY, timezone="Europe/Berlin")
        await app.schedules.pause("bad", until=at("01 00:30"))
        text = f"'{NOT_JSON}'" if how == "unreadable" else NO_SUCH_ZONE
        await sql(app, f"update runs set spec = {text} where kind = 'schedule' and name = 'bad'")
        await world.advance("2h")
        assert app.dues == ["01 01:00:00", "01 02:00:00"]
        status, reason = await _status(app, "bad")
        assert (status, reason[:11]) == ("paused", "quarantined")


async def _others_fire(app: Noted, world: World) -> None:
    await app.schedules.create("good", "report", HOURLY, **PLAIN)
    await world.advance("1h")
    assert app.dues == ["01 01:00:00"]


async def test_a_whole_batch_of_them_is_no_hindrance(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        for n in range(20):
            await _poison(app, "unreadable", f"bad{n}")
        await _others_fire(app, world)


async def test_it_costs_nothing_once_it_is_quarantined(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await _poison(app, "unknown zone")
        await world.advance("1h")
        assert app.runtime is not None
        assert app.runtime.scheduler.next_at is None
