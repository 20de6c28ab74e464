"""From its second recovery on, a run is executed by a worker that holds nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from rota import Rota, RunHandle, sleep
from rota.client.start import RunOptions
from rota.core.runs.model import Queue
from rota.core.runs.recovery import ALONE_FROM, runs_alone
from rota.core.time.instants import SECOND
from rota.explain.schedule import why
from rota.store.backend.queries import texts
from rota.store.runs import transitions, workers
from rota.testing import VirtualClock
from tests.engine.kit import Gate, beside, eventually, ghost_claim, live, pass_time
from tests.workflows.kit import sound

LEASE_S = 30


def gated(**settings: Any) -> tuple[Rota, Gate, Any]:
    app = Rota(lease_s=LEASE_S, **settings)
    gate = Gate()

    @app.workflow
    async def work(who: str) -> Any:
        return await gate(who)

    return app, gate, work


async def crashed_twice(app: Rota, work: Any, who: str) -> RunHandle[Any]:
    """A run that two other workers took and never came back with."""
    run = await app.start(work, who)
    for _ in range(ALONE_FROM):
        assert len(await ghost_claim(app, "ghost", alone=False)) == 1
        app.clock.move_to(app.clock.now() + (LEASE_S + 1) * SECOND)  # type: ignore[attr-defined]
        await _reap(app)
    assert runs_alone((await run.run()).recoveries)
    return run


async def _reap(app: Rota) -> None:
    now = app.clock.now()
    await app.database.write(
        transitions.reap, namespace="default", now=now, gone=[], recoveries_max=5,
        new_ids=list(app.ids.take(now, 10)),
    )  # fmt: skip


async def passed(clock: VirtualClock, condition: Callable[[], bool]) -> None:
    """Let heartbeats pass until a condition holds, for two minutes at most."""
    for _ in range(24):
        await pass_time(clock, "5s")
        if condition():
            return
    assert condition()


def test_the_sql_names_the_same_number_of_recoveries() -> None:
    for dialect in ("sqlite", "postgres"):
        named = {name: text for name, text in texts(dialect).items() if "recoveries " in text}
        claims = {"pick_unkeyed", "pick_keyed", "pick_alone", "beat"}
        claims |= {"pick_open", "pick_of_keys", "pick_priority"}
        claims.add("ready_runs" if dialect == "sqlite" else "claim_runs")
        assert named.keys() >= claims
        for name in claims:
            sign = ">=" if name in ("pick_alone", "beat") else "<"
            assert f"recoveries {sign} {ALONE_FROM}" in named[name]


async def test_an_idle_worker_executes_it_alone_and_the_others_after_it(database_url: str) -> None:
    app, gate, work = gated()
    clock = VirtualClock()
    async with beside(app, database_url, clock):
        await crashed_twice(app, work, "suspect")
        for number in range(3):
            await work.options(priority=9).start(f"other {number}")
    async with live(app, database_url, clock):
        await eventually(lambda: gate.entered == ["suspect"])
        late = await app.start(work, "late")
        await pass_time(clock, "10s")
        assert gate.entered == ["suspect"]
        gate.open.set()
        await late.result(timeout=30)
        await eventually(lambda: len(gate.entered) == 5)
        await sound(app)


async def test_a_worker_with_runs_in_hand_makes_room_for_one_lease_and_then_goes_on(
    database_url: str,
) -> None:
    app, gate, work = gated(heartbeat_s=5)
    async with live(app, database_url) as clock:
        await app.start(work, "long")
        await eventually(lambda: gate.entered == ["long"])
        await _waiting_alone(app, work)
        await pass_time(clock, "6s")  # a heartbeat tells the worker
        await app.start(work, "new")
        await pass_time(clock, "10s")
        assert gate.entered == ["long"], "the worker makes room"
        await passed(clock, lambda: gate.entered == ["long", "new"])
        await app.start(work, "newer")
        await eventually(lambda: gate.entered == ["long", "new", "newer"])
        gate.open.set()
        await eventually(lambda: "suspect" in gate.entered)
        await sound(app)


async def _waiting_alone(app: Rota, work: Any) -> None:
    """Write a run that was recovered twice, as a reaper would have left it."""
    fresh = msgspec.structs.replace(
        app.new_run(work, ("suspect",), {}, RunOptions()), recoveries=ALONE_FROM
    )
    await app.database.write(transitions.start, [fresh], now=app.clock.now())


async def test_the_limits_of_a_queue_hold_for_it(database_url: str) -> None:
    app, _, work = gated()
    async with beside(app, database_url, VirtualClock()):
        await _waiting_alone(app, work)
        busy = await app.start(work, "busy")
        await app.database.write(workers.put_queues, [Queue("default", "default", running_max=1)])
        assert len(await ghost_claim(app, "elsewhere")) == 1
        assert await ghost_claim(app, "w", alone=True) == [], "the limit is reached"
        await app.cancel(busy.id)
        assert len(await ghost_claim(app, "w", alone=True)) == 1


async def test_one_that_sleeps_is_alone_again_when_it_wakes(database_url: str) -> None:
    app = Rota(lease_s=LEASE_S, heartbeat_s=5)
    gate = Gate()

    @app.workflow
    async def work(who: str) -> None:
        await sleep("1m")
        await gate(who)

    async with live(app, database_url) as clock:
        await _waiting_alone(app, work)
        await passed(clock, lambda: gate.entered == ["suspect"])
        await app.start(work, "other")
        await pass_time(clock, "70s")
        assert gate.entered == ["suspect"]
        gate.open.set()
        await asyncio.sleep(0)


async def test_why_says_that_it_waits_for_an_idle_worker(database_url: str) -> None:
    app, gate, work = gated()
    async with live(app, database_url) as clock:
        await app.start(work, "long")
        await eventually(lambda: gate.entered == ["long"])
        await _waiting_alone(app, work)
        await pass_time(clock, "6s")
        [pending] = await app.list(status="pending")
        found = await why(app, pending.id)
        assert found.verdict == "waits_alone"
        assert "runs alone" in found.sentence
        gate.open.set()


@pytest.mark.parametrize(("recoveries", "alone"), [(0, False), (1, False), (2, True), (9, True)])
def test_only_from_the_second_recovery_on(recoveries: int, alone: bool) -> None:
    assert runs_alone(recoveries) is alone
