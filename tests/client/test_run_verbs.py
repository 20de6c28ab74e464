"""Verbs on runs: find, list, wait, cancel, retry, signal."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from rota import Client, RetryPolicy, Rota, Start, sleep, wait_for
from rota.errors import (
    AlreadyStarted,
    BadInput,
    NotSerialisable,
    UnknownRun,
    UsageError,
    WrongState,
)
from rota.testing import virtual
from tests.client.kit import shop
from tests.workflows.kit import result


async def test_a_run_is_found_by_any_prefix_that_fits_no_other(database_url: str) -> None:
    app, fulfil = shop()
    async with virtual(app, url=database_url) as world:
        first = await app.start(fulfil, "a")
        await world.advance("100d")
        second = await app.start(fulfil, "b")
        both = next(n for n in range(32) if first.id[:n] != second.id[:n])
        assert (await app.runs.get(first.id)).id == first.id
        assert (await app.runs.get(first.id[:both])).id == first.id
        assert (await app.runs.get(second.id[:-1])).id == second.id
        with pytest.raises(UnknownRun, match="several"):
            await app.runs.get(first.id[: both - 1])
        for unknown in ("", "zzz", "0" * 32, first.id + "0", "%", "ß", "'"):
            with pytest.raises(UnknownRun):
                await app.runs.get(unknown)


async def test_runs_are_listed_newest_first_by_page_and_filter(database_url: str) -> None:
    app, fulfil = shop()
    async with virtual(app, url=database_url) as world:
        for n in range(5):
            await app.options(external_id=f"x-{n}").start(fulfil, str(n))
        await app.start("fail")
        await app.options(queue="slow").start("nap")
        await world.settle()
        everything = await app.runs.list()
        assert [run.id for run in everything] == sorted((r.id for r in everything), reverse=True)
        assert [run.name for run in await app.runs.list(limit=2)] == ["nap", "fail"]
        first = await app.runs.list(name="fulfil", limit=3)
        second = await app.runs.list(name="fulfil", limit=3, before=first[-1].id)
        assert [run.external_id for run in first + second] == [f"x-{n}" for n in (4, 3, 2, 1, 0)]
        assert len(await app.runs.list(status="completed")) == 5
        assert [run.name for run in await app.runs.list(status="failed")] == ["fail"]
        assert [run.name for run in await app.runs.list(queue="slow")] == ["nap"]
        assert [run.external_id for run in await app.runs.list(external_id="x-3")] == ["x-3"]
        assert await app.runs.list(name="fulfil", status="failed") == []
        assert len(await app.runs.list(root_id=everything[0].id)) == 1


async def test_an_unknown_filter_says_what_there_is(database_url: str) -> None:
    app, _ = shop()
    async with virtual(app, url=database_url):
        with pytest.raises(UsageError, match="colour"):
            await app.runs.list(colour="red")  # type: ignore[call-arg]
        with pytest.raises(UsageError, match="sideways"):
            await app.runs.list(status="sideways")


async def test_waiting_gives_up_at_its_timeout(database_url: str) -> None:
    app, _ = shop()
    async with virtual(app, url=database_url) as world:
        run = await app.start("nap")
        await world.settle()
        with pytest.raises(TimeoutError, match=f"run {run.id} has not ended within 20ms"):
            await run.result(timeout="20ms")
        with pytest.raises(TimeoutError):
            await app.runs.wait(run.id, timeout=0.02)
        with pytest.raises(UnknownRun):
            await app.runs.wait("nothing", timeout=1)


async def test_waiting_with_a_timeout_of_zero_looks_once(database_url: str) -> None:
    app, _ = shop()
    async with virtual(app, url=database_url) as world:
        run = await app.start("nap")
        with pytest.raises(TimeoutError, match="has not ended"):
            await run.result(timeout=0)
        await world.drain()
        assert (await app.runs.wait(run.id, timeout="0s")).status == "completed"
        assert await run.result(timeout=0) == await run.result()


@pytest.mark.parametrize("timeout", [-1, -0.5, timedelta(seconds=-1)], ids=str)
async def test_waiting_with_a_negative_timeout_is_refused(database_url: str, timeout: Any) -> None:
    app, _ = shop()
    async with virtual(app, url=database_url):
        run = await app.start("nap")
        with pytest.raises(BadInput, match="lies in the past"):
            await run.result(timeout=timeout)


async def test_what_cannot_be_cancelled_says_so(database_url: str) -> None:
    app, fulfil = shop()
    async with virtual(app, url=database_url) as world:
        run = await app.start(fulfil, "a")
        await world.drain()
        with pytest.raises(WrongState, match="completed"):
            await run.cancel()
        nap = await app.start("nap")
        assert await app.runs.cancel(nap.id) == [nap.id]
        with pytest.raises(WrongState, match="cancelled"):
            await app.runs.cancel(nap.id)
        with pytest.raises(UnknownRun):
            await app.runs.cancel("nothing")


async def test_what_cannot_be_retried_says_so(database_url: str) -> None:
    app, fulfil = shop()
    async with virtual(app, url=database_url) as world:
        done, nap, fresh = [
            await app.start(fulfil, "a"),
            await app.start("nap"),
            await app.options(delay="1h").start(fulfil, "b"),
        ]
        await world.settle()
        for run, word in ((done, "completed"), (nap, "sleeping"), (fresh, "sleeping")):
            with pytest.raises(WrongState, match=word):
                await app.runs.retry(run.id)
        assert len(await app.runs.list()) == 3


async def test_a_retry_may_name_any_attempt_of_the_chain(database_url: str) -> None:
    app, _ = shop()
    async with virtual(app, url=database_url) as world:
        run = await app.start("fail")
        await world.drain()
        await app.runs.retry(run.id)
        await world.drain()
        second = (await app.runs.chain(run.id))[-1]
        await app.runs.retry(second.id)
        await world.drain()
        third = (await app.runs.chain(second.id))[-1]
        await app.runs.retry(run.id)
        await world.drain()
        assert [row.attempt for row in await app.runs.chain(third.id)] == [1, 2, 3, 4]


async def test_two_who_retry_at_once_make_one_attempt(database_url: str) -> None:
    import asyncio

    app, _ = shop()
    async with virtual(app, url=database_url) as world:
        run = await app.start("fail")
        await world.drain()
        answers = await asyncio.gather(
            app.runs.retry(run.id), app.runs.retry(run.id), return_exceptions=True
        )
        assert all(not isinstance(a, BaseException) or isinstance(a, WrongState) for a in answers)
        assert len(await app.runs.chain(run.id)) == 2
        asker = await app.start("ask")
        await world.drain()
        await asyncio.gather(
            app.runs.retry(asker.id), app.runs.retry(asker.id), return_exceptions=True
        )
        assert (await asker.run()).attempt == 2


async def test_a_signal_to_a_run_that_is_over_says_so(database_url: str) -> None:
    app, fulfil = shop()
    async with virtual(app, url=database_url) as world:
        run = await app.start(fulfil, "a")
        await world.drain()
        with pytest.raises(WrongState, match="completed"):
            await run.signal("go")
        with pytest.raises(NotSerialisable, match="go"):
            await (await app.start("nap")).signal("go", object())
        with pytest.raises(UnknownRun):
            await app.runs.signal("nothing", "go")


async def test_a_bare_client_starts_by_name_and_named_arguments(database_url: str) -> None:
    app, _ = shop()
    async with (
        virtual(app, url=database_url) as world,
        Client(database_url, clock=world.clock) as client,
    ):
        run = await client.options(external_id="x").start("fulfil", order="a", amount=2)
        many = await client.start_many("fulfil", [Start(kwargs={"order": "b"})])
        with pytest.raises(BadInput, match="fulfil"):
            await client.start("fulfil", "by place")
        wrong = await client.start("fulfil", order=3)
        await world.drain()
        assert await run.result(timeout=60) == "a x2"
        assert await many[0].result(timeout=60) == "b x1"
        # Its types are known only where it is registered: there it fails with the path.
        assert await wrong.status() == "failed:logic"
        assert "$.order" in ((await wrong.run()).error or "")
        assert [worker.status for worker in await client.workers()] == ["online"]
        retried = await client.runs.retry(wrong.id)
        await world.drain()
        assert await retried.status() == "failed:logic"


async def test_a_run_of_a_workflow_unknown_here_can_be_steered(database_url: str) -> None:
    app, _ = shop()
    other = Rota()
    async with virtual(app, url=database_url) as world:
        run = await app.start("fail")
        await world.drain()
        later = world.clock.now()
    async with virtual(other, url=database_url, start=later):
        await other.runs.retry(run.id)
        assert (await other.runs.chain(run.id))[-1].status == "pending"
        await other.runs.cancel(run.id)


async def test_a_client_that_is_not_connected_says_so() -> None:
    app, fulfil = shop()
    with pytest.raises(UsageError, match="not connected"):
        await app.start(fulfil, "a")
    with pytest.raises(UsageError, match="not connected"):
        await app.runs.handle("x").result()
    with pytest.raises(UsageError, match="not connected"):
        await app.runs.list()


async def test_counts_and_ready_say_what_is_there(database_url: str) -> None:
    app, fulfil = shop()

    @app.workflow
    async def listen() -> None:
        await wait_for("go")

    async with virtual(app, url=database_url) as world:
        await app.start("nap")
        await app.start(listen)
        await app.start("ask")
        await world.settle()
        for _ in range(3):
            await app.options(queue="unserved").start(fulfil, "a")
        assert await app.runs.counts() == {"pending": 3, "sleeping": 2, "waiting": 1}
        [ready] = await app.runs.ready()
        assert (ready.queue, ready.name, ready.run_count) == ("unserved", "fulfil", 3)


async def test_starts_at_the_same_time_share_commits_and_keep_their_answers(
    database_url: str,
) -> None:
    import asyncio

    app, fulfil = shop()
    async with virtual(app, url=database_url) as world:
        runs = await asyncio.gather(
            *[app.options(external_id=f"x-{n % 30}").start(fulfil, str(n)) for n in range(60)]
        )
        assert len({run.id for run in runs}) == 30
        assert sum(run.existed for run in runs) == 30
        await world.drain()
        for n, run in enumerate(runs):
            assert (await app.runs.get(run.id)).external_id == f"x-{n % 30}"
            assert await result(run) in (f"{n} x1", f"{n % 30} x1")


async def test_a_unique_key_starts_one_run_at_a_time(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def sync(customer: str) -> str:
        await sleep("1h")
        return customer

    @app.workflow
    async def other(customer: str) -> None:
        return None

    async with virtual(app, url=database_url) as world:
        first = await app.options(unique_key="ann").start(sync, "ann")
        again = await app.options(unique_key="ann").start(sync, "ann")
        assert (again.id, again.existed, first.existed) == (first.id, True, False)
        with pytest.raises(AlreadyStarted, match="unique key 'ann'"):
            await app.options(unique_key="ann", on_conflict="reject").start(sync, "ann")
        assert not (await app.options(unique_key="bob").start(sync, "bob")).existed
        assert not (await app.options(unique_key="ann").start(other, "ann")).existed
        await world.drain()
        free = await app.options(unique_key="ann").start(sync, "ann")
        assert not free.existed
        assert free.id != first.id


async def test_a_unique_key_is_held_over_retries_and_free_after_a_cancel(
    database_url: str,
) -> None:
    app = Rota()

    @app.workflow(retries=RetryPolicy(attempts=3, delay_s=600))
    async def sync() -> None:
        raise ConnectionError("down")

    async with virtual(app, url=database_url) as world:
        first = await app.options(unique_key="k").start(sync)
        await world.settle()
        assert (await app.options(unique_key="k").start(sync)).id == first.id
        await first.cancel()
        second = await app.options(unique_key="k").start(sync)
        assert not second.existed
        with pytest.raises(WrongState, match="has its unique key"):
            await app.runs.retry(first.id)
        await second.cancel()
        await app.runs.retry(first.id)
        assert (await app.options(unique_key="k").start(sync)).id == first.id


async def test_a_thousand_starts_with_one_unique_key_make_one_run(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def sync() -> None:
        await sleep("1h")

    async with virtual(app, url=database_url):
        runs = await asyncio.gather(*(app.options(unique_key="k").start(sync) for _ in range(1000)))
        assert len({run.id for run in runs}) == 1
        assert [run.existed for run in runs].count(False) == 1
