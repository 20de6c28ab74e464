"""Limits of queues: running at once, per key, by rate, paused; across all workers."""

from __future__ import annotations

from typing import Any

import pytest

from rota import RetryPolicy, Rota, sleep
from rota.core.time.instants import SECOND, Duration
from rota.errors import UnknownQueue
from rota.store.runs import claim
from rota.store.runs.claim import ClaimRequest
from rota.store.runs.wake import wake_due
from rota.testing import virtual
from tests.engine.kit import Gate, beside, eventually, live
from tests.workflows.kit import result


def limited(gate: Gate, **limits: Any) -> tuple[Rota, Any]:
    app = Rota()
    app.queue("q", **limits)

    @app.workflow(queue="q")
    async def flow(n: int) -> int:
        return int(await gate(n))

    return app, flow


async def test_a_limit_on_running_holds_across_workers(database_url: str) -> None:
    gate = Gate()
    one, flow = limited(gate, concurrency=3)
    other, _ = limited(gate, concurrency=3)
    async with live(one, database_url) as clock, live(other, database_url, clock):
        started = await one.start_many(flow, [(n,) for n in range(12)])
        await eventually(lambda: gate.under_way == 3)
        assert (await one.runs.counts())["running"] == 3
        gate.open.set()
        assert [await result(run) for run in started] == list(range(12))
        assert gate.most == 3


async def test_a_sleeping_run_gives_its_place_to_another(database_url: str) -> None:
    app = Rota()
    app.queue("q", concurrency=1)
    order: list[str] = []

    @app.workflow(queue="q")
    async def flow(name: str) -> None:
        order.append(f"{name} begins")
        await sleep("1h")
        order.append(f"{name} ends")

    async with virtual(app, url=database_url) as world:
        await app.start(flow, "a")
        await app.start(flow, "b")
        await world.settle()
        assert order == ["a begins", "b begins"]
        await world.drain()
        assert len(await app.runs.list(status="completed")) == 2


async def test_a_limit_per_key_delays_no_other_key(database_url: str) -> None:
    gate = Gate()
    app, flow = limited(gate, concurrency_per_key=2)
    async with live(app, database_url):
        for n in range(5):
            await app.options(key="busy").start(flow, n)
        other = await app.options(key="quiet").start(flow, 10)
        plain = await app.start(flow, 20)
        await eventually(lambda: gate.under_way == 4)
        assert sorted(gate.entered) == [0, 1, 10, 20]
        gate.open.set()
        assert await result(other) == 10
        assert await result(plain) == 20
        await eventually(lambda: len(gate.entered) == 7)


async def test_a_limit_per_key_keeps_to_priority_within_the_key(database_url: str) -> None:
    app = Rota()
    app.queue("q", concurrency_per_key=1)
    order: list[int] = []

    @app.workflow(queue="q")
    async def flow(n: int) -> None:
        order.append(n)

    async with virtual(app, url=database_url) as world:
        for n, priority in enumerate((0, 5, 1)):
            await app.options(key="k", priority=priority).start(flow, n)
        await world.settle()
        assert order == [1, 2, 0]


async def starts(url: str, rate: tuple[int, Duration], count: int) -> list[float]:
    """The seconds at which runs of a queue with this rate begin."""
    app = Rota()
    app.queue("q", rate=rate)

    @app.workflow(queue="q")
    async def flow(n: int) -> int:
        return n

    async with virtual(app, url=url) as world:
        began = world.clock.now()
        started = await app.start_many(flow, [(n,) for n in range(count)])
        await world.drain()
        rows = [await run.run() for run in started]
        assert {row.status for row in rows} == {"completed"}
        return sorted(((row.started_at or 0) - began) / SECOND for row in rows)


@pytest.mark.parametrize("limits", [{"concurrency": 1}, {"concurrency_per_key": 1}], ids=str)
@pytest.mark.parametrize("slots", [None, 1], ids=["many slots", "one slot"])
async def test_cancelling_the_holder_of_a_limited_slot_frees_it_at_once(
    database_url: str, limits: dict[str, int], slots: int | None
) -> None:
    gate = Gate()
    app, _ = limited(gate, worker_concurrency=slots, **limits)
    client, flow = limited(gate, worker_concurrency=slots, **limits)
    async with live(app, database_url) as clock, beside(client, database_url, clock):
        holder = await client.options(key="k").start(flow, 1)
        await eventually(lambda: gate.entered == [1])
        await client.options(key="k").start(flow, 2)
        await eventually(lambda: is_at_rest_with(app, 1))
        await client.runs.cancel(holder.id)
        await eventually(lambda: gate.entered == [1, 2])  # no time passes: no poll comes
        await eventually(lambda: gate.interrupted == [1])  # the slot does not wait for its end
        gate.open.set()


def is_at_rest_with(app: Rota, run_count: int) -> bool:
    assert app.runtime is not None
    return len(app.runtime.worker.held) == run_count and not app.runtime.worker.wake.is_set()


async def test_a_rate_of_one_spaces_starts_evenly(database_url: str) -> None:
    assert await starts(database_url, (1, "10s"), 5) == [0, 10, 20, 30, 40]


@pytest.mark.parametrize("count", [2, 5])
async def test_a_burst_and_the_rate_after_it_are_all_a_window_holds(
    database_url: str, count: int
) -> None:
    at = await starts(database_url, (count, "10s"), 4 * count)
    for begin in at:
        assert sum(begin <= other < begin + 10 for other in at) <= 2 * count - 1, at
    assert at[count - 1] == 0  # after a rest as many may come at once
    assert at[-1] <= 40  # and the rate is used


async def test_a_changed_rate_does_not_wait_for_the_period_of_the_old_one(
    database_url: str,
) -> None:
    gate = Gate()
    gate.open.set()
    before, flow = limited(gate, rate=(2, "1d"))
    async with virtual(before, url=database_url) as world:
        await before.start_many(flow, [(n,) for n in range(8)])
        await world.settle()
        assert len(gate.entered) == 2
        later = world.clock.now() + 60 * SECOND
    after, _ = limited(gate, rate=(2, "1m"))
    async with virtual(after, url=database_url, start=later) as world:
        await world.settle()
        assert len(gate.entered) == 3  # no burst: what the old rate allowed has been used
        await world.advance("29s")
        assert len(gate.entered) == 3
        await world.advance("1s")
        assert len(gate.entered) == 4
        await world.advance("2m")
        assert len(gate.entered) == 8


@pytest.mark.parametrize("count", [1, 5])
async def test_a_clock_that_is_set_back_does_not_stop_a_queue_with_a_rate(
    database_url: str, count: int
) -> None:
    gate = Gate()
    gate.open.set()
    app, flow = limited(gate, rate=(count, "1m"))
    async with virtual(app, url=database_url) as world:
        world.clock.jump("3h")
        await app.start_many(flow, [(n,) for n in range(count)])
        await world.settle()
        assert len(gate.entered) == count
        world.clock.jump(-3 * 3600)
        await app.start_many(flow, [(n,) for n in range(3)])
        await world.advance("10s")
        assert len(gate.entered) == count + 1
        await world.advance("2m")
        assert len(gate.entered) == count + 3


async def test_a_rate_holds_across_workers(database_url: str) -> None:
    gate = Gate()
    gate.open.set()
    one, flow = limited(gate, rate=(2, "1h"))
    other, _ = limited(gate, rate=(2, "1h"))
    async with live(one, database_url) as clock, live(other, database_url, clock):
        await one.start_many(flow, [(n,) for n in range(8)])
        await eventually(lambda: len(gate.entered) == 2)
        for app in (one, other):
            assert app.runtime is not None
            app.runtime.worker.poll()
        await eventually(lambda: is_at_rest(one) and is_at_rest(other))
        assert len(gate.entered) == 2


def is_at_rest(app: Rota) -> bool:
    assert app.runtime is not None
    return app.runtime.worker.idle and not app.runtime.worker.wake.is_set()


async def test_a_paused_queue_gives_nothing_until_it_is_resumed(database_url: str) -> None:
    gate = Gate()
    gate.open.set()
    app, flow = limited(gate, concurrency=5)
    async with live(app, database_url):
        await app.pause_queue("q")
        held = await app.start(flow, 1)
        await eventually(lambda: is_at_rest(app))
        assert await held.status() == "pending"
        assert [queue.paused for queue in await app.queues()] == [1]
        await app.pause_queue("q", paused=False)
        assert await result(held) == 1


async def test_any_declared_queue_can_be_paused(database_url: str) -> None:
    gate = Gate()
    gate.open.set()
    app, flow = limited(gate, worker_concurrency=3)
    async with live(app, database_url):
        await app.pause_queue("q")
        held = await app.start(flow, 1)
        await eventually(lambda: is_at_rest(app))
        assert await held.status() == "pending"
        await app.pause_queue("q", paused=False)
        assert await result(held) == 1


async def test_a_restart_does_not_resume_a_paused_queue(database_url: str) -> None:
    gate = Gate()
    gate.open.set()
    app, flow = limited(gate, concurrency=5)
    async with virtual(app, url=database_url) as world:
        await app.pause_queue("q")
        run = await app.start(flow, 1)
    async with virtual(app, url=database_url) as world:
        await world.settle()
        assert (await app.runs.get(run.id)).status == "pending"


async def test_pausing_a_queue_nobody_declared_says_so(database_url: str) -> None:
    app = Rota()
    async with virtual(app, url=database_url):
        with pytest.raises(UnknownQueue, match="'nowhere'"):
            await app.pause_queue("nowhere")


async def test_new_limits_take_the_place_of_old_ones(database_url: str) -> None:
    gate = Gate()
    old, _ = limited(gate, concurrency=1)
    async with virtual(old, url=database_url):
        pass
    new, flow = limited(gate, concurrency=4)
    async with live(new, database_url):
        await new.start_many(flow, [(n,) for n in range(9)])
        await eventually(lambda: gate.under_way == 4)
        gate.open.set()


async def test_limits_that_are_no_longer_declared_are_lifted(database_url: str) -> None:
    gate = Gate()
    old, _ = limited(gate, concurrency=1)
    async with virtual(old, url=database_url):
        pass
    new, flow = limited(gate)
    async with live(new, database_url):
        await new.start_many(flow, [(n,) for n in range(3)])
        await eventually(lambda: gate.under_way == 3)
        gate.open.set()


# -- limits that are held until the end --------------------------------------------------------


def exclusive(order: list[str], **limits: Any) -> tuple[Rota, Any]:
    """Runs that sleep and are retried between `enter` and `leave`."""
    app = Rota()
    app.queue("q", **limits)
    tries: list[int] = []

    @app.step(retries=RetryPolicy(attempts=2, delay_s=60))
    async def flaky(n: int) -> None:
        tries.append(n)
        if tries.count(n) == 1:
            raise ConnectionError("once")

    @app.workflow(queue="q")
    async def flow(n: int) -> None:
        order.append(f"enter {n}")
        await flaky(n)
        await sleep("1h")
        order.append(f"leave {n}")

    return app, flow


def inside(order: list[str]) -> int:
    """The most runs that were between `enter` and `leave` at once. Replays enter again."""
    now: set[str] = set()
    most = 0
    for line in order:
        verb, _, n = line.partition(" ")
        now = now | {n} if verb == "enter" else now - {n}
        most = max(most, len(now))
    return most


@pytest.mark.parametrize("most", [1, 2])
async def test_a_limit_on_open_runs_is_held_over_sleeps_and_retries(
    database_url: str, most: int
) -> None:
    order: list[str] = []
    app, flow = exclusive(order, open_per_key=most)
    async with virtual(app, url=database_url) as world:
        for n in range(4):
            await app.options(key="k").start(flow, n)
        other = await app.options(key="other").start(flow, 9)
        await world.settle()
        assert len([row for row in await app.runs.list() if row.started_at]) == most + 1
        await world.drain()
        assert (await app.runs.counts())["completed"] == 5
        order = [line for line in order if not line.endswith("9")]
        assert inside(order) == most
        assert await other.status() == "completed"


async def test_a_limit_on_running_gives_its_place_up_during_a_sleep(database_url: str) -> None:
    order: list[str] = []
    app, flow = exclusive(order, concurrency_per_key=1)
    async with virtual(app, url=database_url) as world:
        for n in range(4):
            await app.options(key="k").start(flow, n)
        await world.drain()
        assert inside(order) == 4


async def test_a_limit_on_open_runs_holds_across_workers(database_url: str) -> None:
    gate = Gate()
    one, flow = limited(gate, open_per_key=2)
    other, _ = limited(gate, open_per_key=2)
    async with live(one, database_url) as clock, live(other, database_url, clock):
        runs = [await one.options(key="k").start(flow, n) for n in range(6)]
        await eventually(lambda: gate.under_way == 2)
        gate.open.set()
        assert [await result(run) for run in runs] == list(range(6))
        assert gate.most == 2


async def test_the_next_of_a_key_begins_when_the_holder_is_cancelled_in_its_sleep(
    database_url: str,
) -> None:
    app = Rota()
    app.queue("q", open_per_key=1)
    begun: list[int] = []

    @app.workflow(queue="q")
    async def flow(n: int) -> None:
        begun.append(n)
        await sleep("1d")

    async with live(app, database_url):
        holder = await app.options(key="k").start(flow, 1)
        await eventually(lambda: begun == [1])
        await app.options(key="k").start(flow, 2)
        await holder.cancel()
        await eventually(lambda: begun == [1, 2])


async def test_a_recovered_run_keeps_its_place(database_url: str) -> None:
    order: list[str] = []
    app, flow = exclusive(order, open_per_key=1)
    async with virtual(app, url=database_url) as world:
        first = await app.options(key="k").start(flow, 1)
        await world.settle()
        second = await app.options(key="k").start(flow, 2)
        await world.advance("1m")
        await app.connection.database.write(wake_due, namespace="default", now=1 << 60)
        request = ClaimRequest(
            "default", "ghost", ["flow"], [("q", 5)], 5, frozenset({"q"}), world.clock.now(),
            world.clock.now() + SECOND,
        )  # fmt: skip
        claimed = await app.connection.database.write(claim.claim, request)
        assert [one.id for one in claimed.claims] == [first.id]
        world.clock.move_to(world.clock.now() + 100 * SECOND)
        await world.beat()
        await world.settle()
        assert await second.status() == "pending"
        await world.drain()
        assert inside(order) == 1
        assert (await app.runs.counts())["completed"] == 2


async def test_runs_without_a_key_are_not_bound_by_a_limit_on_open_runs(database_url: str) -> None:
    gate = Gate()
    app, flow = limited(gate, open_per_key=1)
    async with live(app, database_url):
        for n in range(3):
            await app.start(flow, n)
        await eventually(lambda: gate.under_way == 3)
        gate.open.set()


# -- fairness ----------------------------------------------------------------------------------


async def begun_in_order(
    url: str, starts: list[dict[str, Any]], slots: int = 1, **limits: Any
) -> list[int]:
    """The order in which runs begin, by default on one slot."""
    app = Rota(slots=slots)
    app.queue("q", **limits)
    order: list[int] = []

    @app.workflow(queue="q")
    async def flow(n: int) -> None:
        order.append(n)

    async with virtual(app, url=url) as world:
        for n, options in enumerate(starts):
            await app.options(**options).start(flow, n)
            world.clock.move_to(world.clock.now() + SECOND)
        await world.settle()
    return order


async def test_keys_are_served_round_robin_in_claims_of_many_runs(database_url: str) -> None:
    starts: list[dict[str, Any]] = [{"key": "a"}] * 9 + [{"key": "b"}] * 2 + [{"key": "c"}, {}]
    order = await begun_in_order(database_url, starts, 16, round_robin=True)
    assert sorted(order) == list(range(13))
    # Eight at a time: two of `a`, and all of the others.
    assert {"aaaaaaaaabbc-"[n] for n in order[:8]} == set("abc-")


async def test_keys_are_served_round_robin(database_url: str) -> None:
    starts: list[dict[str, Any]] = [{"key": "a"}] * 6 + [{"key": "b"}] * 2 + [{"key": "c"}, {}]
    order = await begun_in_order(database_url, starts, round_robin=True)
    # Each key, and runs without one, are served once before any is served again.
    assert {"aaaaaabbc-"[n] for n in order[:4]} == set("abc-")
    assert sorted(order) == list(range(10))
    assert order[-4:] == [2, 3, 4, 5]


async def test_without_round_robin_a_busy_key_comes_first(database_url: str) -> None:
    starts = [{"key": "a"}] * 4 + [{"key": "b"}]
    assert await begun_in_order(database_url, starts) == [0, 1, 2, 3, 4]


async def test_waiting_raises_priority_where_a_queue_ages(database_url: str) -> None:
    # One started each second: the low one has waited long enough to pass those after the third.
    starts: list[dict[str, Any]] = [{"priority": 0}] + [{"priority": 3}] * 6
    assert await begun_in_order(database_url, starts, age="1s") == [1, 2, 0, 3, 4, 5, 6]
    assert await begun_in_order(f"{database_url}", starts) == [1, 2, 3, 4, 5, 6, 0]


async def test_queues_share_the_slots_by_weight(database_url: str) -> None:
    app = Rota(slots=4)
    app.queue("bulk", weight=1)
    app.queue("mail", weight=3)
    order: list[str] = []

    @app.workflow
    async def flow(name: str) -> None:
        order.append(name)

    async with virtual(app, url=database_url) as world:
        for name in ("bulk", "mail"):
            await app.options(queue=name).start_many(flow, [(name,)] * 40)
        await world.settle()
    assert 28 <= order[:40].count("mail") <= 32
    assert len(order) == 80
