"""Leases: renewed for what is held and nothing else; what was lost or cancelled is interrupted."""

from __future__ import annotations

from typing import Any

import pytest

from rota import Rota, sleep
from rota.core.time.instants import SECOND
from rota.errors import RunCancelled
from rota.store.runs.cancel import cancel_chains
from rota.store.runs.recover import reap_runs
from rota.testing import virtual
from tests.engine.kit import Gate, StoreTap, beside, eventually, ghost_claim, live, pass_time
from tests.workflows.kit import result, sound


def gated(gate: Gate, **settings: Any) -> tuple[Rota, Any]:
    app = Rota(**settings)

    @app.step
    async def after() -> str:
        gate.entered.append("after")
        return "after"

    @app.workflow
    async def flow(n: int) -> str:
        await gate(n)
        return await after()

    return app, flow


async def test_a_claim_gives_the_full_lease(database_url: str) -> None:
    gate = Gate()
    app, flow = gated(gate, lease_s=45)
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow, 1)
        await world.settle()
        row = await run.run()
        assert row.lease_until == world.clock.now() + 45 * SECOND
        assert app.runtime is not None
        assert row.lease_owner == app.runtime.worker.id


async def test_a_renewal_concerns_only_what_is_held(database_url: str) -> None:
    gate = Gate()
    app, flow = gated(gate)
    async with virtual(app, url=database_url) as world:
        foreign = await app.start(flow, 2)
        [claim] = await ghost_claim(app, "ghost")
        assert claim.id == foreign.id
        own = await app.start(flow, 1)
        await world.settle()
        lease_before = (await foreign.run()).lease_until
        await world.advance("10s")
        await world.beat()
        assert (await own.run()).lease_until == world.clock.now() + 30 * SECOND
        assert (await foreign.run()).lease_until == lease_before


async def test_leases_are_renewed_at_a_third_for_as_long_as_a_run_lasts(database_url: str) -> None:
    gate = Gate()
    app, flow = gated(gate, lease_s=30)
    async with live(app, database_url) as clock:
        run = await app.start(flow, 1)
        await eventually(lambda: gate.under_way == 1)
        for _ in range(8):
            await pass_time(clock, "10s")
            await eventually(lambda: is_leased(run, clock))
        assert len(await app.runs.chain(run.id)) == 1
        gate.open.set()
        assert await result(run) == "after"


async def is_leased(run: Any, clock: Any) -> bool:
    row = await run.run()
    return row.lease_until is not None and bool(row.lease_until >= clock.now() + 20 * SECOND)


async def test_nothing_is_renewed_when_nothing_is_held(database_url: str) -> None:
    gate = Gate()
    app, _ = gated(gate)
    async with virtual(app, url=database_url) as world:
        tap = StoreTap(app)
        await world.beat()
        assert tap.count("renew_leases") == 0


async def test_a_run_that_was_taken_over_is_interrupted_at_the_next_renewal(
    database_url: str,
) -> None:
    gate = Gate()
    app, flow = gated(gate)
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow, 1)
        await world.settle()
        # Another worker, sure that this one is dead, hands the run to a successor.
        assert app.runtime is not None
        await app.connection.database.write(
            reap_runs, namespace="default", now=world.clock.now(), held=[],
            gone=[app.runtime.worker.id], recoveries_max=5, new_ids=[app.ids.make(0)],
        )  # fmt: skip
        await app.runtime.worker.renew()
        await eventually(lambda: gate.interrupted == [1])
        gate.open.set()
        await world.drain()
        first, second = await app.runs.chain(run.id)
        assert (first.label, second.label) == ("crashed:worker gone", "completed")
        assert (second.trigger, second.recoveries, second.attempt) == ("recovery", 1, 1)
        assert gate.entered == [1, 1, "after"]
        await sound(app)


async def test_a_worker_that_lost_its_run_writes_nothing_more_about_it(database_url: str) -> None:
    gate = Gate()
    app, flow = gated(gate)
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow, 1)
        await world.settle()
        assert app.runtime is not None
        await app.connection.database.write(
            reap_runs, namespace="default", now=world.clock.now(), held=[],
            gone=[app.runtime.worker.id], recoveries_max=0, new_ids=[app.ids.make(0)],
        )  # fmt: skip
        # It was not notified yet: it executes its step, and is refused when it records it.
        gate.open.set()
        await world.settle()
        assert gate.entered == [1]
        assert await app.runs.steps(run.id) == []
        assert await run.status() == "crashed:worker gone"


async def test_a_cancel_is_received_at_once(database_url: str) -> None:
    gate = Gate()
    app, flow = gated(gate)
    async with live(app, database_url):
        run = await app.start(flow, 1)
        await eventually(lambda: gate.under_way == 1)
        await run.cancel()
        await eventually(lambda: gate.interrupted == [1])
        with pytest.raises(RunCancelled):
            await result(run)


async def test_a_cancel_from_another_process_is_received_at_once(database_url: str) -> None:
    gate = Gate()
    app, flow = gated(gate)
    other = Rota()
    async with live(app, database_url) as clock, beside(other, database_url, clock):
        run = await app.start(flow, 1)
        await eventually(lambda: gate.under_way == 1)
        await other.runs.cancel(run.id)
        await eventually(lambda: gate.interrupted == [1])


async def test_a_cancel_nobody_received_is_found_at_the_next_renewal(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    app, flow = gated(gate)
    async with live(app, database_url) as clock:
        run = await app.start(flow, 1)
        await eventually(lambda: gate.under_way == 1)
        await app.connection.database.write(
            cancel_chains, [run.id], reason="silently", now=clock.now()
        )
        assert gate.interrupted == []
        await pass_time(clock, "10s")
        await eventually(lambda: gate.interrupted == [1])


async def test_an_interrupted_run_frees_its_slot(database_url: str) -> None:
    gate = Gate()
    app, flow = gated(gate, slots=1)
    async with live(app, database_url):
        first = await app.start(flow, 1)
        second = await app.start(flow, 2)
        await eventually(lambda: gate.entered == [1])
        await first.cancel()
        await eventually(lambda: gate.entered == [1, 2])
        gate.open.set()
        assert await result(second) == "after"


async def test_a_late_renewal_does_not_interrupt_the_next_claim_of_the_same_run(
    database_url: str,
) -> None:
    app = Rota()
    first, second = Gate(), Gate()

    @app.step
    async def work(number: int) -> None:
        await (first if number == 1 else second)()

    @app.workflow
    async def flow() -> str:
        await work(1)
        await sleep("1s")
        await work(2)
        return "done"

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        tap = StoreTap(app)

        async def meanwhile(name: str) -> None:
            """Between the list of what is held and its renewal the run sleeps and comes back."""
            if name == "renew_leases" and not second.entered:
                first.open.set()
                await world.advance("2s")
                assert second.under_way == 1

        tap.before = meanwhile
        assert app.runtime is not None
        await app.runtime.worker.renew()
        second.open.set()
        await world.settle()
        assert second.interrupted == []
        assert await result(run) == "done"
