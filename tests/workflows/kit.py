"""The kit of the workflow tests: a guarded look at results, and types at module level."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic

from rota import (
    RetryPolicy,
    Rota,
    RunHandle,
    StepFailed,
    sleep,
)
from rota.core.runs.model import Run, StoredStep
from rota.core.runs.stored_errors import read_error
from rota.core.time.instants import SECOND
from rota.store import invariants
from rota.testing import World, held

# Real time after which a result that should be there is taken as missing.
GUARD_S = 30.0


@dataclass
class Receipt:
    """A result as a dataclass."""

    order: str
    total: int


class Parcel(pydantic.BaseModel):
    """A result as a pydantic model."""

    weight: float
    label: str


class Invoice(msgspec.Struct):
    """A result as a msgspec struct, with a dataclass inside."""

    number: int
    receipt: Receipt


def family() -> tuple[Rota, Any, Any]:
    """An elder that calls a child which sleeps for an hour."""
    app = Rota()

    @app.workflow
    async def child(n: int) -> Receipt:
        await sleep("1h")
        return Receipt("child", n)

    @app.workflow
    async def elder(n: int) -> int:
        receipt = await child(n)
        await sleep("1h")
        return receipt.total

    return app, elder, child


async def result(run: RunHandle) -> Any:
    """The result of a run that has ended; fails soon when it has not."""
    return await run.result(timeout=GUARD_S)


async def trouble(run: RunHandle) -> dict[str, str]:
    """The stored error of the newest attempt."""
    return read_error((await run.run()).error)


async def attempts(app: Rota, run: RunHandle) -> list[tuple[int, str, str]]:
    """Number, trigger and label of each attempt, first to last."""
    return [(row.attempt, row.trigger, row.label) for row in await app.runs.chain(run.id)]


async def keys(app: Rota, run: RunHandle) -> list[str]:
    """The keys of what a chain has recorded, in order."""
    return [step.key for step in await app.runs.steps(run.id)]


async def step_named(app: Rota, run: RunHandle, key: str) -> StoredStep:
    """One recorded step."""
    return next(step for step in await app.runs.steps(run.id) if step.key == key)


async def children(app: Rota, run: RunHandle) -> list[Run]:
    """The runs below a chain, oldest first."""
    rows = await app.runs.list(limit=1000)
    return [row for row in reversed(rows) if row.parent_id == run.id]


async def sound(app: Rota) -> None:
    """Every invariant of the store holds."""
    assert await app.connection.database.read(invariants.broken) == []


async def eventually(condition: Callable[[], Awaitable[bool]] | Callable[[], bool]) -> None:
    """Let the loop turn until a condition holds; fails at a deadline."""

    async def iterate() -> None:
        while True:
            answer = condition()
            if answer is True or (not isinstance(answer, bool) and await answer):
                return
            await asyncio.sleep(0.001)

    await asyncio.wait_for(iterate(), GUARD_S)


class Flaky:
    """Fails as long as it has errors left, and notes the instant of every call."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.at: list[float] = []
        self.world: World | None = None

    def __call__(self) -> str:
        assert self.world is not None
        self.at.append(self.world.clock.now() / SECOND)
        if self.errors:
            raise self.errors.pop(0)
        return "done"

    @property
    def waits(self) -> list[float]:
        """Seconds between one call and the next."""
        return [round(b - a, 6) for a, b in itertools.pairwise(self.at)]


def app_with_step(flaky: Flaky, retries: int | RetryPolicy) -> tuple[Rota, Any]:
    app = Rota()

    @app.step(retries=retries)
    async def shaky() -> str:
        return flaky()

    @app.workflow
    async def flow() -> str:
        return await shaky()

    return app, flow


class Endless:
    """Async work that ends only when it is interrupted."""

    def __init__(self) -> None:
        self.begun = 0
        self.interrupted = 0

    async def __call__(self) -> None:
        self.begun += 1
        try:
            with held():
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.interrupted += 1
            raise


class Shop:
    """Steps that note their calls; `charge` fails so many times."""

    def __init__(self, failures: int = 1) -> None:
        self.app = Rota()
        self.calls: list[str] = []
        calls = self.calls

        @self.app.step
        async def reserve() -> str:
            calls.append("reserve")
            return "reserved"

        @self.app.step
        async def charge() -> str:
            calls.append("charge")
            if calls.count("charge") <= failures:
                raise ConnectionError("down")
            return "paid"

        @self.app.step
        async def release() -> None:
            calls.append("release")

        @self.app.step
        async def alert() -> None:
            calls.append("alert")

        @self.app.step
        async def audit() -> None:
            calls.append("audit")
            if calls.count("audit") == 1:
                raise OSError("disk full")

        self.reserve, self.charge, self.release = reserve, charge, release
        self.alert, self.audit = alert, audit


async def charge_with_cleanup(shop: Shop) -> str:
    try:
        return await shop.charge()
    except StepFailed:
        await shop.release()
        raise


class Cleanup:
    """An app with a step that notes its calls, one that does not end, and a child that sleeps."""

    def __init__(self) -> None:
        self.app = Rota()
        self.calls: list[Any] = []
        self.endless = Endless()

        @self.app.step
        async def note(value: Any) -> Any:
            self.calls.append(value)
            return value

        @self.app.step
        async def work() -> None:
            await self.endless()

        @self.app.workflow
        async def child() -> str:
            await sleep("1h")
            return "child"

        self.note, self.work, self.child = note, work, child


async def end(world: World, run: Any, **options: Any) -> None:
    """Ask the run to end; the worker that executes it renews its leases then."""
    await run.cancel(**{"reason": "no stock", "grace": "5m"} | options)
    await world.beat()
