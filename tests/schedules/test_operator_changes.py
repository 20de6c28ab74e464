"""An operator's change of a declared schedule outlives every deploy, is shown, and can be reset."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from rota import Rota
from rota.errors import BadInput, BadSchedule, WrongState
from rota.testing import virtual
from tests.schedules.kit import PLAIN, at, due, outage, schedule, sound, sql

NINE = "0 9 * * *"


def program(when: Any = NINE, zone: str | None = "UTC", **words: Any) -> Rota:
    """A program at one deploy."""
    app = Rota(keep_days=0)

    async def report(team: str = "all") -> str:
        return team

    async def audit(team: str = "all") -> str:
        return team

    app.schedule(when, name="s", timezone=zone, **words)(app.workflow(report))
    app.workflow(audit)
    return app


async def changed(url: str, **words: Any) -> None:
    """The first deploy, and what an operator changes after it."""
    app = program()
    async with virtual(app, url=url):
        await app.schedules.update("s", **words)


async def differing(app: Rota) -> dict[str, tuple[str, str]]:
    """Field: the code's value, and the one in force."""
    shown = await app.schedules.get("s")
    return {one.field: (one.declared, one.value) for one in shown.differences}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == logging.WARNING and "differs" in record.getMessage()
    ]


async def test_a_deploy_of_unchanged_code_keeps_the_change_and_says_that_they_differ(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    await changed(database_url, when="0 7 * * *", overlap="skip")
    app = program()
    with caplog.at_level(logging.WARNING, logger="rota"):
        async with virtual(app, url=database_url, start=at("01 00:10")):
            assert await due(app, "s") == "01 07:00:00"
            assert await differing(app) == {
                "when": (NINE, "0 7 * * *"), "overlap": ("queue", "skip"),
            }  # fmt: skip
    [line] = warnings(caplog)
    assert line == (
        "schedule s differs from tests.schedules.test_operator_changes: when is 0 7 * * * "
        "(declared: 0 9 * * *); overlap is skip (declared: queue). The operator's values are kept; "
        "`rota schedule reset s` restores the declared ones."
    )


async def test_a_deploy_that_changes_the_same_field_keeps_the_operators_value(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    await changed(database_url, when="0 7 * * *")
    app = program("0 10 * * *")
    with caplog.at_level(logging.WARNING, logger="rota"):
        async with virtual(app, url=database_url, start=at("01 00:10")):
            assert await due(app, "s") == "01 07:00:00"
            assert await differing(app) == {"when": ("0 10 * * *", "0 7 * * *")}
            await sound(app)
    assert len(warnings(caplog)) == 1


async def test_a_deploy_that_changes_another_field_applies_that_one(database_url: str) -> None:
    await changed(database_url, when="0 7 * * *")
    app = program(
        zone="Asia/Tokyo", overlap="allow", priority=7, input={"team": "night"}, retries=2
    )
    async with virtual(app, url=database_url, start=at("01 00:10")):
        shown = await app.schedules.get("s")
        assert await due(app, "s") == "01 22:00:00"  # 07:00 on the second, in Tokyo
        assert shown.intent.policies.overlap == "allow"
        assert (shown.schedule.priority, shown.schedule.input) == (7, '{"team":"night"}')
        assert '"attempts":3' in (shown.schedule.options or "")
        assert await differing(app) == {"when": (NINE, "0 7 * * *")}


async def test_a_zone_of_an_operator_stays_under_a_new_time_of_the_code(database_url: str) -> None:
    await changed(database_url, timezone="Asia/Tokyo")
    app = program("0 10 * * *")
    async with virtual(app, url=database_url, start=at("01 00:10")):
        assert await due(app, "s") == "01 01:00:00"  # 10:00 in Tokyo
        assert await differing(app) == {"timezone": ("UTC", "Asia/Tokyo")}


async def test_a_zone_of_an_operator_stays_where_the_code_names_none(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    app = program(zone=None)
    async with virtual(app, url=database_url):
        await app.schedules.update("s", timezone="Asia/Tokyo")
    monkeypatch.setenv("TZ", "America/New_York")
    app = program("0 10 * * *", zone=None)
    async with virtual(app, url=database_url, start=at("01 00:10")):
        assert await differing(app) == {"timezone": ("Europe/Berlin", "Asia/Tokyo")}
        await app.schedules.reset("s", "timezone")
        assert await due(app, "s") == "01 09:00:00"  # 10:00 in Berlin


async def test_code_that_says_what_the_operator_said_ends_the_difference(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    await changed(database_url, when="0 7 * * *")
    async with virtual(program("0 7 * * *"), url=database_url, start=at("01 00:10")) as world:
        assert await differing(world.app) == {}
    assert warnings(caplog) == []
    app = program("0 8 * * *")  # From now on the code decides again.
    async with virtual(app, url=database_url, start=at("01 00:20")):
        assert await due(app, "s") == "01 08:00:00"


async def test_an_operator_who_says_what_the_code_says_ends_the_difference(
    database_url: str,
) -> None:
    await changed(database_url, when="0 7 * * *")
    app = program()
    async with virtual(app, url=database_url, start=at("01 00:10")):
        await app.schedules.update("s", when=NINE)
        assert await differing(app) == {}


async def test_reset_of_one_field_leaves_the_others(database_url: str) -> None:
    await changed(database_url, when="0 7 * * *", timezone="Asia/Tokyo", max_delay="2h")
    app = program("0 10 * * *")
    async with virtual(app, url=database_url, start=at("01 00:10")):
        shown = await app.schedules.reset("s", "when")
        assert shown.intent.text == "0 10 * * *"
        assert await due(app, "s") == "01 01:00:00"  # the code's time in the operator's zone
        assert await differing(app) == {
            "timezone": ("UTC", "Asia/Tokyo"), "max_delay": ("none", "2h"),
        }  # fmt: skip
        await sound(app)


async def test_reset_without_a_field_restores_all_of_the_code(database_url: str) -> None:
    app = program("90m", overlap="skip", input={"team": "day"}, retries=1)
    async with virtual(app, url=database_url) as world:
        before = await schedule(app, "s")
        await world.advance("10m")
        await app.schedules.update(
            "s", when="0 7 * * *", timezone="Asia/Tokyo", workflow="audit", input={"team": "x"},
            queue="slow", priority=9, overlap="allow", retries=5, jitter="5m", start=at("01 02:00"),
            end=at("20 00:00"),
        )  # fmt: skip
        assert set(await differing(app)) == {
            "when", "timezone", "workflow", "input", "queue", "priority", "overlap", "retries",
            "jitter", "start", "end",
        }  # fmt: skip
        await app.schedules.reset("s")
        after = await schedule(app, "s")
        assert await differing(app) == {}
        for field in ("due_at", "available_at", "queue", "priority", "input", "options"):
            assert getattr(after, field) == getattr(before, field), field
        # The interval counts from where it was made; only the ledger knows of the change.
        shown = await app.schedules.get("s")
        assert (shown.intent.text, shown.intent.workflow) == ("90m", "report")
        await world.advance("3h")
        await sound(app)


async def test_code_decides_again_after_a_reset(database_url: str) -> None:
    await changed(database_url, when="0 7 * * *")
    async with virtual(program(), url=database_url, start=at("01 00:10")) as world:
        await world.app.schedules.reset("s")
    app = program("0 10 * * *")
    async with virtual(app, url=database_url, start=at("01 00:20")):
        assert await due(app, "s") == "01 10:00:00"


async def test_a_reset_that_would_release_missed_occurrences_must_be_confirmed(
    database_url: str,
) -> None:
    app = program("0 * * * *")
    async with virtual(app, url=database_url) as world:
        await app.schedules.update("s", when="30 * * * *")
        outage(world, "5h40m")
        with pytest.raises(BadSchedule, match="would release 5 missed occurrences"):
            await app.schedules.reset("s")
        await app.schedules.reset("s", confirm=True)
        await world.settle()
        await sound(app)


async def test_a_reset_says_what_cannot_be_reset(database_url: str) -> None:
    app = program()
    async with virtual(app, url=database_url):
        await app.schedules.create("mine", "report", NINE, **PLAIN)
        with pytest.raises(WrongState, match="no code declares schedule mine"):
            await app.schedules.reset("mine")
        with pytest.raises(BadInput, match="'wen' is not a field") as raised:
            await app.schedules.reset("s", "wen")
        assert raised.value.advice.startswith("Did you mean when?")
        before = await schedule(app, "s")
        await app.schedules.reset("s", "when")  # It has the code's value: nothing changes.
        assert await schedule(app, "s") == before


async def test_a_pause_is_no_difference_and_survives_a_reset(database_url: str) -> None:
    await changed(database_url, overlap="skip")
    app = program()
    async with virtual(app, url=database_url, start=at("01 00:10")):
        await app.schedules.pause("s", note="by a person")
        shown = await app.schedules.reset("s")
        assert (shown.schedule.status, shown.schedule.reason) == ("paused", "by a person")
        assert await differing(app) == {}


async def test_an_operators_time_that_is_over_is_not_started_again_by_a_deploy(
    database_url: str,
) -> None:
    app = program()
    async with virtual(app, url=database_url) as world:
        await app.schedules.update("s", when="2030-01-01T01:00")
        await world.advance("2h")
        assert (await schedule(app, "s")).reason == "no further occurrence"
    later = program("0 10 * * *", overlap="skip")
    async with virtual(later, url=database_url, start=at("01 03:00")) as world:
        row = await schedule(later, "s")
        assert (row.status, row.reason, row.due_at) == ("paused", "no further occurrence", None)
        await world.advance("1d")
        assert len(await later.schedules.history("s")) == 1
        await later.schedules.reset("s")
        assert await due(later, "s") == "02 10:00:00"
        await sound(later)


async def lost_zone(url: str) -> None:
    """An operator's zone that has gone from the zone database since."""
    await changed(url, timezone="Europe/Berlin", overlap="skip")
    app = program()
    async with virtual(app, url=url, start=at("01 00:10")):
        gone = 'replace(spec, \'"zone":"Europe/Berlin"\', \'"zone":"Europe/Atlantis"\')'
        await sql(app, f"update runs set spec = {gone} where kind = 'schedule' and name = 's'")


async def test_a_deploy_that_repairs_an_unreadable_row_names_the_values_it_drops(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    await lost_zone(database_url)
    app = program()
    with caplog.at_level(logging.WARNING, logger="rota"):
        async with virtual(app, url=database_url, start=at("01 00:20")):
            assert await due(app, "s") == "01 09:00:00"
            assert await differing(app) == {}
    assert "schedule s could not be read" in caplog.text
    assert "an operator's changes of timezone, overlap are lost" in caplog.text


async def test_an_operator_who_repairs_an_unreadable_row_keeps_the_values(
    database_url: str,
) -> None:
    await lost_zone(database_url)
    app = program("0 10 * * *")
    client = Rota(keep_days=0)
    async with virtual(client, url=database_url, start=at("01 00:20")):
        await client.schedules.update("s", timezone="Asia/Tokyo")
    async with virtual(app, url=database_url, start=at("01 00:30")):
        assert await due(app, "s") == "01 01:00:00"  # 10:00 in Tokyo
        assert await differing(app) == {
            "timezone": ("UTC", "Asia/Tokyo"), "overlap": ("queue", "skip"),
        }  # fmt: skip
        await sound(app)
