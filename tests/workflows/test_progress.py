"""Progress of steps: kept in memory, written every few seconds, read by the next attempt."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from rota import Rota, StepFailed, sleep, this_step
from rota.core.runs.model import StoredStep
from rota.core.runs.progress import described, progress_of, result_of
from rota.errors import UsageError
from rota.explain.why import why
from rota.testing import held, virtual
from rota.workflows.workflow_run import current_run
from tests.workflows.kit import Endless, result, sound, step_named, trouble


def worker_with(step: Any, **options: Any) -> tuple[Rota, Any]:
    app = Rota()
    work = app.step(name="work", **options)(step)

    @app.workflow(name="flow")
    async def flow() -> Any:
        return await work()

    return app, flow


async def test_progress_is_visible_while_the_step_runs_and_gone_with_its_result(
    database_url: str,
) -> None:
    proceed = asyncio.Event()

    async def step() -> str:
        this_step().progress(3, of=10, note="pages")
        with held():
            await proceed.wait()
        return "done"

    app, flow = worker_with(step)
    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.settle()
        assert await app.runs.steps(run.id) == []  # it is in memory
        began = world.clock.moment()
        await world.advance("2s")
        record = await step_named(app, run, "work#0")
        assert (record.status, record.attempt, record.finished_at) == ("waiting", 1, None)
        progress = progress_of(record)
        assert progress is not None
        assert described(progress) == "3 of 10, pages"
        assert (progress.at, result_of(record)) == (began, None)
        found = await why(app, run.id)
        assert "; work#0 has done 3 of 10, pages (2s ago)" in str(found)
        await sound(app)
        proceed.set()
        await world.drain()
        assert await result(run) == "done"
        record = await step_named(app, run, "work#0")
        assert (record.status, record.output, progress_of(record)) == ("completed", '"done"', None)


async def test_many_reports_are_few_writes(database_url: str) -> None:
    writes: list[int] = []
    again = asyncio.Event()

    async def step() -> None:
        for n in range(1000):
            this_step().progress(n)
        with held():
            await again.wait()
        for n in range(1000, 2000):
            this_step().progress(n)
        await Endless()()

    app, flow = worker_with(step)
    async with virtual(app, url=database_url) as world:
        journal = world.app._executor._context.journal  # type: ignore[union-attr]
        send = journal._send_progress

        async def counted(records: Any) -> Any:
            writes.append(len(records))
            return await send(records)

        journal._progress._send = counted
        run = await flow.start()
        await world.advance("10s")
        assert writes == [1]
        again.set()
        await world.advance("10s")
        assert writes == [1, 1]
        progress = progress_of(await step_named(app, run, "work#0"))
        assert progress is not None
        assert progress.done == 1999


async def test_a_retry_reads_the_last_report_of_the_attempt_before(database_url: str) -> None:
    seen: list[float | None] = []

    async def step() -> str:
        last = this_step().last_progress
        seen.append(None if last is None else last.done)
        if len(seen) == 1:
            this_step().progress(7, note="row 7")
        if len(seen) < 3:
            raise ConnectionError("down")
        this_step().progress(8)
        seen.append(getattr(this_step().last_progress, "done", None))
        return "done"

    app, flow = worker_with(step, retries=2)
    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.settle()
        record = await step_named(app, run, "work#0")
        assert (record.status, record.attempt) == ("failed", 1)
        progress = progress_of(record)
        assert progress is not None
        assert progress.note == "row 7"
        await world.drain()
        assert await result(run) == "done"
        assert seen == [None, 7, 7, 8]
        await sound(app)


async def test_a_step_after_a_crash_reads_the_last_written_report(database_url: str) -> None:
    seen: list[tuple[int, Any]] = []

    async def step() -> str:
        last = this_step().last_progress
        seen.append((this_step().attempt, last and last.done))
        if last is None:
            this_step().progress(5)
            with held():
                await Endless()()
        raise ConnectionError("down")

    app, flow = worker_with(step, retries=1)
    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.advance("3s")
        later = world.clock.now()
    app, flow = worker_with(step, retries=1)
    async with virtual(app, url=database_url, start=later) as world:
        await world.drain()
        assert await app.runs.handle(run.id).status() == "failed:transient"
        # An attempt that did not end is not used up.
        assert seen == [(1, None), (1, 5), (2, 5)]
        await sound(app)


async def test_a_step_without_progress_for_its_heartbeat_fails(database_url: str) -> None:
    endless = Endless()

    async def step() -> None:
        with held():
            await endless()

    app, flow = worker_with(step, heartbeat="30s", timeout="1h")
    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.advance("29s")
        assert (await run.run()).status == "running"
        await world.advance("1s")
        assert await run.status() == "failed:timeout"
        assert (
            "StepTimeout: step work reported no progress for its heartbeat of 30 s"
            in ((await trouble(run))["message"])
        )
        assert endless.interrupted == 1


async def test_progress_extends_the_heartbeat_but_not_the_timeout(database_url: str) -> None:
    async def step() -> None:
        step = this_step()
        clock = step._attempt.clock
        while True:
            step.progress(1)
            tick = asyncio.Event()
            clock.call_at(clock.now() + 20_000_000, tick.set)
            with held():
                await tick.wait()

    app, flow = worker_with(step, heartbeat="30s", timeout="5m")
    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.advance("299s")
        assert (await run.run()).status == "running"
        await world.advance("1s")
        assert "took longer than 300 s" in (await trouble(run))["message"]


async def test_a_silent_sync_step_fails_and_is_tried_again(database_url: str) -> None:
    attempts: list[int] = []
    app = Rota()

    @app.step(heartbeat="30s", retries=1)
    def work() -> str:
        attempts.append(this_step().attempt)
        step = this_step()
        if step.attempt == 1:
            clock: Any = step._attempt.clock
            clock.move_to(clock.now() + 31_000_000)
            while not step.is_cancelled:
                pass
        return "done"

    @app.workflow
    async def flow() -> str:
        return await work.aio()

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert await result(run) == "done"
        assert attempts == [1, 2]


def test_a_heartbeat_is_shorter_than_the_timeout() -> None:
    with pytest.raises(UsageError, match="not shorter than its timeout='30s'"):
        worker_with(test_many_reports_are_few_writes, heartbeat="30s", timeout="30s")


@pytest.mark.parametrize("wrong", ["3", None, float("nan"), float("inf"), True, [1]])
async def test_progress_that_is_no_number_is_refused(database_url: str, wrong: Any) -> None:
    async def step() -> None:
        this_step().progress(wrong)

    app, flow = worker_with(step)
    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert "is not a number" in (await trouble(run))["message"]


@pytest.mark.parametrize("note", ["\0", "\ud800", "x" * 10_000, "𝄞" * 600])
async def test_any_note_can_be_stored(database_url: str, note: str) -> None:
    async def step() -> None:
        this_step().progress(1, note=note)
        with held():
            await Endless()()

    app, flow = worker_with(step)
    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.advance("3s")
        assert progress_of(await step_named(app, run, "work#0")) is not None


@pytest.mark.parametrize("status", ["failed", "completed"])
async def test_a_late_report_changes_no_record_of_an_end(database_url: str, status: str) -> None:
    """The write of a report may be on its way while the attempt ends."""
    late: list[StoredStep] = []

    async def step() -> str:
        now: Any = this_step()
        now.progress(1)
        late.append(now._attempt.record())
        if status == "failed":
            raise RuntimeError("down")
        return "done"

    app, _ = worker_with(step)

    @app.workflow
    async def other() -> None:
        with contextlib.suppress(StepFailed):
            await app.step(name="work")(step)()
        journal = app._executor._context.journal  # type: ignore[union-attr]
        run = current_run()
        assert run is not None
        run.work(journal.report_progress(run.claim, late[0]))
        await app.step(name="next")(Endless())()

    async with virtual(app, url=database_url) as world:
        run = await other.start()
        await world.settle()
        assert (await step_named(app, run, "work#0")).status == status


async def test_the_report_of_a_cancelled_step_is_not_left_open(database_url: str) -> None:
    app = Rota()

    @app.step(retries=3)
    async def work() -> None:
        this_step().progress(this_step().attempt)
        if this_step().attempt < 3:
            raise ConnectionError("down")
        with held():
            await Endless()()

    @app.workflow
    async def flow() -> str:
        try:
            async with asyncio.timeout(60):
                await work()
        except TimeoutError:
            await sleep("1m")
            return "late"
        return "never"

    async with virtual(app, url=database_url) as world:
        run = await flow.start()
        await world.drain()
        assert await result(run) == "late"
        record = await step_named(app, run, "work#0")
        assert (record.status, record.attempt) == ("failed", 3)
        assert progress_of(record) is None
        await sound(app)
