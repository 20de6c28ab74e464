"""The kit of the engine tests: real loops on virtual time, gates, ghosts of other workers."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from rota import Rota
from rota.core.runs.model import Claim
from rota.core.runs.model import WorkerRecord as WorkerRow
from rota.core.time.instants import Duration, micros
from rota.engine import process_identity
from rota.store.runs import claim, workers
from rota.store.runs.claim import ClaimRequest
from rota.testing import VirtualClock, held
from rota.workflows.steps import Step
from tests.workflows.kit import eventually

__all__ = [
    "Gate",
    "StoreTap",
    "beside",
    "eventually",
    "ghost_claim",
    "ghost_row",
    "here",
    "live",
    "pass_time",
    "timer_set",
]


@contextlib.asynccontextmanager
async def live(
    app: Rota, url: str, clock: VirtualClock | None = None, queues: Sequence[str] | None = None
) -> AsyncIterator[VirtualClock]:
    """The app with its loops turning by themselves; only time stops until it is moved.

    A change without time passing comes from a wake-up, never from a poll.
    """
    clock = clock or VirtualClock()
    app.url, app.clock, app.migrates = url, clock, True
    await app.start_worker(queues)
    try:
        yield clock
    finally:
        await app.stop_worker(0)
        await app.close()


@contextlib.asynccontextmanager
async def beside(app: Rota, url: str, clock: VirtualClock) -> AsyncIterator[Rota]:
    """Another process's client on the same database, by the same clock."""
    app.url, app.clock, app.migrates = url, clock, True
    async with app.connected():
        yield app


async def pass_time(clock: VirtualClock, duration: Duration) -> None:
    """Move the clock from timer to timer, and let the loops turn at each."""
    target = clock.now() + micros(duration)
    while (due := clock.next_timer_at()) is not None and due <= target:
        clock.move_to(due)
        await asyncio.sleep(0.005)
    clock.move_to(target)
    await asyncio.sleep(0.005)


async def timer_set(clock: VirtualClock, after: Duration) -> None:
    """Wait until a task waits for this instant: only then may time pass."""
    at = clock.now() + micros(after)
    await eventually(lambda: any(due == at and timer.callback for due, _, timer in clock._timers))


class Gate:
    """Work that waits until it is let through, and notes who came; a step in a workflow."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self._step = Step(self._wait, name="gate")
        self.entered: list[Any] = []
        self.interrupted: list[Any] = []
        self.under_way = 0
        self.most = 0

    def __call__(self, who: Any = None) -> Awaitable[Any]:
        return self._step(who)

    async def _wait(self, who: Any) -> Any:
        self.entered.append(who)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            with held():
                await self.open.wait()
        except asyncio.CancelledError:
            self.interrupted.append(who)
            raise
        finally:
            self.under_way -= 1
        return who


class StoreTap:
    """Is between an app and its database: counts calls by store function, and meddles."""

    def __init__(self, app: Rota) -> None:
        self.calls: list[str] = []
        self.before: Callable[[str], Awaitable[None]] | None = None
        self.after: Callable[[str], Awaitable[None]] | None = None
        database: Any = app.connection.database
        self._write, self._read = database.write, database.read
        database.write = self._tapped(self._write)
        database.write_brief = self._tapped(database.write_brief)
        database.read = self._tapped(self._read)

    def count(self, name: str) -> int:
        """How often a store function was called."""
        return self.calls.count(name)

    def _tapped(self, real: Any) -> Any:
        async def call(function: Any, *args: Any, **kwargs: Any) -> Any:
            name = function.__name__
            self.calls.append(name)
            if self.before is not None:
                await self.before(name)
            answer = await real(function, *args, **kwargs)
            if self.after is not None:
                await self.after(name)
            return answer

        return call


async def ghost_row(app: Rota, worker_id: str, **fields: Any) -> None:
    """A row of a worker that is gone, by default on another machine."""
    now = app.clock.now()
    values: dict[str, Any] = {
        "host": "elsewhere", "pid": 1, "pid_started": "1", "started_at": now, "queues": "[]",
        "names": "[]",
    } | fields  # fmt: skip
    row = WorkerRow(
        id=worker_id, namespace=app.settings.namespace, slots=1,
        status="online",
        version="v", heartbeat_at=values["started_at"], stopped_at=None, **values,
    )  # fmt: skip
    await app.connection.database.write(workers.register, row)


def here() -> dict[str, Any]:
    """The fields of a worker row that is this very process."""
    pid = os.getpid()
    return {
        "host": process_identity.host(),
        "pid": pid,
        "pid_started": process_identity.started(pid),
    }


async def ghost_claim(
    app: Rota,
    worker_id: str,
    count: int = 1,
    *,
    alone: bool = False,
    names: Sequence[str] | None = None,
) -> list[Claim]:
    """Claim runs as another worker would, which then falls silent."""
    now = app.clock.now()
    request = ClaimRequest(
        namespace=app.settings.namespace, worker_id=worker_id,
        names=list(names or app.workflows),
        queues=[("default", count)], runs_max=count, limited=frozenset(), now=now,
        lease_until=now + micros(app.settings.lease_s), one_alone=alone,
    )  # fmt: skip
    return (await app.connection.database.write(claim.claim, request)).claims
