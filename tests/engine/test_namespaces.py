"""Namespaces share a database and see nothing of each other."""

from __future__ import annotations

from typing import Any

import pytest

from rota import Rota, sleep
from rota.core.time.instants import SECOND
from rota.errors import UnknownRun
from rota.testing import virtual
from tests.engine.kit import beside, ghost_claim
from tests.workflows.kit import result


def tenant(namespace: str) -> tuple[Rota, Any]:
    app = Rota(namespace=namespace, keep_days=1)
    app.queue("q", concurrency=1)

    @app.workflow(queue="q")
    async def flow(word: str) -> str:
        await sleep("1h")
        return f"{namespace} {word}"

    @app.workflow
    async def plain() -> str:
        return namespace

    return app, flow


async def test_runs_of_others_are_neither_seen_nor_touched(database_url: str) -> None:
    red, red_flow = tenant("red")
    blue, blue_flow = tenant("blue")
    async with virtual(red, url=database_url) as world, beside(blue, database_url, world.clock):
        mine = await red.options(external_id="same").start(red_flow, "a")
        theirs = await blue.options(external_id="same").start(blue_flow, "b")
        assert mine.id != theirs.id
        assert not theirs.existed
        await world.drain()
        assert await result(mine) == "red a"
        assert await theirs.status() == "pending"
        assert [run.id for run in await red.runs.list()] == [mine.id]
        assert [run.id for run in await blue.runs.list()] == [theirs.id]
        assert await red.runs.counts() == {"completed": 1}
        assert await blue.runs.counts() == {"pending": 1}
        assert [worker.namespace for worker in await red.workers()] == ["red"]
        assert await blue.workers() == []
        for verb in (red.runs.get, red.runs.cancel, red.runs.retry, red.runs.chain, red.runs.steps):
            with pytest.raises(UnknownRun):
                await verb(theirs.id)
        with pytest.raises(UnknownRun):
            await red.runs.signal(theirs.id, "go")
        with pytest.raises(UnknownRun):
            await red.runs.get(theirs.id[:31])


async def test_a_pause_concerns_one_namespace(database_url: str) -> None:
    red, _ = tenant("red")
    blue, blue_flow = tenant("blue")
    async with virtual(red, url=database_url):
        await red.pause_queue("q")
    async with virtual(blue, url=database_url) as world:
        run = await blue.start(blue_flow, "b")
        await world.drain()
        assert await result(run) == "blue b"


async def test_a_limit_counts_one_namespace(database_url: str) -> None:
    red, red_flow = tenant("red")
    blue, blue_flow = tenant("blue")
    async with virtual(red, url=database_url) as world, beside(blue, database_url, world.clock):
        await red.options(queue="default").start(red_flow, "a")
        await ghost_claim(red, "ghost")
        assert await red.runs.counts() == {"running": 1}
    async with virtual(blue, url=database_url) as world:
        run = await blue.start(blue_flow, "b")
        await world.drain()
        assert await result(run) == "blue b"


async def test_reaping_and_pruning_concern_one_namespace(database_url: str) -> None:
    red, _ = tenant("red")
    blue, _ = tenant("blue")
    async with virtual(blue, url=database_url) as world:
        done = await blue.start("plain")
        await world.settle()
        held = await blue.start("plain")
        await ghost_claim(blue, "ghost")
        later = world.clock.now() + 3 * 86_400 * SECOND
    async with virtual(red, url=database_url, start=later) as world:
        for _ in range(3):
            await world.advance("2m")
            await world.beat()
        async with beside(blue, database_url, world.clock):
            assert (await blue.runs.get(held.id)).status == "running"
            assert (await blue.runs.get(done.id)).status == "completed"
