"""Runs that continue as new: the next run of the chain begins with new input and no history."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import rota
from rota import Rota, RunCancelled, RunFailed, sleep, this_run, wait_for
from rota.errors import UsageError, WrongState
from rota.testing import virtual
from tests.workflows.kit import attempts, children, keys, result, sound, trouble


def counter(**settings: Any) -> tuple[Rota, Any, list[int]]:
    """A workflow that counts up to `last`, one step in each segment."""
    app, noted = Rota(**settings), []

    @app.step
    async def note(n: int) -> int:
        noted.append(n)
        return n

    @app.workflow
    async def count(n: int, last: int, big: str = "") -> dict[str, Any]:
        await note(n)
        if n < last:
            raise rota.continue_as_new(n + 1, last=last, big=big)
        return {"n": n, "big": len(big)}

    return app, count, noted


CONTINUED = "completed:continued"


async def test_the_result_follows_the_continuations(database_url: str) -> None:
    app, count, noted = counter()
    async with virtual(app, url=database_url) as world:
        run = await count.options(external_id="c", tags={"team": "a"}).start(0, 3)
        await world.drain()
        assert await result(run) == {"n": 3, "big": 0}
        assert noted == [0, 1, 2, 3]
        assert await attempts(app, run) == [
            (1, "manual", CONTINUED),
            *[(1, "continue", CONTINUED)] * 2,
            (1, "continue", "completed"),
        ]
        again = await count.options(external_id="c").start(7, 8)
        assert (again.existed, again.id) == (True, run.id)
        assert (await app.runs.get("c")).status == "completed"
        assert (await app.runs.get("c")).reason is None
        assert await run.status() == "completed"
        chain = await app.runs.chain("c")
        assert [row.external_id for row in chain] == ["c"] * 4
        assert {row.tags for row in chain} == {chain[0].tags}
        assert [row.input for row in chain][-1] == '{"n":3,"last":3,"big":""}'
        assert await keys(app, run) == ["note#0"]
        assert [step.output for step in await app.runs.steps(run.id)] == ["3"]
        assert [step.output for step in await app.runs.steps(chain[1].id)] == ["1"]
        await sound(app)


async def test_a_big_input_belongs_to_its_segment(database_url: str) -> None:
    app, count, _ = counter()
    async with virtual(app, url=database_url) as world:
        run = await count.start(0, 2, "x" * 100_000)
        await world.drain()
        assert await result(run) == {"n": 2, "big": 100_000}
        inputs = [row.input or "" for row in await app.runs.chain(run.id)]
        assert [text[:6] for text in inputs] == ['{"n":0', '{"n":1', '{"n":2']


async def test_the_unique_key_stays_taken(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def loop(n: int) -> int:
        await sleep("1h")
        if n < 2:
            raise rota.continue_as_new(n + 1)
        return n

    async with virtual(app, url=database_url) as world:
        run = await loop.options(unique_key="u", key="k", priority=3).start(0)
        await world.advance("90m")
        again = await loop.options(unique_key="u").start(0)
        assert (again.existed, again.id) == (True, run.id)
        last = await run.run()
        assert (last.attempt, last.limit_key, last.priority, last.status) == (1, "k", 3, "sleeping")
        await world.drain()
        assert await result(run) == 2
        await sound(app)


async def test_a_sync_workflow_continues_as_new(database_url: str) -> None:
    app = Rota()

    @app.step
    def double(n: int) -> int:
        return n * 2

    @app.workflow
    def grow(n: int) -> int:
        n = double(n)
        if n < 8:
            raise rota.continue_as_new(n)
        return n

    async with virtual(app, url=database_url) as world:
        run = await grow.start(1)
        await world.drain()
        assert await result(run) == 8
        assert len(await app.runs.chain(run.id)) == 3
        await sound(app)


async def test_code_that_leaves_a_task_group_continues_as_new(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def flow(n: int = 0) -> int:
        async with asyncio.TaskGroup() as group:
            group.create_task(sleep("1m"))
            if n < 1:
                raise rota.continue_as_new(n + 1)
        return n

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert await result(run) == 1


async def test_signals_are_neither_lost_nor_doubled(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def inbox(seen: list[int]) -> list[int]:
        for _ in range(2):
            seen.append(await wait_for("n", type=int))
        if len(seen) < 6:
            raise rota.continue_as_new(seen)
        return seen

    async with virtual(app, url=database_url) as world:
        run = await inbox.start([])
        for n in range(3):  # one more than the first segment takes
            await run.signal("n", n)
        await world.settle()
        assert len(await app.runs.chain(run.id)) == 2
        for n in range(3, 6):
            await run.signal("n", n)
            await world.settle()
        await world.drain()
        assert await result(run) == [0, 1, 2, 3, 4, 5]
        with pytest.raises(WrongState):
            await run.signal("n", 6)
        await sound(app)


async def test_a_signal_that_the_code_has_not_got_stays_for_the_next_segment(
    database_url: str,
) -> None:
    """And one that an earlier segment has got under the same key does not come back."""
    app = Rota()

    @app.step
    async def work() -> None: ...

    @app.workflow
    async def flow(segment: int = 1) -> list[str]:
        waits = asyncio.ensure_future(wait_for("word"))
        if segment == 1:
            assert await waits == "first"
            raise rota.continue_as_new(2)
        if segment == 2:
            await work()
            raise rota.continue_as_new(3)
        return [await waits, await wait_for("word"), await wait_for("word", timeout=0)]

    async with virtual(app, url=database_url) as world:
        run = await flow.options(delay="1m").start()
        for word in ("first", "second", "third", "fourth"):
            await run.signal("word", word)
        await world.drain()
        assert await result(run) == ["second", "third", "fourth"]
        await sound(app)


async def test_a_wrong_signal_is_refused_by_the_wait_of_the_newest_segment(
    database_url: str,
) -> None:
    app = Rota()

    @app.workflow
    async def flow(first: bool = True) -> int:
        if first:
            raise rota.continue_as_new(first=False)
        return await wait_for("n", type=int)

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.settle()
        with pytest.raises(rota.RotaError, match="signal n"):
            await run.signal("n", "three")
        await run.signal("n", 3)
        await world.drain()
        assert await result(run) == 3


async def test_a_child_stays_a_child(database_url: str) -> None:
    app, count, noted = counter()

    @app.workflow
    async def parent() -> int:
        return (await count(0, 3))["n"]

    async with virtual(app, url=database_url) as world:
        run = await parent.start()
        await world.drain()
        assert await result(run) == 3
        assert noted == [0, 1, 2, 3]
        [child] = await app.runs.children(run.id)
        assert child.label == "completed"
        await sound(app)


async def test_children_of_the_earlier_segment_continue(database_url: str) -> None:
    """As they do when a parent completes: they belong to the chain."""
    app = Rota()

    @app.workflow
    async def child() -> str:
        await sleep("2h")
        return "done"

    @app.workflow
    async def parent(child_id: str = "") -> str:
        if not child_id:
            raise rota.continue_as_new((await child.start()).id)
        await sleep("1h")
        if this_run().attempt == 1:
            raise ValueError("the last segment fails")
        return child_id

    async with virtual(app, url=database_url) as world:
        run = await parent.start()
        await world.settle()
        [one] = await children(app, run)
        assert one.status == "sleeping"
        await world.drain()
        with pytest.raises(RunFailed):
            await result(run)
        [one] = await children(app, run)
        assert one.label == "cancelled:parent ended"
        await sound(app)


async def test_a_run_that_continues_is_cancelled(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def forever(n: int = 0) -> None:
        await sleep("1h")
        raise rota.continue_as_new(n + 1)

    async with virtual(app, url=database_url) as world:
        run = await forever.options(external_id="f").start()
        await world.advance("150m")
        [cancelled] = await app.runs.cancel("f")
        assert cancelled == (await run.run()).id != run.id
        await world.advance("5h")
        with pytest.raises(RunCancelled):
            await result(run)
        assert len(await app.runs.chain(run.id)) == 3
        await sound(app)


async def test_attempts_timeout_and_seed_begin_again(database_url: str) -> None:
    app, seen = Rota(), []

    @app.workflow(retries=1, timeout="90m")
    async def flow(n: int = 0) -> int:
        seen.append((n, this_run().attempt, rota.uuid()))
        if this_run().attempt == 1:
            raise ValueError("the first attempt of each segment fails")
        await sleep("1h")
        if n < 2:
            raise rota.continue_as_new(n + 1)
        return n

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert await result(run) == 2
        first = list(dict.fromkeys((n, attempt) for n, attempt, _ in seen))
        assert first == [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2)]
        ids = {n: {uuid for m, _, uuid in seen if m == n} for n in range(3)}
        assert [len(one) for one in ids.values()] == [1, 1, 1]  # the same at each replay and retry
        assert len(set.union(*ids.values())) == 3
        await sound(app)


async def test_the_last_segment_is_retried(database_url: str) -> None:
    app, calls = Rota(), []
    good: list[bool] = []

    @app.step
    async def note(n: int) -> int:
        calls.append(n)
        return n

    @app.workflow
    async def flow(n: int = 0) -> str:
        await note(n)
        if n < 2:
            raise rota.continue_as_new(n + 1)
        if not good:
            raise ValueError("not yet")
        return "good"

    async with virtual(app, url=database_url) as world:
        run = await flow.options(external_id="r").start()
        await world.drain()
        with pytest.raises(RunFailed, match="not yet"):
            await result(run)
        good.append(True)
        assert (await app.runs.retry("r")).id == run.id
        await world.drain()
        assert await result(run) == "good"
        assert calls == [0, 1, 2]
        last = await run.run()
        assert (last.attempt, last.trigger, last.input) == (2, "retry", '{"n":2}')
        await sound(app)


async def test_the_last_segment_is_forked(database_url: str) -> None:
    app, count, noted = counter()
    async with virtual(app, url=database_url) as world:
        run = await count.start(0, 2)
        await world.drain()
        chain = await app.runs.chain(run.id)
        last = await app.runs.fork(run.id, from_step="note#0")
        second = await app.runs.fork(chain[1].id, from_step="note#0")
        await world.drain()
        assert noted == [0, 1, 2, 2, 1, 2]
        assert [len(await app.runs.chain(fork.id)) for fork in (last, second)] == [1, 2]
        assert await result(second) == {"n": 2, "big": 0}
        await sound(app)


async def test_arguments_that_do_not_fit_fail_the_run(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def unknown(n: int = 0) -> int:
        raise rota.continue_as_new(m=n + 1)

    @app.workflow
    async def mistyped(n: int = 0) -> int:
        raise rota.continue_as_new("many")

    async with virtual(app, url=database_url) as world:
        for workflow, parameter in ((unknown, "'m'"), (mistyped, ".n")):
            run = await workflow.start()
            await world.drain()
            error = await trouble(run)
            assert error["type"] == "BadInput"
            assert error["message"].startswith(workflow.name)
            assert parameter in error["message"]
            assert await attempts(app, run) == [(1, "manual", "failed:logic")]


async def test_the_exception_has_to_be_raised(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def forgets(n: int = 0) -> int:
        rota.continue_as_new(n + 1)
        return n

    @app.workflow
    async def catches(n: int = 0) -> int:
        try:
            raise rota.continue_as_new(n + 1)
        except BaseException:
            return n

    async with virtual(app, url=database_url) as world:
        for workflow in (forgets, catches):
            run = await workflow.start()
            await world.drain()
            assert "continue_as_new" in (await trouble(run))["message"]
            assert await run.status() == "failed:logic"


async def test_it_belongs_to_workflow_code(database_url: str) -> None:
    app = Rota()

    @app.step
    async def wrong() -> None:
        raise rota.continue_as_new(1)

    @app.step
    def wrong_too() -> None:
        raise rota.continue_as_new(1)

    @app.workflow
    async def flow() -> None:
        await wrong()

    @app.workflow
    def sync() -> None:
        wrong_too()

    with pytest.raises(UsageError, match="outside of a workflow"):
        rota.continue_as_new(1)
    async with virtual(app, url=database_url) as world:
        for workflow in (flow, sync):
            run = await workflow.start()
            await world.drain()
            assert "outside of a workflow" in (await trouble(run))["message"]


async def test_an_open_chain_has_no_result_between_two_segments(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def flow(first: bool = True) -> str:
        if first:
            raise rota.continue_as_new(first=False)
        await sleep("1h")
        return "end"

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.settle()
        with pytest.raises(TimeoutError):
            await app.runs.wait(run.id, timeout=0)
        await world.drain()
        assert await result(run) == "end"
