"""Retention counts from the end of a run: neither days nor a number delete what ended just now."""

from __future__ import annotations

from typing import Any

from rota import RetryPolicy, Rota, sleep
from rota.testing import World, virtual
from tests.workflows.kit import result, sound


async def prune(world: World) -> None:
    """Beat until nothing more is pruned."""
    for _ in range(4):
        await world.advance("61s")
        await world.beat()


def sleeper_and_flow(**settings: Any) -> tuple[Rota, Any, Any]:
    app = Rota(**settings)

    @app.workflow
    async def sleeper() -> str:
        await sleep("30d")
        return "at last"

    @app.workflow
    async def flow(n: int = 0) -> int:
        return n

    return app, sleeper, flow


async def test_the_number_counts_by_end_and_not_by_start(database_url: str) -> None:
    app, sleeper, flow = sleeper_and_flow(keep_runs=3, keep_days=0)
    async with virtual(app, url=database_url) as world:
        long = await app.start(sleeper)
        await world.advance("1d")
        short = await app.start_many(flow, [(n,) for n in range(5)])
        await world.settle()
        await world.advance("29d")  # the long run started first and ends last
        await prune(world)
        await world.advance("1d")
        await prune(world)
        assert await result(long) == "at last"
        assert [run.id for run in await app.runs.list()] == [
            *(run.id for run in reversed(short[3:])),
            long.id,
        ]
        await sound(app)


async def test_a_run_stays_some_minutes_after_its_end_whatever_the_number(
    database_url: str,
) -> None:
    app, _, flow = sleeper_and_flow(keep_runs=1, keep_days=0)
    async with virtual(app, url=database_url) as world:
        started = await app.start_many(flow, [(n,) for n in range(3)])
        await world.settle()
        await prune(world)
        assert [await result(run) for run in started] == [0, 1, 2]
        await world.advance("10m")
        await prune(world)
        assert [run.id for run in await app.runs.list()] == [started[2].id]


async def test_the_number_counts_a_chain_by_the_end_of_its_last_attempt(database_url: str) -> None:
    app = Rota(keep_runs=2, keep_days=0)
    good = False

    @app.workflow
    async def flow(n: int) -> int:
        if n == 0 and not good:
            raise ValueError("not yet")
        return n

    async with virtual(app, url=database_url) as world:
        failed, *others = await app.start_many(flow, [(n,) for n in range(3)])
        await world.settle()
        await world.advance("1h")
        good = True
        await app.runs.retry(failed.id)
        await world.settle()
        await world.advance("1h")
        await prune(world)
        assert len(await app.runs.chain(failed.id)) == 2
        assert {run.root_id for run in await app.runs.list()} == {failed.id, others[1].id}
        await sound(app)


async def test_an_attempt_that_waits_for_its_retry_is_not_a_finished_run(database_url: str) -> None:
    app = Rota(keep_runs=1, keep_days=0)

    @app.workflow
    async def flow() -> int:
        return 1

    @app.workflow(retries=RetryPolicy(attempts=2, delay_s=86400, delay_s_max=86400))
    async def unlucky() -> None:
        raise ValueError("no")

    async with virtual(app, url=database_url) as world:
        kept = await app.start(flow)
        await world.settle()
        await world.advance("1m")
        await app.start(unlucky)
        await world.settle()
        await world.advance("1h")
        await prune(world)
        assert await result(kept) == 1


async def test_the_number_leaves_children_of_an_open_parent(database_url: str) -> None:
    app = Rota(keep_runs=1, keep_days=0)

    @app.workflow
    async def child() -> str:
        return "child"

    @app.workflow
    async def parent() -> str:
        run = await child.start()
        await sleep("30d")
        return await run.result()

    @app.workflow
    async def flow() -> int:
        return 1

    async with virtual(app, url=database_url) as world:
        run = await app.start(parent)
        await world.settle()
        await app.start_many(flow, [()] * 4)
        await world.settle()
        await world.advance("1d")
        await prune(world)
        assert len(await app.runs.list()) == 3  # the parent, its child and the newest
        await world.drain()
        assert await result(run) == "child"
        await prune(world)
        await world.advance("11m")
        await prune(world)
        assert [one.id for one in await app.runs.list()] == [run.id]
