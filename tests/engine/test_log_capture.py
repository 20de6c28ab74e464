"""Log lines of user code: kept for their run, in order, without a handler, and never in its way."""

from __future__ import annotations

import asyncio
import logging

import pytest

import rota
from rota import Rota
from rota.engine import log_capture
from rota.errors import StoreUnreachable
from tests.engine.kit import Gate, StoreTap, eventually, live, pass_time
from tests.workflows.kit import result

log = logging.getLogger("shop.orders")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_capture, "FLUSH_S", 0.01)
    log.setLevel(logging.INFO)


async def kept(app: Rota, run_id: str, count: int) -> list[tuple[str, str, str]]:
    async def enough() -> bool:
        return len(await app.runs.logs(run_id)) >= count

    await eventually(enough)
    return [(one.level, one.logger, one.message) for one in await app.runs.logs(run_id)]


async def test_lines_of_workflows_steps_and_threads_are_kept_for_their_run(
    database_url: str,
) -> None:
    app = Rota()

    @app.step
    def in_thread(name: str) -> None:
        log.warning("%s in a thread", name)

    @app.workflow
    async def flow(name: str) -> None:
        log.info("%s begins", name)
        log.debug("not enabled")
        logging.getLogger("httpx").info("GET https://host/?key=SECRET")
        logging.getLogger("rota.mine").warning("a line of Rota itself")
        await in_thread.aio(name)
        try:
            raise ValueError("no tea")
        except ValueError:
            log.exception("bad %s", name)

    async with live(app, database_url):
        first, second = await app.start(flow, "ann"), await app.start(flow, "bob")
        await result(first)
        await result(second)
        lines = await kept(app, second.id, 3)
        assert lines[:2] == [
            ("INFO", "shop.orders", "bob begins"), ("WARNING", "shop.orders", "bob in a thread"),
        ]  # fmt: skip
        assert lines[2][2].startswith("bad bob\nTraceback")
        assert lines[2][2].endswith("ValueError: no tea")
        assert len(lines) == 3
        assert (await kept(app, first.id, 3))[0][2] == "ann begins"


async def test_values_of_secret_fields_are_not_in_the_lines(database_url: str) -> None:
    app = Rota(secret_fields=("pin",))

    @app.workflow
    async def flow(pin: str) -> None:
        log.info("the pin is %s", pin)

    async with live(app, database_url):
        run = await app.start(flow, "4711-4711")
        await result(run)
        assert [line[2] for line in await kept(app, run.id, 1)] == ["the pin is [redacted]"]


async def test_a_replay_does_not_repeat_lines(database_url: str) -> None:
    app = Rota(warm_runs=0)

    @app.step
    async def look(n: int) -> int:
        log.info("look %d", n)
        return n

    @app.workflow
    async def flow() -> None:
        log.info("one")
        await look(1)
        log.info("two")
        await rota.sleep("10s")
        log.info("three")
        await look(2)

    async with live(app, database_url) as clock:
        run = await app.start(flow)
        await kept(app, run.id, 3)
        await pass_time(clock, "20s")
        await result(run)
        lines = await kept(app, run.id, 5)
    assert [line[2] for line in lines] == ["one", "look 1", "two", "three", "look 2"]


async def test_a_replay_of_branches_does_not_repeat_lines(database_url: str) -> None:
    app = Rota(warm_runs=0)

    @app.workflow
    async def flow() -> None:
        async def branch(n: int) -> None:
            log.info("branch %d", n)
            await rota.sleep(10 * n)
            log.info("woke %d", n)

        await rota.gather(*map(branch, [1, 2, 3]))

    async with live(app, database_url) as clock:
        run = await app.start(flow)
        await kept(app, run.id, 3)
        for count in (4, 5, 6):
            await pass_time(clock, "10s")
            await kept(app, run.id, count)
        await result(run)
        lines = await kept(app, run.id, 6)
    assert [line[2] for line in lines] == [
        *("branch 1", "branch 2", "branch 3"), *("woke 1", "woke 2", "woke 3"),
    ]  # fmt: skip


async def test_lines_after_the_last_recorded_end_are_kept_by_the_next_worker(
    database_url: str,
) -> None:
    """The worker may have ended before the code reacted to that end."""
    app, gate = Rota(warm_runs=0), Gate()

    @app.step
    async def look() -> None:
        log.info("look")

    @app.workflow
    async def flow() -> None:
        log.info("one")
        await look()
        log.info("two")
        await gate("waits")

    async with live(app, database_url):
        run = await app.start(flow)
        await kept(app, run.id, 3)
        await eventually(lambda: gate.under_way == 1)
    gate.open.set()
    async with live(app, database_url):
        await result(run)
        lines = await kept(app, run.id, 4)
    assert [line[2] for line in lines] == ["one", "look", "two", "two"]


async def test_the_last_lines_are_written_when_the_worker_stops(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_capture, "FLUSH_S", 3600)
    app = Rota()

    @app.workflow
    async def flow() -> None:
        log.info("late")

    async with live(app, database_url):
        run = await app.start(flow)
        await result(run)
        await app.stop_worker()
        assert [line[2] for line in await kept(app, run.id, 1)] == ["late"]
    assert logging.getLogRecordFactory() is not log_capture._made


async def test_a_database_that_is_away_delays_lines_and_blocks_no_run(database_url: str) -> None:
    app = Rota()

    @app.workflow
    async def flow() -> None:
        log.info("kept")

    async with live(app, database_url):
        tap, failures = StoreTap(app), 0

        async def fail(name: str) -> None:
            nonlocal failures
            if name == "append" and failures < 2:
                failures += 1
                raise StoreUnreachable("away")

        tap.before = fail
        run = await app.start(flow)
        await result(run)
        assert [line[2] for line in await kept(app, run.id, 1)] == ["kept"]
        assert failures == 2


async def test_a_flood_is_bounded_in_memory_and_in_the_store(
    database_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log_capture, "BUFFER_MAX", 50)
    app = Rota()

    @app.workflow
    async def flow() -> None:
        for number in range(80):
            log.info("line %d", number)

    async with live(app, database_url):
        run = await app.start(flow)
        await result(run)
        assert len(await kept(app, run.id, 50)) == 50
        await eventually(lambda: "dropped 30 log lines of runs" in caplog.text)


async def test_no_lines_are_kept_where_that_is_turned_off(database_url: str) -> None:
    app = Rota(keep_logs=False)

    @app.workflow
    async def flow() -> None:
        log.info("not kept")

    before = logging.getLogRecordFactory()
    async with live(app, database_url):
        assert logging.getLogRecordFactory() is before
        run = await app.start(flow)
        await result(run)
        await asyncio.sleep(0.05)
        assert not await app.runs.logs(run.id)


def test_a_record_that_cannot_be_formatted_is_kept_as_it_is() -> None:
    record = logging.LogRecord("shop", logging.INFO, "shop.py", 1, "%d tea", ("no",), None)
    assert log_capture._text(record) == "%d tea"
