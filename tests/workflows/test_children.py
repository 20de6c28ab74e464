"""Child runs: created once, awaited durably, and what their end means to the parent."""

from __future__ import annotations

import pytest

from rota import (
    Rota,
    RunCancelled,
    RunFailed,
    gather,
    sleep,
    this_run,
)
from rota.core.time.instants import SECOND
from rota.testing import virtual
from tests.workflows.kit import (
    attempts,
    children,
    family,
    keys,
    result,
    sound,
    trouble,
)


async def test_a_workflow_called_in_a_workflow_is_a_child_run(database_url: str) -> None:
    app, elder, _ = family()
    async with virtual(app, url=database_url) as world:
        run = await app.start(elder, 5)
        await world.settle()
        assert await run.status() == "sleeping:child"
        [below] = await children(app, run)
        assert (below.name, below.trigger, below.status) == ("child", "child", "sleeping")
        await world.drain()
        assert await result(run) == 5
        assert len(await children(app, run)) == 1
        await sound(app)


async def test_a_child_runs_where_its_own_policies_say(database_url: str) -> None:
    app = Rota()

    @app.workflow(queue="deep", priority=3, version="v7")
    async def child() -> None:
        return None

    @app.workflow
    async def parent() -> None:
        await child()

    async with virtual(app, url=database_url) as world:
        run = await app.start(parent)
        await world.drain()
        assert await run.status() == "completed"
        [below] = await children(app, run)
        assert (below.queue, below.priority, below.version) == ("deep", 3, "v7")


async def test_the_failure_of_a_child_reaches_the_parent_live_and_on_replay(
    database_url: str,
) -> None:
    app = Rota()
    seen: list[tuple[type, str]] = []

    @app.workflow
    async def child() -> None:
        raise ValueError("spilt milk")

    @app.workflow
    async def parent() -> str:
        try:
            await child()
        except RunFailed as error:
            seen.append((type(error), str(error)))
        await sleep("1h")
        return "went on"

    async with virtual(app, url=database_url) as world:
        run = await app.start(parent)
        await world.drain()
        assert await result(run) == "went on"
        [below] = await children(app, run)
        assert set(seen) == {(RunFailed, f"run {below.id} failed: ValueError: spilt milk")}
        assert len(seen) == 2


async def test_an_uncaught_failure_of_a_child_fails_the_parent(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def child() -> None:
        raise ValueError("spilt milk")

    @app.workflow
    async def parent() -> None:
        await child()

    async with virtual(app, url=database_url) as world:
        run = await app.start(parent)
        await world.drain()
        assert await run.status() == "failed:logic"
        with pytest.raises(RunFailed, match="spilt milk"):
            await result(run)


async def test_a_parent_waits_until_the_retries_of_its_child_are_over(database_url: str) -> None:
    app = Rota()
    calls: list[int] = []

    @app.workflow(retries=2)
    async def child() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise ConnectionError("down")
        return "up"

    @app.workflow
    async def parent() -> str:
        return await child()

    async with virtual(app, url=database_url) as world:
        run = await app.start(parent)
        await world.drain()
        assert await result(run) == "up"
        [first, *rest] = await children(app, run)
        assert [row.attempt for row in (first, *rest)] == [1, 2, 3]
        await sound(app)


async def test_a_retried_parent_asks_a_failed_child_no_second_time_but_takes_a_repaired_one(
    database_url: str,
) -> None:
    """The child is a finished piece of work of its own: repaired by hand, its result counts."""
    app = Rota()
    broken = True

    @app.workflow
    async def child() -> str:
        if broken:
            raise ValueError("broken")
        return "repaired"

    @app.workflow
    async def parent() -> str:
        return await child()

    async with virtual(app, url=database_url) as world:
        run = await app.start(parent)
        await world.drain()
        assert await run.status() == "failed:logic"
        [below] = await children(app, run)
        broken = False
        await app.runs.retry(below.id)
        await world.drain()
        await app.runs.retry(run.id)
        await world.drain()
        assert await result(run) == "repaired"
        assert {row.root_id for row in await children(app, run)} == {below.id}


async def test_a_cancelled_child_raises_run_cancelled_in_the_parent(database_url: str) -> None:
    app, elder, _ = family()

    @app.workflow
    async def careful(n: int) -> str:
        try:
            return str(await elder(n))
        except RunCancelled:
            return "called off"

    async with virtual(app, url=database_url) as world:
        run = await app.start(careful, 1)
        await world.settle()
        [below] = await children(app, run)
        await app.runs.cancel(below.id)
        await world.settle()
        assert await result(run) == "called off"
        await sound(app)


async def test_cancelling_a_parent_cancels_everything_below_it(database_url: str) -> None:
    app, elder, _ = family()

    @app.workflow
    async def grand() -> None:
        await gather(elder(1), elder(2))

    async with virtual(app, url=database_url) as world:
        run = await app.start(grand)
        other = await app.start(elder, 3)
        await world.advance("10m")
        await run.cancel(reason="no longer wanted")
        await world.drain()
        rows = await app.runs.list(limit=100)
        assert sorted(row.status for row in rows) == ["cancelled"] * 5 + ["completed"] * 2
        assert {row.reason for row in rows if row.status == "cancelled"} == {"no longer wanted"}
        assert await result(other) == 3
        await sound(app)


async def test_fifty_children_run_under_a_limit_and_are_created_once(database_url: str) -> None:
    app = Rota()
    under_way = most = 0

    @app.workflow
    async def child(n: int) -> int:
        await sleep("1m")
        return n

    @app.workflow
    async def parent() -> list[int]:
        return await gather(*[child(n) for n in range(50)], limit=10)

    async with virtual(app, url=database_url) as world:
        run = await app.start(parent)
        for _ in range(6):
            await world.settle()
            below = await children(app, run)
            under_way = sum(row.status == "sleeping" for row in below)
            most = max(most, under_way)
            await world.advance("1m")
        await world.drain()
        assert await result(run) == list(range(50))
        below = await children(app, run)
        assert len(below) == 50
        assert most == 10
        await sound(app)


async def test_children_of_children(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def tree(depth: int) -> int:
        if not depth:
            await sleep("1m")
            return 1
        return sum(await gather(tree(depth - 1), tree(depth - 1)))

    async with virtual(app, url=database_url) as world:
        run = await app.start(tree, 3)
        await world.drain()
        assert await result(run) == 8
        assert len(await app.runs.list(limit=100)) == 15
        await sound(app)


async def test_a_started_child_goes_on_beside_its_parent(database_url: str) -> None:
    app, _, child = family()

    @app.workflow
    async def parent() -> list[int]:
        first = await app.start(child, 1)
        second = await app.options(tags={"a": "b"}, priority=4, delay="10m").start("child", n=2)
        await sleep("30m")
        return [(await first.result()).total, (await second.result()).total]

    async with virtual(app, url=database_url) as world:
        run = await app.start(parent)
        await world.drain()
        assert await result(run) == [1, 2]
        one, two = await children(app, run)
        assert (one.priority, two.priority, two.tags) == (0, 4, '{"a":"b"}')
        assert await keys(app, run) == [
            "start child#0",
            "start child#1",
            "sleep#0",
            f"result {one.id}",
            f"result {two.id}",
        ]


async def test_a_child_started_with_a_delay_begins_at_its_instant(database_url: str) -> None:
    app, _, child = family()

    @app.workflow
    async def parent() -> None:
        await app.options(delay="10m").start(child, 1)
        await sleep("5h")

    async with virtual(app, url=database_url) as world:
        run = await app.start(parent)
        await world.drain()
        [below] = await children(app, run)
        assert below.started_at == below.created_at + 600 * SECOND
        assert below.finished_at == below.created_at + 4200 * SECOND


async def test_a_parent_may_end_before_the_child_it_started(database_url: str) -> None:
    app, _, child = family()

    @app.workflow
    async def parent() -> str:
        return (await app.start(child, 1)).id

    async with virtual(app, url=database_url) as world:
        run = await app.start(parent)
        await world.settle()
        child_id = await result(run)
        assert (await app.runs.get(child_id)).status == "sleeping"
        await world.drain()
        assert (await app.runs.get(child_id)).status == "completed"
        await sound(app)


async def test_an_external_id_of_a_child_finds_the_run_that_exists(database_url: str) -> None:
    app, _, child = family()

    @app.workflow
    async def parent() -> int:
        ref = await app.options(external_id="the-one").start(child, 99)
        return int((await ref.result()).total)

    async with virtual(app, url=database_url) as world:
        outside = await app.options(external_id="the-one").start(child, 7)
        run = await app.start(parent)
        await world.drain()
        assert (await result(outside)).total == 7
        assert await run.status() == "completed"
        assert await result(run) == 7
        assert len(await app.runs.list(name="child")) == 1
        # It gets no report about the end of another run's child: it looks, ever more rarely.
        assert 50 < (await run.run()).claim_count < 120
        await sound(app)


async def test_two_parents_may_await_the_same_child(database_url: str) -> None:
    app, _, child = family()

    @app.workflow
    async def parent() -> int:
        ref = await app.options(external_id="shared").start(child, 5)
        return int((await ref.result()).total)

    async with virtual(app, url=database_url) as world:
        runs = [await app.start(parent) for _ in range(2)]
        await world.drain()
        assert [await run.status() for run in runs] == ["completed", "completed"]
        assert len(await app.runs.list(name="child")) == 1


async def test_refusing_a_taken_external_id_inside_a_workflow_says_what_holds(
    database_url: str,
) -> None:
    app, _, child = family()

    @app.workflow
    async def parent() -> str:
        await app.options(external_id="taken", on_conflict="reject").start(child, 1)
        return "started"

    async with virtual(app, url=database_url) as world:
        run = await app.start(parent)
        await world.drain()
        with pytest.raises(RunFailed, match="on_conflict cannot be used inside a workflow"):
            await result(run)


async def test_many_started_at_once_inside_a_workflow_are_created_once(database_url: str) -> None:
    app, _, child = family()

    @app.workflow
    async def parent() -> int:
        refs = await app.start_many(child, [(n,) for n in range(3)])
        await sleep("2h")
        return len(refs)

    async with virtual(app, url=database_url) as world:
        run = await app.start(parent)
        await world.drain()
        assert await result(run) == 3
        assert len(await app.runs.list(name="child")) == 3


async def test_bad_input_of_a_child_names_the_field_and_starts_nothing(database_url: str) -> None:
    app, _, child = family()

    @app.workflow
    async def parent() -> None:
        await child("many")

    async with virtual(app, url=database_url) as world:
        run = await app.start(parent)
        await world.drain()
        assert await run.status() == "failed:logic"
        assert "$.n" in (await trouble(run))["message"]
        assert await children(app, run) == []


async def test_an_unknown_child_is_named_with_the_nearest_names(database_url: str) -> None:
    app, _, _child = family()

    @app.workflow
    async def careless() -> None:
        await app.start("chidl", 1)

    async with virtual(app, url=database_url) as world:
        run = await app.start(careless)
        await world.drain()
        assert (await trouble(run))["type"] == "UnknownWorkflow"


async def test_a_child_knows_who_it_is(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def child() -> list[str]:
        me = this_run()
        return [me.id, me.trigger, me.name]

    @app.workflow
    async def parent() -> list[str]:
        return await child()

    async with virtual(app, url=database_url) as world:
        run = await app.start(parent)
        await world.drain()
        [below] = await children(app, run)
        assert await result(run) == [below.id, "child", "child"]


async def test_a_retried_parent_keeps_the_children_it_has(database_url: str) -> None:
    app, _, child = family()
    calls: list[int] = []

    @app.workflow(retries=1)
    async def parent() -> int:
        total = (await child(4)).total
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("down")
        return int(total)

    async with virtual(app, url=database_url) as world:
        run = await app.start(parent)
        await world.drain()
        assert await result(run) == 4
        assert len(await children(app, run)) == 1
        assert [label for _, _, label in await attempts(app, run)] == [
            "failed:transient",
            "completed",
        ]
