"""Reaping: runs of dead and silent workers go to a successor, runs of living ones never do."""

from __future__ import annotations

import os
from typing import Any

import pytest

from rota import Rota, RunFailed
from rota.core.runs.model import StoredStep
from rota.core.time.instants import SECOND
from rota.engine import process_identity
from rota.engine.journal import Journal
from rota.errors import RunCrashed
from rota.store.runs import recover
from rota.testing import World, virtual
from tests.engine.kit import Gate, ghost_claim, ghost_row, here
from tests.kit.builders import opened, raw
from tests.workflows.kit import result, sound


def plain(**settings: Any) -> tuple[Rota, Any]:
    app = Rota(**settings)

    @app.workflow
    async def flow() -> int:
        return 1

    return app, flow


async def maintenance(world: World) -> Any:
    assert world.app.runtime is not None
    return world.app.runtime.maintenance


async def test_a_lapsed_run_crashes_and_a_recovery_takes_over(database_url: str) -> None:
    app, flow = plain()
    async with virtual(app, url=database_url) as world:
        run = await app.options(tags={"a": "b"}, priority=4).start(flow)
        await ghost_claim(app, "ghost")
        await world.advance("30s")
        await world.beat()
        assert (await run.run()).status == "running"
        await world.advance("1us")
        await world.beat()
        await world.settle()
        first, second = await app.runs.chain(run.id)
        assert first.label == "crashed:lapsed"
        assert (second.trigger, second.retry_of, second.recoveries) == ("recovery", first.id, 1)
        assert (second.attempt, second.tags, second.priority) == (1, '{"a":"b"}', 4)
        assert await result(run) == 1
        await sound(app)


async def test_a_recovery_keeps_the_queue_position_of_the_run_it_follows(database_url: str) -> None:
    app = Rota(slots=1)
    order: list[str] = []

    @app.workflow
    async def flow(name: str) -> None:
        order.append(name)

    async with virtual(app, url=database_url) as world:
        await app.start(flow, "lost")
        await ghost_claim(app, "ghost")
        world.clock.move_to(world.clock.now() + 31 * SECOND)
        await app.start(flow, "later")
        await world.beat()
        await world.settle()
        assert order == ["lost", "later"]


async def test_a_recovery_repeats_no_recorded_step(database_url: str) -> None:
    app = Rota()
    gate = Gate()
    calls: list[str] = []

    @app.step
    async def before() -> int:
        calls.append("before")
        return 1

    @app.step
    async def during() -> int:
        calls.append("during")
        await gate()
        return 2

    @app.workflow
    async def flow() -> int:
        return await before() + await during()

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        later = world.clock.now() + 120 * SECOND
        assert app.runtime is not None
        app.runtime.worker.held.clear()  # as if killed: nothing is handed over
    gate.open.set()
    async with virtual(app, url=database_url, start=later) as world:
        await world.beat()
        await world.settle()
        assert await app.runs.handle(run.id).result(timeout=60) == 3
        assert calls == ["before", "during", "during"]


async def test_a_dead_neighbour_is_noticed_without_waiting_for_its_lease(database_url: str) -> None:
    app, flow = plain()
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        # This very pid, but another process had it before: its start time differs.
        await ghost_row(app, "dead", **here() | {"pid_started": "1"})
        await ghost_claim(app, "dead")
        await world.beat()
        await world.settle()
        assert [row.label for row in await app.runs.chain(run.id)] == [
            "crashed:worker gone",
            "completed",
        ]
        assert [row.id for row in await app.workers()] != ["dead"]


async def test_a_run_of_a_dead_neighbour_that_is_locked_is_recovered_at_the_next_heartbeat(
    database_url: str,
) -> None:
    if database_url.startswith("sqlite"):
        pytest.skip("SQLite has one writer at a time")
    app, flow = plain()
    async with virtual(app, url=database_url) as world, opened(database_url, migrated=False) as db:
        run = await app.start(flow)
        await ghost_row(app, "dead", **here() | {"pid_started": "1"})
        await ghost_claim(app, "dead")

        async def settling(tx: Any) -> None:
            # The server has not noticed yet that the worker is dead, and holds its locks.
            await raw(tx, f"select 1 from runs where id = '{run.id}' for update")
            await world.beat()
            assert "dead" in [row.id for row in await app.workers()]

        await db.write(settling)
        assert await run.status() == "running"
        await world.beat()
        await world.settle()
        assert await run.status() == "completed"
        await world.beat()
        assert "dead" not in [row.id for row in await app.workers()]


async def test_dead_neighbours_are_noticed_at_start(database_url: str) -> None:
    app, flow = plain()
    async with virtual(app, url=database_url):
        run = await app.start(flow)
        await ghost_row(app, "dead", **here() | {"pid": 2**22 + 1, "pid_started": "7"})
        await ghost_claim(app, "dead")
    async with virtual(app, url=database_url) as world:
        await world.settle()
        assert await app.runs.handle(run.id).result(timeout=60) == 1


async def test_a_living_neighbour_keeps_its_runs_until_they_lapse(database_url: str) -> None:
    app, flow = plain()
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await ghost_row(app, "alive", **here())
        await ghost_claim(app, "alive")
        await world.advance("29s")
        await world.beat()
        assert await run.status() == "running"
        await world.advance("2s")
        await world.beat()
        assert (await app.runs.chain(run.id))[0].label == "crashed:lapsed"


async def test_a_process_elsewhere_is_not_judged_by_its_pid(database_url: str) -> None:
    app, flow = plain()
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await ghost_row(app, "far", host="elsewhere", pid=2**22 + 1, pid_started="7")
        await ghost_claim(app, "far")
        await world.advance("29s")
        await world.beat()
        assert await run.status() == "running"


async def test_a_worker_elsewhere_that_is_silent_for_long_goes_offline(database_url: str) -> None:
    app, _ = plain(lease_s=30)
    async with virtual(app, url=database_url) as world:
        await ghost_row(app, "far")
        await world.advance("60s")
        await world.beat()
        assert "far" in [row.id for row in await app.workers()]
        await world.advance("1s")
        await world.beat()
        assert "far" not in [row.id for row in await app.workers()]
        [row] = [row for row in await app.workers(everyone=True) if row.id == "far"]
        assert (row.status, row.stopped_at) == ("offline", world.clock.now())


async def test_a_run_that_kills_its_worker_too_often_is_quarantined(database_url: str) -> None:
    app, flow = plain(recoveries_max=2)
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        for crash in range(3):
            await ghost_claim(app, "ghost", alone=crash == 2)
            world.clock.move_to(world.clock.now() + 31 * SECOND)
            await (await maintenance(world)).reap()
        await world.settle()
        rows = await app.runs.chain(run.id)
        assert [(row.status, row.recoveries) for row in rows] == [
            ("crashed", 0),
            ("crashed", 1),
            ("crashed", 2),
        ]
        with pytest.raises(RunCrashed):
            await result(run)
        await sound(app)


async def test_a_run_quarantined_can_be_retried_by_hand_again_and_again(database_url: str) -> None:
    app, flow = plain(recoveries_max=2)
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        for _ in range(2):
            for crash in range(3):
                await ghost_claim(app, "ghost", alone=crash == 2)
                world.clock.move_to(world.clock.now() + 31 * SECOND)
                await (await maintenance(world)).reap()
            assert await run.status() == "crashed:lapsed"
            await app.runs.retry(run.id)
            assert await run.status() == "pending"
        await world.settle()
        assert await run.status() == "completed"
        assert await result(run) == 1
        rows = await app.runs.chain(run.id)
        assert [row.retry_of for row in rows[1:]] == [row.id for row in rows[:-1]]
        assert [row.attempt for row in rows] == [1, 1, 1, 2, 2, 2, 3]


async def test_a_parent_learns_that_its_child_was_quarantined(database_url: str) -> None:
    app = Rota(recoveries_max=0)

    @app.workflow(queue="other")
    async def child() -> None:
        return None

    @app.workflow
    async def parent() -> str:
        ref = await app.options(queue="nowhere").start(child)
        try:
            await ref.result()
        except RunFailed as error:
            return type(error).__name__
        return "no"

    async with virtual(app, url=database_url) as world:
        run = await app.start(parent)
        await world.settle()
        assert await run.status() == "sleeping:child"
        await claim_from(app, "nowhere")
        world.clock.move_to(world.clock.now() + 31 * SECOND)
        await world.beat()
        await world.settle()
        assert await result(run) == "RunCrashed"


async def claim_from(app: Rota, queue: str) -> None:
    """Claim from a queue that no worker serves."""
    from rota.store.runs import claim
    from rota.store.runs.claim import ClaimRequest

    now = app.clock.now()
    request = ClaimRequest(
        namespace="default", worker_id="ghost", names=list(app.workflows), queues=[(queue, 1)],
        runs_max=1, limited=frozenset(), now=now, lease_until=now + 30 * SECOND,
    )  # fmt: skip
    assert (await app.connection.database.write(claim.claim, request)).claims


async def test_a_jump_of_the_clock_reaps_nobody(database_url: str) -> None:
    app, flow = plain()
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await ghost_claim(app, "ghost")
        world.clock.jump("2h")
        await world.beat()
        assert await run.status() == "running"
        await world.advance("29s")
        await world.beat()
        assert await run.status() == "running"
        # Its holder had a whole lease to renew and did not.
        await world.advance("2s")
        await world.beat()
        assert (await app.runs.chain(run.id))[0].label == "crashed:lapsed"


async def test_a_jump_of_the_clock_reaps_no_worker_elsewhere(database_url: str) -> None:
    app, flow = plain()
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await ghost_row(app, "far")
        await ghost_claim(app, "far")
        world.clock.jump("2h")
        await world.beat()
        assert await run.status() == "running"
        assert "far" in [row.id for row in await app.workers()]
        # Its holder had a whole lease to renew and did not.
        await world.advance("31s")
        await world.beat()
        assert (await app.runs.chain(run.id))[0].label == "crashed:lapsed"
        assert "far" not in [row.id for row in await app.workers()]


async def test_a_silent_worker_elsewhere_keeps_its_runs_until_they_lapse(database_url: str) -> None:
    app, flow = plain(lease_s=30)
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await ghost_row(app, "far")
        [held] = await ghost_claim(app, "far")
        # Its heartbeat is slow, or its lease is longer than ours.
        far_lease = world.clock.now() + 600 * SECOND
        await app.connection.database.write(recover.renew_leases, [held], lease_until=far_lease)
        await world.advance("5m")
        await world.beat()
        assert await run.status() == "running"
        await world.advance("6m")
        await world.beat()
        assert (await app.runs.chain(run.id))[0].label == "crashed:lapsed"


async def test_a_jump_back_reaps_nobody(database_url: str) -> None:
    app, flow = plain()
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await ghost_claim(app, "ghost")
        world.clock.jump(-7200)
        await world.advance("1h")
        await world.beat()
        assert await run.status() == "running"


async def test_a_worker_that_is_late_does_not_reap_its_own_runs(database_url: str) -> None:
    app = Rota()
    gate = Gate()

    @app.workflow
    async def flow() -> int:
        await gate()
        return 1

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        world.clock.move_to(world.clock.now() + 300 * SECOND)
        await (await maintenance(world)).reap()
        assert await run.status() == "running"
        gate.open.set()
        await world.settle()
        assert await result(run) == 1
        assert len(await app.runs.chain(run.id)) == 1


async def test_more_lapsed_runs_than_one_batch_are_reaped_at_once(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.engine.maintenance.REAP_BATCH", 2)
    app, flow = plain()
    async with virtual(app, url=database_url) as world:
        started = await app.start_many(flow, [()] * 5)
        assert len(await ghost_claim(app, "ghost", 5)) == 5
        world.clock.move_to(world.clock.now() + 31 * SECOND)
        assert await (await maintenance(world)).reap() == 5
        await world.settle()
        assert [await result(run) for run in started] == [1] * 5


def test_a_process_lives_while_its_start_time_is_its_own() -> None:
    pid = os.getpid()
    assert process_identity.lives(pid, process_identity.started(pid))
    assert not process_identity.lives(pid, "1")
    assert not process_identity.lives(2**22 + 1, "1")


def test_a_process_whose_start_is_unknown_is_judged_by_its_pid_alone() -> None:
    assert process_identity.lives(os.getpid(), "")
    assert not process_identity.lives(2**22 + 1, "")


def test_the_start_of_a_process_survives_odd_names(monkeypatch: pytest.MonkeyPatch) -> None:
    stat = "7 (a) b (c)) S " + " ".join(str(n) for n in range(4, 53))
    monkeypatch.setattr("pathlib.Path.read_text", lambda *_: stat)
    assert process_identity.started(7) == "22"


@pytest.mark.parametrize("state", ["Z", "X"])
def test_a_zombie_does_not_live(monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    stat = f"7 (python) {state} " + " ".join(str(n) for n in range(4, 53))
    monkeypatch.setattr("pathlib.Path.read_text", lambda *_: stat)
    assert process_identity.started(7) == ""
    assert not process_identity.lives(7, "22")


def test_a_host_is_more_than_its_name() -> None:
    name, boot, namespace = process_identity.host().split("/")
    assert name
    assert boot
    assert namespace


async def test_a_write_of_two_records_counts_only_if_both_are_stored(database_url: str) -> None:
    """The journal answers for a group: a finished step never changes."""
    app = Rota()

    @app.workflow
    async def flow() -> None: ...

    async with virtual(app, url=database_url) as world:
        await app.start(flow)
        [claim] = await ghost_claim(app, "far")
        journal = Journal(app.connection.database, world.clock)

        def step(key: str, position: int, started_at: int) -> StoredStep:
            return StoredStep(
                claim.segment, key, position, "step", "completed", 1, 1, "1", None, None, None,
                started_at, started_at, None,
            )  # fmt: skip

        assert await journal.put(claim, [step("a", 1, 10)]) is True
        assert await journal.put(claim, [step("a", 1, 20), step("b", 2, 20)]) is False
        assert await journal.put(claim, [step("a", 1, 10), step("c", 3, 30)]) is True
