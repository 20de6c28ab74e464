"""Dry runs of recorded events: the change that `prepare` and `mutate` lead to. A dry run reserves,
writes and sends nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from rota.automations.definition import Automation, Handler
from rota.automations.effects import checked_params
from rota.automations.environment import AutomationEnvironment
from rota.automations.handler_code import HandlerCode
from rota.core import redaction
from rota.core.automations.model import Alone, HandlerPlan, StoredEvent
from rota.core.automations.phases import EventStatus
from rota.core.redaction import Redactor
from rota.core.runs.failures import describe
from rota.core.runs.stored_errors import read_error
from rota.errors import BadReservation, NotAllowed
from rota.store.automations import events
from rota.store.automations.events import AutomationKey
from rota.tools.base import Tool


class DryRun(NamedTuple):
    """The result of a dry run: one consumer, one event.

    `outcome` is `change` (with the tool and its parameters), `nothing` or `error`; `reason` says
    why for the last two.
    """

    consumer: str
    topic: str
    event: str
    outcome: str
    tool: str | None = None
    params: Any = None
    title: str | None = None
    approval: bool = False
    reason: str | None = None


class DryRuns(NamedTuple):
    """The host of the dry runs of one automation."""

    environment: AutomationEnvironment
    key: AutomationKey
    automation: Automation
    with_reads: bool

    async def of(self, handler: Handler, event: StoredEvent, state: str | None) -> DryRun:
        """Make a dry run of one consumer with one event."""
        # A task of its own: texts hide the secrets of this event only.
        return await asyncio.create_task(_DryRunner(self, handler, event).result(state))


class _DryRunner(HandlerCode):
    """The host of one dry run: it offers one event, and records the change."""

    def __init__(self, runs: DryRuns, handler: Handler, event: StoredEvent) -> None:
        super().__init__(runs.environment, runs.automation, handler)
        self._runs = runs
        self._offered = replace(event, status=EventStatus.PENDING, alone=int(Alone.NO))
        self._found = DryRun(handler.node.name, event.topic, event.message_id, "nothing")

    async def result(self, state: str | None) -> DryRun:
        """The outcome; an error of the handler is one."""
        secret_fields = self._environment.settings.secret_fields
        redaction.begin_run(Redactor(secret_fields), [state, self._offered.payload])
        try:
            return await self._perform(state)
        except Exception as error:
            said = read_error(describe(error))
            return self._found._replace(
                outcome="error", reason=f"{said['type']}: {said['message']}"
            )

    async def _perform(self, state: str | None) -> DryRun:
        plan = await self._prepared(None if state is None else msgspec.json.decode(state))
        node = self._known().node
        if not plan.count:
            return self._nothing("prepare took no event")
        await self._insist_on_pending(plan)
        if not node.has_mutate:
            return self._nothing(f"{node.name} has no mutate")
        change = await self._change(plan)
        if self.late is not None:
            raise self.late
        if change is None:
            return self._nothing("mutate returned None")
        text = await checked_params(self._environment, change.tool, change.params)
        redaction.learn(text)
        title = None if plan.title is None else redaction.without_secrets(plan.title)
        return self._found._replace(
            outcome="change", tool=change.tool.name, params=msgspec.json.decode(text), title=title,
            approval=node.approval,
        )  # fmt: skip

    def _nothing(self, reason: str) -> DryRun:
        return self._found._replace(reason=reason)

    async def _insist_on_pending(self, plan: HandlerPlan) -> None:
        """Refuse what a reservation would refuse."""
        for topic, ids in plan.reservations.items():
            status = {one.message_id: one.status for one in await self.named(topic, ids)}
            for message_id in ids:
                is_now = status.get(message_id, "not there")
                if is_now != EventStatus.PENDING:
                    raise BadReservation(
                        f"only pending events can be reserved: {topic}/{message_id} is {is_now}"
                    )

    # -- what the context asks of its host -------------------------------------------------

    async def peek(self, topic: str, limit: int) -> list[StoredEvent]:
        """The event of this dry run, if it is of this topic."""
        return [self._offered] if topic == self._offered.topic else []

    async def named(self, topic: str, ids: Sequence[str]) -> list[StoredEvent]:
        """Events by message id; the one of this dry run is pending."""
        database = self._environment.database
        found = await database.read(events.named, self._runs.key, topic, ids)
        return [self._offered if one.id == self._offered.id else one for one in found]

    async def read(self, tool: Tool, params: dict[str, Any]) -> Any:
        """Call a tool that reads, if the user asked for it."""
        if not self._runs.with_reads:
            raise NotAllowed(
                f"a dry run does not call {tool.name}, which reads",
                hint="Allow reads: `rota automation dry-run … --with-reads`, or with_reads=True.",
            )
        clock = self._environment.clock
        return await self._read(tool, params, self._environment.ids.make(clock.now()))
