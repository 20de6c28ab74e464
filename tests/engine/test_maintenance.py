"""Heartbeats, worker rows and retention."""

from __future__ import annotations

import os
from typing import Any

import pytest

from rota import Rota, gather, sleep
from rota.core.time.instants import SECOND
from rota.engine import maintenance
from rota.errors import UnknownRun
from rota.store.runs.workers import forget
from rota.store.runs.workers import stop as stop_rows
from rota.testing import virtual
from tests.engine.kit import eventually, ghost_row, live, pass_time, timer_set
from tests.workflows.kit import result, sound


def plain(**settings: Any) -> tuple[Rota, Any]:
    app = Rota(**settings)

    @app.workflow
    async def flow(n: int = 0) -> int:
        return n

    return app, flow


async def test_a_worker_signs_on_reports_and_signs_off(database_url: str) -> None:
    app, _ = plain(slots=7)
    async with virtual(app, url=database_url) as world:
        [row] = await app.workers()
        assert (row.status, row.slots, row.pid) == ("online", 7, os.getpid())
        assert row.queues == '["default"]'
        assert row.heartbeat_at == row.started_at == world.clock.now()
        await world.advance("5s")
        await world.beat()
        [row] = await app.workers()
        assert row.heartbeat_at == world.clock.now()
        assert row.started_at == world.clock.now() - 5 * SECOND
    async with virtual(app, url=database_url):
        statuses = [row.status for row in await app.workers(everyone=True)]
        assert sorted(statuses) == ["offline", "online"]


async def test_the_heart_beats_by_itself(database_url: str) -> None:
    app, _ = plain(heartbeat_s=7)
    async with live(app, database_url) as clock:
        for _ in range(3):
            await timer_set(clock, "7s")
            await pass_time(clock, "7s")
            await eventually(lambda: has_beaten(app, clock.now()))


async def has_beaten(app: Rota, at: int) -> bool:
    [row] = await app.workers()
    return row.heartbeat_at == at


async def test_a_deleted_row_is_written_again_with_a_fresh_heartbeat(database_url: str) -> None:
    app, _ = plain()
    async with virtual(app, url=database_url) as world:
        [before] = await app.workers()
        later = world.clock.now() + 3600 * SECOND
        await app.connection.database.write(stop_rows, [before.id], now=world.clock.now())
        await app.connection.database.write(forget, namespace="default", before=later)
        assert await app.workers(everyone=True) == []
        await world.advance("10m")
        await world.beat()
        [row] = await app.workers()
        assert (row.id, row.started_at) == (before.id, before.started_at)
        # An old heartbeat would make other machines take its runs away.
        assert row.heartbeat_at == world.clock.now()


async def test_a_worker_declared_offline_comes_back_by_itself(database_url: str) -> None:
    app, _ = plain()
    async with virtual(app, url=database_url) as world:
        [row] = await app.workers()
        await app.connection.database.write(stop_rows, [row.id], now=world.clock.now())
        assert await app.workers() == []
        await world.beat()
        [row] = await app.workers()
        assert (row.status, row.stopped_at) == ("online", None)


async def test_workers_that_stopped_long_ago_are_forgotten(database_url: str) -> None:
    app, _ = plain()
    async with virtual(app, url=database_url) as world:
        await ghost_row(app, "old")
        await app.connection.database.write(stop_rows, ["old"], now=world.clock.now())
        await world.advance("25h")
        await world.beat()
        assert "old" not in [row.id for row in await app.workers(everyone=True)]


async def prune(world: Any) -> None:
    """Beat until nothing more is pruned."""
    for _ in range(4):
        await world.advance("61s")
        await world.beat()


async def test_finished_runs_are_pruned_when_they_are_old(database_url: str) -> None:
    app, flow = plain(keep_days=7)
    async with virtual(app, url=database_url) as world:
        old = await app.start(flow, 1)
        await world.settle()
        await world.advance("6d")
        young = await app.start(flow, 2)
        await world.settle()
        await prune(world)
        assert len(await app.runs.list()) == 2
        await world.advance("1d")
        await prune(world)
        assert [run.id for run in await app.runs.list()] == [young.id]
        with pytest.raises(UnknownRun):
            await app.runs.get(old.id)
        await sound(app)


async def test_a_clock_that_is_wrong_for_a_moment_deletes_nothing(database_url: str) -> None:
    app, flow = plain(keep_days=7)
    async with virtual(app, url=database_url) as world:
        await app.start(flow, 1)
        await world.settle()
        world.clock.jump("60d")
        await world.beat()
        await world.advance("20s")
        await world.beat()
        assert len(await app.runs.list()) == 1
        await world.advance("20s")  # a whole lease: this is the time from now on
        await world.beat()
        assert await app.runs.list() == []


async def test_old_runs_are_deleted_after_the_clock_was_set_back(database_url: str) -> None:
    app, flow = plain(keep_runs=1, keep_days=0)
    async with virtual(app, url=database_url) as world:
        world.clock.jump("365d")
        await world.advance("1m")
        await world.beat()
        world.clock.jump(-365 * 86_400)
        app.ids._last = 0  # as those of a process that starts now: ids do not go back
        await app.start_many(flow, [(n,) for n in range(3)])
        await world.settle()
        await world.advance("11m")
        await prune(world)
        assert len(await app.runs.list()) == 1


async def test_a_long_run_is_not_pruned_in_the_hour_it_ends(database_url: str) -> None:
    """The age of a run counts from its end, not from its beginning."""
    app = Rota(keep_days=7)

    @app.workflow
    async def long() -> str:
        await sleep("30d")
        return "at last"

    async with virtual(app, url=database_url) as world:
        run = await app.start(long)
        await world.drain()
        await prune(world)
        assert await result(run) == "at last"
        await world.advance("8d")
        await prune(world)
        assert await app.runs.list() == []


async def test_one_heartbeat_prunes_many_batches(database_url: str) -> None:
    app, flow = plain(keep_days=1)
    async with virtual(app, url=database_url) as world:
        await app.start_many(flow, [(n,) for n in range(3 * maintenance.PRUNE_BATCH + 10)])
        await world.settle()
        await world.advance("3d")
        await world.beat()
        assert await app.runs.counts() == {}
        await sound(app)


async def test_retention_continues_where_its_time_was_up(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "PRUNE_BATCH", 10)
    monkeypatch.setattr(maintenance, "PRUNE_SHARE_LOCAL", -1)
    monkeypatch.setattr(maintenance, "PRUNE_SHARE_SERVER", -1)
    app, flow = plain(keep_days=1)

    @app.workflow
    async def sleeper() -> None:
        await sleep("1000d")

    async with virtual(app, url=database_url) as world:
        # Old runs that stay are before the others, and fill more than a batch.
        await app.start_many(sleeper, [()] * 15)
        await app.start_many(flow, [(n,) for n in range(30)])
        await world.settle()
        await world.advance("3d")
        left = []
        for _ in range(6):
            await world.beat()
            left.append((await app.runs.counts()).get("completed", 0))
        assert left == [30, 25, 15, 5, 0, 0]
        assert await app.runs.counts() == {"sleeping": 15}


async def test_only_so_many_finished_runs_are_kept(database_url: str) -> None:
    app, flow = plain(keep_runs=3, keep_days=0)
    async with virtual(app, url=database_url) as world:
        started = await app.start_many(flow, [(n,) for n in range(8)])
        await world.settle()
        await world.advance("10m")
        await prune(world)
        assert sorted(run.id for run in await app.runs.list()) == sorted(
            run.id for run in started[5:]
        )


async def test_nothing_is_pruned_when_all_is_kept(database_url: str) -> None:
    app, flow = plain(keep_runs=0, keep_days=0)
    async with virtual(app, url=database_url) as world:
        await app.start(flow, 1)
        await world.advance("4000d")
        await prune(world)
        assert len(await app.runs.list()) == 1


async def test_steps_and_signals_go_with_their_run(database_url: str) -> None:
    app = Rota(keep_days=1)

    @app.step
    async def step() -> str:
        return "x" * 10_000

    @app.workflow
    async def flow() -> str:
        return await step()

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await run.signal("unheard")
        await world.drain()
        await world.advance("3d")
        await prune(world)
        assert await app.runs.list() == []
        await sound(app)


async def test_nothing_unresolved_is_ever_pruned(database_url: str) -> None:
    from rota import NeedsLogin

    app = Rota(keep_days=1, keep_runs=1)

    @app.workflow
    async def sleeper() -> None:
        await sleep("1000d")

    @app.workflow
    async def asker() -> None:
        raise NeedsLogin("log in")

    @app.workflow(queue="unserved")
    async def other() -> None:
        return None

    @app.workflow
    async def child(n: int) -> int:
        return n

    @app.workflow
    async def parent() -> None:
        await gather(child(1), child(2))
        await sleep("1000d")

    async with virtual(app, url=database_url) as world:
        for flow in (sleeper, asker, parent):
            await app.start(flow)
        await app.options(queue="nobody").start(other)
        await world.settle()
        before = {run.id for run in await app.runs.list()}
        await world.advance("40d")
        await prune(world)
        assert {run.id for run in await app.runs.list()} == before


async def test_a_chain_is_pruned_as_a_whole_or_not_at_all(database_url: str) -> None:
    app = Rota(keep_days=2)
    good = False

    @app.workflow
    async def flow() -> None:
        if not good:
            raise ValueError("no")

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        await world.advance("1d")
        good = True
        await app.runs.retry(run.id)
        await world.drain()
        await world.advance("1d1h")
        await prune(world)
        assert len(await app.runs.chain(run.id)) == 2
        await world.advance("2d")
        await prune(world)
        assert await app.runs.list() == []
