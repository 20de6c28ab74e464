"""The checker of the ledger itself: it finds every hole, and invents none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.client.doctor import examine
from rota.core.time.instants import DAY, HOUR, MINUTE, SECOND
from rota.core.time.recurrence import between, parse
from rota.schedules.ledger_check import Covered, Hole, uncovered
from rota.settings import Settings
from rota.testing import START, virtual
from tests.schedules.kit import PLAIN, Noted, at, holes, outage, resume_work, sound, sql

HOURLY = parse("0 * * * *", zone="UTC", now=START)


def hour(number: int) -> int:
    return START + number * HOUR


def find(*covered: tuple[int, ...], until: int = 10) -> list[tuple[int, int, int]]:
    """Holes of an hourly schedule from 1 until before `until`, in hours."""
    rows = [
        Covered(hour(one[0]), hour(one[-1]), one[-1] - one[0] + 1 if len(one) > 1 else 1)
        for one in covered
    ]
    found = uncovered(HOURLY, rows, after=START, before=hour(until))
    return [((a - START) // HOUR, (b - START) // HOUR, count) for a, b, count in found]


def test_nothing_covered_is_one_hole() -> None:
    assert find() == [(1, 9, 9)]


def test_everything_covered_is_none() -> None:
    assert find(*[(n,) for n in range(1, 10)]) == []
    assert find((1, 9)) == []
    assert find((1, 4), (5,), (6, 9)) == []


def test_holes_are_found_between_at_the_start_and_at_the_end() -> None:
    assert find((2,), (3,), (7, 8)) == [(1, 1, 1), (4, 6, 3), (9, 9, 1)]


def test_rows_from_before_or_after_do_no_harm() -> None:
    assert find((0,), (1, 9), (10,), (12, 14)) == []


def test_rows_may_lie_inside_a_range() -> None:
    assert find((1, 9), (3,), (4,)) == []
    assert find((1, 5), (3,), (7,)) == [(6, 6, 1), (8, 9, 2)]


def test_a_range_that_answers_for_too_few_is_a_hole() -> None:
    rows = [Covered(hour(1), hour(9), 7)]
    assert uncovered(HOURLY, rows, after=START, before=hour(10)) == [Hole(hour(1), hour(9), 2)]


def test_a_long_hole_is_counted_not_listed() -> None:
    spec = parse("* * * * * *", zone="UTC", now=START)
    [hole] = uncovered(spec, [], after=START, before=START + 3650 * DAY)
    assert hole.occurrences == 3650 * DAY // SECOND - 1


@given(st.sets(st.integers(1, 60)), st.integers(1, 60), st.data())
def test_it_finds_exactly_what_is_missing(present: set[int], until: int, data: Any) -> None:
    spec = parse("*/7 * * * *", zone="Europe/Berlin", now=START)
    dues = between(spec, START, START + 10 * HOUR, limit=60)
    until = min(until, len(dues) - 1)
    covered = [Covered(dues[n - 1], dues[n - 1]) for n in present if n <= len(dues)]
    order = data.draw(st.permutations(covered))
    missing = {dues[n] for n in range(until)} - {one.first_at for one in covered}
    found = uncovered(spec, order, after=START, before=dues[until])
    assert sum(hole.occurrences for hole in found) == len(missing)
    assert all(hole.first_at in missing and hole.last_at in missing for hole in found)


async def test_a_deleted_row_is_a_gap_and_the_doctor_says_so(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("nightly", "report", "0 * * * *", **PLAIN)
        await world.advance("5h")
        assert await holes(app) == []
        rows = await app.schedules.history("nightly")
        await sql(app, f"delete from runs where id = '{rows[2].id}'")
        [gap] = await holes(app)
        assert gap.hole == Hole(hour(3), hour(3), 1)
        assert "nightly" in str(gap)
        assert "2030-01-01T03:00" in str(gap)
        report = await examine(database_url, Settings(keep_days=0))
        [finding] = [one for one in report.findings if one.what == "ledger"]
        assert (finding.level, finding.says) == ("bad", str(gap))


async def test_a_range_that_lies_is_a_gap(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", "0 * * * *", **PLAIN)
        outage(world, "9h10m")
        await resume_work(world)
        assert await holes(app) == []
        [row] = [r for r in await app.schedules.history("s") if r.status == "skipped"]
        part = msgspec.json.decode(row.output or "") | {"count": 5}
        text = msgspec.json.encode(part).decode()
        await sql(app, f"update runs set output = '{text}' where id = '{row.id}'")
        assert [gap.hole.occurrences for gap in await holes(app)] == [3]


@pytest.mark.parametrize("keep", [{"keep_days": 0.5}, {"keep_runs": 5}])
async def test_what_retention_has_pruned_is_no_gap(database_url: str, keep: dict[str, Any]) -> None:
    app = Noted(**keep)
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", "0 * * * *", **PLAIN)
        await world.advance("2d")
        await world.beat()
        assert 4 <= len(await app.schedules.history("s", limit=1000)) < 40
        world.clock.move_to(world.clock.now() + MINUTE)
        from rota.schedules.ledger_check import ledger_faults

        days = app.settings.keep_days
        found = await app.connection.database.read(
            ledger_faults, namespace="default", now=app.clock.now(),
            keep_from=app.clock.now() - round(days * DAY) if days else 0,
            keeps_all=not app.settings.keep_runs,
        )  # fmt: skip
        assert found == []


async def test_a_schedule_that_cannot_be_read_does_not_stop_the_doctor(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url):
        await app.schedules.create("bad", "report", "0 * * * *", **PLAIN)
        await sql(app, "update runs set spec = 'nonsense'")
        await sound(app)


async def test_every_schedule_is_looked_at_however_many_there_are(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.schedules.ledger_check.PAGE", 2)
    app = Noted()
    async with virtual(app, url=database_url) as world:
        for name in "abcde":
            await app.schedules.create(name, "report", "0 * * * *", **PLAIN)
        await world.advance("3h")
        assert await holes(app) == []
        await sql(app, "delete from runs where kind <> 'schedule' and due_at = "
            "(select min(due_at) from runs where kind <> 'schedule')")  # fmt: skip
        assert [gap.schedule for gap in await holes(app)] == list("abcde")


async def test_a_schedule_that_has_ended_is_complete(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("ends", "report", "0 * * * *", end=at("01 03:30"), **PLAIN)
        await app.schedules.create("counts", "report", "0 * * * *", max_runs=2, **PLAIN)
        await app.schedules.create("once", "report", "2030-01-01T05:00", **PLAIN)
        await world.advance("2d")
        await sound(app)
        rows = await app.schedules.history("ends")
        await sql(app, f"delete from runs where id = '{rows[0].id}'")
        assert [gap.schedule for gap in await holes(app)] == ["ends"]


async def test_an_occurrence_with_two_outcomes_is_found(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", "0 * * * *", overlap="allow", **PLAIN)
        await world.advance("6h")
        assert await holes(app) == []
        # As an edit after the end of a pause left it once: 03:00 to 05:00 were skipped and fired.
        [row] = await sql(app, "select id from runs where kind = 'schedule'")
        span = f'{{"from_at":{hour(3)},"to_at":{hour(5)},"count":3}}'
        await sql(
            app,
            "insert into runs (id, namespace, kind, name, queue, priority, status, reason, due_at, "
            "schedule_id, root_id, attempt, recoveries, trigger, output, created_at, finished_at) "
            f"values ('x', 'default', 'workflow', 'report', 'default', 0, 'skipped', 'paused', "
            f"{hour(5)}, '{row[0]}', 'x', 1, 0, 'schedule', '{span}', 1, 1)",
        )
        [fault] = await holes(app)
        assert fault.hole == Hole(hour(3), hour(5), 3)
        assert "s: 3 occurrences from 2030-01-01T03:00" in str(fault)
        assert str(fault).endswith("are in the ledger as skipped:paused and as fired")
        report = await examine(database_url, app.settings)
        [found] = [one for one in report.findings if one.what == "ledger"]
        assert (found.level, found.says) == ("bad", str(fault))


async def test_a_backfill_of_what_was_skipped_is_its_one_outcome(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url, start=at("01 00:00")) as world:
        await app.schedules.create("s", "report", "0 * * * *", missed="skip", **PLAIN)
        outage(world, "5h30m")
        await resume_work(world)
        await app.schedules.backfill("s", at("01 02:00"), at("01 05:00"))
        await world.settle()
        assert await holes(app) == []
