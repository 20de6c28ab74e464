"""From its second recovery on, a run is executed by a worker that holds nothing else."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest

from rota import Rota, sleep, wait_for
from rota.client.start import RunOptions
from rota.core.runs.model import Queue
from rota.core.runs.recovery import ALONE_FROM, runs_alone
from rota.core.time.instants import SECOND
from rota.errors import WrongState
from rota.explain.why import why
from rota.store.backend.queries import compiled
from rota.store.runs import workers
from rota.store.runs.start import start_runs
from rota.testing import VirtualClock, virtual
from tests.engine.kit import Gate, beside, ghost_claim, ghost_row
from tests.workflows.kit import sound

LEASE_S = 30


def gated() -> tuple[Rota, Gate, Any]:
    app = Rota(lease_s=LEASE_S)
    gate = Gate()

    @app.step
    async def passes(who: str) -> Any:
        return await gate(who)

    @app.workflow
    async def work(who: str) -> Any:
        return await passes(who)

    return app, gate, work


async def waits_alone(app: Rota, work: Any, who: str = "suspect", **options: Any) -> str:
    """Insert a run that was recovered twice, as `reap` would have left it."""
    fresh = msgspec.structs.replace(
        app.starter.new_run(work, (who,), {}, RunOptions(**options)), recoveries=ALONE_FROM
    )
    await app.connection.database.write(start_runs, [fresh], now=app.clock.now())
    return fresh.id


def test_the_sql_names_the_same_number_of_recoveries() -> None:
    for dialect in ("sqlite", "postgres"):
        queries = compiled(dialect)
        claims = {"pick_unkeyed", "pick_keyed", "pick_alone", "beat"}
        claims |= {"pick_open", "pick_of_keys", "pick_priority"}
        claims |= {"ready_runs"} if dialect == "sqlite" else {"claim_runs", "claim_runs_after"}
        for name in claims:
            sign = ">=" if name in ("pick_alone", "beat") else "<"
            assert f"recoveries {sign} {ALONE_FROM}" in queries[name].text


async def test_two_crashes_beside_others_make_the_third_execution_a_lonely_one(
    database_url: str,
) -> None:
    app, gate, work = gated()
    async with virtual(app, url=database_url) as world:
        run = await app.start(work, "suspect")
        for _ in range(ALONE_FROM):
            assert len(await ghost_claim(app, "ghost")) == 1
            world.clock.move_to(world.clock.now() + (LEASE_S + 1) * SECOND)
            await world.beat()
        others = [await work.options(priority=9).start(f"other {n}") for n in range(3)]
        await world.settle()
        assert gate.entered == ["suspect"], "the worker was idle, and claims nothing beside it"
        gate.open.set()
        await world.settle()
        assert gate.entered == ["suspect", "other 0", "other 1", "other 2"]
        assert {await one.status() for one in [run, *others]} == {"completed"}
        await sound(app)


@pytest.mark.slow
async def test_a_busy_worker_pauses_its_claims_for_one_lease_in_ten(database_url: str) -> None:
    app, gate, work = gated()
    async with virtual(app, url=database_url) as world:
        await app.start(work, "long")
        await world.settle()
        await waits_alone(app, work)
        await world.beat()
        await app.start(work, "second")
        await world.settle()
        assert gate.entered == ["long"], "the worker pauses, in order to become idle"
        for _ in range(9):
            await world.advance(LEASE_S)
            await world.beat()
            await world.settle()
            assert gate.entered == ["long", "second"], "it has not become idle, and continues"
        await world.advance(LEASE_S)
        await world.beat()
        await app.start(work, "third")
        await world.settle()
        assert gate.entered == ["long", "second"], "it pauses again"
        gate.open.set()
        await world.settle()
        assert gate.entered == ["long", "second", "suspect", "third"]
        await sound(app)


async def test_the_limits_of_a_queue_hold_for_it(database_url: str) -> None:
    app, _, work = gated()
    async with beside(app, database_url, VirtualClock()):
        await waits_alone(app, work)
        busy = await app.start(work, "busy")
        await app.connection.database.write(
            workers.put_queues, [Queue("default", "default", running_max=1)]
        )
        assert len(await ghost_claim(app, "elsewhere")) == 1
        assert await ghost_claim(app, "w", alone=True) == [], "the limit is reached"
        await app.runs.cancel(busy.id)
        assert len(await ghost_claim(app, "w", alone=True)) == 1


async def test_a_run_that_sleeps_is_alone_again_as_soon_as_it_wakes(database_url: str) -> None:
    app = Rota(lease_s=LEASE_S)
    gate = Gate()

    @app.step
    async def passes(who: str) -> None:
        await gate(who)

    @app.workflow
    async def work(who: str) -> None:
        await sleep("1m")
        await passes(who)

    @app.workflow
    async def other() -> None:
        gate.entered.append("other")

    async with virtual(app, url=database_url) as world:
        await waits_alone(app, work)
        await world.beat()
        await world.advance("1m")
        assert gate.entered == ["suspect"], "no heartbeat was needed"
        await app.start(other)
        await world.settle()
        assert gate.entered == ["suspect"]
        gate.open.set()
        await world.settle()
        assert gate.entered == ["suspect", "other"]


async def test_a_run_that_a_stopping_worker_hands_over_counts_no_crash(database_url: str) -> None:
    """A deploy stops workers in the same way, and says nothing about the runs."""
    app, gate, work = gated()
    clock = VirtualClock()
    async with beside(app, database_url, clock):
        run = await app.start(work, "handed over")
    for stops in range(ALONE_FROM + 1):
        async with virtual(app, url=database_url, start=clock.now()) as world:
            await world.settle()
            assert len(gate.entered) == stops + 1
    async with beside(app, database_url, clock):
        [row] = await app.runs.chain(run.id)
        assert (row.status, row.recoveries, row.claim_count) == ("pending", 0, ALONE_FROM + 1)


async def test_why_names_the_idle_worker_that_a_run_waits_for(database_url: str) -> None:
    app, gate, work = gated()
    async with virtual(app, url=database_url) as world:
        await app.start(work, "long")
        await world.settle()
        waiting = await waits_alone(app, work)
        found = await why(app, waiting)
        assert found.verdict == "waits_alone"
        assert "is executed alone" in found.sentence
        gate.open.set()
        await world.settle()


async def test_why_names_the_run_that_keeps_the_other_slots_empty(database_url: str) -> None:
    app, gate, work = gated()
    async with virtual(app, url=database_url) as world:
        suspect = await waits_alone(app, work)
        await world.beat()
        await world.settle()
        other = await app.start(work, "other")
        found = await why(app, other.id)
        assert (found.verdict, found.facts["alone"]) == ("worker_reserved", [suspect])
        assert found.sentence == (
            f"run {other.id} (work) waits: no slot is free while {suspect} is executed alone, "
            "after workers died."
        )
        gate.open.set()
        await world.settle()


async def test_why_names_all_runs_that_are_executed_alone(database_url: str) -> None:
    app, gate, work = gated()
    async with virtual(app, url=database_url) as world:
        await ghost_row(app, "ghost", queues='["default"]', names='["work"]')
        suspects = [await waits_alone(app, work) for _ in range(2)]
        await world.beat()
        await world.settle()
        await ghost_claim(app, "ghost", alone=True)
        other = await app.start(work, "other")
        found = await why(app, other.id)
        assert sorted(found.facts["alone"]) == sorted(suspects)
        assert found.sentence == (
            f"run {other.id} (work) waits: no slot is free while {', '.join(found.facts['alone'])} "
            "are each executed alone, after workers died."
        )
        gate.open.set()
        await world.settle()


class Restless:
    """Runs that wake each other until their children have ended, which are claimed like any run."""

    def __init__(self) -> None:
        self.app = app = Rota(lease_s=LEASE_S, slots=4)
        self.order: list[str] = []
        self.ids: dict[str, str] = {}

        @app.step
        async def note(who: str) -> None:
            self.order.append(who)
            assert len(self.order) < 100, "no child ever began"

        @app.step
        async def wake_others(who: str, lap: int) -> None:
            for other in self.ids.keys() - {who}:
                with contextlib.suppress(WrongState):
                    await app.runs.signal(self.ids[other], "go")

        @app.step
        async def has_ended(child_id: str) -> bool:
            return await app.runs.handle(child_id).status() == "completed"

        @app.workflow
        async def other(who: str) -> None:
            await note(who)

        @app.workflow
        async def suspect(who: str) -> None:
            child = await other.start(f"child of {who}")
            lap = 0
            while not await has_ended(child.id):
                lap += 1
                await note(who)
                await wake_others(who, lap)
                await wait_for("go", timeout="1d")
            await wake_others(who, 0)

        self.other = other
        self.suspect = suspect

    async def insert(self, *names: str, **options: Any) -> None:
        """Insert suspects with these names, one after the other."""
        for who in names:
            self.ids[who] = await waits_alone(self.app, self.suspect, who, **options)


async def test_runs_that_execute_alone_and_wake_each_other_keep_no_other_run_away(
    database_url: str,
) -> None:
    restless = Restless()
    app, order = restless.app, restless.order
    async with virtual(app, url=database_url) as world:
        innocent = [await restless.other.start(f"innocent {n}") for n in range(5)]
        await restless.insert("a", "b", "c")
        await world.beat()
        await world.settle()
        statuses = [await app.runs.handle(one).status() for one in restless.ids.values()]
        assert statuses == ["completed"] * 3
        assert {await one.status() for one in innocent} == {"completed"}
        assert order[:3] == ["a", "child of a", "innocent 0"], "its own children come first"
        await sound(app)


async def test_runs_that_execute_alone_are_claimed_by_their_last_claim_and_so_are_their_queues(
    database_url: str,
) -> None:
    app = Rota(lease_s=LEASE_S)
    app.queue("late")
    entered: list[str] = []
    ids: dict[str, str] = {}

    @app.step
    async def wake_others(who: str, lap: int) -> None:
        if entered[-1:] != [who]:  # a signal that came before lets it continue at once
            entered.append(who)
        for other in ids.keys() - {who}:
            with contextlib.suppress(WrongState):
                await app.runs.signal(ids[other], "go")

    @app.workflow
    async def work(who: str) -> None:
        for lap in range(6):
            await wake_others(who, lap)
            await wait_for("go")

    async with virtual(app, url=database_url) as world:
        ids["urgent"] = await waits_alone(app, work, "urgent", priority=9)
        for who in ("old", "young"):
            ids[who] = await waits_alone(app, work, who)
        ids["elsewhere"] = await waits_alone(app, work, "elsewhere", queue="late")
        await world.beat()
        await world.settle()
        assert entered[:6] == ["elsewhere", "urgent", "elsewhere", "old", "elsewhere", "young"]
        of_one_queue = [who for who in entered if who != "elsewhere"]
        assert of_one_queue[:4] == ["urgent", "old", "young", "urgent"]


@pytest.mark.parametrize(("recoveries", "alone"), [(0, False), (1, False), (2, True), (9, True)])
def test_only_from_the_second_recovery_on(recoveries: int, alone: bool) -> None:
    assert runs_alone(recoveries) is alone
