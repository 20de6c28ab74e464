"""Wake-ups within a process and between processes. They only save time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota import Client, Rota
from rota.client.handle import RunHandle
from rota.engine.wakeups import READY, Wakeups
from rota.settings import Settings
from rota.store.backend.database import open_url
from tests.engine.kit import beside, eventually, live, pass_time
from tests.workflows.kit import result


def plain() -> tuple[Rota, Any]:
    app = Rota()

    @app.workflow
    async def flow(n: int) -> int:
        return n

    return app, flow


async def test_everyone_in_this_process_hears_a_word(database_url: str) -> None:
    app, _ = plain()
    heard: list[str] = []
    async with live(app, database_url):
        app.wakeups.subscribe(heard.append)
        app.wakeups.tell("word")
        assert heard == ["word"]
        app.wakeups.unsubscribe(heard.append)
        app.wakeups.tell("another")
        assert heard == ["word"]


async def test_other_processes_hear_a_word_and_the_teller_not_twice(database_url: str) -> None:
    one, other = open_url(database_url, Settings()), open_url(database_url, Settings())
    await one.open()
    await other.open()
    try:
        here, there = Wakeups(one), Wakeups(other)
        heard_here: list[str] = []
        heard_there: list[str] = []
        await here.listen()
        await there.listen()
        here.subscribe(heard_here.append)
        there.subscribe(heard_there.append)
        here.tell("word")
        await eventually(lambda: "word" in heard_there)
        assert heard_here.count("word") <= 2  # a database may echo; that does no harm
    finally:
        await one.close()
        await other.close()


async def test_a_start_by_another_process_wakes_the_worker(database_url: str) -> None:
    app, _ = plain()
    async with live(app, database_url) as clock:
        client = Client(database_url, clock=clock)
        async with client:
            run = await client.start("flow", n=3)
            assert await run.result(timeout=30) == 3


@pytest.mark.wall_clock
async def test_a_delayed_start_by_another_process_is_timed_exactly(database_url: str) -> None:
    app, flow = plain()
    other, _ = plain()
    async with live(app, database_url) as clock, beside(other, database_url, clock):
        await eventually(lambda: app.runtime is not None and app.runtime.worker.due_at is None)
        run = await other.options(delay="1s").start(flow, 1)
        await eventually(
            lambda: app.runtime is not None and app.runtime.worker.due_at == clock.now() + 1_000_000
        )
        clock.move_to(clock.now() + 1_000_000)
        assert await result(run) == 1
        row = await run.run()
        assert row.started_at == row.created_at + 1_000_000


@pytest.mark.wall_clock
async def test_work_nobody_told_of_is_found_by_the_poll(database_url: str) -> None:
    app, flow = plain()
    other, _ = plain()
    async with live(app, database_url) as clock, beside(other, database_url, clock):
        other.database.tell = lambda topic: None  # type: ignore[method-assign]
        other.database.carry = lambda topic: None  # type: ignore[method-assign]
        run = await other.start(flow, 1)
        later = await other.options(delay="7s").start(flow, 2)
        await asyncio.sleep(0.05)
        assert await run.status() == "pending"
        await pass_time(clock, "6s")
        assert await app.ref(run.id).result(timeout=30) == 1
        await pass_time(clock, "6s")
        assert await app.ref(later.id).result(timeout=30) == 2


def in_order(**settings: Any) -> tuple[Rota, Any, list[int]]:
    """An app whose runs say in which order they began."""
    app = Rota(**settings)
    begun: list[int] = []

    @app.workflow
    async def flow(n: int) -> int:
        begun.append(n)
        return n

    return app, flow, begun


async def silently(other: Rota, flow: Any, *priorities: int) -> list[RunHandle]:
    """Runs of these priorities that nobody was told of."""
    other.database.tell = lambda topic: None  # type: ignore[method-assign]
    other.database.carry = lambda topic: None  # type: ignore[method-assign]
    return [
        await other.options(priority=priority).start(flow, n)
        for n, priority in enumerate(priorities)
    ]


async def test_a_word_about_one_run_begins_that_and_then_all_others(database_url: str) -> None:
    app, flow, begun = in_order()
    other, _ = plain()
    async with live(app, database_url) as clock, beside(other, database_url, clock):
        refs = await silently(other, flow, 9, 5, 0)
        app.wakeups.heard(f"ready {refs[2].id}")
        assert [await app.ref(ref.id).result(timeout=30) for ref in refs] == [0, 1, 2]
    assert begun == [2, 0, 1]


async def test_a_worker_with_one_seat_keeps_the_line_whatever_it_is_told(database_url: str) -> None:
    app, flow, begun = in_order(seats=1)
    other, _ = plain()
    async with live(app, database_url) as clock, beside(other, database_url, clock):
        refs = await silently(other, flow, 0, 9)
        app.wakeups.heard(f"ready {refs[0].id}")
        assert [await app.ref(ref.id).result(timeout=30) for ref in refs] == [0, 1]
    assert begun == [1, 0]


async def test_a_word_about_a_run_that_is_gone_lets_nothing_lie(database_url: str) -> None:
    app, flow, _ = in_order()
    other, _ = plain()
    async with live(app, database_url) as clock, beside(other, database_url, clock):
        [ref] = await silently(other, flow, 0)
        app.wakeups.heard("ready nobody")
        assert await app.ref(ref.id).result(timeout=30) == 0


async def test_a_word_nobody_knows_does_no_harm(database_url: str) -> None:
    app, flow = plain()
    async with live(app, database_url):
        app.wakeups.heard("nonsense")
        app.wakeups.heard("*")
        app.wakeups.heard(READY)
        assert await result(await app.start(flow, 1)) == 1
