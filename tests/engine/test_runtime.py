"""The loops continue through bad times. A stuck loop is noticed; journals insist."""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import queue
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from rota import Rota
from rota.client.doctor import examine
from rota.engine import runtime as runtime_
from rota.engine.clock import SystemClock
from rota.engine.journal import insist
from rota.engine.watchdog import Watchdog
from rota.errors import (
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreGone,
    StoreIOError,
    StoreNoSharedMemory,
    StoreReadOnly,
    StoreUnreachable,
)
from rota.testing import VirtualClock, virtual
from tests.engine.kit import Gate, StoreTap, eventually, live, pass_time, timer_set
from tests.workflows.kit import result


def plain(**settings: Any) -> tuple[Rota, Any]:
    app = Rota(**settings)

    @app.step
    async def step(n: int) -> int:
        return n

    @app.workflow
    async def flow(n: int) -> int:
        return await step(n)

    return app, flow


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_, "PAUSE_S_MIN", 0.001)
    monkeypatch.setattr(runtime_, "PAUSE_S_MAX", 0.01)


@pytest.mark.parametrize("error", [StoreUnreachable("away"), StoreFull("full"), KeyError("a bug")])
@pytest.mark.parametrize(
    "function",
    ["claim", "settle_and_claim", "wake_due", "beat", "renew_leases", "reap_runs"],
)
async def test_every_loop_goes_on_after_an_error(
    database_url: str, error: Exception, function: str
) -> None:
    app, flow = plain(slots=1)
    async with live(app, database_url) as clock:
        tap = StoreTap(app)
        failures = 0

        async def fail(name: str) -> None:
            nonlocal failures
            if name == function and failures < 3:
                failures += 1
                raise error

        tap.before = fail
        started = await app.start_many(flow, [(n,) for n in range(3)])
        delayed = await app.options(delay="1s").start(flow, 9)
        for _ in range(6):
            await pass_time(clock, "5s")
        assert [await result(run) for run in started] == [0, 1, 2]
        assert await result(delayed) == 9
        # Leases are renewed only while a run is held.
        assert failures or function == "renew_leases", f"nothing calls {function}"


async def test_a_failing_loop_says_so_and_says_what_to_do(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    app, flow = plain()
    async with live(app, database_url):
        tap = StoreTap(app)
        failures: list[str] = []

        async def fail(name: str) -> None:
            if name == "claim" and not failures:
                failures.append(name)
                raise StoreFull("no space left")

        tap.before = fail
        run = await app.start(flow, 1)
        assert await result(run) == 1
    assert "work loop retries in" in caplog.text
    assert StoreFull.hint in caplog.text


@pytest.mark.parametrize("error", [StoreUnreachable("away"), StoreBusy("busy"), StoreFull("full")])
async def test_a_step_is_recorded_when_the_database_comes_back(
    database_url: str, error: Exception
) -> None:
    app = Rota()
    calls: list[int] = []

    @app.step
    async def step() -> int:
        calls.append(1)
        return 1

    @app.workflow
    async def flow() -> int:
        return await step()

    async with virtual(app, url=database_url) as world:
        tap = StoreTap(app)
        failures = 0

        async def fail(name: str) -> None:
            nonlocal failures
            if name == "record" and failures < 4:
                failures += 1
                raise error

        tap.before = fail
        run = await app.start(flow)
        await world.advance("10s")
        assert failures == 4
        assert await result(run) == 1
        assert calls == [1]


async def test_insisting_waits_longer_each_time_and_stops_at_a_real_error() -> None:
    clock = VirtualClock()
    at: list[int] = []

    async def call() -> str:
        at.append(clock.now())
        if len(at) < 9:
            raise StoreBusy("busy")
        raise StoreCorrupt("damaged")

    task = asyncio.ensure_future(insist(clock, call, "a test"))
    for _ in range(20):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        due = clock.next_timer_at()
        if due is not None:
            clock.move_to(due)
    with pytest.raises(StoreCorrupt):
        await task
    waits = [b - a for a, b in itertools.pairwise(at)]
    assert waits == [50_000, 100_000, 200_000, 400_000, 800_000, 1_600_000, 2_000_000, 2_000_000]


@pytest.mark.parametrize(
    "error",
    [
        StoreUnreachable, StoreBusy, StoreFull, StoreIOError, StoreReadOnly, StoreNoSharedMemory,
        StoreGone,
    ],
)  # fmt: skip
async def test_steps_are_recorded_when_the_database_is_well_again(
    error: type[StoreError],
) -> None:
    app, flow = plain()
    failed: list[str] = []
    async with virtual(app) as world:

        async def fail(name: str) -> None:
            if name == "record" and len(failed) < 2:
                failed.append(name)
                raise error("for a while")

        StoreTap(app).before = fail
        run = await app.start(flow, 1)
        await world.advance("10s")
        assert await result(run) == 1
        assert len(failed) == 2


async def test_a_healthy_app_says_so(database_url: str) -> None:
    app, _ = plain()
    assert app.healthy()
    async with live(app, database_url):
        assert app.healthy()


class RecordsHandler(logging.Handler):
    """Receives the messages of the watchdog's thread; each word can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.words: queue.Queue[str] = queue.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self.words.put(record.getMessage())


@pytest.fixture
def handler() -> Iterator[RecordsHandler]:
    handler = RecordsHandler()
    logging.getLogger("rota.watchdog").addHandler(handler)
    yield handler
    logging.getLogger("rota.watchdog").removeHandler(handler)


async def test_a_stuck_loop_fails_health_and_says_where_it_hangs(handler: RecordsHandler) -> None:
    watchdog = Watchdog(0.05, SystemClock())
    watchdog.start()
    try:
        assert watchdog.stuck_for_s() == 0
        # Blocks the loop, as user code would, until the watchdog has noticed.
        word = handler.words.get(timeout=60)
        assert watchdog.stuck_for_s() > 0.05
        await eventually(lambda: watchdog.stuck_for_s() == 0)
        assert "the event loop has been blocked" in word
        assert "handler.words.get" in word
    finally:
        watchdog.stop()


async def test_a_watchdog_reports_once_for_every_time_the_loop_gets_stuck(
    handler: RecordsHandler,
) -> None:
    watchdog = Watchdog(0.05, SystemClock())
    watchdog.start()
    try:
        assert handler.words.get(timeout=60)
        with pytest.raises(queue.Empty):
            handler.words.get(timeout=0.15)  # still the same time
        await eventually(lambda: watchdog.stuck_for_s() == 0)
        assert handler.words.get(timeout=60)
    finally:
        watchdog.stop()


async def test_a_workflow_that_blocks_its_worker_is_named_with_its_line(
    database_url: str, handler: RecordsHandler
) -> None:
    app = Rota(stuck_s=120)

    @app.workflow
    async def busy() -> str:
        return handler.words.get(timeout=60)  # blocks until the watchdog has noticed

    async with live(app, database_url):
        run = await app.start(busy)
        word = await result(run)
        assert f"workflow busy (run {run.id}) has blocked its worker" in word
        assert "return handler.words.get(timeout=60)" in word
        assert "sync step" in word
        assert await result(await app.start(busy)) != word, "each time is reported once"


async def test_doctor_names_the_line_of_a_workflow_that_blocked_its_worker(
    database_url: str, handler: RecordsHandler
) -> None:
    app = Rota(stuck_s=120)

    @app.workflow
    async def busy() -> str:
        return handler.words.get(timeout=60)  # blocks until the watchdog has noticed

    async with live(app, database_url) as clock:
        assert "has blocked" not in str(await examine(database_url, app.settings))
        await result(await app.start(busy))
        run = await app.start(busy)
        await result(run)
        await pass_time(clock, "5s")  # to the next heartbeat
        report = str(await examine(database_url, app.settings))
        line = busy.function.__code__.co_firstlineno + 2
        assert "workflow busy has blocked worker" in report
        assert "2 times since its start, last" in report
        assert f"{__file__}:{line} (run {run.id})" in report


async def test_work_goes_on_while_one_run_blocks_nothing_but_itself(database_url: str) -> None:
    gate = Gate()
    app, flow = plain()

    @app.workflow
    async def slow() -> None:
        await gate()

    async with live(app, database_url) as clock:
        await app.start(slow)
        await eventually(lambda: gate.under_way == 1)
        assert [await result(await app.start(flow, n)) for n in range(3)] == [0, 1, 2]
        await timer_set(clock, "5s")
        gate.open.set()


@pytest.mark.parametrize(
    ("chosen_s", "local_s", "chosen", "young"),
    [(0.005, 0.0001, 700, 10_000), (0.002, 0.002, 900, 900)],
)
async def test_only_a_process_of_its_own_is_tuned(
    database_url: str, chosen_s: float, local_s: float, chosen: int, young: int
) -> None:
    """Chosen values stay; PostgreSQL needs no writer thread."""
    before_s, was_frozen = sys.getswitchinterval(), gc.get_freeze_count()
    thresholds = gc.get_threshold()
    sys.setswitchinterval(chosen_s)
    gc.set_threshold(chosen)
    gc.unfreeze()
    try:
        async with live(app := Rota(), database_url):
            assert not gc.get_freeze_count()
            assert sys.getswitchinterval() == pytest.approx(chosen_s)
            wanted_s = local_s if database_url.startswith("sqlite") else chosen_s
            with app.own_process():
                assert sys.getswitchinterval() == pytest.approx(wanted_s)
                assert gc.get_freeze_count() > 0
                assert gc.get_threshold()[0] == young
            assert not gc.get_freeze_count()
            assert gc.get_threshold()[0] == chosen
            assert sys.getswitchinterval() == pytest.approx(chosen_s)
    finally:
        sys.setswitchinterval(before_s)
        gc.set_threshold(*thresholds)
        if was_frozen:
            gc.freeze()
