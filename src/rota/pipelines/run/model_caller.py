"""Asks: one call with all that may go wrong around it. Every AI call of a run goes through here.

Tries again by the class of the failure, never what was rejected; waits where a provider or our own
limits ask for it, which is no attempt; asks once more when a reply cannot be read; stops before a
budget is passed; and counts what it took.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar

import msgspec

from rota.ai.base import Invoker, Reply, announced, announces
from rota.ai.budget import Budget, bounded, may_be_billed, usage_of
from rota.core.runs.failures import Kind, kind_of, names_of
from rota.core.runs.retry import next_try_us
from rota.core.time.instants import SECOND
from rota.engine.clock import Clock
from rota.engine.journal import PASSING
from rota.errors import (
    BadReply,
    BadSetting,
    BudgetSpent,
    LeaseLost,
    MissingExtra,
    NeedsLogin,
    NeedsPermission,
    Transient,
)
from rota.pipelines.definition.fields import re_ask
from rota.pipelines.definition.sections import PipelineBudget
from rota.pipelines.run.call_ledger import CallLedger, CallTotals
from rota.pipelines.run.prompt_builder import ModelPrompt
from rota.pipelines.run.run_store import ItemRecord

T = TypeVar("T")

# What concerns every item alike: the run stops, and what is done is kept.
STOPPING = (NeedsLogin, NeedsPermission, BudgetSpent, BadSetting, MissingExtra)
# What is about our own database: never the fault of an item, and over when it is back.
LOST = (LeaseLost, *PASSING)
RETRIED = frozenset({Kind.TRANSIENT, Kind.TIMEOUT})
PATIENCE_S = 1800.0  # for a provider that is broken or throttles, before it counts as a failure
WAIT_S_MIN = 0.1


class Usage:
    """What the calls about one thing took; also when they came to nothing."""

    def __init__(self) -> None:
        self.calls = self.tokens_in = self.tokens_out = self.unpriced = 0
        self.cost_usd: float | None = None
        self.raw: str | None = None  # the last reply
        self.model: str | None = None
        self._began = asyncio.get_running_loop().time()

    def add(self, reply: Reply) -> None:
        """One more answer."""
        self.calls += 1
        self.tokens_in += reply.tokens_in
        self.tokens_out += reply.tokens_out
        self.raw, self.model = reply.text, reply.model
        if reply.cost_usd is None:
            self.unpriced += 1
        else:
            self.cost_usd = (self.cost_usd or 0.0) + reply.cost_usd

    def failed(self, error: Exception) -> None:
        """A call without an answer; one that cannot be on the bill is not counted."""
        told = usage_of(error)
        if told is not None:
            raw, model = self.raw, self.model
            self.add(told)
            self.raw, self.model = raw, told.model or model
        else:
            self.calls += may_be_billed(error)

    def record(self, share: int = 1, *, first: bool = True, **more: object) -> ItemRecord:
        """What is kept; a `share` of several items splits the tokens, the first has the rest."""
        ms = round((asyncio.get_running_loop().time() - self._began) * 1000)
        cost = None if self.cost_usd is None else self.cost_usd / share
        return ItemRecord(
            model=self.model, calls=self.calls if first else 0,
            tokens_in=_part(self.tokens_in, share, first=first),
            tokens_out=_part(self.tokens_out, share, first=first),
            cost_usd=cost, unpriced=self.unpriced if first else 0, ms=ms,
            **more,  # type: ignore[arg-type]
        )  # fmt: skip


def _part(whole: int, share: int, *, first: bool) -> int:
    return whole // share + (whole % share if first else 0)


class ModelCaller:
    """Asks for one run, within its budget. Every call is in the ledger before it is sent."""

    def __init__(
        self, ai: Invoker, clock: Clock, ledger: CallLedger, budget: PipelineBudget | None = None
    ) -> None:
        self._ai, self._clock, self._ledger = ai, clock, ledger
        limits = budget or PipelineBudget()
        self._budget = Budget(limits.max_cost, limits.max_tokens, limits.max_calls)

    @property
    def is_limited(self) -> bool:
        """Whether a budget has to be kept."""
        return self._budget.is_limited

    def spent(self, earlier: CallTotals) -> None:
        """Count what earlier attempts of the run have taken."""
        self._budget.spent = earlier.spent

    @property
    def warnings(self) -> list[str]:
        """What the result tells about the calls."""
        excess = self._budget.excess.tokens if self._budget.bounds_answers else 0
        if not excess:
            return []
        return [f"an answer took {excess} tokens more than its bound: its provider ignores it"]

    async def ask(self, question: ModelPrompt, usage: Usage, read: Callable[[str], T]) -> T:
        """What `read` makes of the reply. A reply that it refuses is asked for once more.

        What the calls took is durable when this raises, whatever the caller does next.
        """
        try:
            return await self._ask(question, usage, read)
        except LOST:
            raise
        except Exception:
            await self._ledger.flush()
            raise

    async def _ask(self, question: ModelPrompt, usage: Usage, read: Callable[[str], T]) -> T:
        text = await self._answer(question, usage, question.prompt)
        try:
            return read(text)
        except BadReply as problem:
            if question.batch is not None:
                raise  # a batch is split instead
            again = re_ask(question.prompt, text, problem.message)
        return read(await self._answer(question, usage, again))

    async def _answer(self, question: ModelPrompt, usage: Usage, prompt: str) -> str:
        attempt, waited_s, timeout_s = 0, 0.0, question.timeout_s
        while True:
            began = asyncio.get_running_loop().time()
            try:
                reply = await self._once(question, prompt, timeout_s)
            except (*LOST, *STOPPING):
                raise
            except Exception as error:
                usage.failed(error)
                wait_s = waiting_s(error)
                if wait_s is not None and waited_s < PATIENCE_S:
                    waited_s += wait_s
                else:
                    attempt += 1
                    wait_s = _retry_s(question, error, attempt)
                    if asyncio.get_running_loop().time() - began >= timeout_s:
                        timeout_s = 2 * question.timeout_s  # it may only have needed more time
                await self._pause(min(wait_s, PATIENCE_S))
                continue
            usage.add(reply)
            return reply.text

    async def _once(self, question: ModelPrompt, prompt: str, timeout_s: float) -> Reply:
        request = question.request(prompt, timeout_s)
        if self._budget.bounds_answers:
            request = bounded(self._ai, request)
        async with (
            self._budget.spending(self._ai.estimate(request)) as hold,
            self._ledger.call(hold.amount) as slot,
        ):
            request = msgspec.structs.replace(request, begin=slot.begin)
            if not announces(self._ai):
                request = await announced(request)
            reply = await self._ai.ask(request)
            hold.paid(reply)
            slot.answered(reply)
        return reply

    async def _pause(self, wait_s: float) -> None:
        await self._clock.wait(asyncio.Event(), self._clock.now() + round(wait_s * SECOND))


def waiting_s(error: Exception) -> float | None:
    """How long to wait when nothing failed: a limit of ours, or a provider that throttles."""
    if not isinstance(error, Transient):
        return None
    if error.facts.get("why") or error.facts.get("throttled"):
        return max(error.retry_after_s or 1.0, WAIT_S_MIN)
    return None


def _retry_s(question: ModelPrompt, error: Exception, attempt: int) -> float:
    """Seconds until the next try; raises the error when there is none."""
    if kind_of(error) in RETRIED:
        wait_us = next_try_us(
            question.retry, attempt=attempt, error_names=names_of(error),
            retry_after_s=getattr(error, "retry_after_s", None), chance=random.random(),
        )  # fmt: skip
        if wait_us is not None:
            return wait_us / SECOND
    raise error
