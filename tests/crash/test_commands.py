"""Cancel, retry, fork, signal and take-over, each killed at every commit: whole or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from rota import Rota
from rota.errors import StoreUnreachable, WrongState
from tests.crash.kit import (
    EVERY_POINT,
    KillAt,
    KillLoop,
    KillSlice,
    MakeDatabase,
    kill_at_each,
)
from tests.crash.kit.command_life import make_app, nothing_open
from tests.kit import PATIENCE_S, Effects, broken, select, until
from tests.kit.children import Child

pytestmark = pytest.mark.timeout(600)

KILLS = KillLoop(most=100, at_once=2)
TAKEOVER = KILLS._replace(least=10)


class Scene:
    """One database with its effects, and a child that is killed there."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.effects = Effects(folder / "effects")

    def app(self) -> Rota:
        """A fresh app on it."""
        return make_app(self.url, self.effects)

    def child(self, verb: str, run_id: str = "", kill_at: int = 0) -> Child:
        """A child process that says `verb`."""
        arguments = ("--database", self.url, "--effects", self.effects.path, "--verb", verb)
        more = ("--run", run_id, "--kill-at", kill_at)
        return Child("tests.crash.kit.command_life", *arguments, *more, log=self.folder / "log")

    async def prepare(self, name: str, label: str) -> str:
        """A worker executes a run up to the wanted state; then the worker is gone."""
        wanted = ("sleeping:child", "sleeping:signal", "failed:fatal", "completed")
        async with self.app() as app:
            run = await app.start(name, label)

            async def arrived() -> bool:
                open_ = {"pending", "running"} & (await app.runs.counts()).keys()
                return not open_ and await run.status() in wanted

            await until(arrived)
            return run.id


Prepare = Callable[[Scene], Awaitable[str]]
Check = Callable[[Scene, str], Awaitable[None]]


def killed(verb: str, prepare: Prepare, check: Check) -> KillAt:
    """Kill `verb` at its nth point, then check; whether there was such a point."""

    async def at(nth: int, url: str, folder: Path) -> bool:
        scene = Scene(url, folder)
        run_id = await prepare(scene)
        child = scene.child(verb, run_id, nth)
        code = await asyncio.to_thread(child.wait)
        assert code in (0, -signal.SIGKILL), f"kill {nth}: {child.tail()}"
        assert await broken(scene.url) == [], f"kill {nth}"
        await check(scene, run_id)
        assert await broken(scene.url) == [], f"kill {nth}"
        return code == -signal.SIGKILL

    return at


async def at_every_point(make_database: MakeDatabase, folder: Path, at: KillAt) -> None:
    """Call `at` with a fresh database for each point, 1, 2, 3 …"""
    await kill_at_each(EVERY_POINT, at, make_database, folder, KILLS)


@contextlib.asynccontextmanager
async def connected(scene: Scene) -> AsyncIterator[Rota]:
    async with contextlib.AsyncExitStack() as stack:
        try:
            app = await stack.enter_async_context(scene.app().connected())
        except StoreUnreachable:  # a server with its hands full: once more
            app = await stack.enter_async_context(scene.app().connected())
        yield app


def resting(name: str) -> Prepare:
    """A run of that workflow, as far as it goes by itself."""
    return lambda scene: scene.prepare(name, "r")


async def test_a_killed_cancel_cancels_the_whole_family_or_nobody(
    make_database: MakeDatabase, tmp_path: Path
) -> None:
    async def check(scene: Scene, run_id: str) -> None:
        async with connected(scene) as app:
            counts = await app.runs.counts()
            assert counts in ({"cancelled": 3}, {"sleeping": 3})
            if counts == {"sleeping": 3}:
                await app.runs.cancel(run_id)
            assert await app.runs.counts() == {"cancelled": 3}

    await at_every_point(make_database, tmp_path, killed("cancel", resting("family"), check))


async def test_a_killed_retry_makes_one_successor_or_none(
    make_database: MakeDatabase, tmp_path: Path
) -> None:
    async def check(scene: Scene, run_id: str) -> None:
        async with scene.app() as app:
            with contextlib.suppress(WrongState):  # it is on its way already
                await app.runs.retry(run_id)
            await app.runs.handle(run_id).result(timeout=PATIENCE_S)
            chain = await app.runs.chain(run_id)
            assert [attempt.status for attempt in chain] == ["failed", "completed"]
        assert scene.effects.count("r/note#0") == 1
        assert scene.effects.count("r/note#1") == 1

    await at_every_point(make_database, tmp_path, killed("retry", resting("fails_once"), check))


async def test_a_killed_fork_leaves_a_chain_that_remembers_everything_or_none(
    make_database: MakeDatabase, tmp_path: Path
) -> None:
    async def check(scene: Scene, run_id: str) -> None:
        async with scene.app() as app:
            forks = [run for run in await app.runs.list() if run.trigger == "fork"]
            assert len(forks) <= 1
            for fork in forks:  # which remembers the signal too
                assert await app.runs.handle(fork.id).result(timeout=PATIENCE_S) == "heard"
        assert scene.effects.count("r/note#0") == 1
        assert scene.effects.count("r/note#1") == 1 + len(forks)

    async def listened(scene: Scene) -> str:
        run_id = await scene.prepare("listens", "r")
        async with scene.app() as app:
            await app.runs.signal(run_id, "word", "heard")
            await app.runs.handle(run_id).result(timeout=PATIENCE_S)
        return run_id

    await at_every_point(make_database, tmp_path, killed("fork", listened, check))


async def test_a_killed_signal_wakes_its_run_or_was_never_sent(
    make_database: MakeDatabase, tmp_path: Path
) -> None:
    async def check(scene: Scene, run_id: str) -> None:
        sent = await select(scene.url, "select count(*) from signals")
        async with scene.app() as app:
            if sent == [(0,)]:
                assert await app.runs.handle(run_id).status() == "sleeping:signal"
                await app.runs.signal(run_id, "word", "heard")
            assert await app.runs.handle(run_id).result(timeout=PATIENCE_S) == "heard"
        assert scene.effects.count("r/note#1") == 1

    await at_every_point(make_database, tmp_path, killed("signal", resting("listens"), check))


async def test_a_killed_takeover_of_a_dead_workers_runs_gives_each_one_line_of_successors(
    make_database: MakeDatabase, tmp_path: Path, kills: KillSlice
) -> None:
    async def check(scene: Scene, _: str) -> None:
        second = scene.child("work")
        assert await asyncio.to_thread(second.wait) == 0, second.tail()
        await check_taken_over(scene, 3)

    takeover = killed("work", leave_behind, check)
    await kill_at_each(kills, takeover, make_database, tmp_path, TAKEOVER)


async def leave_behind(scene: Scene, count: int = 3) -> str:
    """A worker holds `count` runs, each with one step on record, and dies."""
    async with connected(scene) as app:
        for n in range(count):
            await app.start("busy", f"r{n}")
        victim = scene.child("work")

        async def all_held() -> bool:
            return sum(e.label.endswith("begun") for e in scene.effects.read()) == count

        try:
            await until(all_held)
        finally:
            victim.kill()
    return ""


async def check_taken_over(scene: Scene, count: int) -> None:
    assert await broken(scene.url) == []
    async with connected(scene) as app:
        assert await nothing_open(app)
        for run in [run for run in await app.runs.list() if run.retry_of is None]:
            chain = await app.runs.chain(run.id)
            crashes = len(chain) - 1
            assert [r.status for r in chain] == ["crashed"] * crashes + ["completed"]
            assert 1 <= crashes <= 2
    for n in range(count):
        assert scene.effects.count(f"r{n}/note#0") == 1, "executed although it was on record"
