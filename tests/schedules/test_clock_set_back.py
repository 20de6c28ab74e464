"""A clock that is set back, and then an operator changes a schedule: an occurrence that has an
outcome gets no second one, and one without an outcome still comes."""

from __future__ import annotations

import contextlib
import itertools
import random
from datetime import timedelta
from typing import Any

import pytest

from rota.errors import BadSchedule, WrongState
from rota.explain.why import why
from rota.schedules.ledger_check import Covered, covers
from rota.testing import World, virtual
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
    sound,
)

CHANGES = ["update", "pause and resume", "timed pause", "replace"]


async def change(app: Noted, world: World, how: str, when: str = HOURLY, **words: Any) -> None:
    """One of the ways in which an operator changes a schedule."""
    if how == "update":
        await app.schedules.update("s", priority=1)
    elif how == "pause and resume":
        await app.schedules.pause("s")
        await app.schedules.resume("s")
    elif how == "timed pause":
        await app.schedules.pause("s", until=world.clock.moment() + timedelta(minutes=10))
        await world.advance("10m")
    else:
        # The time is written in another way, so this is another timing with the same occurrences.
        await app.schedules.create("s", "report", "0 0-23 * * *", replace=True, **words, **PLAIN)


def set_back(world: World, hours: int) -> None:
    world.clock.jump(-hours * 3600)


@pytest.mark.parametrize("how", CHANGES)
async def test_occurrences_that_ran_are_not_missed_later(database_url: str, how: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        await world.advance("5h")
        set_back(world, 3)
        await change(app, world, how)
        outage(world, "6h30m")
        await resume_work(world)
        await sound(app)
        assert await outcomes(app, "s") == {"completed": 6, "skipped:missed": 2}


@pytest.mark.parametrize("how", CHANGES)
async def test_occurrences_that_were_skipped_do_not_run_later(database_url: str, how: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, missed="skip", **PLAIN)
        outage(world, "5h30m")
        await resume_work(world)
        assert await outcomes(app, "s") == {"skipped:missed": 5}
        set_back(world, 3)
        await change(app, world, how, missed="skip")
        await world.advance("6h")
        await sound(app)
        assert app.dues == ["01 06:00:00", "01 07:00:00", "01 08:00:00"]


async def test_occurrences_that_ran_are_not_skipped_by_a_pause(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        await world.advance("5h")
        set_back(world, 3)
        await app.schedules.update("s", priority=1)
        await app.schedules.pause("s")
        await world.advance("6h30m")
        await app.schedules.resume("s")
        await sound(app)
        assert await outcomes(app, "s") == {"completed": 5, "skipped:paused": 3}


async def test_a_schedule_made_by_a_clock_that_was_ahead_fires_again_after_an_edit(
    database_url: str,
) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        world.clock.jump("10d")
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        await world.advance("2h")
        set_back(world, 242)
        assert await due(app, "s") == "11 03:00:00"
        await app.schedules.update("s", priority=1)
        assert await due(app, "s") == "01 01:00:00"
        await world.advance("2h")
        assert app.dues[2:] == ["01 01:00:00", "01 02:00:00"]
        # The clock is right, and no scheduler works until after the runs of the wrong clock.
        world.clock.jump("11d")
        await resume_work(world)
        await sound(app)
        assert (await lines(app, "s"))[2:] == [
            "01 03:00:00 - 11 00:00:00 skipped:missed x238",
            "11 01:00:00 completed",
            "11 02:00:00 completed",
            "11 03:00:00 - 12 01:00:00 skipped:missed x23",
            "12 02:00:00 completed",
        ]
        await world.advance("1h")
        assert app.dues[-1] == "12 03:00:00"


async def test_occurrences_that_a_clock_ahead_skipped_come_with_a_new_schedule(
    database_url: str,
) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        world.clock.jump("10d30m")
        await resume_work(world)
        world.clock.jump(-10 * 86_400)
        await app.schedules.update("s", priority=1)
        assert await due(app, "s") == "11 01:00:00"
        explained = await why(app, "s", at=at("01 05:00"))
        assert explained.verdict == "skipped"
        await app.schedules.delete("s")
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        await world.advance("1h")
        await sound(app)
        assert app.dues == ["11 00:00:00", "01 01:00:00"]


async def test_another_timing_fires_between_the_occurrences_that_have_an_outcome(
    database_url: str,
) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, **PLAIN)
        await world.advance("4h")
        set_back(world, 3)
        await app.schedules.update("s", when="*/30 * * * *")
        await world.advance("4h")
        await sound(app)
        assert app.dues[4:] == [
            "01 01:30:00", "01 02:30:00", "01 03:30:00", "01 04:30:00", "01 05:00:00",
        ]  # fmt: skip


@pytest.mark.parametrize(("missed", "fired"), [("run", 1), ("skip", 0), ("all", 7)])
async def test_missed_occurrences_between_outcomes_follow_the_policy(
    database_url: str, missed: str, fired: int
) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", HOURLY, missed=missed, overlap="allow", **PLAIN)
        await world.advance("4h")
        set_back(world, 3)
        await app.schedules.update("s", when="*/30 * * * *")
        outage(world, "4h55m")
        await resume_work(world)
        await sound(app)
        # Due without an outcome: 01:30, 02:30, 03:30, 04:30, 05:00, 05:30; 01:00 to 04:00 ran.
        assert await outcomes(app, "s") == {
            "completed": 4 + min(fired, 6),
            **({"skipped:missed": 6 - fired} if fired < 6 else {}),
        }


async def test_a_time_that_has_its_outcome_is_not_due_again(database_url: str) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "report", "2030-01-01T05:00", **PLAIN)
        await world.advance("6h")
        set_back(world, 3)
        shown = await app.schedules.update("s", priority=1)
        assert (shown.schedule.status, shown.schedule.due_at) == ("paused", None)
        with pytest.raises(WrongState, match="no further occurrence"):
            await app.schedules.resume("s")
        await world.advance("6h")
        await sound(app)
        assert app.dues == ["01 05:00:00"]
        await app.schedules.update("s", when="2030-01-01T10:00")
        await world.advance("3h")
        assert app.dues == ["01 05:00:00", "01 10:00:00"]


async def test_failures_before_a_resume_do_not_pause_the_schedule_again(database_url: str) -> None:
    app = Noted()
    app.broken = True
    async with virtual(app, url=database_url) as world:
        await app.schedules.create("s", "shaky", HOURLY, pause_after_failures=2, **PLAIN)
        await world.advance("3h30m")
        assert (await schedule(app, "s")).status == "paused"
        set_back(world, 3)
        app.broken = False
        await app.schedules.resume("s")
        await world.advance("5h")
        await sound(app)
        assert app.dues == [f"01 0{n}:00:00" for n in (1, 2, 3, 4, 5)]


# -- random histories --------------------------------------------------------------------------

TIMES = ["0 * * * *", "*/20 * * * *", "30 */2 * * *", "45m", "0,30 1-22 * * *", "2030-01-02T03:00"]
MISSED = ["run", "skip", "all"]
OVERLAPS = ["queue", "queue-all", "skip", "allow", "cancel-running"]


class History:
    """Random changes of one schedule and of the clock; the ledger is checked after each."""

    def __init__(self, app: Noted, world: World, chance: random.Random) -> None:
        self._app, self._world, self._chance = app, world, chance
        self._steps: list[str] = []
        self._seen: dict[str, tuple[Covered, bool]] = {}

    async def live(self, steps: int) -> None:
        """Create the schedule, and let that many things happen."""
        missed, overlap = self._chance.choice(MISSED), self._chance.choice(OVERLAPS)
        rules: dict[str, Any] = {"missed": missed, "overlap": overlap}
        if missed == "all":
            rules["missed_max"] = 3
        self._steps.append(f"create {rules}")
        await self._app.schedules.create(
            "s", self._chance.choice(["report", "long"]), self._chance.choice(TIMES[:-1]),
            **rules, **PLAIN,
        )  # fmt: skip
        deeds = [
            *[self.pass_time] * 3, *[self.outage] * 2, *[self.jump] * 4, self.pause,
            *[self.resume] * 2, *[self.update] * 3, self.retime, self.redefine, self.trigger,
            self.backfill,
        ]  # fmt: skip
        for _ in range(steps):
            deed = self._chance.choice(deeds)
            self._steps.append(f"{self._world.clock.moment():%d %H:%M} {deed.__name__}")
            with contextlib.suppress(BadSchedule, WrongState):
                await deed()
            await resume_work(self._world)
            await self.check()

    async def check(self) -> None:
        """Each occurrence has one outcome, and keeps the one that it got first."""
        history = await self._app.schedules.history("s", limit=10_000)
        spans = {
            row.id: (span, row.status == "skipped")
            for row in history
            if row.trigger == "schedule" and (span := covers(row)) is not None
        }
        changed = {key: one for key, one in self._seen.items() if spans.get(key) != one}
        assert not changed, (changed, self._steps)
        self._seen = spans
        in_order = sorted(span for span, _ in spans.values())
        for one, other in itertools.pairwise(in_order):
            assert one.last_at < other.first_at, (one, other, self._steps)
        try:
            await sound(self._app)
        except AssertionError as error:
            raise AssertionError(self._steps) from error

    async def pass_time(self) -> None:
        await self._world.advance(self._chance.choice(["10m", "50m", "3h", "7h"]))

    async def outage(self) -> None:
        outage(self._world, self._chance.choice(["20m", "2h", "9h"]))

    async def jump(self) -> None:
        self._world.clock.jump(self._chance.choice([-30, -12, -8, -5, -3, -2, -1, 1, 5, 24]) * 3600)

    async def pause(self) -> None:
        ends = [None, timedelta(minutes=15), timedelta(hours=2), timedelta(hours=8)]
        length = self._chance.choice(ends)
        until = None if length is None else self._world.clock.moment() + length
        await self._app.schedules.pause("s", until=until)

    async def resume(self) -> None:
        await self._app.schedules.resume("s", catch_up=self._chance.random() < 0.3)

    async def update(self) -> None:
        missed = self._chance.choice(MISSED)
        overlap = self._chance.choice(OVERLAPS)
        await self._app.schedules.update("s", missed=missed, overlap=overlap, confirm=True)

    async def retime(self) -> None:
        await self._app.schedules.update("s", when=self._chance.choice(TIMES), confirm=True)

    async def redefine(self) -> None:
        when = self._chance.choice(TIMES)
        await self._app.schedules.create("s", "report", when, replace=True, **PLAIN)

    async def trigger(self) -> None:
        await self._app.schedules.trigger("s")

    async def backfill(self) -> None:
        now = self._world.clock.moment()
        await self._app.schedules.backfill("s", now - timedelta(hours=4), now)


@pytest.mark.parametrize("seed", range(6))
async def test_an_occurrence_has_one_outcome_in_every_history(database_url: str, seed: int) -> None:
    app = Noted()
    async with virtual(app, url=database_url) as world:
        world.clock.jump("2d")
        await History(app, world, random.Random(seed)).live(40)
