"""Results reach the code of a workflow in the same order at every replay."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest

from rota import Rota, gather, now, sleep, this_run, wait_for
from rota.core.time.instants import SECOND
from rota.store.runs.steps import record
from rota.testing import World, held, virtual
from tests.workflows.kit import GUARD_S, result, sound


class Racers:
    """Steps that end when the test says so. Names with `bad` fail."""

    def __init__(self, app: Rota) -> None:
        self._ends: dict[str, asyncio.Event] = {}

        @app.step
        async def race(name: str) -> str:
            with held():
                await self._ends.setdefault(name, asyncio.Event()).wait()
            if name.startswith("bad"):
                raise ValueError(name)
            return name

        self.race = race

    async def end(self, world: World, *names: str) -> None:
        """End these at the same moment, and let the workflow react."""
        for name in names:
            self._ends.setdefault(name, asyncio.Event()).set()
        await world.settle()


async def winners(tasks: Sequence[asyncio.Task[Any]]) -> list[int]:
    """The tasks that are done as soon as one is, by their place."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    return [place for place, task in enumerate(tasks) if task in done]


def tasks_of(*work: Coroutine[Any, Any, Any]) -> list[asyncio.Task[Any]]:
    return [asyncio.create_task(one) for one in work]


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "in one commit"])
async def test_the_winner_of_a_race_between_steps_stays_the_winner(
    database_url: str, together: bool
) -> None:
    app = Rota()
    racers = Racers(app)
    seen: list[list[int]] = []

    @app.workflow
    async def flow() -> list[int]:
        tasks = tasks_of(racers.race("a"), racers.race("b"))
        first = await winners(tasks)
        seen.append(first)
        await asyncio.wait(tasks)
        await sleep("1h")
        return first

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.settle()
        for names in [("a", "b")] if together else [("b",), ("a",)]:
            await racers.end(world, *names)
        await world.drain()
        assert await result(run) == seen[0]
        assert seen == [seen[0]] * 2
        assert len(seen[0]) == 1
        await sound(app)


async def test_branches_continue_in_the_order_in_which_their_steps_ended(database_url: str) -> None:
    app = Rota()
    racers = Racers(app)

    @app.workflow
    async def flow() -> list[str]:
        order: list[str] = []

        async def branch(name: str) -> None:
            order.append(await racers.race(name))

        await gather(*map(branch, "abcd"))
        await sleep("1h")
        return order

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.settle()
        for name in "dbac":
            await racers.end(world, name)
        await world.drain()
        assert await result(run) == ["d", "b", "a", "c"]


async def test_as_completed_gives_the_same_order_at_every_replay(database_url: str) -> None:
    app = Rota()
    racers = Racers(app)

    @app.workflow
    async def flow() -> list[str]:
        order = [await each for each in asyncio.as_completed(map(racers.race, "abc"))]
        await sleep("1h")
        return order

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.settle()
        for name in "cab":
            await racers.end(world, name)
        await world.drain()
        assert await result(run) == ["c", "a", "b"]


async def test_as_completed_takes_tasks(database_url: str) -> None:
    app = Rota()

    async def nap(hours: int) -> int:
        await sleep(3600 * hours)
        return hours

    @app.workflow
    async def flow() -> list[int]:
        return [await each for each in asyncio.as_completed(tasks_of(nap(2), nap(1)))]

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert await result(run) == [1, 2]


@pytest.mark.parametrize("signal_after", ["10m", "70m"])
async def test_a_race_between_a_signal_and_a_sleep_has_one_winner(
    database_url: str, signal_after: str
) -> None:
    app = Rota()

    @app.workflow
    async def flow() -> list[int]:
        first = await winners(tasks_of(wait_for("go"), sleep("1h")))
        await sleep("2h")
        return first

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.advance(signal_after)
        await run.signal("go")
        await world.drain()
        assert await result(run) == [0 if signal_after == "10m" else 1]


async def test_a_signal_that_came_while_no_worker_ran_loses_no_race_later(
    database_url: str,
) -> None:
    app = Rota()
    seen: list[list[int]] = []

    @app.workflow
    async def flow() -> list[int]:
        first = await winners(tasks_of(sleep("1h"), wait_for("go")))
        seen.append(first)
        await sleep("2h")
        return first

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.settle()
        at = world.clock.now()
    async with virtual(app, url=database_url, start=at + 2 * 3600 * 1_000_000) as world:
        await app.runs.signal(run.id, "go")
        await world.drain()
        assert await app.runs.handle(run.id).result(timeout=30) == seen[0]
        assert seen == [seen[0]] * 2


async def test_the_first_child_to_end_is_the_first_at_every_replay(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def child(pause: str) -> str:
        await sleep(pause)
        return pause

    @app.workflow
    async def flow() -> list[int]:
        tasks = tasks_of(child("3h"), child("1h"), child("2h"))
        first = await winners(tasks)
        await asyncio.wait(tasks)
        await sleep("1h")
        return first

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert await result(run) == [1]


async def test_the_same_failure_ends_a_gather_at_every_replay(database_url: str) -> None:
    app = Rota()
    racers = Racers(app)

    @app.workflow
    async def flow() -> str:
        try:
            await gather(racers.race("bad a"), racers.race("bad b"), racers.race("c"))
            failed = ""
        except Exception as error:
            failed = str(error)
        await sleep("1h")
        return failed

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.settle()
        await racers.end(world, "bad b", "bad a")
        await world.drain()
        live = await result(run)
        assert "bad" in live
        again = await app.runs.fork(run.id, from_step="sleep#0")
        await world.drain()
        assert await again.result(timeout=30) == live


async def test_a_gather_of_steps_races_as_one(database_url: str) -> None:
    app = Rota()
    racers = Racers(app)

    @app.workflow
    async def flow() -> list[int]:
        tasks = tasks_of(
            gather(racers.race("a"), racers.race("b")), gather(racers.race("c"), racers.race("d"))
        )
        first = await winners(tasks)
        await asyncio.wait(tasks)
        await sleep("1h")
        return first

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.settle()
        for name in "acdb":
            await racers.end(world, name)
        await world.drain()
        assert await result(run) == [1]


async def test_a_step_that_lost_its_race_and_was_cancelled_stays_cancelled(
    database_url: str,
) -> None:
    app = Rota()
    racers = Racers(app)

    @app.workflow
    async def flow() -> list[str]:
        tasks = tasks_of(racers.race("a"), racers.race("b"))
        [first] = await winners(tasks)
        tasks[1 - first].cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        await sleep("1h")
        return [str(one) or type(one).__name__ for one in ended]

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.settle()
        await racers.end(world, "a", "b")  # in one commit: one is recorded, and cancelled then
        await world.drain()
        assert await result(run) in (["a", "CancelledError"], ["CancelledError", "b"])


async def test_times_that_branches_read_are_in_order(database_url: str) -> None:
    app = Rota()
    racers = Racers(app)

    @app.workflow
    async def flow() -> list[str]:
        order: list[str] = []

        async def clock() -> None:
            for _ in range(3):
                await now()
                order.append("now")

        async def branch() -> None:
            order.append(await racers.race("a"))

        await gather(branch(), clock())
        await sleep("1h")
        return order

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.settle()
        await racers.end(world, "a")
        await world.drain()
        assert await result(run) == ["now", "now", "now", "a"]


async def test_a_run_suspends_after_a_replay_cancelled_a_wait(database_url: str) -> None:
    app = Rota()

    @app.step
    async def quick() -> str:
        return "quick"

    @app.workflow
    async def child(pause: str) -> str:
        await sleep(pause)
        return pause

    @app.workflow
    async def flow() -> list[Any]:
        async def race() -> list[int]:
            tasks = tasks_of(child("5h"), quick())
            first = await winners(tasks)
            tasks[0].cancel()
            await asyncio.wait(tasks)
            return first

        async def later() -> str:
            await sleep("1h")
            return await child("2h")

        return await gather(race(), later())

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert await result(run) == [[1], "2h"]


async def test_no_step_begins_before_the_timer_is_durable_to_which_the_code_reacts(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step ends at the instant of the timeout. Its record takes the end of the timer along."""
    app = Rota()
    paid: list[str] = []
    begun, released = asyncio.Event(), asyncio.Event()

    @app.step
    async def slow() -> None:
        with held():
            await app.clock.wait(asyncio.Event(), app.clock.now() + SECOND)

    @app.step
    async def pay(reason: str) -> None:
        paid.append(reason)

    @app.workflow
    async def flow() -> None:
        other = asyncio.create_task(sleep(0.5))
        try:
            async with asyncio.timeout(1):
                await slow()
        except TimeoutError:
            await pay("timeout")
        await other

    async with virtual(app, url=database_url) as world:
        run = await flow.start()

        def slowly(write: Any) -> Any:
            async def written(function: Any, *args: Any, **kwargs: Any) -> Any:
                if function is record and any(one.step.key == "slow#0" for one in args[0]):
                    begun.set()
                    await released.wait()
                return await write(function, *args, **kwargs)

            return written

        for verb in ("write", "write_brief"):
            database = app.connection.database
            monkeypatch.setattr(database, verb, slowly(getattr(database, verb)))
        working = asyncio.create_task(world.advance(1))
        await asyncio.wait_for(begun.wait(), GUARD_S)
        for _ in range(100):
            await asyncio.sleep(0)
        until_written = list(paid)
        released.set()
        await working
        assert (until_written, paid) == ([], ["timeout"])
        await sound(app)
        await world.drain()
        assert await result(run) is None


async def test_code_may_end_before_a_recorded_end_that_it_does_not_wait_for(
    database_url: str,
) -> None:
    """The step was recorded while the code ended. The retry ends at the same place."""
    app = Rota()

    @app.step
    async def note(name: str) -> str:
        return name

    @app.workflow
    async def flow() -> str:
        first = asyncio.create_task(note("first"))
        left = asyncio.create_task(note("left behind"))
        answer = await first
        assert not left.done()
        if this_run().attempt == 1:
            raise RuntimeError("once")
        return answer

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.settle()
        assert [step.status for step in await app.runs.steps(run.id)] == ["completed"] * 2
        await app.runs.retry(run.id)
        await world.settle()
        assert await result(run) == "first"
