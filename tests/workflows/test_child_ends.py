"""Children of a parent that ended, and children by the hundred."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rota import (
    Fatal,
    RetryPolicy,
    Rota,
    RunFailed,
    gather,
    sleep,
    wait_for,
)
from rota.core.runs.ids import id_bound
from rota.store.runs import retention
from rota.store.runs.wake import poke
from rota.testing import virtual
from tests.engine.kit import Gate, StoreTap, ghost_claim, live
from tests.workflows.kit import (
    children,
    eventually,
    family,
    result,
    sound,
)


def failing(**policies: Any) -> tuple[Rota, Any, list[str]]:
    """A parent that fails while one child runs, one sleeps and a grandchild sleeps below it."""
    app = Rota()
    effects: list[str] = []

    @app.step
    async def effect(name: str) -> None:
        effects.append(name)

    @app.workflow
    async def grandchild() -> None:
        await sleep("1h")
        await effect("grandchild")

    @app.workflow
    async def child() -> None:
        await grandchild()
        await effect("child")

    @app.workflow
    async def apart() -> None:
        await sleep("2h")
        await effect("apart")

    @app.workflow(**policies)
    async def parent() -> None:
        await apart.options(detached=True).start()
        await app.start(child)
        await sleep("1m")
        if "timeout" not in policies:
            raise ValueError("no")
        await sleep("1d")

    return app, parent, effects


@pytest.mark.parametrize("policies", [{}, {"timeout": "2m"}, {"retries": 1}], ids=str)
async def test_children_of_a_parent_that_failed_for_good_are_cancelled(
    database_url: str, policies: dict[str, Any]
) -> None:
    app, parent, effects = failing(**policies)
    async with virtual(app, url=database_url) as world:
        run = await app.start(parent)
        await world.drain()
        assert (await run.status()).startswith("failed:")
        labels = {row.name: row.label for row in await app.runs.list()}
        assert labels["child"] == labels["grandchild"] == "cancelled:parent ended"
        assert labels["apart"] == "completed"
        assert effects == ["apart"]
        await sound(app)


async def test_children_live_while_their_parent_is_retried(database_url: str) -> None:
    app, _, child = family()
    tries: list[int] = []

    @app.workflow(retries=RetryPolicy(attempts=2, delay_s=600))
    async def parent() -> int:
        handle = await app.start(child, 4)
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("down")
        return int((await handle.result()).total)

    async with virtual(app, url=database_url) as world:
        run = await app.start(parent)
        await world.drain()
        assert await result(run) == 4
        [below] = await children(app, run)
        assert below.status == "completed"


async def test_a_running_child_is_interrupted_when_its_parent_fails(database_url: str) -> None:
    app = Rota()
    gate = Gate()
    work = gate

    @app.workflow
    async def child() -> None:
        await work()

    @app.workflow
    async def parent() -> None:
        await app.start(child)
        await wait_for("fail")
        raise ValueError("no")

    async with live(app, database_url):
        run = await app.start(parent)
        await eventually(lambda: gate.under_way == 1)
        await run.signal("fail")
        await eventually(lambda: gate.interrupted == [None])


async def test_children_of_a_parent_that_crashed_for_good_are_cancelled(database_url: str) -> None:
    app, elder, _ = family()
    app.settings = msgspec.structs.replace(app.settings, recoveries_max=0)
    async with virtual(app, url=database_url) as world:
        run = await app.start(elder, 1)
        await world.settle()
        [below] = await children(app, run)
        await app.connection.database.write(poke, [run.id], now=world.clock.now())
        await ghost_claim(app, "ghost")
        await world.advance("1m")
        await world.beat()
        assert (await run.run()).status == "crashed"
        assert (await app.runs.get(below.id)).label == "cancelled:parent ended"
        await sound(app)


async def test_cancelling_a_parent_leaves_a_detached_child_alone(database_url: str) -> None:
    app, parent, effects = failing()
    async with virtual(app, url=database_url) as world:
        run = await app.start(parent)
        await world.settle()
        await run.cancel()
        await sound(app)  # the doctor does not miss a parent either
        await world.drain()
        assert effects == ["apart"]


async def test_a_parent_retried_by_hand_runs_its_cancelled_children_again(
    database_url: str,
) -> None:
    app = Rota()
    broken = [True]

    @app.workflow
    async def inner(n: int) -> int:
        await sleep("1h")
        return n

    @app.workflow
    async def slow(n: int) -> int:
        return await inner(n)

    @app.workflow
    async def breaks() -> None:
        await sleep("1m")
        if broken[0]:
            raise Fatal("no")

    @app.workflow
    async def parent() -> int:
        results = await gather(slow(3), breaks())
        return int(results[0] or 0)

    async with virtual(app, url=database_url) as world:
        run = await app.start(parent)
        await world.drain()
        assert (await run.status()).startswith("failed")
        broken[0] = False
        await app.runs.retry(run.id)
        await world.drain()
        assert await result(run) == 3
        await sound(app)


@pytest.mark.parametrize("form", ["start_many", "gather"])
async def test_many_children_are_written_in_few_transactions(database_url: str, form: str) -> None:
    app = Rota()

    @app.workflow
    async def child(n: int) -> int:
        return n

    @app.workflow
    async def parent(count: int) -> int:
        if form == "start_many":
            handles = await app.start_many(child, [(n,) for n in range(count)])
            return sum([await handle.result() for handle in handles])
        return sum(await gather(*[child(n) for n in range(count)]))

    async with live(app, database_url):
        tap = StoreTap(app)
        run = await app.start(parent, 300)
        assert await result(run) == sum(range(300))
        assert len(await children(app, run)) == 300
        assert 1 <= tap.count("record_children") <= 10
        await sound(app)


async def test_children_started_one_by_one_and_many_at_once_have_the_same_keys(
    database_url: str,
) -> None:
    app = Rota()
    at_once = [False]

    @app.workflow
    async def child(n: int) -> int:
        return n

    @app.workflow
    async def parent() -> list[str]:
        if at_once[0]:
            handles = await app.start_many(child, [(n,) for n in range(3)])
        else:
            handles = [await app.start(child, n) for n in range(3)]
        await sleep("1h")
        return [handle.id for handle in handles]

    async with virtual(app, url=database_url) as world:
        run = await app.start(parent)
        await world.settle()
        at_once[0] = True
        await world.drain()
        assert await result(run) == [row.id for row in await children(app, run)]


async def test_a_child_whose_record_was_pruned_fails_its_parent_with_a_reason(
    database_url: str,
) -> None:
    """It was the child of another: that one is over, so retention may take it."""
    app, _, child = family()

    @app.workflow
    async def late() -> int:
        run = await app.options(external_id="shared").start(child, 5)
        await sleep("60d")
        return int((await run.result()).total)

    async with virtual(app, url=database_url) as world:
        await app.options(external_id="shared").start(child, 5)
        run = await app.start(late)
        await world.advance("59d")
        pruned = await app.connection.database.write(
            retention.prune, namespace="default", before_id=id_bound(app.clock.now()), limit=10
        )
        assert pruned.chains == 1
        await world.advance("2d")
        for _ in range(2):
            assert await run.status() == "failed:logic"
            with pytest.raises(RunFailed, match="was pruned or archived"):
                await run.result()
            await app.runs.retry(run.id)
            await world.advance("1h")
        await sound(app)
