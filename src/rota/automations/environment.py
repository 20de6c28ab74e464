"""The environment of every handler run, and the exceptions by which one stops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from rota.automations.journal import HandlerJournal
from rota.automations.threads import HandlerThreads
from rota.core import typed
from rota.core.runs.ids import IdMaker
from rota.core.time.instants import after, micros
from rota.engine.clock import Clock
from rota.engine.invoke import DeadlinePassed, contained, within
from rota.engine.journal import insist
from rota.errors import Transient
from rota.settings import Settings
from rota.store.backend.database import Database, Tx

P = ParamSpec("P")
T = TypeVar("T")


class AutomationEnvironment(NamedTuple):
    """The host of all automations in this process."""

    database: Database
    clock: Clock
    settings: Settings
    ids: IdMaker
    threads: HandlerThreads
    journal: HandlerJournal

    def encode(self, value: Any, what: str) -> str:
        """A value of user code as JSON text; refuses text longer than `payload_bytes_max`."""
        return typed.encode(value, what=what, bytes_max=self.settings.payload_bytes_max)

    async def within(self, work: Awaitable[T], limit_s: float) -> T:
        """Await user code. After this time on the engine's clock, cancel it and raise TimeoutError.
        Network timeouts inside of a tool stay in real time, which sockets follow."""
        try:
            at = after(self.clock.now(), micros(limit_s))
            return await within(asyncio.ensure_future(contained(work)), self.clock, at)
        except DeadlinePassed:
            raise TimeoutError(f"it did not end within {limit_s:g} s") from None

    async def write(
        self,
        function: Callable[Concatenate[Tx, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """One transaction over a few rows, repeated while the database cannot be reached."""
        name = getattr(function, "__name__", "a write")
        return await insist(
            self.clock, lambda: self.database.write_brief(function, *args, **kwargs), name
        )


class HandlerSuspended(Exception):
    """The run stops where it is: until a person acts, or until a time."""

    def __init__(self, reason: str, why: str, *, wake_at: int | None = None) -> None:
        super().__init__(why)
        self.reason = reason
        self.wake_at = wake_at


class NotHappened(Transient):
    """It turned out that the effect did not happen: the run may start over."""
