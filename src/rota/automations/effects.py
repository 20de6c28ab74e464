"""The one side effect of a consumer run: written to the ledger before the call, settled after it.

An unknown outcome is never guessed and never blindly repeated. An idempotent tool is called again
with the same key for as long as it takes. A reconcilable tool is asked whether the effect happened.
For any other tool, a person is asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from rota import faults
from rota.automations.environment import AutomationEnvironment, HandlerSuspended, NotHappened
from rota.core import trace_spans
from rota.core.automations.failure_policy import EffectivePolicy, tries_within
from rota.core.automations.graph import HandlerNode
from rota.core.automations.model import RECONCILIATION, LedgerRow
from rota.core.automations.phases import Mutation
from rota.core.process_metrics import MUTATIONS
from rota.core.runs.failures import describe, is_outage, kind_of
from rota.core.runs.model import Claim
from rota.core.runs.retry import next_try_us
from rota.core.time.instants import SECOND, after, micros, moment
from rota.engine.invoke import contained
from rota.errors import NeedsLogin, NeedsPermission, NotSent, Rejected, RotaError, UsageError
from rota.store.automations.effects import Wanted
from rota.store.automations.handler_runs import checkpoint
from rota.tools.base import Applied, Call, NotApplied, Safety, Tool, Unknown, Verdict

log = logging.getLogger("rota.automations")

OVERRUN_S = 5.0  # a tool that exceeds its time limit by more is cancelled
# Errors of a tool that say that its effect certainly did not happen.
DEFINITE = (UsageError, NotSent, Rejected, NeedsLogin, NeedsPermission)
# The ones that only a person can change.
REFUSALS = (UsageError, Rejected, NeedsLogin, NeedsPermission)


class Effects:
    """Makes, records and looks up the side effect of one claimed run."""

    def __init__(
        self,
        environment: AutomationEnvironment,
        claim: Claim,
        policy: Callable[[Tool | None], EffectivePolicy],
    ) -> None:
        self._environment = environment
        self._claim = claim
        self._policy = policy

    async def make(
        self, tool: Tool, params: dict[str, Any], handler: HandlerNode, title: str | None
    ) -> LedgerRow:
        """Call the tool once. Returns the applied entry; raises the error of the tool if the effect
        certainly did not happen, or HandlerSuspended if it must be approved or looked up first."""
        text = await checked_params(self._environment, tool, params)
        wanted = Wanted(self._claim.name, handler.name, tool.name, tool.safety, text, title)
        row = await self._environment.write(
            checkpoint.call_begins, self._claim, wanted, approval=handler.approval, now=self._now()
        )
        if row.status == Mutation.PROPOSED:
            raise HandlerSuspended("approval", f"{tool.name} waits for approval")
        faults.reach("before-call")
        try:
            result = await self._call(tool, row)
        except DEFINITE as error:
            await self._ended(row, Mutation.FAILED, error=describe(error))
            raise
        except Exception as error:
            faults.reach("after-call")
            return await self._unknown(tool, row, error)
        faults.reach("after-call")
        return await self._applied(row, result, "tool")

    async def _call(self, tool: Tool, row: LedgerRow) -> Any:
        limit_s = self._environment.settings.tool_s
        params: dict[str, Any] = msgspec.json.decode(row.params)
        # The tool keeps the time itself; this is for one that does not.
        with trace_spans.tool(tool.name, tool.safety, row.id) as span:
            called = tool.call(params, Call(row.id, limit_s))
            result = await self._environment.within(called, limit_s + OVERRUN_S)
            span.note({"rota.mutation.outcome": Mutation.APPLIED})
            return result

    async def _unknown(self, tool: Tool, row: LedgerRow, error: Exception) -> LedgerRow:
        log.warning("%s of %s: the outcome is unknown: %s", tool.name, self._claim.name, error)
        row = await self._ended(row, Mutation.NEEDS_RECONCILE, error=describe(error))
        asked_s = self._policy(tool).obeyed_s(getattr(error, "retry_after_s", None))
        if asked_s and tool.safety is not Safety.UNKNOWABLE:
            settle_s = tool.settle_s if tool.safety is Safety.RECONCILABLE else 0.0
            wake_at = after(self._now(), micros(max(asked_s, settle_s)))
            why = f"{tool.name} asked to wait {asked_s:g} s: {error}"
            raise HandlerSuspended(RECONCILIATION, why, wake_at=wake_at)
        return await self.reconcile(tool, row)

    async def reconcile(self, tool: Tool | None, row: LedgerRow) -> LedgerRow:
        """Find out whether the effect happened. Returns the applied entry, or raises NotHappened or
        HandlerSuspended: until the next `reconcile`, or for a person."""
        if tool is None or tool.safety is Safety.UNKNOWABLE or row.status == Mutation.INDETERMINATE:
            why = "only an operator can find out whether it happened"
            return await self._ask(
                row, f"{row.tool}: {why}" if tool else f"{row.tool} is gone: {why}"
            )
        if row.status == Mutation.IN_FLIGHT:
            row = await self._ended(row, Mutation.NEEDS_RECONCILE, error=_cause(row))
        if tool.safety is Safety.IDEMPOTENT:
            return await self._call_again(tool, row)
        self._wait_until_settled(tool, row)
        match await self._verdict(tool, row):
            case Applied(result):
                return await self._applied(row, result, "reconcile")
            case NotApplied(why):
                await self._ended(row, Mutation.FAILED, error=_stored_reason(why), by="reconcile")
                raise NotHappened(f"{tool.name} did not happen: {why}")
            case Unknown(why, retry_after_s, unreachable):
                if unreachable:
                    raise self._look_again(tool, row, why, retry_after_s)
                return await self._later(tool, row, why, retry_after_s, asks=True)

    async def _call_again(self, tool: Tool, row: LedgerRow) -> LedgerRow:
        """Call an idempotent tool with the same key. Even a definite refusal of this call says
        nothing about the one before it; only those that would not pass by themselves end with a
        person."""
        try:
            result = await self._call(tool, row)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            asked_s = getattr(error, "retry_after_s", None)
            return await self._later(tool, row, why, asked_s, asks=isinstance(error, REFUSALS))
        return await self._applied(row, result, "reconcile")

    def _wait_until_settled(self, tool: Tool, row: LedgerRow) -> None:
        """Pause before the first `reconcile`: a slow counterpart may still be at work. The time
        counts from when the doubt was recorded; the call was over by then, or its worker had lost
        it.
        """
        settled_at = after(row.updated_at, micros(tool.settle_s))
        first = row.reconcile_count == 0 and tool.safety is Safety.RECONCILABLE
        if first and settled_at > self._now():
            why = f"Rota reconciles {tool.name} after settle_s"
            raise HandlerSuspended(RECONCILIATION, why, wake_at=settled_at)

    async def _verdict(self, tool: Tool, row: LedgerRow) -> Verdict:
        limit_s = self._environment.settings.reconcile_s
        params: dict[str, Any] = msgspec.json.decode(row.params)
        try:
            asked = tool.reconcile(params, Call(row.id, limit_s))
            return await self._environment.within(asked, limit_s)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            return Unknown(why, unreachable=is_outage(error, kind_of(error)))

    async def _later(
        self, tool: Tool, row: LedgerRow, why: str, retry_after_s: float | None, *, asks: bool
    ) -> LedgerRow:
        """Look again after a growing pause; `asks`: after `reconcile_max` looks, ask a person. A
        retry policy gives the pauses, and no limit: only the tool can tell what happened."""
        count = row.reconcile_count + 1
        if asks and count >= self._environment.settings.reconcile_max:
            said = f"{row.tool} found no outcome in {count} reconcile calls: {why}"
            return await self._ask(row, said)
        await self._ended(row, Mutation.NEEDS_RECONCILE, error=_cause(row), count=count)
        raise self._pause(tool, f"{row.tool}: {why}", count, retry_after_s)

    def _look_again(
        self, tool: Tool, row: LedgerRow, why: str, retry_after_s: float | None
    ) -> HandlerSuspended:
        """Look again while the counterpart does not answer. Such a `reconcile` says nothing, so it
        does not count; the pauses grow with the time since the call.
        """
        since = moment(row.created_at).strftime("%Y-%m-%d %H:%M:%S")
        number = tries_within(self._policy(tool).outage, self._now() - row.created_at)
        why = f"{row.tool}: waiting for {tool.label} since {since} UTC: {why}"
        return self._pause(tool, why, number, retry_after_s)

    def _pause(
        self, tool: Tool, why: str, number: int, retry_after_s: float | None
    ) -> HandlerSuspended:
        found = self._policy(tool)
        policy = replace(found.outage, attempts=number + 1)
        asked_s = found.obeyed_s(retry_after_s)
        pause_us = next_try_us(
            policy, attempt=number, error_names=(), retry_after_s=asked_s, chance=0
        )
        assert pause_us is not None, "the policy has one attempt more than there were"
        why = f"{why}; next check in {pause_us / SECOND:g} s"
        return HandlerSuspended(RECONCILIATION, why, wake_at=after(self._now(), pause_us))

    async def _ask(self, row: LedgerRow, why: str) -> LedgerRow:
        if row.status != Mutation.INDETERMINATE:
            await self._ended(row, Mutation.INDETERMINATE, error=_cause(row))
        raise HandlerSuspended(RECONCILIATION, why)

    async def _applied(self, row: LedgerRow, result: Any, by: str) -> LedgerRow:
        """Record that the effect happened, even if its result cannot be stored."""
        text, error = None, None
        try:
            text = self._environment.encode(result, f"the result of {row.tool}")
        except RotaError as problem:
            error = describe(problem)
        return await self._ended(row, Mutation.APPLIED, result=text, error=error, by=by)

    async def _ended(
        self,
        row: LedgerRow,
        status: Mutation,
        *,
        result: str | None = None,
        error: str | None = None,
        by: str = "tool",
        count: int | None = None,
    ) -> LedgerRow:
        after = row.moved(
            status, now=self._now(), result=result, error=error, resolved_by=by,
            reconcile_count=count,
        )  # fmt: skip
        await self._environment.write(checkpoint.call_ended, self._claim, row, after)
        MUTATIONS.add(self._claim.namespace, row.tool, status)
        return after

    def _now(self) -> int:
        return self._environment.clock.now()


async def checked_params(
    environment: AutomationEnvironment, tool: Tool, params: dict[str, Any]
) -> str:
    """The parameters as the ledger stores them; raises the error of a malformed call."""
    await contained(_checked(tool, params))
    return environment.encode(params, f"parameters of {tool.name}")


async def _checked(tool: Tool, params: dict[str, Any]) -> None:
    """A malformed call is not an effect, and leaves no trace in the ledger."""
    tool.check(params)


def _cause(row: LedgerRow) -> str:
    """The reason of an unknown outcome: the tool's error, not that of a later look at it. The run
    reports the latter each time.
    """
    return row.error or _stored_reason("its worker stopped during the call")


def _stored_reason(why: str) -> str:
    fields = {"type": "Unknown", "message": why, "kind": "reconciliation", "trace": ""}
    return msgspec.json.encode(fields).decode()
