"""Durable sleeps and signals."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from rota import Rota, gather, now, sleep, sleep_until, wait_for
from rota.core.time.instants import SECOND, Duration
from rota.errors import BadInput, UsageError
from rota.store.runs import signals
from rota.store.runs.steps import record
from rota.testing import virtual
from tests.workflows.kit import Receipt, attempts, keys, result, sound, trouble


def sleeping_app(duration: Duration) -> tuple[Rota, Any]:
    app = Rota()

    @app.workflow
    async def flow() -> int:
        await sleep(duration)
        return 1

    return app, flow


@pytest.mark.parametrize(
    ("duration", "micros"),
    [
        ("24h", 86_400 * SECOND),
        ("1h30m", 5_400 * SECOND),
        (90, 90 * SECOND),
        (0.25, SECOND // 4),
        ("1ms", 1_000),
        ("1us", 1),
        (timedelta(days=30), 30 * 86_400 * SECOND),
    ],
)
async def test_a_sleeper_wakes_at_its_instant(
    database_url: str, duration: Duration, micros: int
) -> None:
    app, flow = sleeping_app(duration)
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        row = await run.run()
        assert (row.label, row.lease_owner) == ("sleeping:sleep", None)
        assert row.available_at == row.created_at + micros
        await world.drain()
        assert await result(run) == 1
        row = await run.run()
        assert row.finished_at == row.created_at + micros


@pytest.mark.parametrize("duration", [0, "0s", -5, timedelta(seconds=-1)])
async def test_a_sleep_that_is_over_already_holds_nobody_up(
    database_url: str, duration: Duration
) -> None:
    app, flow = sleeping_app(duration)
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        assert await result(run) == 1
        assert (await run.run()).claim_count == 1


async def test_a_bad_duration_is_an_error_of_the_workflow(database_url: str) -> None:
    app, flow = sleeping_app("soon")
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await run.status() == "failed:logic"
        assert "'soon' is not a duration" in (await trouble(run))["message"]


async def test_sleep_until_wakes_at_that_instant_and_not_again(database_url: str) -> None:
    app = Rota()
    seen: list[str] = []

    @app.workflow
    async def flow() -> None:
        at = await now()
        await sleep_until(at + timedelta(hours=5))
        seen.append(str(await now() - at))
        await sleep_until(at + timedelta(hours=5))
        await sleep_until(at - timedelta(hours=5))
        seen.append(str(await now() - at))

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await run.status() == "completed"
        assert seen == ["5:00:00", "5:00:00"]


async def test_sleep_until_needs_a_time_zone(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def flow() -> None:
        await sleep_until((await now()).replace(tzinfo=None))

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert (await trouble(run))["type"] == BadInput.__name__


async def test_a_restart_does_not_start_a_sleep_again(database_url: str) -> None:
    app, flow = sleeping_app("10h")
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.advance("4h")
        later = world.clock.now()
    async with virtual(app, url=database_url, start=later) as world:
        await world.drain()
        row = (await app.runs.chain(run.id))[-1]
        assert row.status == "completed"
        assert row.finished_at == row.created_at + 36_000 * SECOND


async def test_a_sleep_that_ended_while_nobody_ran_is_over_at_the_next_start(
    database_url: str,
) -> None:
    app, flow = sleeping_app("1h")
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        later = world.clock.now() + 10_000 * SECOND
    async with virtual(app, url=database_url, start=later) as world:
        await world.settle()
        assert (await app.runs.chain(run.id))[-1].status == "completed"


def asking_app(timeout: Duration | None = None, type_: Any = Any) -> tuple[Rota, Any]:
    app = Rota()

    @app.workflow
    async def flow() -> Any:
        try:
            return await wait_for("go", timeout=timeout, type=type_)
        except TimeoutError:
            return "timeout"

    return app, flow


async def test_a_signal_wakes_a_run_that_waits_for_it(database_url: str) -> None:
    app, flow = asking_app()
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.advance("10d")
        assert await run.status() == "sleeping:signal"
        await run.signal("go", {"n": 1})
        await world.settle()
        assert await result(run) == {"n": 1}
        await sound(app)


async def test_a_signal_sent_before_it_is_asked_for_is_kept(database_url: str) -> None:
    app, flow = asking_app()
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await run.signal("go", 7)
        await world.settle()
        assert await result(run) == 7


async def test_a_signal_of_another_name_does_not_end_the_wait(database_url: str) -> None:
    app, flow = asking_app()
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        await run.signal("stop")
        await world.settle()
        assert await run.status() == "sleeping:signal"
        await run.signal("go", None)
        await world.settle()
        assert await result(run) is None


async def test_signals_are_taken_in_the_order_they_were_sent(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def flow() -> list[int]:
        found = [await wait_for("n") for _ in range(3)]
        await sleep("1h")
        return [*found, await wait_for("n")]

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        for n in (3, 1, 2):
            await run.signal("n", n)
        await world.advance("1h")
        await run.signal("n", 0)
        await world.settle()
        assert await result(run) == [3, 1, 2, 0]
        assert await keys(app, run) == ["wait n#0", "wait n#1", "wait n#2", "sleep#0", "wait n#3"]


async def test_each_of_two_waiting_branches_gets_one_signal(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def flow() -> list[int]:
        return await gather(wait_for("n"), wait_for("n"))

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        await run.signal("n", 1)
        await world.settle()
        assert await run.status() == "sleeping:signal"
        await run.signal("n", 2)
        await world.settle()
        assert sorted(await result(run)) == [1, 2]


async def test_a_wait_times_out_at_its_instant(database_url: str) -> None:
    app, flow = asking_app("1h")
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == "timeout"
        row = await run.run()
        assert row.finished_at == row.created_at + 3600 * SECOND


async def test_a_signal_that_comes_just_before_the_timeout_is_received(database_url: str) -> None:
    app, flow = asking_app("1h")
    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.advance("3599.999999s")
        await run.signal("go", "just")
        await world.settle()
        assert await result(run) == "just"


async def test_a_timeout_once_taken_stays_when_the_signal_comes_late(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def flow() -> list[str]:
        seen = []
        for timeout in ("1h", None):
            try:
                seen.append(await wait_for("go", timeout=timeout))
            except TimeoutError:
                seen.append("timeout")
            await sleep("1h")
        return seen

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.advance("90m")
        await run.signal("go", "late")
        await world.drain()
        # The late one is not lost: the next wait of that name takes it.
        assert await result(run) == ["timeout", "late"]


async def test_a_wait_with_no_time_takes_only_what_is_there(database_url: str) -> None:
    app, flow = asking_app(0)
    async with virtual(app, url=database_url) as world:
        empty = await app.start(flow)
        full = await app.start(flow)
        await full.signal("go", 1)
        await world.settle()
        assert await result(empty) == "timeout"
        assert await result(full) == 1


async def test_a_signal_is_read_by_the_type_asked_for(database_url: str) -> None:
    app, flow = asking_app(type_=Receipt)
    async with virtual(app, url=database_url) as world:
        good = await app.start(flow)
        await good.signal("go", Receipt("o", 1))
        bad = await app.start(flow)
        await bad.signal("go", {"order": "o", "total": "much"})
        await world.settle()
        assert await result(good) == {"order": "o", "total": 1}
        assert await bad.status() == "sleeping:signal"


async def test_a_signal_sent_in_the_middle_of_a_step_is_not_lost(database_url: str) -> None:
    app = Rota()

    @app.step
    async def work(run_id: str) -> None:
        await app.runs.signal(run_id, "go", "from inside")

    @app.workflow
    async def flow() -> Any:
        await work(run.id)
        return await wait_for("go")

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        assert await result(run) == "from inside"


async def test_a_signal_to_a_retried_run_reaches_its_newest_attempt(database_url: str) -> None:
    app = Rota()
    calls: list[int] = []

    @app.workflow(retries=1)
    async def flow() -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("down")
        return await wait_for("go")

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await attempts(app, run) == [
            (1, "manual", "failed:transient"),
            (2, "retry", "sleeping:signal"),
        ]
        await run.signal("go", 5)
        await world.settle()
        assert await result(run) == 5


async def test_a_signal_sent_while_a_retry_waits_does_not_hurry_it(database_url: str) -> None:
    app = Rota()
    calls: list[int] = []

    @app.workflow(retries=1)
    async def flow() -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("down")
        return await wait_for("go")

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        await run.signal("go", 5)
        await world.settle()
        assert len(calls) == 1
        await world.drain()
        assert await result(run) == 5


async def test_a_signal_does_not_hurry_a_delayed_start(database_url: str) -> None:
    app, flow = asking_app()
    async with virtual(app, url=database_url) as world:
        run = await app.options(delay="1h").start(flow)
        await run.signal("go", 5)
        await world.settle()
        assert (await run.run()).status == "sleeping"
        await world.advance("1h")
        assert await result(run) == 5


async def test_waiting_outside_of_a_workflow_says_so() -> None:
    app = Rota()

    @app.step
    async def inside() -> None:
        await wait_for("go")

    with pytest.raises(UsageError, match="outside of a workflow"):
        await wait_for("go")
    with pytest.raises(UsageError, match="outside of a workflow"):
        await inside()


async def test_a_wait_with_a_timeout_of_zero_takes_what_was_sent_and_waits_for_nothing(
    database_url: str,
) -> None:
    app = Rota()

    @app.workflow
    async def flow() -> list[str]:
        found = []
        for _ in range(2):
            try:
                found.append(await wait_for("note", timeout=0, type=str))
            except TimeoutError:
                found.append("nothing")
        await sleep("1h")
        return found

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await run.signal("note", "sent before")
        await world.drain()
        assert await result(run) == ["sent before", "nothing"]
        await sound(app)


async def test_code_may_cancel_a_wait_while_its_signal_is_taken(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal stays for the next wait, and the ends that come later reach the code."""
    app = Rota()
    looks, cancelled = asyncio.Event(), asyncio.Event()

    @app.step
    async def note(name: str) -> str:
        return name

    async def first_then_wait() -> None:
        await note("first")
        await wait_for("go")

    async def second() -> str:
        return await note("second")

    @app.workflow
    async def flow() -> list[Any]:
        task = asyncio.create_task(first_then_wait())
        found = [await asyncio.create_task(second())]
        task.cancel()
        cancelled.set()
        await asyncio.wait([task])
        return [*found, await note("third"), await wait_for("go")]

    async with virtual(app, url=database_url) as world:

        def slow(write: Any) -> Any:
            async def written(function: Any, *args: Any, **kwargs: Any) -> Any:
                if function is signals.await_signal:
                    looks.set()
                    await cancelled.wait()
                elif function is record and args[0][0].step.key == "note#1":
                    await looks.wait()
                return await write(function, *args, **kwargs)

            return written

        for verb in ("write", "write_brief"):
            database = app.connection.database
            monkeypatch.setattr(database, verb, slow(getattr(database, verb)))
        run = await app.start(flow)
        await run.signal("go", "now")
        await world.settle()
        assert await run.status() == "completed"
        assert await result(run) == ["second", "third", "now"]


async def test_a_wait_with_a_negative_timeout_is_refused(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def flow() -> None:
        await wait_for("note", timeout=-1)

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.settle()
        assert "timeout=-1 lies in the past" in (await trouble(run))["message"]
