"""Days of 23 and 25 hours, clocks that jump, machines that sleep."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rota import testing
from rota.testing import virtual
from tests.schedules.kit import PLAIN, Noted, outcomes, resume_work, sound

BERLIN = "Europe/Berlin"


async def _a_day(database_url: str, day: datetime, when: str, **words: str) -> list[str]:
    """The occurrences from noon in UTC the day before to noon after."""
    app = Noted()
    async with virtual(app, url=database_url, start=day - timedelta(hours=12)) as world:
        rules = {"timezone": BERLIN, "overlap": "allow"} | words
        await app.schedules.create("s", "report", when, **rules)  # type: ignore[arg-type]
        await world.advance("1d")
        await sound(app)
        return app.dues


# On 31 March 2030 the wall in Berlin goes from 02:00 to 03:00, at 01:00 in UTC.
SPRING = datetime(2030, 3, 31, tzinfo=UTC)
# On 27 October 2030 it goes from 03:00 back to 02:00, at 01:00 in UTC.
AUTUMN = datetime(2030, 10, 27, tzinfo=UTC)


async def test_a_fixed_time_in_the_gap_fires_once_right_after_it(database_url: str) -> None:
    assert await _a_day(database_url, SPRING, "30 2 * * *") == ["31 01:00:00"]


async def test_a_fixed_time_in_the_gap_can_be_skipped(database_url: str) -> None:
    assert await _a_day(database_url, SPRING, "30 2 * * *", gap="skip") == []


async def test_a_fixed_time_in_the_repeated_hour_fires_once(database_url: str) -> None:
    assert await _a_day(database_url, AUTUMN, "30 2 * * *") == ["27 00:30:00"]


@pytest.mark.parametrize(
    ("repeat", "dues"),
    [
        ("first", ["27 00:30:00"]),
        ("second", ["27 01:30:00"]),
        ("both", ["27 00:30:00", "27 01:30:00"]),
    ],
)
async def test_the_repeated_hour_follows_the_named_rule(
    database_url: str, repeat: str, dues: list[str]
) -> None:
    assert await _a_day(database_url, AUTUMN, "30 2 * * *", repeat=repeat) == dues


@pytest.mark.parametrize("day", [SPRING, AUTUMN])
async def test_an_expression_that_steps_through_the_hour_follows_elapsed_time(
    database_url: str, day: datetime
) -> None:
    dues = await _a_day(database_url, day, "*/30 * * * *")
    assert len(dues) == len(set(dues)) == 48


async def test_an_outage_over_the_change_owes_each_occurrence_once(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url, start=AUTUMN - timedelta(hours=12)) as world:
        await app.schedules.create(
            "s", "report", "30 * * * *", timezone=BERLIN, missed="all", overlap="allow"
        )
        world.clock.move_to(world.clock.now() + 24 * 3600_000_000)
        await resume_work(world)
        assert await outcomes(app, "s") == {"completed": 24}
        await sound(app)


async def test_a_clock_that_is_set_back_fires_nothing_twice(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", "0 * * * *", **PLAIN)
        await world.advance("3h10m")
        world.clock._now -= 2 * 3600_000_000
        await resume_work(world)
        await world.advance("3h")
        assert app.dues == ["01 01:00:00", "01 02:00:00", "01 03:00:00", "01 04:00:00"]
        await sound(app)


async def test_a_clock_that_is_set_forward_is_an_outage(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", "0 * * * *", **PLAIN)
        world.clock.jump("30h30m")
        await resume_work(world)
        assert await outcomes(app, "s") == {"completed": 1, "skipped:missed": 29}
        await sound(app)


async def test_a_month_passes_without_a_gap(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url, start=SPRING - timedelta(days=15)) as world:
        await app.schedules.create("s", "report", "30 2,14 * * *", timezone=BERLIN)
        await world.advance("30d")
        assert await outcomes(app, "s") == {"completed": 60}
        await sound(app)


async def test_two_programs_of_different_zones_agree_on_one_schedule(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", BERLIN)
    app = Noted()
    async with virtual(app, url=database_url):
        await app.schedules.create("s", "report", "0 9 * * *")
    monkeypatch.setenv("TZ", "America/New_York")
    elsewhere = Noted()
    async with virtual(elsewhere, url=database_url, start=testing.START) as world:
        await world.advance("1d")
        assert elsewhere.dues == ["01 08:00:00"]
        await sound(elsewhere)
