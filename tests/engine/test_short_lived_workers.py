"""Workers that live for moments: they cannot watch the clock for a lease, so they judge by the
instants that earlier workers stored. `jump("0s")` makes the worker of a test as good as new."""

from __future__ import annotations

from typing import Any

from rota import Rota
from rota.core.time.instants import DAY, MINUTE
from rota.testing import virtual
from tests.engine.kit import ghost_claim, ghost_row
from tests.workflows.kit import sound


def plain(**settings: Any) -> tuple[Rota, Any]:
    app = Rota(**settings)

    @app.workflow
    async def flow(n: int = 0) -> int:
        return n

    return app, flow


async def test_a_new_worker_deletes_what_was_old_for_the_worker_before_it(
    database_url: str,
) -> None:
    app, flow = plain(keep_days=7)
    async with virtual(app, url=database_url) as world:
        await app.start(flow, 1)
        await world.settle()
        await world.advance("1d")
        young = await app.start(flow, 2)
        await world.settle()
        await world.advance("6d12h")
        await ghost_row(app, "before")
        await world.advance("1d")  # now the second is old too, if the clock is right
        world.clock.jump("0s")
        await world.beat()
        assert [run.id for run in await app.runs.list()] == [young.id]
        await world.advance("61s")
        await world.beat()
        assert await app.runs.list() == []
        await sound(app)


async def test_a_new_worker_keeps_a_number_and_forgets_workers_too(database_url: str) -> None:
    app, flow = plain(keep_days=0, keep_runs=1)
    async with virtual(app, url=database_url) as world:
        runs = await app.start_many(flow, [(n,) for n in range(3)])
        await world.settle()
        await ghost_row(app, "first")
        await world.advance("2d")
        await ghost_row(app, "before")
        await world.advance("1h")
        world.clock.jump("0s")
        await world.beat()
        assert [run.id for run in await app.runs.list()] == [runs[2].id]
        # The first has been silent for long. The next worker may forget it a day later.
        assert {row.id for row in await app.workers()} > {"before"}
        assert "first" not in [row.id for row in await app.workers()]


async def test_a_jump_of_the_clock_deletes_nothing_that_no_earlier_worker_saw_as_old(
    database_url: str,
) -> None:
    app, flow = plain(keep_days=7)
    async with virtual(app, url=database_url) as world:
        await app.start(flow, 1)
        await world.settle()
        await ghost_row(app, "before")
        world.clock.jump("60d")
        await world.beat()
        # A worker of the wrong moment has died in it. Its instant proves nothing yet.
        await ghost_row(app, "wrong")
        await world.advance("9m")
        world.clock.jump("0s")
        await world.beat()
        assert len(await app.runs.list()) == 1


async def test_an_instant_of_a_wrong_clock_is_corrected_by_a_worker_with_a_right_one(
    database_url: str,
) -> None:
    app, flow = plain(keep_days=7)
    async with virtual(app, url=database_url) as world:
        await app.start(flow, 1)
        await world.settle()
        await ghost_row(app, "wrong", started_at=world.clock.now() + 60 * DAY)
        world.clock.jump("0s")
        await world.beat()
        rows = {row.id: row for row in await app.workers()}
        assert rows["wrong"].heartbeat_at == world.clock.now()
        world.clock.jump("61d")  # wrong for a second time, and further
        await world.beat()
        assert len(await app.runs.list()) == 1


async def test_a_new_worker_recovers_runs_of_dead_workers_elsewhere(database_url: str) -> None:
    app, flow = plain()
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await ghost_row(app, "dead")
        await ghost_claim(app, "dead")
        await world.advance("1h")
        world.clock.jump("0s")
        await world.beat()
        assert await run.status() == "running", "no worker saw a time after its lease"
        await ghost_row(app, "before")
        await world.advance("1h")
        world.clock.jump("0s")
        await world.beat()
        assert (await app.runs.chain(run.id))[0].label == "crashed:lapsed"
        assert "dead" not in [row.id for row in await app.workers()]
        await sound(app)


async def test_a_jump_of_the_clock_takes_no_run_from_a_living_worker(database_url: str) -> None:
    app, flow = plain()
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await ghost_row(app, "living")
        await ghost_claim(app, "living")
        await ghost_row(app, "before")
        world.clock.jump("2h")
        await world.beat()
        await ghost_row(app, "new")
        await world.advance("5s")  # before the living worker has renewed its leases
        world.clock.jump("0s")
        await world.beat()
        assert await run.status() == "running"


async def test_an_instant_counts_when_it_is_as_old_as_a_long_lease(database_url: str) -> None:
    app, flow = plain(lease_s=3600)
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await ghost_row(app, "dead", started_at=world.clock.now() - 100 * MINUTE)
        await ghost_claim(app, "dead")
        await world.advance("61m")
        await ghost_row(app, "before")
        await world.advance("59m")
        world.clock.jump("0s")
        await world.beat()
        assert await run.status() == "running"
        await world.advance("1m")
        world.clock.jump("0s")
        await world.beat()
        assert (await app.runs.chain(run.id))[0].label == "crashed:lapsed"
