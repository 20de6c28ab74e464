"""Facts about a run, its random numbers, its row, and its forks."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from rota import RetryPolicy, Rota, gather, now, random, sleep, this_run, uuid, wait_for
from rota.errors import BadInput, UsageError
from rota.testing import virtual
from tests.workflows.kit import attempts, children, keys, result, sound


async def test_now_random_and_uuid_are_the_same_on_every_replay(database_url: str) -> None:
    app = Rota()
    seen: list[tuple[datetime, float, UUID]] = []

    @app.workflow
    async def flow() -> None:
        for _ in range(2):
            seen.append((await now(), random(), uuid()))
            await sleep("1h")

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await run.status() == "completed"
        # Three replays: the first stops after `first`, the others after `second`.
        assert seen[0] == seen[1] == seen[3]
        assert seen[2] == seen[4]
        assert seen[0] != seen[2]
        assert (seen[2][0] - seen[0][0]).total_seconds() == 3600
        assert seen[0][0].tzinfo is UTC
        assert all(drawn.version == 4 for _, _, drawn in seen)
        assert all(0 <= chance < 1 for _, chance, _ in seen)


async def test_two_runs_draw_different_values(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def flow() -> list[str]:
        return [str(uuid()), str(random())]

    async with virtual(app, url=database_url) as world:
        runs = [await app.start(flow) for _ in range(2)]
        await world.drain()
        first, second = [await result(run) for run in runs]
        assert set(first).isdisjoint(second)


async def test_drawn_values_are_plain_calls_outside_of_workflows() -> None:
    assert uuid() != uuid()
    assert 0 <= random() < 1
    assert (await now()).tzinfo is UTC
    await sleep(0)
    with pytest.raises(UsageError):
        this_run()


async def test_a_run_knows_itself(database_url: str) -> None:
    app = Rota()
    seen: list[Any] = []

    @app.workflow(retries=1)
    async def flow() -> None:
        seen.append(this_run())
        if len(seen) == 1:
            raise ConnectionError("down")

    async with virtual(app, url=database_url) as world:
        run = await app.options(external_id="x-1").start(flow)
        await world.drain()
        first, second = seen
        assert (first.id, first.root_id, first.name) == (run.id, run.id, "flow")
        assert (first.attempt, first.trigger, first.external_id) == (1, "manual", "x-1")
        assert (second.root_id, second.attempt, second.trigger) == (run.id, 2, "retry")
        assert second.external_id == "x-1"
        assert (first.due_at, first.is_cancelled) == (None, False)


async def test_tags_options_and_version_are_stored(database_url: str) -> None:
    app = Rota()

    @app.workflow(version="2024-1", queue="q", priority=2)
    async def flow() -> None:
        return None

    @app.workflow
    async def unversioned() -> None:
        return None

    async with virtual(app, url=database_url):
        run = await app.options(
            tags={"customer": "ä"},
            retries=RetryPolicy(attempts=3, delay_s=9),
            timeout="90s",
            key="customer-1",
        ).start(flow)
        row = await run.run()
        assert (row.version, row.queue, row.priority) == ("2024-1", "q", 2)
        assert row.limit_key == "customer-1"
        assert json.loads(row.tags or "") == {"customer": "ä"}
        options = json.loads(row.options or "")
        assert options["timeout_us"] == 90_000_000
        assert options["retry"]["attempts"] == 3
        plain = await (await app.start(unversioned)).run()
        assert plain.version
        assert len(plain.version) == 12
        assert (plain.tags, plain.options) == (None, None)


def forkable() -> tuple[Rota, Any, list[str]]:
    app = Rota()
    calls: list[str] = []

    @app.step
    async def a(n: int) -> int:
        calls.append("a")
        return n + 1

    @app.step
    async def b(n: int) -> int:
        calls.append("b")
        return n * 10

    @app.step
    async def c(n: int) -> int:
        calls.append("c")
        return n - 1

    @app.workflow(priority=3)
    async def flow(n: int) -> int:
        first = await a(n)
        await sleep("1h")
        return await c(await b(first))

    return app, flow, calls


async def test_a_fork_remembers_everything_before_its_step_and_repeats_the_rest(
    database_url: str,
) -> None:
    app, flow, calls = forkable()
    async with virtual(app, url=database_url) as world:
        run = await app.options(tags={"x": "y"}).start(flow, 4)
        await world.drain()
        assert await result(run) == 49
        fork = await app.runs.fork(run.id, from_step="b#0")
        assert fork.id != run.id
        await world.settle()
        assert await result(fork) == 49
        assert calls == ["a", "b", "c", "b", "c"]
        row = await fork.run()
        assert (row.trigger, row.priority, row.tags) == ("fork", 3, '{"x":"y"}')
        assert await attempts(app, run) == [(1, "manual", "completed")]
        await sound(app)


async def test_a_fork_from_the_first_step_repeats_everything(database_url: str) -> None:
    app, flow, calls = forkable()
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow, 4)
        await world.drain()
        fork = await app.runs.fork(run.id, from_step="a#0")
        await world.drain()
        assert await result(fork) == 49
        assert calls == ["a", "b", "c"] * 2


async def test_a_fork_draws_the_values_it_drew_before(database_url: str) -> None:
    app = Rota()

    @app.step
    async def send(key: str) -> str:
        return key

    @app.step
    async def after() -> None:
        return None

    @app.workflow
    async def flow() -> list[str]:
        key = str(uuid())
        sent = await send(key)
        await after()
        return [key, sent]

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        fork = await app.runs.fork(run.id, from_step="after#0")
        await world.drain()
        assert await result(fork) == await result(run)


async def test_a_fork_keeps_failures_that_were_caught_before_its_step(database_url: str) -> None:
    app = Rota()
    calls: list[str] = []

    @app.step
    async def bad() -> None:
        calls.append("bad")
        raise ValueError("no")

    @app.step
    async def after() -> None:
        calls.append("after")

    @app.workflow
    async def flow() -> str:
        try:
            await bad()
        except Exception as error:
            await after()
            return str(error)
        return "good"

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        fork = await app.runs.fork(run.id, from_step="after#0")
        await world.drain()
        assert await result(fork) == await result(run)
        assert calls == ["bad", "after", "after"]


async def test_a_fork_starts_no_child_twice_that_was_started_before_its_step(
    database_url: str,
) -> None:
    app = Rota()

    @app.workflow
    async def child() -> int:
        return 1

    @app.step
    async def after() -> int:
        return 2

    @app.workflow
    async def flow() -> int:
        return await child() + await after()

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        fork = await app.runs.fork(run.id, from_step="after#0")
        await world.drain()
        assert await result(fork) == 3
        assert len(await app.runs.list(name="child")) == 1
        assert len(await children(app, run)) == 1


async def test_a_fork_receives_the_signals_taken_before_its_step(database_url: str) -> None:
    app = Rota()

    @app.step
    async def after() -> int:
        return 1

    @app.workflow
    async def flow() -> int:
        return int(await wait_for("n")) + await after()

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await run.signal("n", 5)
        await world.drain()
        fork = await app.runs.fork(run.id, from_step="after#0")
        await world.settle()
        assert await result(fork) == 6


async def test_a_running_chain_can_be_forked(database_url: str) -> None:
    app, flow, calls = forkable()
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow, 4)
        await world.settle()
        fork = await app.runs.fork(run.id, from_step="a#0")
        await world.drain()
        assert await result(run) == await result(fork) == 49
        assert calls.count("a") == 2


async def test_a_fork_from_an_unknown_step_names_the_nearest(database_url: str) -> None:
    app, flow, _ = forkable()
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow, 4)
        await world.drain()
        with pytest.raises(BadInput, match="no step 'b'") as error:
            await app.runs.fork(run.id, from_step="b")
        assert "b#0" in error.value.advice
        assert len(await app.runs.list()) == 1


async def test_parallel_steps_keep_their_place_in_the_record(database_url: str) -> None:
    app = Rota()

    @app.step
    async def work(n: int) -> int:
        return n

    @app.workflow
    async def flow() -> None:
        await gather(*[work(n) for n in range(3)])
        await work(9)

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        positions = [step.position for step in await app.runs.steps(run.id)]
        assert positions == sorted(set(positions))
        assert len(await keys(app, run)) == 4
