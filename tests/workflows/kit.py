"""The kit of the workflow tests: a guarded look at results, and types at module level."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic

from rota import Rota, RunHandle
from rota.core.runs.model import Run, StoredStep
from rota.core.runs.stored_errors import read_error
from rota.store import invariants

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
