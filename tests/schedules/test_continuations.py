"""Scheduled runs that continue as new: an occurrence lasts until the last segment has ended."""

from __future__ import annotations

import pytest

import rota
from rota import Rota, sleep, this_run
from rota.core.time.instants import moment
from rota.testing import virtual
from tests.schedules.kit import HOURLY, PLAIN, lines, sound

# Four segments of 20 minutes: longer than the hour between two occurrences.
SEGMENTS = 4


def app_with_long_runs() -> tuple[Rota, list[str]]:
    app, ended = Rota(), []

    @app.workflow
    async def long(n: int = 1) -> int:
        due_at = this_run().due_at
        await sleep("20m")
        if n < SEGMENTS:
            raise rota.continue_as_new(n + 1)
        ended.append(f"{due_at:%H:%M}" if due_at else "-")
        return n

    return app, ended


@pytest.mark.parametrize(
    ("overlap", "expected"),
    [
        ("queue", ["01:00", "02:00", "03:00"]),
        ("skip", ["01:00", "03:00", "05:00"]),
        ("allow", ["01:00", "02:00", "03:00"]),
    ],
)
async def test_the_next_occurrence_waits_for_the_last_segment(
    database_url: str, overlap: str, expected: list[str]
) -> None:
    app, ended = app_with_long_runs()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "long", HOURLY, overlap=overlap, **PLAIN)
        await world.advance("2h")
        await world.advance("50m")
        shown = await lines(app, "s")
        await world.advance("4h")
        assert [due[-5:] for due in ended[:3]] == expected, shown
        open_runs = [run for run in await app.runs.list(schedule="s") if not run.is_final]
        if overlap != "allow":
            assert len({run.root_id for run in open_runs if run.reason != "turn"}) <= 1
        first = next(run for run in await app.runs.list(schedule="s") if run.reason == "continued")
        chain = await app.runs.chain(first.root_id)
        assert len({(run.due_at, run.schedule_id) for run in chain}) == 1
        assert moment(chain[0].due_at or 0).minute == 0
        await sound(app)
