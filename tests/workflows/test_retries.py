"""Retries: of steps within a run, of runs as new rows, and failures that wait for a person."""

from __future__ import annotations

import pytest

from rota import (
    Fatal,
    RetryPolicy,
    Rota,
    StepFailed,
    Transient,
    gather,
    sleep,
    wait_for,
)
from rota.core.runs.stored_errors import RecordedError
from rota.testing import virtual
from tests.workflows.kit import (
    Flaky,
    app_with_step,
    attempts,
    result,
    sound,
    step_named,
    trouble,
)


async def test_a_failing_step_is_tried_again_with_growing_waits(database_url: str) -> None:
    flaky = Flaky(ValueError("1"), ValueError("2"), ValueError("3"))
    app, flow = app_with_step(flaky, 3)
    async with virtual(app, url=database_url) as world:
        flaky.world = world
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == "done"
        assert flaky.waits == [1, 2, 4]
        assert await attempts(app, run) == [(1, "manual", "completed")]
        assert (await step_named(app, run, "shaky#0")).attempt == 4


async def test_waits_stop_growing_at_their_cap(database_url: str) -> None:
    policy = RetryPolicy(attempts=6, delay_s=10, factor=3, delay_s_max=60)
    flaky = Flaky(*[ValueError("no")] * 5)
    app, flow = app_with_step(flaky, policy)
    async with virtual(app, url=database_url) as world:
        flaky.world = world
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == "done"
        assert flaky.waits == [10, 30, 60, 60, 60]


async def test_jitter_only_shortens_a_wait(database_url: str) -> None:
    policy = RetryPolicy(attempts=8, delay_s=10, factor=1, jitter=0.5)
    flaky = Flaky(*[ValueError("no")] * 7)
    app, flow = app_with_step(flaky, policy)
    async with virtual(app, url=database_url) as world:
        flaky.world = world
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == "done"
        assert all(5 <= wait <= 10 for wait in flaky.waits)
        assert len(set(flaky.waits)) > 1


async def test_a_wait_without_delay_is_no_wait(database_url: str) -> None:
    flaky = Flaky(ValueError("1"), ValueError("2"))
    app, flow = app_with_step(flaky, RetryPolicy(attempts=3, delay_s=0))
    async with virtual(app, url=database_url) as world:
        flaky.world = world
        run = await app.start(flow)
        await world.settle()
        assert await result(run) == "done"
        assert flaky.waits == [0, 0]


async def test_retry_after_overrides_the_policy(database_url: str) -> None:
    flaky = Flaky(Transient("busy", retry_after_s=90), Transient("busy", retry_after_s=0.25))
    app, flow = app_with_step(flaky, 3)
    async with virtual(app, url=database_url) as world:
        flaky.world = world
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == "done"
        assert flaky.waits == [90, 0.25]


async def test_no_worker_is_held_while_a_step_waits_to_be_tried_again(database_url: str) -> None:
    flaky = Flaky(Transient("busy", retry_after_s=600))
    app, flow = app_with_step(flaky, 1)
    async with virtual(app, url=database_url) as world:
        flaky.world = world
        run = await app.start(flow)
        await world.advance("599s")
        row = await run.run()
        assert (row.label, row.lease_owner) == ("sleeping:retry", None)
        assert len(flaky.at) == 1
        await world.advance("1s")
        assert await result(run) == "done"


@pytest.mark.parametrize("never", ["ValueError", "UnicodeError", "Exception"])
async def test_errors_named_never_are_not_tried_again(database_url: str, never: str) -> None:
    flaky = Flaky(UnicodeError("bad"), UnicodeError("worse"))
    app, flow = app_with_step(flaky, RetryPolicy(attempts=5, never=(never,)))
    async with virtual(app, url=database_url) as world:
        flaky.world = world
        run = await app.start(flow)
        await world.drain()
        assert await run.status() == "failed:logic"
        assert len(flaky.at) == 1


async def test_a_fatal_failure_is_not_tried_again(database_url: str) -> None:
    flaky = Flaky(Fatal("hopeless"), Fatal("hopeless"))
    app, flow = app_with_step(flaky, 5)
    async with virtual(app, url=database_url) as world:
        flaky.world = world
        run = await app.options(retries=5).start(flow)
        await world.drain()
        assert await attempts(app, run) == [(1, "manual", "failed:fatal")]
        assert len(flaky.at) == 1


async def test_a_step_out_of_attempts_raises_step_failed_live_and_on_replay(
    database_url: str,
) -> None:
    app = Rota()
    calls: list[int] = []
    seen: list[tuple[type, str, object]] = []

    @app.step(retries=1)
    async def shaky() -> None:
        calls.append(1)
        raise ValueError(f"boom {len(calls)}")

    @app.step
    async def instead() -> str:
        return "plan b"

    @app.workflow
    async def flow() -> str:
        try:
            await shaky()
        except Exception as error:
            seen.append((type(error), str(error), getattr(error, "facts", {}).get("attempts")))
        await sleep("1h")
        found = await instead()
        await sleep("1h")
        return found

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert await result(run) == "plan b"
        assert len(calls) == 2
        assert len(seen) == 3
        assert set(seen) == {
            (StepFailed, "step shaky failed after 2 attempts: ValueError: boom 2", 2)
        }


async def test_the_failure_of_a_step_has_the_same_cause_at_every_replay(database_url: str) -> None:
    app = Rota()
    causes: list[BaseException | None] = []

    @app.step
    async def shaky() -> None:
        raise KeyError("k")

    @app.workflow
    async def flow() -> None:
        try:
            await shaky()
        except StepFailed as error:
            causes.append(error.__cause__)
        await sleep("1h")
        raise ValueError("no") from causes[0]

    async with virtual(app, url=database_url) as world:
        run = await app.start(flow)
        await world.drain()
        assert [str(cause) for cause in causes] == ["KeyError: 'k'"] * 2
        assert {type(cause) for cause in causes} == {RecordedError}
        assert "shaky" in (await trouble(run))["trace"]


class Mute(Exception):
    """An error that cannot say what happened."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("retries", [0, 1])
async def test_an_error_without_a_readable_text_fails_like_any_other(
    database_url: str, retries: int
) -> None:
    app = Rota()

    @app.step(retries=1)
    async def shaky() -> None:
        raise Mute

    @app.workflow(retries=retries)
    async def flow() -> None:
        try:
            await shaky()
        except StepFailed:
            raise Mute from None

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert await run.status() == "failed:logic"
        assert (await trouble(run))["type"] == "Mute"


@pytest.mark.parametrize("warm", [False, True])
async def test_a_signal_does_not_cut_the_wait_for_the_next_attempt_short(
    database_url: str, warm: bool
) -> None:
    flaky = Flaky(ConnectionError("down"))
    app = Rota()

    @app.step(retries=RetryPolicy(attempts=2, delay_s=300))
    async def shaky() -> str:
        return flaky()

    @app.workflow
    async def flow() -> list[str]:
        return await gather(shaky(), wait_for("go"))

    async with virtual(app, url=database_url, warm=warm) as world:
        flaky.world = world
        run = await app.start(flow)
        await world.advance("1m")
        await run.signal("go", "gone")
        await world.drain()
        assert await result(run) == ["done", "gone"]
        assert flaky.waits == [300]
        await sound(app)
