"""Retries of whole runs: by policy, by hand, and after a wait for a person."""

from __future__ import annotations

import asyncio
import logging

import pytest

from rota import (
    Fatal,
    NeedsLogin,
    NeedsPermission,
    RetryPolicy,
    Rota,
    StepFailed,
    Transient,
    sleep,
    this_run,
    wait_for,
)
from rota.core.time.instants import SECOND
from rota.testing import held, virtual
from tests.workflows.kit import (
    Cleanup,
    Flaky,
    app_with_step,
    attempts,
    keys,
    result,
    sound,
)


async def test_a_retried_run_is_a_new_row_that_keeps_finished_steps(database_url: str) -> None:
    app = Rota()
    calls: list[str] = []

    @app.step
    async def good() -> int:
        calls.append("good")
        return 1

    @app.step
    async def bad() -> int:
        calls.append("bad")
        if calls.count("bad") < 3:
            raise ConnectionError("down")
        return 2

    @app.workflow(retries=RetryPolicy(attempts=3, delay_s=60, factor=2))
    async def flow() -> int:
        return await good() + await bad()

    async with virtual(app, url=database_url) as world:
        began = world.clock.now()
        run = await app.options(tags={"team": "x"}, priority=7, key="k").start(flow)
        await world.drain()
        assert await result(run) == 3
        assert calls == ["good", "bad", "bad", "bad"]
        first, second, third = await app.runs.chain(run.id)
        assert await attempts(app, run) == [
            (1, "manual", "failed:transient"),
            (2, "retry", "failed:transient"),
            (3, "retry", "completed"),
        ]
        assert (second.retry_of, third.retry_of) == (first.id, second.id)
        assert {row.root_id for row in (first, second, third)} == {first.id}
        assert {(row.tags, row.priority, row.limit_key) for row in (first, second, third)} == {
            ('{"team":"x"}', 7, "k")
        }
        assert [second.started_at, third.started_at] == [
            began + 60 * SECOND,
            began + 180 * SECOND,
        ]
        await sound(app)


async def test_a_waiting_retry_says_so(database_url: str) -> None:
    app = Rota()

    @app.workflow(retries=1)
    async def flow() -> None:
        raise Transient("later", retry_after_s=120)

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.advance("119s")
        assert await attempts(app, run) == [
            (1, "manual", "failed:transient"),
            (2, "retry", "sleeping:retry"),
        ]
        await world.advance("1s")
        assert await run.status() == "failed:transient"


async def test_a_step_that_failed_for_good_gets_fresh_attempts_in_a_retried_run(
    database_url: str,
) -> None:
    flaky = Flaky(*[ValueError(str(n)) for n in range(3)])
    app, flow = app_with_step(flaky, 1)
    async with virtual(app, url=database_url) as world:
        flaky.world = world
        run = await app.options(retries=RetryPolicy(attempts=2, delay_s=10)).start(flow)
        await world.drain()
        assert await result(run) == "done"
        assert flaky.waits == [1, 10, 1]


async def test_options_of_a_start_override_the_policies_of_the_workflow(database_url: str) -> None:
    app = Rota()

    @app.workflow(retries=5)
    async def flow() -> None:
        raise ValueError("no")

    async with virtual(app, url=database_url) as world:
        never = await app.options(retries=0).start(flow)
        once = await app.options(retries=RetryPolicy(attempts=2, never=("KeyError",))).start(flow)
        await world.drain()
        assert len(await app.runs.chain(never.id)) == 1
        assert len(await app.runs.chain(once.id)) == 2


async def test_a_failure_that_was_caught_does_not_strand_a_later_retry(database_url: str) -> None:
    """The code did not change, so the retry must find its way, whichever branch it takes."""
    app = Rota()
    calls: list[str] = []

    @app.step
    async def fancy() -> str:
        calls.append("fancy")
        raise ValueError("not available")

    @app.step
    async def plain() -> str:
        calls.append("plain")
        return "plain"

    @app.step
    async def publish(text: str) -> str:
        calls.append("publish")
        if calls.count("publish") == 1:
            raise ConnectionError("down")
        return text

    @app.workflow(retries=1)
    async def flow() -> str:
        try:
            text = await fancy()
        except StepFailed:
            text = await plain()
        return await publish(text)

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == "plain"
        assert calls.count("plain") == 1
        assert calls.count("publish") == 2


async def test_a_signal_that_did_not_come_does_not_strand_a_later_retry(database_url: str) -> None:
    app = Rota()
    calls: list[str] = []

    @app.step
    async def remind() -> None:
        calls.append("remind")

    @app.workflow(retries=1)
    async def flow() -> str:
        try:
            await wait_for("answer", timeout="1h")
        except TimeoutError:
            await remind()
        if len(calls) == 1:
            calls.append("trip")
            raise ConnectionError("down")
        return "end"

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == "end"
        assert calls == ["remind", "trip"]


@pytest.mark.parametrize(
    ("error", "label"),
    [(NeedsLogin("log in"), "waiting:auth"), (NeedsPermission("may not"), "waiting:permission")],
)
async def test_some_failures_wait_for_a_person_and_a_retry_goes_on(
    database_url: str, error: Exception, label: str
) -> None:
    app = Rota()
    calls: list[str] = []

    @app.step
    async def before() -> None:
        calls.append("before")

    @app.step(retries=5)
    async def guarded() -> str:
        calls.append("guarded")
        if calls.count("guarded") == 1:
            raise error
        return "in"

    @app.workflow(retries=5)
    async def flow() -> str:
        await before()
        return await guarded()

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await run.status() == label
        row = await run.run()
        assert (row.lease_owner, row.finished_at) == (None, None)
        await world.advance("30d")
        assert await run.status() == label
        await app.runs.retry(run.id)
        await world.drain()
        assert await result(run) == "in"
        assert calls == ["before", "guarded", "guarded"]
        await sound(app)


async def test_a_person_may_be_needed_twice(database_url: str) -> None:
    app = Rota()
    calls: list[int] = []

    @app.workflow
    async def flow() -> int:
        calls.append(1)
        if len(calls) < 3:
            raise NeedsLogin("again")
        return len(calls)

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        for _ in range(2):
            await world.drain()
            assert await run.status() == "waiting:auth"
            await app.runs.retry(run.id)
        await world.drain()
        assert await result(run) == 3


async def test_a_failed_run_is_retried_by_hand_from_its_last_finished_step(
    database_url: str,
) -> None:
    app = Rota()
    calls: list[str] = []

    @app.step
    async def good() -> int:
        calls.append("good")
        return 1

    @app.step
    async def bad() -> int:
        calls.append("bad")
        if calls.count("bad") == 1:
            raise ValueError("no")
        return 2

    @app.workflow
    async def flow() -> int:
        return await good() + await bad()

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        again = await app.runs.retry(run.id)
        assert again.id == run.id
        await world.drain()
        assert await result(again) == 3
        assert calls == ["good", "bad", "bad"]
        assert await attempts(app, run) == [
            (1, "manual", "failed:logic"),
            (2, "retry", "completed"),
        ]


async def test_a_cancelled_run_is_retried_by_hand(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def flow() -> str:
        await sleep("1h")
        return "slept"

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.advance("30m")
        await run.cancel()
        await app.runs.retry(run.id)
        await world.advance("30m")
        assert await result(run) == "slept"
        assert await keys(app, run) == ["sleep#0"]


async def test_a_retry_by_hand_is_one_more_try_beyond_the_policy(database_url: str) -> None:
    app = Rota()
    calls: list[int] = []

    @app.workflow(retries=1)
    async def flow() -> None:
        calls.append(1)
        raise ConnectionError("down")

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert len(calls) == 2
        await app.runs.retry(run.id)
        await world.drain()
        assert len(calls) == 3


async def test_the_last_failure_is_logged_with_its_hint(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = Rota()

    @app.workflow(retries=1)
    async def flow() -> None:
        raise Fatal("broken for good")

    with caplog.at_level(logging.ERROR, logger="rota.workflows"):
        async with virtual(app, url=database_url) as world:
            run = await app.start(flow)
            await world.drain()
    assert run.id in caplog.text
    assert "broken for good" in caplog.text
    assert Fatal.hint in caplog.text


async def test_a_step_is_tried_again_with_other_arguments_and_replayed_with_these(
    database_url: str,
) -> None:
    app = Rota()
    paid: list[int] = []

    @app.step
    async def pay(attempt: int) -> int:
        paid.append(attempt)
        if attempt == 1:
            raise ConnectionError("down")
        return attempt

    @app.workflow(retries=1)
    async def flow() -> int:
        found = await pay(this_run().attempt)
        await sleep("1h")
        return found

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == 2
        assert paid == [1, 2]
        await sound(app)


async def test_a_failure_that_open_code_still_handles_is_not_repeated(database_url: str) -> None:
    """Another failure has ended the attempt: the code may yet catch this one."""
    app = Rota()
    calls: list[str] = []

    @app.step
    async def bad() -> None:
        calls.append("bad")
        raise ConnectionError("down")

    @app.step
    async def note() -> None:
        calls.append("note")

    @app.step
    async def other() -> str:
        calls.append("other")
        if calls.count("other") == 1:
            raise ConnectionError("down too")
        return "done"

    async def guarded() -> None:
        try:
            await bad()
        except StepFailed:
            await note()
            await wait_for("never")

    @app.workflow(retries=1)
    async def flow() -> str:
        task = asyncio.create_task(guarded())
        await sleep("1m")
        found = await other()
        task.cancel()
        return found

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == "done"
        assert calls == ["bad", "note", "other", "other"]
        await sound(app)


async def test_a_call_made_before_the_end_and_completed_after_it_is_kept_by_a_retry(
    database_url: str,
) -> None:
    it = Cleanup()
    gate = asyncio.Event()

    @it.app.step
    async def pack() -> str:
        it.calls.append("pack")
        with held():
            await gate.wait()
        return "packed"

    @it.app.workflow
    async def flow() -> str:
        await it.note("begin")
        packing = asyncio.create_task(pack())
        try:
            await wait_for("go")
        finally:
            packed = await packing
        return packed

    async with virtual(it.app, url=database_url) as world:
        run = await flow.start()
        await world.settle()
        await run.cancel(grace="5m")  # this worker stops before it learns of it
        now = world.clock.now()
    gate.set()
    async with virtual(it.app, url=database_url, start=now) as world:
        await world.settle()
        assert await run.status() == "cancelled:by request"
        assert it.calls == ["begin", "pack", "pack"], "the first worker was interrupted"
        await it.app.runs.retry(run.id)
        await run.signal("go")
        await world.drain()
        assert await run.result(timeout=0) == "packed"
        assert it.calls == ["begin", "pack", "pack"]
        await sound(it.app)
