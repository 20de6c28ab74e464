"""The code of one handler: its phases `prepare`, `mutate`, `next` and `run`, called one by one.

Knows nothing of runs. The subclass is the host that `ctx` asks: one carries out a handler run, one
makes a dry run.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec

from rota.automations.context import Context, Event, Prepared, as_prepared, event_of
from rota.automations.definition import Automation, Handler
from rota.automations.environment import AutomationEnvironment
from rota.automations.invoke import call
from rota.automations.returned import refuse_lost, the_change
from rota.core import trace_spans
from rota.core.automations.model import HandlerPlan, StoredEvent
from rota.core.automations.phases import Phase
from rota.core.automations.planner import clamp_wake
from rota.core.time.instants import iso, micros
from rota.errors import (
    BadReservation,
    NotAllowed,
    PayloadTooBig,
    ReadFailed,
    Rejected,
    RotaError,
)
from rota.tools.base import Call, Change, Tool, changes_built

_HOST_ERRORS = (RotaError, OSError, TimeoutError)
# The errors of a read that would fail again.
_REFUSED = (Rejected, PayloadTooBig, FileNotFoundError, IsADirectoryError, NotADirectoryError)


class ToolFault(RotaError):
    """A tool that changes nothing failed with an unknown exception: a fault of the host."""


class HandlerCode(ABC):
    """Calls the functions of a handler, with a host for their `ctx`."""

    def __init__(
        self, environment: AutomationEnvironment, automation: Automation, handler: Handler | None
    ) -> None:
        self._environment = environment
        self._automation = automation
        self._handler = handler
        self._events: dict[tuple[str, str], StoredEvent] = {}  # what prepare has read
        self._remarks: list[str] = []
        self._logs: list[str] = []
        self._ctx: Context | None = None
        self.payload_bytes_max = environment.settings.payload_bytes_max
        self.refused: list[str] = []  # events that could not be read
        self.late: NotAllowed | None = None  # user code asked for something after its phase

    # -- what the context asks of its host -------------------------------------------------

    @abstractmethod
    async def peek(self, topic: str, limit: int) -> list[StoredEvent]:
        """Pending events of a topic."""

    @abstractmethod
    async def named(self, topic: str, ids: Sequence[str]) -> list[StoredEvent]:
        """Events by message id."""

    @abstractmethod
    async def read(self, tool: Tool, params: dict[str, Any]) -> Any:
        """Call a tool that changes nothing."""

    # -- phases ----------------------------------------------------------------------------

    async def _prepared(self, state: Any) -> HandlerPlan:
        """Let `prepare` choose events; a consumer of one function takes the oldest."""
        self._events = {}
        if self._known().takes_event:
            return self._plan(await self._oldest_event())
        return self._plan(as_prepared(await self._run("prepare", Phase.PREPARING, state)))

    async def _oldest_event(self) -> Prepared:
        """The oldest event of the topics: a consumer of one function takes it."""
        topics = self._known().node.subscribes
        found = [one for topic in topics for one in await self.peek(topic, 1)]
        oldest = min(found, key=lambda one: one.id, default=None)
        if oldest is None:
            return Prepared()
        self._events = {(oldest.topic, oldest.message_id): oldest}
        try:
            return Prepared([event_of(self._automation.topics[oldest.topic], oldest)])
        except RotaError:
            self.refused.append(oldest.id)
            raise

    def _plan(self, given: Prepared) -> HandlerPlan:
        subscribed = self._known().node.subscribes
        wanted: dict[str, list[str]] = {}
        for one in given.events:
            if one.topic not in subscribed:
                raise BadReservation(f"topic {one.topic} is not one that it subscribes to")
            if one.id not in wanted.setdefault(one.topic, []):
                wanted[one.topic].append(one.id)
        settings = self._environment.settings
        wake = clamp_wake(
            given.wake_at, now=self._environment.clock.now(), least_us=micros(settings.wake_s_min),
            most_us=micros(settings.wake_s_max),
        )  # fmt: skip
        if wake.remark:
            self._remarks.append(wake.remark)
        text = self._environment.encode(given.data, "what prepare returned")
        title = None if given.title is None else str(given.title)[:500]
        return HandlerPlan(wanted, msgspec.Raw(text), title, wake.at)

    async def _change(self, plan: HandlerPlan) -> Change | None:
        change: Change | None = await self._run("mutate", Phase.MUTATING, await self._given(plan))
        return change

    async def _given(self, plan: HandlerPlan) -> Prepared:
        """The plan as later phases see it: by value, as it was stored, with its events."""
        for topic, ids in plan.reservations.items():
            if any((topic, one) not in self._events for one in ids):
                found = await self.named(topic, ids)
                self._events |= {(topic, one.message_id): one for one in found}
        pinned = [
            self._pinned(topic, one) for topic, ids in plan.reservations.items() for one in ids
        ]
        wake_at = None if plan.wake_at is None else iso(plan.wake_at)
        return Prepared(pinned, msgspec.json.decode(plan.data), plan.title, wake_at)

    def _pinned(self, topic: str, message_id: str) -> Event[Any]:
        stored = msgspec.structs.replace(self._events[topic, message_id], status="reserved")
        return event_of(self._automation.topics[topic], stored)

    async def _run(self, name: str, phase: Phase, *args: Any) -> Any:
        if self.late is not None:
            raise self.late
        handler = self._known()
        is_async = handler.is_async(name)
        loop = None if is_async else asyncio.get_running_loop()
        ctx = Context(self._automation, handler, phase, self, self._environment.clock.now, loop)
        self._ctx = ctx
        function = handler.bound(name)
        with changes_built() as built:
            try:
                value = await call(self._environment, function, is_async, ctx, *args)
            finally:
                forgotten = ctx.end()
                self._logs += ctx.logs
                self.refused += ctx.refused
                self._events |= ctx.seen
        if forgotten is not None:
            raise forgotten
        change = the_change(handler.node.name, value) if name == "mutate" else None
        refuse_lost(f"{name} of {handler.node.name}", change, built)
        return value

    def _known(self) -> Handler:
        assert self._handler is not None, "a handler that is gone runs no code"
        return self._handler

    async def _read(self, tool: Tool, params: dict[str, Any], key: str) -> Any:
        limit_s = self._environment.settings.tool_s
        try:
            with trace_spans.tool(tool.name, tool.safety):
                called = tool.call(params, Call(key, limit_s))
                return await self._environment.within(called, limit_s)
        except _REFUSED as error:
            raise ReadFailed(f"{tool.name}: {error}", tool=tool.name) from error
        except _HOST_ERRORS:
            raise
        except Exception as error:
            raise ToolFault(f"{tool.name}: {type(error).__name__}: {error}") from error
