"""The phases of one handler run, each behind its checkpoint.

Decides nothing about what to do next (`core/automations/phases`, `core/automations/planner`) and
writes nothing itself (`store/automations/handler_runs`): it calls user code and carries results
from one checkpoint to the next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

import msgspec

from rota.automations.context import (
    Context,
    Event,
    MutationResult,
    Prepared,
    as_prepared,
    event_of,
)
from rota.automations.definition import Automation, Handler
from rota.automations.effects import Effects
from rota.automations.environment import AutomationEnvironment
from rota.automations.invoke import call
from rota.automations.returned import refuse_lost, the_change
from rota.core import trace_spans
from rota.core.automations.failure_policy import EffectivePolicy, Pace, effective
from rota.core.automations.model import Alone, HandlerPlan, LedgerRow, StoredEvent
from rota.core.automations.phases import Mutation, Phase, Way
from rota.core.automations.planner import clamp_wake
from rota.core.runs.model import Claim
from rota.core.runs.stored_errors import read_error
from rota.core.time.instants import iso, micros
from rota.core.time.occurrences import next_after
from rota.core.time.spec import Spec
from rota.engine.journal import insist
from rota.errors import (
    BadReservation,
    NotAllowed,
    PayloadTooBig,
    ReadFailed,
    Rejected,
    RotaError,
    Transient,
)
from rota.store.automations import events
from rota.store.automations.events import AutomationKey, EventChanged
from rota.store.automations.handler_runs import checkpoint
from rota.store.automations.handler_runs.begin import HandlerRunSettled, Notes, Work
from rota.store.automations.handler_runs.commit import Commit
from rota.store.backend.database import BRIEF
from rota.tools.base import Call, Change, Tool, changes_built

T = TypeVar("T")
_PLAN = msgspec.json.Decoder(HandlerPlan)
_SPEC = msgspec.json.Decoder(Spec)
# How often `prepare` runs when its events are published again before they are reserved.
PREPARES_MAX = 10
log = logging.getLogger("rota.automations")
_HOST_ERRORS = (RotaError, OSError, TimeoutError)
# The errors of a read that would fail again.
_REFUSED = (Rejected, PayloadTooBig, FileNotFoundError, IsADirectoryError, NotADirectoryError)


class ToolFault(RotaError):
    """A tool that changes nothing failed with an unknown exception: a fault of the host."""


class HandlerRunner:
    """One handler run. `phase` is how far it has got, so that its failure can be recorded."""

    def __init__(
        self,
        environment: AutomationEnvironment,
        claim: Claim,
        work: Work,
        automation: Automation,
        handler: Handler | None,
    ) -> None:
        self._environment = environment
        self.claim = claim
        self.work = work
        self._automation = automation
        self._handler = handler
        self._key = AutomationKey(claim.namespace, automation.name)
        self._effects = Effects(environment, claim, self.policy)
        self._effect: asyncio.Task[LedgerRow] | None = None
        self._events: dict[tuple[str, str], StoredEvent] = {}  # what prepare has read
        self._failures: list[tuple[Exception, Tool]] = []
        self._remarks: list[str] = []
        self._logs: list[str] = list(msgspec.json.decode(work.run.logs or "[]"))
        self._ctx: Context | None = None
        self.payload_bytes_max = environment.settings.payload_bytes_max
        self.phase = Phase(work.run.phase)
        self.refused: list[str] = []  # events that could not be read
        self.late: NotAllowed | None = None  # user code asked for something after its phase

    async def perform(self) -> HandlerRunSettled:
        """Go from the state of the run to its commit."""
        if self.work.run.kind == "producer":
            return await self._produce()
        mutation = self.work.mutation
        if self.work.way is Way.RECONCILE:
            assert mutation is not None
            plan = self._stored_plan()
            tool = await self._find_tool(plan)
            mutation = await self._noting(self._effects.reconcile(tool, mutation), tool)
            self.phase = Phase.MUTATED
        elif self.work.way is Way.EMIT:
            plan = self._stored_plan()
        else:
            plan = await self._prepare() if self.phase is Phase.PREPARING else self._stored_plan()
            mutation = await self._mutate(plan) if plan.count else None
        return await self._emit(plan, mutation)

    # -- phases ----------------------------------------------------------------------------

    async def _produce(self) -> HandlerRunSettled:
        value = await self._run("run", Phase.EXECUTING, self._state())
        what = f"producer {self._known().node.name}"
        return await self._commit(HandlerPlan(), value, what, self.next_run_at())

    def next_run_at(self) -> int | None:
        """When a producer runs next, if this run of it is over."""
        stored = self.work.handler
        if stored is None or stored.spec is None:
            return None
        return next_after(_SPEC.decode(stored.spec), self._environment.clock.now())

    async def _prepare(self) -> HandlerPlan:
        """Prepare until the reserved events are those that `prepare` has seen."""
        for _ in range(PREPARES_MAX):
            self._events = {}
            if self._known().takes_event:
                plan = self._plan(await self._oldest_event())
            else:
                value = await self._run("prepare", Phase.PREPARING, self._state())
                plan = self._plan(as_prepared(value))
            try:
                await self._reserve(plan)
                return plan
            except EventChanged as changed:
                log.info("%s prepares again: %s", self.work.run.handler, changed)
        raise Transient(f"events change faster than {self.work.run.handler} can prepare")

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

    async def _reserve(self, plan: HandlerPlan) -> None:
        if not plan.count:
            return
        database, clock = self._environment.database, self._environment.clock
        seen = {name: one.revision for name, one in self._events.items()}
        write = database.write_brief if plan.count <= BRIEF else database.write
        notes, now = self.notes(), clock.now()
        await insist(
            clock,
            lambda: write(checkpoint.prepared, self.claim, self.work, plan, notes, seen, now=now),
            "a reservation",
        )
        self.phase = Phase.PREPARED

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

    async def _mutate(self, plan: HandlerPlan) -> LedgerRow | None:
        """Make the change that `mutate` returns, if it returns one."""
        if not self._known().node.has_mutate:
            return None
        self.phase = Phase.MUTATING
        change = await self._change(plan)
        mutation = None
        if change is not None:
            self._effect = asyncio.create_task(self._make(change, plan.title))
            await asyncio.wait([self._effect])  # a cancelled run lets go of it in `close`
            mutation = self._effect.result()
        self.phase = Phase.MUTATED
        return mutation

    async def _change(self, plan: HandlerPlan) -> Change | None:
        change: Change | None = await self._run("mutate", Phase.MUTATING, await self._given(plan))
        return change

    async def _make(self, change: Change, title: str | None) -> LedgerRow:
        make = self._effects.make(change.tool, change.params, self._known().node, title)
        return await self._noting(make, change.tool)

    async def _emit(self, plan: HandlerPlan, mutation: LedgerRow | None) -> HandlerRunSettled:
        self.phase = Phase.EMITTING
        self.work = self.work._replace(mutation=mutation)
        change, value = _result(mutation), None
        if change.problem is not None:
            self._remarks.append(
                f"the change was applied, but its result is lost: {change.problem}"
            )
        if self._handler is not None and self._handler.node.has_next:
            value = await self._run("next", Phase.EMITTING, await self._given(plan), change)
        return await self._commit(plan, value, "next", None)

    async def _commit(
        self, plan: HandlerPlan, value: Any, what: str, next_run_at: int | None
    ) -> HandlerRunSettled:
        ctx = self._ctx
        if self.late is not None:
            raise self.late
        state = None
        if value is not None:
            state = self._environment.encode(value, f"the state that {what} returned")
        done = Commit(
            plan, state, ctx.events if ctx else (), ctx.inputs if ctx else (),
            next_run_at, self.notes(), self._not_taken(plan),
        )  # fmt: skip
        return await self._environment.journal.commit(self.claim, self.work, done)

    def _not_taken(self, plan: HandlerPlan) -> list[str]:
        """The topics with an event that was offered alone, if this run took nothing."""
        read = () if plan.count else self._events.values()
        pending = (one for one in read if one.status == "pending")
        return sorted({one.topic for one in pending if one.alone == Alone.YES})

    @property
    def seen(self) -> list[str]:
        """Pending events that `prepare` has read, if it did not come to its end."""
        read = self._events.values() if self.phase is Phase.PREPARING else ()
        return [one.id for one in read if one.status == "pending"]

    # -- user code -------------------------------------------------------------------------

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

    async def _find_tool(self, plan: HandlerPlan) -> Tool | None:
        """The tool behind an entry of the ledger: the code is asked for its change again. The
        ledger has the call and its arguments."""
        if self._handler is None or not self._handler.node.has_mutate:
            return None
        try:
            change = await self._change(plan)
        except Exception as error:
            self._remarks.append(f"mutate did not return its change again: {error}")
            return None
        row = self.work.mutation
        same = change is not None and row is not None and change.tool.name == row.tool
        return change.tool if change is not None and same else None

    # -- what the context asks of its host -------------------------------------------------

    async def peek(self, topic: str, limit: int) -> list[StoredEvent]:
        """Pending events of a topic."""
        return await self._environment.journal.peek(self._key, topic, limit)

    async def named(self, topic: str, ids: Sequence[str]) -> list[StoredEvent]:
        """Events by message id."""
        return await self._environment.database.read(events.named, self._key, topic, ids)

    async def read(self, tool: Tool, params: dict[str, Any]) -> Any:
        """Call a tool that changes nothing."""
        limit_s = self._environment.settings.tool_s
        return await self._noting(self._read(tool, params, limit_s), tool)

    async def _read(self, tool: Tool, params: dict[str, Any], limit_s: float) -> Any:
        try:
            with trace_spans.tool(tool.name, tool.safety):
                called = tool.call(params, Call(self.claim.id, limit_s))
                return await self._environment.within(called, limit_s)
        except _REFUSED as error:
            raise ReadFailed(f"{tool.name}: {error}", tool=tool.name) from error
        except _HOST_ERRORS:
            raise
        except Exception as error:
            raise ToolFault(f"{tool.name}: {type(error).__name__}: {error}") from error

    async def _noting(self, work: Awaitable[T], tool: Tool | None) -> T:
        """The return value; if it fails, remember the owner of the failure."""
        try:
            return await work
        except Exception as error:
            if tool is not None:
                self._failures.append((error, tool))
            raise

    def tool_of(self, error: Exception) -> Tool | None:
        """The tool that failed with this very error; None: the code raised it."""
        return next((tool for failed, tool in self._failures if failed is error), None)

    def policy(self, tool: Tool | None) -> EffectivePolicy:
        """The consequence of a failure of this run, or of a call of its tool."""
        levels = [] if tool is None else [tool.policy]
        levels += [] if self._handler is None else [self._handler.policy]
        settings = self._environment.settings
        pace = Pace(
            settings.failures_max, settings.backoff_s, settings.backoff_s_max,
            settings.retry_after_s_max,
        )  # fmt: skip
        found = effective([*levels, self._automation.policy], pace)
        producer = self.work.run.kind == "producer"  # it has no item that could be skipped
        return found._replace(skip_after=None) if producer else found

    @property
    def dead_letter(self) -> str | None:
        """The topic that receives what is skipped."""
        return None if self._handler is None else self._handler.node.dead_letter

    # -- what is kept ----------------------------------------------------------------------

    def notes(self) -> Notes:
        """Log lines and remarks so far."""
        logs = msgspec.json.encode(self._logs[-1000:]).decode() if self._logs else None
        remark = "; ".join(dict.fromkeys(self._remarks)) or self.work.run.remark
        return Notes(logs, remark)

    @property
    def logs(self) -> tuple[str, ...]:
        """The log lines so far."""
        return tuple(self._logs)

    def remark(self, text: str) -> None:
        """Note something for people."""
        self._remarks.append(text)

    async def close(self) -> None:
        """Let go of a call that outlived its run: the ledger knows of it."""
        if self._effect is not None and not self._effect.done():
            self._effect.cancel()
            await asyncio.wait([self._effect], timeout=1)

    def _state(self) -> Any:
        text = self.work.run.state_before
        return None if text is None else msgspec.json.decode(text)

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

    def _stored_plan(self) -> HandlerPlan:
        text = self.work.run.prepared
        return HandlerPlan() if text is None else _PLAN.decode(text)


def _result(mutation: LedgerRow | None) -> MutationResult:
    if mutation is None:
        return MutationResult("none")
    if mutation.status == Mutation.SKIPPED:
        return MutationResult("skipped")
    if mutation.result is None:
        problem = read_error(mutation.error)["message"] if mutation.error else None
        return MutationResult("applied", problem=problem)
    return MutationResult("applied", msgspec.json.decode(mutation.result))
