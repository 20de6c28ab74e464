"""Limits that all workers of a store share: the state of each provider is a row of the database.

A change of the state is one short transaction; changes that are wanted while one is in progress go
together in the next. A step that changes nothing (a healthy provider without rates) is answered
from the last known state, if that is not older than `FRESH_US`. So a worker learns of a wait or a
breaker of another worker that much later at most. Rates always go to the database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from rota.ai.base import Invoker
from rota.ai.limiter import Limiter
from rota.ai.limits import Limits, State
from rota.core.time.instants import SECOND
from rota.store.backend.batching import Batch
from rota.store.backend.database import Database
from rota.store.pipelines import provider_limits

T = TypeVar("T")
Step = Callable[[State], tuple[State, Any]]
FRESH_US = SECOND
_BLANK = msgspec.json.encode(State()).decode()
_STATE = msgspec.json.Decoder(State)


class Ticking(Protocol):
    """The clock that all workers of a store go by."""

    def now(self) -> int:
        """Microseconds since the epoch."""
        ...

    async def wait(self, event: asyncio.Event, until: int) -> None:
        """Return when the event is set or the instant has come."""
        ...


class Shared:
    """Keeps the state of one provider in the database."""

    def __init__(self, database: Database, clock: Ticking, *, namespace: str, name: str) -> None:
        self._database, self._clock = database, clock
        self._namespace, self._name = namespace, name
        self._batch: Batch[Step, Any] = Batch(self._send)
        self._seen = State()
        self._fresh_until = 0

    async def change(self, step: Callable[[State], tuple[State, T]]) -> T:
        """Apply `step` to the state; no change of another worker comes between."""
        # An instant further away is from before the clock was set back.
        if 0 < self._fresh_until - self._clock.now() <= FRESH_US:
            after, result = step(self._seen)
            if after == self._seen:
                return result
        answer: T = await self._batch.put(step)
        return answer

    async def _send(self, steps: Sequence[Step]) -> list[Any]:
        def apply(text: str) -> tuple[str, tuple[State, list[Any]]]:
            before = state = _STATE.decode(text)
            results = []
            for step in steps:
                state, result = step(state)
                results.append(result)
            after = text if state == before else msgspec.json.encode(state).decode()
            return after, (state, results)

        self._seen, results = await self._database.write_brief(
            provider_limits.change, apply, namespace=self._namespace, name=self._name, blank=_BLANK
        )
        self._fresh_until = self._clock.now() + FRESH_US
        return results


def shared(
    database: Database, clock: Ticking, *, namespace: str
) -> Callable[[Invoker, Limits], Invoker]:
    """The `limit` of `invoker_of`: each provider is kept within limits that all share."""

    async def sleep(seconds: float) -> None:
        await clock.wait(asyncio.Event(), clock.now() + round(seconds * SECOND))

    def limit(invoker: Invoker, limits: Limits) -> Invoker:
        keeper = Shared(database, clock, namespace=namespace, name=invoker.name)
        return Limiter(invoker, limits, keeper=keeper, now=clock.now, sleep=sleep)

    return limit
