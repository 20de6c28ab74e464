"""Automations killed at every commit, and at every moment around the one change they make.

The counterpart must see the change exactly once, or at most once if it cannot be looked up: then
a person is asked, and one answer clears it. No event is lost or consumed twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import signal
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rota.settings import Settings
from rota.store import invariants
from rota.store.backend import migrate
from rota.store.backend.database import Database, open_url
from tests.crash.kit import (
    KillSlice,
    MakeDatabase,
)
from tests.crash.kit.automation_life import APPROVED, BAD_ITEM, CALLS, SLOW, Life, begin
from tests.crash.kit.counterparts import MOMENTS, UNKNOWABLE, Assassin, Count, counterpart
from tests.kit import PATIENCE_S
from tests.kit.builders import NOW, raw
from tests.kit.children import ended, forked

pytestmark = pytest.mark.timeout(600)

Report = dict[str, Any]
AT_ONCE = 2
QUICK = "append"  # by this kind of tool the commits far from the call are struck
DONE = {"e1": "consumed", "e2": "consumed", "s-e1": "consumed", "s-e2": "consumed"}


class Strike(NamedTuple):
    """When a life is killed: the first at one of its points or at a moment of the counterpart. Then
    perhaps the one that recovers, and the one in which a person answers.
    """

    kill_at: int = 0
    moment: str = ""
    again_at: int = 0
    answer_at: int = 0


class Played(NamedTuple):
    """How it went: whether every kill came (`_came`), and the reports after the last recovery and
    after the last answer of a person."""

    struck: bool
    reported: Report
    answered: Report


class Scene:
    """One database for all strikes of a test; each has a namespace of its own in it."""

    def __init__(self, url: str, folder: Path, database: Database) -> None:
        self.url = url
        self.folder = folder
        self.database = database
        # PostgreSQL counts its reads as commits too, and a life costs twice as much there.
        self.every = 1 if database.is_local else 3
        self._numbers = itertools.count(1)

    async def play(self, kind: str, strike: Strike) -> Played:
        """Kill, take up again until it ends, and check everything."""
        namespace = f"n{next(self._numbers)}"
        folder = self.folder / "-".join([namespace, *(str(each) for each in strike)])
        folder.mkdir()
        assassin = Assassin(strike.moment)
        async with counterpart(kind, assassin, folder, self.url, namespace) as (place, count):
            life = Life(self.url, namespace, kind, place, folder, 0)
            play = Play(self, life, assassin, count)
            return await (play.stops(strike.kill_at) if kind in CALLS else play.all(strike))


class Play:
    """One automation, from its first life to its end."""

    def __init__(self, scene: Scene, life: Life, assassin: Assassin, count: Count) -> None:
        self._scene = scene
        self._life = life
        self._assassin = assassin
        self._count = count

    async def all(self, strike: Strike) -> Played:
        """See `Scene.play`."""
        reported = await self._lives(kill_at=strike.kill_at, moment=strike.moment)
        struck = _came(reported, strike.kill_at) and (reported is None or not strike.moment)
        if reported is None and strike.again_at:
            reported = await self._lives(kill_at=strike.again_at)
            struck = struck and _came(reported, strike.again_at)
        reported = answered = reported or await self._lives() or {}
        answer_at = strike.answer_at
        while answered["run"] != "sleeping:idle":
            answer = await self._answer_to(answered)
            after = await self._lives(resolve=answer, kill_at=answer_at)
            struck = struck and _came(after, answer_at)
            answered = after or await self._lives() or {}
            answer_at = 0
        _ended_well(answered, self._label(answered), self._life.kind)
        assert await self._count() == 1, self._label(answered)
        return Played(struck, reported, answered)

    async def stops(self, kill_at: int) -> Played:
        """The process is killed once, then left to a second life: the automation stops with nothing
        sent.
        """
        reported = await self._lives(kill_at=kill_at)
        struck = _came(reported, kill_at)
        reported = reported or await self._lives() or {}
        assert (reported["run"], reported["word"]) == ("waiting:logic", "Needs attention"), reported
        assert "change" in reported["sentence"], reported
        assert reported["events"] == {"e1": "pending", "e2": "pending"}, reported
        assert (reported["ledger"], await self._count()) == ([], 0), reported
        return Played(struck, reported, reported)

    async def _lives(self, **fate: Any) -> Report | None:
        """One more process; its report, or None if it was killed. All is whole in any case."""
        self._life = life = self._life._replace(number=self._life.number + 1)
        process = forked(begin, life._replace(**fate))
        self._assassin.pid = process.pid
        try:
            code = await ended(process, timeout_s=PATIENCE_S)
        finally:
            self._assassin.pid = None
            process.kill()  # no more than a kindness, unless this test has failed
        wanted = (0, -signal.SIGKILL) if any(fate.values()) else (0,)
        assert code in wanted, f"{life}: {code}, {(life.folder / 'log').read_text()}"
        broken = await self._scene.database.read(invariants.broken)
        assert broken == [], f"{life}: {broken}"
        return json.loads((life.folder / "told.json").read_text()) if code == 0 else None

    async def _answer_to(self, reported: Report) -> str:
        """The answer of a person who has checked the counterpart."""
        if reported["run"] == "waiting:approval":
            await self._proposes_rightly(reported)
            return "approve"
        return "happened" if await self._asks_rightly(reported) else "did-not-happen"

    async def _proposes_rightly(self, reported: Report) -> None:
        """Nothing was called yet, and the change is shown."""
        label = self._label(reported)
        assert self._life.kind in APPROVED, label
        assert await self._count() == 0, label
        assert reported["sentence"] == "Waiting for your approval: Send them", label
        assert reported["actions"] == ["approve", "reject"], label
        assert reported["events"] == {"e1": "reserved", "e2": "reserved"}, label
        assert [each for each in reported["ledger"] if each != "failed"] == ["proposed"], label

    async def _asks_rightly(self, reported: Report) -> bool:
        """Only if the change cannot be looked up: one reason is shown, with what clears it. True if
        it did happen, as a person would find out.
        """
        label = self._label(reported)
        happened = await self._count()
        assert self._life.kind in UNKNOWABLE, label
        assert happened <= 1, label
        assert reported["run"] == "waiting:reconciliation", label
        assert reported["word"] == "Needs attention", label
        assert reported["sentence"] == "It is unknown whether a change happened: Send them", label
        assert reported["actions"] == ["happened", "did-not-happen", "skip"], label
        assert reported["events"] == {"e1": "reserved", "e2": "reserved"}, label
        assert [each for each in reported["ledger"] if each != "failed"] == ["indeterminate"], label
        return happened == 1

    def _label(self, reported: Report) -> str:
        return f"{self._life.folder.name}: {reported}"


# How many points the same life may have more or less: a worker polls when it is notified. A
# notification may come before or after a poll that finds nothing.
LOOKS_POINTS = 8


def _came(reported: Report | None, kill_at: int) -> bool:
    """Whether a life was killed at a point, or was over, and nearly as long as its model, before
    that point."""
    if reported is None or not kill_at:
        return True
    return len(reported["points"]) < kill_at <= len(reported["points"]) + LOOKS_POINTS


def _ended_well(reported: dict[str, Any], label: str, kind: str) -> None:
    """Nothing is open; every event was consumed once, upstream and downstream."""
    assert (reported["run"], reported["word"]) == ("sleeping:idle", "Idle"), label
    left_out = {"bad": "skipped"} if kind == BAD_ITEM else {}
    assert reported["events"] == DONE | left_out, label
    assert reported["letters"] == ["odd/bad pending" for _ in left_out], label
    assert reported["consumed"] == sorted(DONE), label
    assert json.loads(reported["states"]["Send"]) == ["e1", "e2", "applied"], label
    assert json.loads(reported["states"]["Close"]) == ["s-e1", "s-e2"], label
    assert [each for each in reported["ledger"] if each != "failed"] == ["applied"], label


@contextlib.asynccontextmanager
async def opened(make_database: MakeDatabase, folder: Path) -> AsyncIterator[Scene]:
    """A migrated database, with a table to write into."""
    url = make_database()
    database = open_url(url, Settings())
    await database.open()
    try:
        await database.write(migrate.apply, now=NOW)
        await database.write(raw, "create table sent (place text, id text)")
        yield Scene(url, folder, database)
    finally:
        await database.close()


async def play_all(scene: Scene, kind: str, strikes: Iterable[Strike]) -> None:
    """All of them, a few at a time; each must have come to its kills."""
    left = iter(strikes)

    async def lane() -> None:
        for strike in left:
            played = await scene.play(kind, strike)
            assert played.struck, f"{kind}: {strike} was never reached"

    async with asyncio.TaskGroup() as lanes:
        for _ in range(AT_ONCE):
            lanes.create_task(lane())


def worth_striking(points: list[str]) -> list[int]:
    """The numbers of the points, without those after a commit that the next commit follows:
    between the two, only memory has changed, and a kill before the next leaves the same."""
    pairs = itertools.pairwise([*points, "end"])
    return [
        number
        for number, pair in enumerate(pairs, start=1)
        if pair != ("after-commit", "before-commit")
    ]


def around_the_call(points: list[str]) -> list[int]:
    """Those from the ledger's commit before the call to the commit of `next` after it. The others
    come before any tool is touched or after it was settled: they are the same for every kind."""
    first = points.index("before-call") - 1
    last = points.index("after-call") + 5
    return [number for number in worth_striking(points) if first <= number <= last]


def until_closing(points: list[str], *, every: int) -> list[int]:
    """Those from where work is taken up to where the change is history; before and after, all is
    as in a life that was never killed."""
    first = points.index("taking-up") + 1
    last = points.index("closing") + 1 if "closing" in points else len(points)
    return [number for number in worth_striking(points) if first < number <= last][::every]


async def test_a_kill_at_every_commit_of_an_automation_loses_and_doubles_nothing(
    make_database: MakeDatabase, tmp_path: Path, kills: KillSlice
) -> None:
    async with opened(make_database, tmp_path) as scene:
        points = (await scene.play(QUICK, Strike())).reported["points"]
        assert points.count("before-commit") > 20  # fewer would test nothing
        numbers = range(1, len(points) + 1) if scene.database.is_local else worth_striking(points)
        await play_all(scene, QUICK, map(Strike, kills.of(numbers)))


@pytest.mark.parametrize("kind", MOMENTS)
async def test_a_kill_at_any_moment_around_a_change_leaves_it_made_once(
    make_database: MakeDatabase, tmp_path: Path, kind: str, kills: KillSlice
) -> None:
    async with opened(make_database, tmp_path) as scene:
        points = (await scene.play(kind, Strike())).reported["points"]
        strikes = [Strike(number) for number in around_the_call(points)]
        strikes += [Strike(moment=moment) for moment in MOMENTS[kind]]
        await play_all(scene, kind, kills.of(strikes))


@pytest.mark.parametrize("kind", sorted(CALLS))
async def test_a_mutate_that_would_lose_a_call_stops_with_nothing_sent_whenever_it_is_killed(
    make_database: MakeDatabase, tmp_path: Path, kind: str, kills: KillSlice
) -> None:
    async with opened(make_database, tmp_path) as scene:
        points = (await scene.play(kind, Strike())).reported["points"]
        numbers = until_closing(points, every=scene.every)
        await play_all(scene, kind, map(Strike, kills.of(numbers)))


@pytest.mark.parametrize("kind", sorted(SLOW))
async def test_a_recovery_that_is_killed_too_makes_no_second_effect_at_a_slow_counterpart(
    make_database: MakeDatabase, tmp_path: Path, kind: str, kills: KillSlice
) -> None:
    """The process is killed when the request was sent, then again on the way to the first
    `reconcile`.
    """
    async with opened(make_database, tmp_path) as scene:
        points = (await scene.play(kind, Strike(moment="entered"))).reported["points"]
        numbers = until_closing(points, every=scene.every)
        await play_all(scene, kind, (Strike(0, "entered", number) for number in kills.of(numbers)))


@pytest.mark.parametrize("kind", ["http with a key", "http with a lookup", "http"])
async def test_a_recovery_that_is_killed_as_well_leaves_the_change_made_once(
    make_database: MakeDatabase, tmp_path: Path, kind: str, kills: KillSlice
) -> None:
    async with opened(make_database, tmp_path) as scene:
        points = (await scene.play(kind, Strike(moment="applied"))).reported["points"]
        numbers = until_closing(points, every=scene.every)
        await play_all(scene, kind, (Strike(0, "applied", number) for number in kills.of(numbers)))


@pytest.mark.parametrize("moment", ["received", "applied"])
async def test_an_answer_that_is_killed_counts_or_is_asked_for_again(
    make_database: MakeDatabase, tmp_path: Path, moment: str, kills: KillSlice
) -> None:
    async with opened(make_database, tmp_path) as scene:
        points = (await scene.play("http", Strike(moment=moment))).answered["points"]
        numbers = until_closing(points, every=scene.every)
        await play_all(
            scene, "http", (Strike(0, moment, 0, number) for number in kills.of(numbers))
        )


@pytest.mark.parametrize("kind", sorted(APPROVED))
async def test_a_change_that_must_be_approved_is_made_once_and_not_before(
    make_database: MakeDatabase, tmp_path: Path, kind: str, kills: KillSlice
) -> None:
    """The process is killed on the way to the question, and again on the way from the answer."""
    async with opened(make_database, tmp_path) as scene:
        played = await scene.play(kind, Strike())
        asking, answering = played.reported["points"], played.answered["points"]
        strikes = [Strike(n) for n in until_closing(asking, every=scene.every)]
        strikes += [Strike(answer_at=n) for n in until_closing(answering, every=scene.every)]
        await play_all(scene, kind, kills.of(strikes))


async def test_an_item_that_is_left_out_has_one_dead_letter_whenever_the_worker_is_killed(
    make_database: MakeDatabase, tmp_path: Path, kills: KillSlice
) -> None:
    async with opened(make_database, tmp_path) as scene:
        points = (await scene.play(BAD_ITEM, Strike())).reported["points"]
        numbers = worth_striking(points)[:: scene.every]
        await play_all(scene, BAD_ITEM, map(Strike, kills.of(numbers)))
