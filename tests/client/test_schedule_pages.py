"""Ledger pages, calendars, last outcomes, edits before they are made; on both databases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rota import Rota
from rota.client import schedule_pages
from rota.core.time.instants import moment
from rota.errors import BadInput, StaleCursor
from rota.testing import virtual

START = datetime(2026, 3, 28, 20, 0, tzinfo=UTC)


def an_app() -> Rota:
    app = Rota()

    @app.workflow
    async def work(fails: bool = False) -> int:
        if fails:
            raise ValueError("no")
        return 1

    return app


@pytest.mark.parametrize("limit", [0, -1, True, "2"])
async def test_a_history_without_a_whole_limit_is_refused(database_url: str, limit: int) -> None:
    app = an_app()
    async with virtual(app, url=database_url, start=START):
        await app.schedules.create("hourly", "work", "0 * * * *", timezone="UTC")
        for outcome in ("", "failed"):
            with pytest.raises(BadInput, match="limit"):
                await app.schedules.history("hourly", limit=limit, outcome=outcome)


async def test_the_ledger_has_pages_and_holds_runs_by_hand(database_url: str) -> None:
    app = an_app()
    async with virtual(app, url=database_url, start=START) as time:
        await app.schedules.create("hourly", "work", "0 * * * *", timezone="UTC")
        await time.advance("3h")
        await time.settle()
        by_hand = await app.schedules.trigger("hourly", input={"fails": True})
        await time.advance("2h")
        await time.settle()
        whole = await app.schedules.history("hourly", limit=100)
        assert len(whole) == 6
        assert [run.id for run in whole].index(by_hand) == 2
        assert whole[2].status == "failed"
        found, after = [], None
        while True:
            page = await app.schedules.ledger("hourly", after=after, limit=2)
            found += page.runs
            after = page.next
            if after is None:
                break
        assert found == whole
        await app.schedules.create("other", "work", "1h")
        page = await app.schedules.ledger("hourly", limit=1)
        with pytest.raises(StaleCursor):
            await app.schedules.ledger("other", after=page.next)
        for bad in ("", "x", "1.2", "\0"):
            with pytest.raises(BadInput):
                await app.schedules.ledger("hourly", after=bad)
        with pytest.raises(BadInput):
            await app.schedules.trigger("hourly", input={"no such": 1})


async def test_the_ledger_is_filtered_by_outcome(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = an_app()
    async with virtual(app, url=database_url, start=START) as time:
        await app.schedules.create("hourly", "work", "0 * * * *", timezone="UTC")
        await time.advance("3h")
        await time.settle()
        await app.schedules.trigger("hourly", input={"fails": True})
        await time.settle()
        await app.schedules.pause("hourly")
        await time.advance("2h")
        await app.schedules.resume("hourly")
        await time.advance("3h")
        await time.settle()
        whole = await app.schedules.history("hourly", limit=100)
        for outcome in ("completed", "failed", "skipped", "skipped:paused"):
            status = outcome.partition(":")[0]
            wanted = [run for run in whole if run.status == status]
            assert wanted
            assert await app.schedules.history("hourly", outcome=outcome) == wanted
            assert (await app.schedules.ledger("hourly", outcome=outcome)).runs == wanted
        assert await app.schedules.history("hourly", outcome="skipped:overlap") == []
        assert len(await app.schedules.history("hourly", outcome="completed", limit=2)) == 2
        # A page looks at a bounded number of rows, says how far, and the next one looks further.
        monkeypatch.setattr(schedule_pages, "LOOK", 2)
        monkeypatch.setattr(schedule_pages, "LOOK_MAX", 2)
        page = await app.schedules.ledger("hourly", outcome="failed")
        assert (page.runs, page.looked_back_to) == ([], moment(whole[1].due_at or 0))
        found, after = [], page.next
        while after is not None:
            page = await app.schedules.ledger("hourly", after=after, outcome="failed")
            found += page.runs
            after = page.next
        assert [run.status for run in found] == ["failed"]
        page = await app.schedules.ledger("hourly", outcome="completed", limit=1)
        assert page.looked_back_to is None, "the page is full"
        with pytest.raises(StaleCursor):
            await app.schedules.ledger("hourly", after=page.next)
        with pytest.raises(BadInput, match="no outcome 'fialed'"):
            await app.schedules.ledger("hourly", outcome="fialed")


async def test_a_calendar_counts_outcomes_on_the_wall_of_the_zone(database_url: str) -> None:
    """The night of the spring change in Berlin: the day has 23 hours."""
    app = an_app()
    async with virtual(app, url=database_url, start=START) as time:
        await app.schedules.create("hourly", "work", "0 * * * *", timezone="Europe/Berlin")
        await time.advance("6h")
        await time.settle()
        await app.schedules.pause("hourly")
        await time.advance("4h")
        await app.schedules.resume("hourly")
        await app.schedules.trigger("hourly")
        end = START + timedelta(days=2)
        days = await app.schedules.calendar("hourly", START, end)
        assert days.zone == "Europe/Berlin"
        assert [(one.day.day, one.counts) for one in days.cells] == [
            (28, {"completed": 2}),
            (29, {"completed": 4, "skipped:paused": 4}),
        ]
        hours = await app.schedules.calendar("hourly", START, end, by="hour")
        assert [one.hour for one in hours.cells] == [22, 23, 0, 1, 3, 4, 5, 6, 7, 8]
        assert all(sum(one.counts.values()) == 1 for one in hours.cells)
        for bad in (START, START - timedelta(1), START + timedelta(500)):
            with pytest.raises(BadInput):
                await app.schedules.calendar("hourly", START, bad)


async def test_the_last_outcomes_of_many_schedules_come_at_once(database_url: str) -> None:
    app = an_app()
    async with virtual(app, url=database_url, start=START) as time:
        await app.schedules.create("good", "work", "0 * * * *", timezone="UTC")
        await app.schedules.create(
            "bad", "work", "0 * * * *", timezone="UTC", input={"fails": True}
        )
        await time.advance("4h")
        await time.settle()
        found = await app.schedules.last_outcomes(["good", "bad", "nobody"], last=3)
        assert {name: [one.status for one in each.outcomes] for name, each in found.items()} == {
            "good": ["completed"] * 3,
            "bad": ["failed"] * 3,
        }
        assert found["good"].usual_s == 0
        assert found["bad"].usual_s is None
        assert await app.schedules.last_outcomes([]) == {}


async def test_an_edit_is_shown_before_it_is_made(database_url: str) -> None:
    app = an_app()
    async with virtual(app, url=database_url, start=START):
        await app.schedules.create("daily", "work", "0 9 * * *", timezone="UTC")
        diff = await app.schedules.diff("daily", when="0 9 * * MON", count=7)
        assert (diff.text_before, diff.text_after) == (
            "at 09:00, every day (UTC)",
            "at 09:00, on Monday (UTC)",
        )
        assert diff.gained == []
        assert [at.weekday() for at in diff.lost] == [6, 1, 2, 3, 4, 5]
        assert diff.burst is None
        assert (await app.schedules.get("daily")).text == diff.text_before
        shown = await app.schedules.preview_of(
            "weekdays at 9:30", timezone="Europe/Berlin", count=2
        )
        assert [str(one.due_at) for one in shown.occurrences] == [
            "2026-03-30 07:30:00+00:00",
            "2026-03-31 07:30:00+00:00",
        ]
