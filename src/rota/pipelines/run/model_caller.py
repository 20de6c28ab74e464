"""Asks: one call with all that may go wrong around it. Every AI call of a run goes through here.

Tries again by the class of the failure, never what was rejected. Waits where a provider or our own
limits ask for it; that does not count as an attempt. Asks once more when a reply cannot be read,
stops before a budget is passed, and counts its cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import msgspec

from rota.ai.base import Estimate, Invoker, Reply, Request, announced, announces
from rota.ai.budget import Budget, bounded, may_be_billed, usage_of
from rota.core.time.instants import SECOND
from rota.engine.clock import Clock
from rota.engine.journal import PASSING
from rota.errors import BadReply, LeaseLost, Transient
from rota.pipelines.definition.fields import re_ask
from rota.pipelines.definition.sections import PipelineBudget
from rota.pipelines.run.attempts import Attempts
from rota.pipelines.run.call_ledger import CallLedger, CallTotals
from rota.pipelines.run.prompt_builder import ModelPrompt
from rota.pipelines.run.run_store import ItemRecord

if TYPE_CHECKING:
    from rota.pipelines.run.provider_watch import ProviderWatch

T = TypeVar("T")

# Errors of our own database: never the fault of an item, and over when it is back.
LOST = (LeaseLost, *PASSING)


class Usage:
    """The cost of the calls about one thing; even when they came to nothing."""

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
        known = usage_of(error)
        if known is not None:
            raw, model = self.raw, self.model
            self.add(known)
            self.raw, self.model = raw, known.model or model
        else:
            self.calls += may_be_billed(error)

    def record(self, share: int = 1, *, first: bool = True, **more: object) -> ItemRecord:
        """The stored usage; a `share` of several items splits the tokens, the first has the
        rest."""
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
        self,
        ai: Invoker,
        clock: Clock,
        ledger: CallLedger,
        budget: PipelineBudget | None = None,
        watch: ProviderWatch | None = None,
    ) -> None:
        self._ai, self._clock, self._ledger, self._watch = ai, clock, ledger, watch
        self._given_up: set[object] = set()  # providers that were waited for in vain
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
        """The part of the result about the calls."""
        excess = self._budget.excess.tokens if self._budget.bounds_answers else 0
        if not excess:
            return []
        return [f"an answer took {excess} tokens more than its bound: its provider ignores it"]

    async def ask(self, question: ModelPrompt, usage: Usage, read: Callable[[str], T]) -> T:
        """The value that `read` makes of the reply. A reply that it refuses is asked for once more.

        The cost of the calls is durable when this raises, whatever the caller does next.
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
        tries = Attempts(question)
        while True:
            began = asyncio.get_running_loop().time()
            request = self._bounded(tries.request(prompt))
            estimate = self._ai.estimate(request)
            try:
                reply = await self._once(request, estimate)
            except LOST:
                raise
            except Exception as error:
                usage.failed(error)
                took_s = asyncio.get_running_loop().time() - began
                wait_s = self._after(error, tries, took_s)
                if self._watch is not None:
                    await self._watch.waits(error, wait_s)
            else:
                usage.add(reply)
                self._given_up.clear()
                if self._watch is not None:
                    await self._watch.answered()
                again_s = tries.unusable(reply, request, is_bounded=estimate.is_bounded)
                if again_s is None:
                    return reply.text
                wait_s = again_s
            await self._pause(wait_s)

    def _after(self, error: Exception, tries: Attempts, took_s: float) -> float:
        """Seconds until the next try. A provider that stays away is not waited for again."""
        is_down = isinstance(error, Transient) and error.facts.get("why") == "broken"
        provider = error.facts.get("provider") if isinstance(error, Transient) else None
        if is_down and provider in self._given_up:
            raise error
        try:
            return tries.refused(error, took_s)
        except Transient:
            if is_down:
                self._given_up.add(provider)
            raise

    def _bounded(self, request: Request) -> Request:
        return bounded(self._ai, request) if self._budget.bounds_answers else request

    async def _once(self, request: Request, estimate: Estimate) -> Reply:
        async with (
            self._budget.spending(estimate) as hold,
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
