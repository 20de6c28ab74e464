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
    MutationResult,
)
from rota.automations.definition import Automation, Handler
from rota.automations.effects import Effects
from rota.automations.environment import AutomationEnvironment
from rota.automations.handler_code import HandlerCode
from rota.core.automations.failure_policy import EffectivePolicy, Pace, effective
from rota.core.automations.model import Alone, HandlerPlan, LedgerRow, StoredEvent
from rota.core.automations.phases import Mutation, Phase, Way
from rota.core.runs.model import Claim
from rota.core.runs.stored_errors import read_error
from rota.core.time.occurrences import next_after
from rota.core.time.spec import Spec
from rota.engine.journal import insist
from rota.errors import (
    Transient,
)
from rota.store.automations import events
from rota.store.automations.events import AutomationKey, EventChanged
from rota.store.automations.handler_runs import checkpoint
from rota.store.automations.handler_runs.begin import HandlerRunSettled, Notes, Work
from rota.store.automations.handler_runs.commit import Commit
from rota.store.backend.database import BRIEF
from rota.tools.base import Change, Tool

T = TypeVar("T")
_PLAN = msgspec.json.Decoder(HandlerPlan)
_SPEC = msgspec.json.Decoder(Spec)
# How often `prepare` runs when its events are published again before they are reserved.
PREPARES_MAX = 10
log = logging.getLogger("rota.automations")


class HandlerRunner(HandlerCode):
    """One handler run. `phase` is how far it has got, so that its failure can be recorded."""

    def __init__(
        self,
        environment: AutomationEnvironment,
        claim: Claim,
        work: Work,
        automation: Automation,
        handler: Handler | None,
    ) -> None:
        super().__init__(environment, automation, handler)
        self.claim = claim
        self.work = work
        self._key = AutomationKey(claim.namespace, automation.name)
        self._effects = Effects(environment, claim, self.policy)
        self._effect: asyncio.Task[LedgerRow] | None = None
        self._failures: list[tuple[Exception, Tool]] = []
        self._logs = list(msgspec.json.decode(work.run.logs or "[]"))
        self.phase = Phase(work.run.phase)

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
            plan = await self._prepared(self._state())
            try:
                await self._reserve(plan)
                return plan
            except EventChanged as changed:
                log.info("%s prepares again: %s", self.work.run.handler, changed)
        raise Transient(f"events change faster than {self.work.run.handler} can prepare")

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
        return await self._noting(self._read(tool, params, self.claim.id), tool)

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
