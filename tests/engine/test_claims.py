"""Claiming: how many, in which order, from which queues, and never a wake-up lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota import Rota
from rota.client.start import RunOptions
from rota.core.time.instants import SECOND
from rota.errors import StoreCorrupt
from rota.store.runs import wake
from rota.store.runs.start import start_runs
from rota.testing import virtual
from tests.engine.kit import Gate, StoreTap, beside, eventually, live
from tests.workflows.kit import result, sound


def gated(gate: Gate, **settings: Any) -> tuple[Rota, Any]:
    app = Rota(**settings)

    @app.workflow
    async def flow(n: int) -> int:
        return int(await gate(n))

    return app, flow


@pytest.mark.parametrize("slots", [1, 2, 5])
async def test_a_worker_fills_its_slots_and_no_more(database_url: str, slots: int) -> None:
    gate = Gate()
    app, flow = gated(gate, slots=slots)
    async with virtual(app, url=database_url) as world:
        started = await app.start_many(flow, [(n,) for n in range(12)])
        await world.settle()
        assert await app.runs.counts() == {"running": slots, "pending": 12 - slots}
        gate.open.set()
        await world.settle()
        assert [await result(run) for run in started] == list(range(12))
        assert gate.most == slots
        assert gate.entered == list(range(12))
        await sound(app)


async def test_a_full_worker_asks_again_when_a_slot_gets_free(database_url: str) -> None:
    gate = Gate()
    app, flow = gated(gate, slots=2)
    async with live(app, database_url):
        started = await app.start_many(flow, [(n,) for n in range(7)])
        await eventually(lambda: gate.under_way == 2)
        gate.open.set()
        for run in started:
            await result(run)
        assert gate.most == 2


async def test_with_free_slots_a_higher_priority_still_begins_first(database_url: str) -> None:
    """Whatever a worker was notified of: it claims in the order of its queue."""
    app = Rota(slots=5)
    order: list[str] = []

    @app.workflow
    async def flow(name: str) -> None:
        order.append(name)

    async with live(app, database_url):
        high = app.starter.new_run(flow, ("high",), {}, RunOptions(priority=5))
        await app.connection.database.write(
            start_runs, [high], now=app.clock.now()
        )  # no notification
        await result(await app.start(flow, "low"))
        await result(app.runs.handle(high.id))
        assert order == ["high", "low"]


async def test_runs_are_claimed_by_priority_then_by_age(database_url: str) -> None:
    app = Rota(slots=1)
    order: list[str] = []

    @app.workflow
    async def flow(name: str) -> None:
        order.append(name)

    async with virtual(app, url=database_url) as world:
        await app.options(delay="2s").start(flow, "late")
        await app.options(delay="1s").start(flow, "early")
        world.clock.move_to(world.clock.now() + 5 * SECOND)
        await app.start(flow, "plain")
        await app.options(priority=10).start(flow, "urgent")
        await app.options(priority=-1).start(flow, "low")
        await app.options(priority=10).start(flow, "urgent too")
        await world.settle()
        assert order == ["urgent", "urgent too", "early", "late", "plain", "low"]


async def test_queues_are_served_in_the_order_they_were_declared(database_url: str) -> None:
    app = Rota(slots=1)
    order: list[str] = []
    for name in ("first", "second", "third"):
        app.queue(name)

    @app.workflow(queue="second")
    async def flow(name: str) -> None:
        order.append(name)

    async with virtual(app, url=database_url) as world:
        for name in ("third", "second", "first"):
            for n in range(2):
                await app.options(queue=name).start(flow, f"{name} {n}")
        await world.settle()
        assert order == ["first 0", "first 1", "second 0", "second 1", "third 0", "third 1"]


async def test_a_queue_keeps_to_its_own_slots_and_leaves_the_rest_to_others(
    database_url: str,
) -> None:
    gate = Gate()
    app = Rota(slots=10)
    app.queue("narrow", worker_concurrency=2)
    app.queue("wide")

    @app.workflow(queue="narrow")
    async def slow(n: int) -> None:
        await gate(n)

    @app.workflow(queue="wide")
    async def quick(n: int) -> int:
        return n

    async with live(app, database_url):
        narrow = await app.start_many(slow, [(n,) for n in range(6)])
        wide = await app.start_many(quick, [(n,) for n in range(6)])
        assert [await result(run) for run in wide] == list(range(6))
        assert gate.under_way == 2
        # No client starts anything now: the freed slots alone must bring the next ones.
        gate.open.set()
        for run in narrow:
            await result(run)
        assert gate.most == 2


async def test_a_worker_may_serve_some_queues_only(database_url: str) -> None:
    app = Rota()

    @app.workflow(queue="a")
    async def in_a() -> str:
        return "a"

    @app.workflow(queue="b")
    async def in_b() -> str:
        return "b"

    async with live(app, database_url, queues=["b", "c"]):
        left = await app.start(in_a)
        taken = await app.start(in_b)
        moved = await app.options(queue="c").start(in_a)
        assert await result(taken) == "b"
        assert await result(moved) == "a"
        assert await left.status() == "pending"


async def test_a_worker_claims_only_what_it_can_perform(database_url: str) -> None:
    known, unknown = Rota(), Rota()

    @known.workflow
    async def mine() -> int:
        return 1

    @unknown.workflow
    async def theirs() -> int:
        return 2

    async with virtual(known, url=database_url) as w, beside(unknown, database_url, w.clock):
        foreign = await unknown.start(theirs)
        own = await known.start(mine)
        await w.settle()
        assert await result(own) == 1
        assert await foreign.status() == "pending"


async def test_two_workers_never_hold_the_same_run(database_url: str) -> None:
    gate = Gate()
    one, flow = gated(gate, slots=3)
    other, _ = gated(gate, slots=3)
    async with live(one, database_url) as clock, live(other, database_url, clock):
        started = await one.start_many(flow, [(n,) for n in range(10)])
        await eventually(lambda: gate.under_way == 6)
        gate.open.set()
        assert [await result(run) for run in started] == list(range(10))
        assert sorted(gate.entered) == list(range(10))


async def test_a_start_that_comes_while_a_claim_is_under_way_is_not_lost(
    database_url: str,
) -> None:
    app = Rota()
    late: list[Any] = []

    @app.workflow
    async def flow(n: int) -> int:
        return n

    async with live(app, database_url) as clock:
        tap = StoreTap(app)

        async def start_in_between(name: str) -> None:
            # The claim has looked and found too little; its answer has not arrived yet.
            if name in ("claim", "settle_and_claim") and not late:
                late.append(None)
                late.append(await app.start(flow, 2))

        tap.after = start_in_between
        first = await app.start(flow, 1)
        assert await result(first) == 1
        await eventually(lambda: len(late) == 2)
        assert await result(late[1]) == 2
        assert clock.now() == (await app.runs.get(first.id)).created_at


async def test_a_delayed_start_that_comes_while_sleepers_are_woken_is_not_lost(
    database_url: str,
) -> None:
    app = Rota()
    late: list[Any] = []

    @app.workflow
    async def flow(n: int) -> int:
        return n

    async with virtual(app, url=database_url) as world:
        tap = StoreTap(app)

        async def start_in_between(name: str) -> None:
            if name == "wake_due" and not late:
                late.append(None)
                late.append(await app.options(delay="1m").start(flow, 2))

        tap.after = start_in_between
        await app.options(delay="1h").start(flow, 1)
        await world.drain()
        row = await late[1].run()
        assert row.started_at == row.created_at + 60 * SECOND


async def test_sleepers_wake_at_their_instant_without_a_poll(database_url: str) -> None:
    app = Rota(poll_s=3600, heartbeat_s=3600)

    @app.workflow
    async def flow(n: int) -> int:
        return n

    async with live(app, database_url) as clock:
        began = clock.now()
        started = [await app.options(delay=n).start(flow, n) for n in (30, 10, 20)]
        for n, run in ((10, started[1]), (20, started[2]), (30, started[0])):
            clock.move_to(began + n * SECOND - 1)
            assert (await run.run()).status == "sleeping"
            await eventually(lambda: waits_until(clock, began + n * SECOND))  # noqa: B023
            clock.move_to(began + n * SECOND)
            assert await result(run) == n


def waits_until(clock: Any, at: int) -> bool:
    """Whether a task has set a timer for this instant."""
    return clock.next_timer_at() == at


async def test_more_sleepers_than_one_batch_wake_at_one_instant(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wake, "WAKE_BATCH", 3)
    app = Rota()

    @app.workflow
    async def flow(n: int) -> int:
        return n

    async with virtual(app, url=database_url) as world:
        started = await app.options(delay="1h").start_many(flow, [(n,) for n in range(11)])
        await world.advance("1h")
        rows = [await run.run() for run in started]
        assert {row.status for row in rows} == {"completed"}
        assert {row.started_at for row in rows} == {world.clock.now()}


async def test_an_idle_worker_asks_nothing(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def flow() -> int:
        return 1

    async with live(app, database_url):
        await result(await app.start(flow))
        await eventually(lambda: app.runtime is not None and app.runtime.worker.idle)
        tap = StoreTap(app)
        # The last notification may lag. A worker that asks again and again is never quiet.
        for _ in range(20):
            tap.calls.clear()
            await asyncio.sleep(0.1)
            if not tap.calls:
                break
        assert [name for name in tap.calls if name != "notify"] == []


async def test_a_start_of_many_with_no_delay_begins_at_once(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def flow(n: int) -> int:
        return n

    async with live(app, database_url):
        started = await app.options(delay=0).start_many(flow, [(1,), (2,)])
        assert [await result(run) for run in started] == [1, 2]


def retried(**settings: Any) -> tuple[Rota, Any]:
    """A workflow that fails once: its second attempt reads recorded steps."""
    app = Rota(**settings)
    tried: set[int] = set()

    @app.workflow(retries=1)
    async def flow(n: int) -> int:
        if n not in tried:
            tried.add(n)
            raise ConnectionError("down")
        return n

    return app, flow


async def test_a_run_whose_steps_cannot_be_read_waits_until_they_can(database_url: str) -> None:
    app, flow = retried(slots=1)
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow, 1)
        await world.settle()
        tap, failed = StoreTap(app), list[str]()

        async def break_once(name: str) -> None:
            if name == "load" and not failed:
                failed.append(name)
                raise StoreCorrupt("cannot read")

        tap.before = break_once
        await world.drain()
        assert failed == ["load"]
        assert await result(run) == 1


async def test_a_run_whose_steps_make_no_sense_fails_without_its_neighbours(
    database_url: str,
) -> None:
    app, flow = retried()
    async with virtual(app, url=database_url) as world:
        runs = await app.start_many(flow, [(n,) for n in range(3)])
        await world.settle()
        tap, loads = StoreTap(app), list[str]()

        async def break_twice(name: str) -> None:  # all together, then the first on its own
            if name == "load":
                loads.append(name)
                if len(loads) <= 2:
                    raise ValueError("not a step")

        tap.before = break_twice
        await world.drain()
        ends = sorted([(await run.run()).status for run in runs])
        assert ends == ["completed", "completed", "failed"]
        assert len(loads) == 4
        await sound(app)


async def test_a_new_run_does_not_wait_for_the_steps_of_a_replay(database_url: str) -> None:
    app, flow = retried()
    loaded = asyncio.Event()

    async def hold(name: str) -> None:
        if name == "load":
            await loaded.wait()

    @app.workflow
    async def quick() -> str:
        return "done"

    async with virtual(app, url=database_url) as world:
        slow = await app.start(flow, 1)
        await world.settle()
        tap = StoreTap(app)
        tap.before = hold
        new = await app.options(delay="1h").start(quick)  # both are claimed at once
        await world.advance("1h")
        assert (await new.run()).status == "completed"
        assert (await slow.run()).status == "running"
        loaded.set()
        await world.settle()
        assert await result(slow) == 1


async def test_a_claim_whose_answer_was_lost_is_handed_back(database_url: str) -> None:
    from rota.errors import StoreUnreachable

    app = Rota()

    @app.workflow
    async def flow() -> int:
        return 1

    async with virtual(app, url=database_url) as world:
        tap = StoreTap(app)
        broken: list[str] = []

        async def lose_answer(name: str) -> None:
            if name == "claim" and not broken:
                broken.append(name)
                raise StoreUnreachable("the connection broke")

        tap.after = lose_answer
        run = await app.start(flow)
        with pytest.raises(StoreUnreachable):
            await world.settle()
        assert await run.status() == "running"
        await world.settle()
        assert await result(run) == 1
        assert len(await app.runs.chain(run.id)) == 1


async def test_a_settlement_that_failed_is_made_later(database_url: str) -> None:
    from rota.errors import StoreFull

    app = Rota()
    calls: list[int] = []

    @app.workflow
    async def flow() -> int:
        calls.append(1)
        return 1

    async with virtual(app, url=database_url) as world:
        tap = StoreTap(app)
        full = True

        async def refuse(name: str) -> None:
            if full and name in ("settle_runs", "settle_and_claim"):
                raise StoreFull("no space left")

        tap.before = refuse
        run = await app.start(flow)
        for _ in range(3):
            with pytest.raises(StoreFull):
                await world.settle()
        assert await run.status() == "running"
        full = False
        await world.settle()
        assert await result(run) == 1
        assert calls == [1]
