"""Two transactions that meet on PostgreSQL, held open exactly where it hurts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rota import Client, RetryPolicy, Rota, Transient, sleep, this_run, wait_for
from rota.core.runs.model import Claim, NewRun, Outcome
from rota.errors import RotaError
from rota.store.backend.database import Tx
from rota.store.runs import claim as claiming
from rota.store.runs import signals, steps
from rota.store.runs.settle import settle_and_claim, settle_runs
from rota.store.runs.start import successor
from rota.store.runs.wake import poke
from tests.kit import broken, until
from tests.kit.builders import NOW, begin, claim, fresh_id, opened, request, settle, sql
from tests.kit.writes import replace_writes

QUICK: dict[str, Any] = {"heartbeat_s": 0.3, "poll_s": 0.2, "migrate": True}


pytestmark = pytest.mark.pg


class Gate:
    """Holds one transaction open after its last statement, before its commit."""

    def __init__(self, *functions: Any) -> None:
        self._functions = functions
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    def put_before(self, client: Client) -> None:
        """Hold the first transaction of `client` that runs one of the functions."""
        write = client.connection.database.write

        async def held(function: Any, *args: Any, **kwargs: Any) -> Any:
            if function not in self._functions or self.reached.is_set():
                return await write(function, *args, **kwargs)

            async def slow(tx: Any) -> Any:
                begun: dict[str, Any] = {"alone": False} if function is settle_runs else {}
                value = await function(tx, *args, **kwargs, **begun)
                self.reached.set()
                await self.open.wait()
                return value

            return await write(slow)

        replace_writes(client.connection.database, held)


@contextlib.asynccontextmanager
async def stranger(url: str) -> AsyncIterator[Client]:
    """Another process's client."""
    async with Client(url, migrate=True) as client:
        yield client


async def test_cancel_reaches_a_child_that_is_being_started_at_that_moment(
    server_url: str,
) -> None:
    app = Rota(server_url, **QUICK)
    gate = Gate(steps.record_children)

    @app.workflow
    async def child() -> None:
        await sleep("1h")

    @app.workflow
    async def parent() -> None:
        await child()

    async with app, stranger(server_url) as other:
        gate.put_before(app)
        run = await app.start(parent)
        await gate.reached.wait()
        cancelling = asyncio.create_task(other.runs.cancel(run.id))
        await asyncio.wait([cancelling], timeout=1)
        gate.open.set()
        await cancelling

        async def is_quiet() -> bool:
            return all(run.is_final for run in await other.runs.list())

        await until(is_quiet)
        assert await broken(server_url) == []


async def test_cancel_reaches_a_chain_that_fails_and_is_retried_at_that_moment(
    server_url: str,
) -> None:
    app = Rota(server_url, **QUICK)
    gate = Gate(settle_runs, settle_and_claim)

    @app.workflow(retries=RetryPolicy(attempts=5, delay_s=60))
    async def fails() -> None:
        raise Transient("once more")

    async with app, stranger(server_url) as other:
        gate.put_before(app)
        run = await app.start(fails)
        await gate.reached.wait()
        cancelling = asyncio.create_task(other.runs.cancel(run.id))
        await asyncio.wait([cancelling], timeout=1)
        gate.open.set()
        await cancelling
        assert (await other.runs.chain(run.id))[-1].status == "cancelled"
        assert await broken(server_url) == []


async def test_a_signal_sent_while_an_attempt_gives_way_to_the_next_is_received(
    server_url: str,
) -> None:
    app = Rota(server_url, **QUICK)
    retrying = Gate(settle_runs, settle_and_claim)
    sending = Gate(signals.send_signal)

    @app.workflow(retries=RetryPolicy(attempts=5, delay_s=0))
    async def listens() -> int:
        if this_run().attempt == 1:
            raise Transient("once more")
        value: int = await wait_for("word")
        return value

    async with app, stranger(server_url) as other:
        retrying.put_before(app)
        run = await app.start(listens)
        await retrying.reached.wait()
        sending.put_before(other)
        seen = asyncio.create_task(other.runs.signal(run.id, "word", 5))
        await asyncio.wait([seen], timeout=0.5)
        retrying.open.set()

        async def sleeps() -> bool:
            return (await run.status()) in ("sleeping:signal", "completed")

        with contextlib.suppress(AssertionError):
            await until(sleeps, timeout_s=3)  # it may rightly wait for the sender instead
        sending.open.set()
        await seen
        try:
            assert await run.result(timeout=60) == 5
        finally:
            with contextlib.suppress(RotaError):
                await run.cancel()


async def test_the_end_of_a_child_is_received_while_the_parent_gives_way_to_its_next_attempt(
    server_url: str,
) -> None:
    app = Rota(server_url, **QUICK)
    retrying = Gate(settle_runs, settle_and_claim)
    finish = asyncio.Event()

    @app.workflow(queue="elsewhere")
    async def child() -> int:
        return 5

    @app.workflow(retries=RetryPolicy(attempts=5, delay_s=0))
    async def parent() -> int:
        started = await app.start(child)
        if this_run().attempt == 1:
            await finish.wait()
            raise Transient("once more")
        value: int = await started.result()
        return value

    near = Rota(server_url, **QUICK)
    near.workflow(queue="elsewhere", name="child")(child.function)
    ending = Gate(settle_runs, settle_and_claim)
    await app.start_worker(["default"])
    try:
        retrying.put_before(app)
        run = await app.start(parent)

        async def has_child() -> bool:
            return bool(await app.runs.list(name="child"))

        await until(has_child)
        finish.set()
        await retrying.reached.wait()
        await near.connect()
        ending.put_before(near)
        await near.start_worker(["elsewhere"])
        # The child's end waits for the parent's row, which its next attempt is leaving.
        await asyncio.wait([asyncio.create_task(ending.reached.wait())], timeout=0.7)
        retrying.open.set()

        async def sleeps() -> bool:
            return (await run.status()) in ("sleeping:child", "completed")

        with contextlib.suppress(AssertionError):
            await until(sleeps, timeout_s=3)
        ending.open.set()
        try:
            assert await run.result(timeout=60) == 5
        finally:
            with contextlib.suppress(RotaError):
                await run.cancel()
    finally:
        await near.close()
        await app.close()


async def test_a_wake_up_that_waits_for_an_attempt_finds_the_one_that_follows(
    server_url: str,
) -> None:
    gate, reached = asyncio.Event(), asyncio.Event()
    async with opened(server_url) as db, opened(server_url, migrated=False) as other:
        first = await begin(db)
        await settle(db, first, "fail", retry=_next(first))
        [second] = await claim(db)

        async def give_way(tx: Tx) -> None:
            """The second attempt fails and the third begins, in one transaction."""
            failed = Outcome(second, "fail", retry=_next(second))
            await settle_runs(tx, [failed], now=NOW, alone=False)
            await claiming.claim(tx, request())
            reached.set()
            await gate.wait()

        giving_way = asyncio.create_task(db.write(give_way))
        await reached.wait()
        waking = asyncio.create_task(other.write(poke, [first.root_id], now=NOW))

        async def waits_for_a_lock() -> bool:
            text = "select query from pg_stat_activity where wait_event_type = 'Lock'"
            return any("wake_requested" in row[0] for row in await sql(db, text))

        await until(waits_for_a_lock)
        gate.set()
        await giving_way
        assert await waking == 1
        running = await sql(db, "select attempt, wake_requested from runs where status = 'running'")
        assert running == [(3, 1)]


def _next(held: Claim) -> NewRun:
    """The attempt that follows at once."""
    return successor(held, fresh_id(), trigger="retry", attempt=held.attempt + 1, available_at=NOW)
