"""Sync handlers that never return: one automation leaves a few threads behind, others continue, and
people see which one it is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rota import Rota
from rota.automations import Context, Prepared
from rota.automations.threads import HUNG_MAX, HandlerHung, HandlerThreads
from rota.client.doctor import Doctor
from rota.explain.automation import explain_automation
from rota.testing import virtual

pytestmark = pytest.mark.usefixtures("hanging_threads")

LIMIT_S = 5.0


@contextmanager
def latch() -> Iterator[threading.Event]:
    """The event that hung handlers wait for; let go at the end."""
    event = threading.Event()
    try:
        yield event
    finally:
        event.set()


def app_with(stuck: threading.Event, *others: str) -> tuple[Rota, list[str]]:
    """An app with one thread, an automation that hangs, and others that do not."""
    app = Rota("sqlite://:memory:", keep_days=0, threads=1, phase_s=LIMIT_S)
    done: list[str] = []

    def declare(name: str) -> None:
        auto = app.automation(name, timezone="UTC")
        work = auto.topic("work", external=True)

        def prepare(ctx: Context, state: Any) -> Prepared:
            events = ctx.peek(work)
            if name == "stuck" and events:
                stuck.wait()
            done.extend(f"{name} {one.id}" for one in events)
            return Prepared(events)

        auto.consumer("worker", subscribes=[work], prepare=prepare)

    for name in ("stuck", *others):
        declare(name)
    return app, done


async def test_a_hung_handler_does_not_keep_the_thread_from_other_automations(
    database_url: str,
) -> None:
    with latch() as stuck:
        app, done = app_with(stuck, "other")
        async with virtual(app, url=database_url) as world:
            await world.settle()
            await app.automations.publish("stuck", "work", "e1")
            await world.advance("1m")
            await app.automations.publish("other", "work", "e2")
            await world.settle()
            assert done == ["other e2"]
            stuck.set()


async def test_an_automation_leaves_a_few_threads_behind_and_says_so(database_url: str) -> None:
    with latch() as stuck:
        app, done = app_with(stuck)
        async with virtual(app, url=database_url) as world:
            await world.settle()
            await app.automations.publish("stuck", "work", "e1")
            await world.advance("1h")
            assert app.automations.executor is not None
            threads = [one for one in threading.enumerate() if one.name == "rota-stuck-worker"]
            assert len(threads) == HUNG_MAX
            said = (await app.automations.show("stuck")).sentence
            assert "worker was not started: 3 threads of stuck hang in worker (process" in said
            why = await explain_automation(app, "stuck")
            assert "3 threads of stuck hang in worker" in why.clause
            [found] = await Doctor(app.connection.database, app.settings).hung_handlers()
            assert found.says.startswith("stuck: worker was not started: 3 threads")
            stuck.set()
            for one in threads:
                await asyncio.to_thread(one.join)
            await app.automations.resolve("stuck", "try-again")
            await world.settle()
            assert "stuck e1" in done
            assert await Doctor(app.connection.database, app.settings).hung_handlers() == []


async def test_a_thread_that_ends_after_all_no_longer_counts() -> None:
    threads = HandlerThreads(1)
    with latch() as stuck:
        for _ in range(HUNG_MAX):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await threads.run("a", "h", stuck.wait)
        with pytest.raises(HandlerHung, match="h was not started: 3 threads of a hang in h"):
            await threads.run("a", "h", stuck.wait)
        assert await threads.run("b", "h", lambda: 1) == 1
        stuck.set()
        while threads.hung("a"):
            await asyncio.sleep(0)
        assert await threads.run("a", "h", lambda: 2) == 2
        assert threads.hung_text("a") == ""
