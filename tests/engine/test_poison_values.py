"""A value that the database cannot hold fails only the run it belongs to."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import msgspec
import pytest

from rota import Rota, Transient, sleep
from rota.core.runs.model import Claim, Outcome
from rota.core.runs.retry import RETRY_DELAY_S_MAX
from rota.core.time.instants import SECOND
from rota.errors import RunFailed
from rota.testing import virtual
from tests.engine.kit import Gate, eventually, live
from tests.workflows.kit import result, sound, trouble

BEYOND = 2**63


@pytest.mark.parametrize(
    "retry_after_s", [1e13, 99_999_999_999, 10**400, math.inf], ids=["1e13", "1e11", "1e400", "inf"]
)
async def test_a_huge_retry_after_waits_at_most_a_week(
    database_url: str, retry_after_s: float
) -> None:
    app = Rota()

    @app.workflow(retries=2)
    async def throttled() -> None:
        raise Transient("slow down", retry_after_s=retry_after_s)

    @app.workflow
    async def innocent(number: int) -> int:
        return number

    async with virtual(app, url=database_url) as world:
        bad = await app.start(throttled)
        good = [await app.start(innocent, number) for number in range(5)]
        await world.settle()
        assert [await result(run) for run in good] == list(range(5))
        waiting = await bad.run()
        assert waiting.label == "sleeping:retry"
        assert waiting.available_at == world.clock.now() + round(RETRY_DELAY_S_MAX * SECOND)
        late = await app.start(innocent, 6)
        await world.settle()
        assert await result(late) == 6
        await sound(app)


async def test_a_retry_after_that_is_not_a_number_leaves_the_delay_of_the_policy(
    database_url: str,
) -> None:
    app = Rota()

    @app.workflow(retries=1)
    async def odd() -> None:
        raise Transient("slow down", retry_after_s=math.nan)

    async with virtual(app, url=database_url) as world:
        run = await app.start(odd)
        await world.settle()
        assert (await run.run()).available_at == world.clock.now() + SECOND


async def test_an_end_that_cannot_be_stored_fails_its_run_and_settles_the_others(
    database_url: str,
) -> None:
    app = Rota()
    gate = Gate()

    @app.workflow
    async def job(number: int) -> int:
        await gate()
        return number

    async with live(app, database_url):
        _spoil(
            app, lambda outcome: msgspec.structs.replace(outcome, verb="suspend", wake_at=BEYOND)
        )
        runs = await app.start_many(job, [(number,) for number in range(10)])
        await eventually(lambda: len(gate.entered) == 10)
        gate.open.set()
        good = await asyncio.gather(*(run.result(timeout=60) for run in runs[1:]))
        assert good == list(range(1, 10))
        with pytest.raises(RunFailed, match="cannot be stored"):
            await runs[0].result(timeout=60)
        assert await runs[0].status() == "failed:internal"
        assert await (await app.start(job, 11)).result(timeout=60) == 11
        assert not _worker(app).held
        await sound(app)


def _worker(app: Rota) -> Any:
    assert app.runtime is not None
    return app.runtime.worker


def _spoil(app: Rota, change: Any) -> None:
    """Change how the run with the argument 0 ends, on its way from the executor to the worker."""
    executor = _worker(app)._executors["workflow"]
    perform = executor.perform

    async def spoilt(claim: Claim, recorded: Any) -> Outcome:
        outcome: Outcome = await perform(claim, recorded)
        return change(outcome) if claim.input == '{"number":0}' else outcome

    executor.perform = spoilt


async def test_a_step_that_cannot_be_stored_fails_its_run_whatever_its_code_catches(
    database_url: str,
) -> None:
    app = Rota()

    @app.step
    async def work(number: int) -> int:
        return number

    @app.workflow
    async def job(number: int) -> str:
        try:
            await work(number)
        except Exception:
            return "swallowed"
        return "done"

    async with virtual(app, url=database_url) as world:
        _spoil_steps(app)
        runs = await app.start_many(job, [(number,) for number in range(10)])
        await world.settle()
        assert [await result(run) for run in runs[1:]] == ["done"] * 9
        assert await runs[0].status() == "failed:internal"
        said = await trouble(runs[0])
        assert said["type"] == "Unstorable"
        assert "step work" in said["message"]
        await sound(app)


def _spoil_steps(app: Rota) -> None:
    """Give the step that returns 0 an instant beyond 64 bits."""
    journal = _worker(app)._executors["workflow"]._context.journal
    put_for = journal.put_for

    def spoilt(receiver: Any, claim: Claim, recorded: Any) -> Any:
        steps = [
            msgspec.structs.replace(step, wake_at=BEYOND) if step.output == "0" else step
            for step in recorded
        ]
        return put_for(receiver, claim, steps)

    journal.put_for = spoilt


async def test_a_sleep_beyond_the_calendar_is_refused(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def sleeper() -> None:
        await sleep("2925000d")

    async with virtual(app, url=database_url) as world:
        run = await app.start(sleeper)
        await world.settle()
        assert await run.status() == "failed:logic"
        assert "too far away" in (await trouble(run))["message"]
