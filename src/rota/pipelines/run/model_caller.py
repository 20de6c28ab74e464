"""One call of a model, with its retries and its cost. Every AI call of a run goes through here.

The class of a failure decides about a retry; a rejected call is never retried. A wait for a
provider, or for our own limits, does not count as an attempt. A reply that cannot be read is asked
for once more. No call is made that could pass the budget.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec

from rota.ai.base import (
    Estimate,
    Invoker,
    Reply,
    Request,
    announced,
    announces,
    request_id_of,
)
from rota.ai.budget import Budget, Budgets, usage_of
from rota.ai.finish import Finish
from rota.core.runs.retry import RetryPolicy
from rota.core.time.instants import SECOND
from rota.engine.clock import Clock
from rota.engine.journal import PASSING
from rota.engine.outcome import passes, policy_delay_us
from rota.errors import (
    BadReply,
    BadSetting,
    BudgetSpent,
    EmptyReply,
    LeaseLost,
    MissingExtra,
    NeedsLogin,
    NeedsPermission,
    Rejected,
    Transient,
    TruncatedReply,
    UnfinishedReply,
)
from rota.pipelines.definition.fields import re_ask
from rota.pipelines.definition.sections import Retry
from rota.pipelines.run.call_ledger import CallLedger, CallTotals, Slot, of_error, of_reply
from rota.pipelines.run.prompt_builder import ModelPrompt
from rota.pipelines.run.run_store import ItemRecord
from rota.store.pipelines.steps import PROVIDER_WAIT, ProviderWait

if TYPE_CHECKING:
    from rota.pipelines.run.context import ProgressReporter
    from rota.pipelines.run.run_store import RunStore

log = logging.getLogger("rota.pipelines")
T = TypeVar("T")

# Errors of our own database: never the fault of an item, and over when it is back.
LOST = (LeaseLost, *PASSING)
# Failures that concern every item: the run stops, and what is done is kept.
STOPPING = (NeedsLogin, NeedsPermission, BudgetSpent, BadSetting, MissingExtra)
WAIT_S_MIN = 0.1
RETRY_DELAY_S_MAX = 60.0
JITTER = 0.2
# For a provider that throttles without saying how long.
THROTTLED = RetryPolicy(attempts=1_000_000, delay_s=1.0, delay_s_max=60.0, jitter=0.5)
REPORTED_AFTER_US = SECOND  # a shorter wait is not reported
WRITTEN_EVERY_US = 5 * SECOND


class Usage:
    """The usage of the calls about one item or one batch, failed calls included."""

    def __init__(self) -> None:
        self.totals = CallTotals()
        self.raw: str | None = None  # the last reply
        self.model: str | None = None  # provider:model of the last answer
        self.requests: list[str] = []  # the names that the provider gave to the calls
        self.owed: list[Slot] = []  # calls that are written together with the result
        self._began = asyncio.get_running_loop().time()

    def add(self, reply: Reply, provider: str) -> None:
        """One more answer."""
        self.totals += of_reply(reply)
        self.raw, self.model = reply.text, f"{provider}:{reply.model}"
        self._name(reply.request_id)

    def failed(self, error: Exception, provider: str) -> None:
        """One more call without an answer; it is counted if it may be on the bill."""
        self.totals += of_error(error)
        known = usage_of(error)
        if known is not None and known.model:
            self.model = f"{provider}:{known.model}"
        self._name(request_id_of(error))

    def _name(self, request_id: str | None) -> None:
        if request_id is not None:
            self.requests.append(request_id)

    def record(self, share: int = 1, *, first: bool = True, raw: str | None = None) -> ItemRecord:
        """The stored usage of one of `share` items: tokens are split, and the first item has the
        remainder and the calls."""
        totals = self.totals
        unknown = totals.unanswered + totals.estimated + totals.unpriced
        has_price = bool(totals.cost_usd) or totals.calls > unknown
        return ItemRecord(
            raw=raw, model=self.model, calls=totals.calls if first else 0,
            tokens_in=_part(totals.tokens_in, share, first=first),
            tokens_out=_part(totals.tokens_out, share, first=first),
            cost_usd=totals.cost_usd / share if has_price else None,
            unpriced=totals.unpriced if first else 0, requests=self.requests if first else [],
            ms=round((asyncio.get_running_loop().time() - self._began) * 1000),
        )  # fmt: skip


def _part(whole: int, share: int, *, first: bool) -> int:
    return whole // share + (whole % share if first else 0)


class ModelCaller:
    """Calls models for one run, within its budget. The ledger has a call before it is sent."""

    def __init__(
        self,
        ai: Invoker,
        clock: Clock,
        ledger: CallLedger,
        budgets: Sequence[Budget] = (),
        watch: ProviderWatch | None = None,
    ) -> None:
        self._ai, self._clock, self._ledger, self._watch = ai, clock, ledger, watch
        self._given_up: set[object] = set()  # providers that were waited for in vain
        self._budgets = Budgets(budgets)

    @property
    def warnings(self) -> list[str]:
        """The warnings about calls for the result of the run."""
        excess = self._budgets.excess_tokens
        if not excess:
            return []
        return [f"an answer took {excess} tokens more than its bound: its provider ignores it"]

    async def ask(self, question: ModelPrompt, usage: Usage, read: Callable[[str], T]) -> T:
        """The value that `read` makes of the reply. A reply that it refuses is asked for once more.

        The caller writes the calls that `usage` owes in the commit of the value. Their cost is
        durable when this raises, whatever the caller does next.
        """
        try:
            return await self._ask(question, usage, read)
        except LOST:
            raise
        except (Exception, asyncio.CancelledError):
            await self._ledger.write(usage.owed)
            raise

    async def _ask(self, question: ModelPrompt, usage: Usage, read: Callable[[str], T]) -> T:
        text = await self._answer(question, usage, question.prompt)
        try:
            return read(text)
        except BadReply as problem:
            if question.batch is not None:
                raise  # a batch is split instead
            again = re_ask(question.prompt, text, problem.message)
        await self._ledger.write(usage.owed)  # this reply has no result to be written with
        return read(await self._answer(question, usage, again))

    async def _answer(self, question: ModelPrompt, usage: Usage, prompt: str) -> str:
        tries = Attempts(question)
        while True:
            began = asyncio.get_running_loop().time()
            request = self._budgets.bounded(self._ai, tries.request(prompt))
            estimate = self._ai.estimate(request)
            try:
                reply = await self._once(request, estimate, usage)
            except LOST:
                raise
            except Exception as error:
                usage.failed(error, question.route.provider)
                took_s = asyncio.get_running_loop().time() - began
                wait_s = self._after(error, tries, took_s)
                if self._watch is not None:
                    await self._watch.waits(error, wait_s)
            else:
                usage.add(reply, question.route.provider)
                self._given_up.clear()
                if self._watch is not None:
                    await self._watch.answered()
                again_s = tries.unusable(reply, request, is_bounded=estimate.is_bounded)
                if again_s is None:
                    return reply.text
                wait_s = again_s
            await self._ledger.write(usage.owed)  # this try has no result to be written with
            until = self._clock.now() + round(wait_s * SECOND)
            await self._clock.wait(asyncio.Event(), until)

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

    async def _once(self, request: Request, estimate: Estimate, usage: Usage) -> Reply:
        async with (
            self._budgets.spending(estimate) as hold,
            self._ledger.call(hold.amount, estimate.model, usage.owed) as slot,
        ):
            request = msgspec.structs.replace(request, begin=slot.begin)
            if not announces(self._ai):
                request = await announced(request)
            reply = await self._ai.ask(request)
            hold.paid(reply)
            slot.answered(reply)
        return reply


class Attempts:
    """The attempts of one question, and what follows from a failure or an unusable reply.

    A failed call is an attempt, and `maxRetries` bounds them. An open breaker is waited for, as
    many times as there are retries. A provider that throttles, and limits of ours, are waited for
    and cost no attempt. No wait, and no sum of waits for a provider, is longer than `maxWaitMs`.
    """

    def __init__(self, question: ModelPrompt) -> None:
        self._question, self._policy = question, policy_of(question.retry)
        self._wait_s_max = question.retry.max_wait_ms / 1000
        self._attempt = self._throttled = self._shut_out = 0
        self._waited_s = 0.0
        self._timeout_s = question.timeout_s
        self._tokens_max = question.options.max_tokens
        self._cut: TruncatedReply | None = None

    def request(self, prompt: str) -> Request:
        """The next try."""
        request = self._question.request(prompt, self._timeout_s)
        return msgspec.structs.replace(request, max_tokens=self._tokens_max)

    def refused(self, error: Exception, took_s: float) -> float:
        """Seconds until the next try after an error; raises it when there is none."""
        if self._cut is not None and isinstance(error, BudgetSpent | Rejected):
            raise self._cut from error  # no higher limit is allowed
        if isinstance(error, STOPPING):
            raise error
        if took_s >= self._timeout_s:
            self._timeout_s = 2 * self._question.timeout_s  # it may only have needed more time
        facts = error.facts if isinstance(error, Transient) else {}
        why = facts.get("why")
        if isinstance(error, Transient) and why in ("rate", "probed"):
            return min(max(error.retry_after_s or 0.0, WAIT_S_MIN), self._wait_s_max)
        if facts.get("throttled") or why == "asked":
            self._throttled += 1
            wait_s = self._next_s(THROTTLED, self._throttled, error)
        elif why == "broken":
            self._shut_out += 1
            wait_s = self._next_s(self._policy, self._shut_out, error)
        elif passes(error):
            self._attempt += 1
            wait_s = self._next_s(self._policy, self._attempt, error)
        else:
            raise error
        self._waited_s += wait_s
        if self._waited_s > self._wait_s_max:
            raise error
        return wait_s

    def _next_s(self, policy: RetryPolicy, attempt: int, error: Exception) -> float:
        wait_us = policy_delay_us(error, policy, attempt=attempt)
        if wait_us is None:
            raise error
        return wait_us / SECOND

    def unusable(self, reply: Reply, request: Request, *, is_bounded: bool) -> float | None:
        """None for an answer; otherwise seconds until the next try, or the failure."""
        if reply.finish == Finish.LENGTH:
            return self._more_tokens(reply, request, is_bounded=is_bounded)
        if reply.finish == Finish.WHOLE and reply.text.strip():
            return None
        error = _no_answer(reply)
        if reply.finish not in (Finish.WHOLE, Finish.INTERRUPTED):
            raise error
        self._attempt += 1
        return self._next_s(self._policy, self._attempt, error)

    def _more_tokens(self, reply: Reply, request: Request, *, is_bounded: bool) -> float:
        bound = max(request.max_tokens or 0, reply.tokens_out)
        self._cut = TruncatedReply(f"the reply of {reply.model} was cut off after {bound} tokens")
        self._attempt += 1
        tokens_max = int(bound * self._question.retry.max_tokens_factor)
        # Without a bound of ours it was the model's own: there is not more room.
        if not is_bounded or tokens_max <= bound or self._attempt >= self._policy.attempts:
            raise self._cut
        self._tokens_max = tokens_max
        return 0.0


def _no_answer(reply: Reply) -> EmptyReply | UnfinishedReply:
    """The failure of a reply without an answer that was not cut off."""
    word = reply.finish_word or reply.finish
    if reply.finish == Finish.WHOLE:
        return EmptyReply(f"{reply.model} replied with nothing ({word})")
    if reply.finish == Finish.INTERRUPTED:
        return UnfinishedReply(f"{reply.model} was interrupted in its reply ({word})")
    if reply.finish == Finish.TOOLS:
        return UnfinishedReply(
            f"{reply.model} asked for a tool instead of answering ({word})",
            hint="Remove `tools` from `body`, or tell the model in the prompt to answer itself.",
        )
    shown = f"for the reason {reply.finish_word!r}" if reply.finish_word else "without a reason"
    return UnfinishedReply(
        f"{reply.model} stopped {shown}, which Rota does not know as the end of an answer",
        hint="If the reply is complete, write `finish_words: {"
        f"{json.dumps(reply.finish_word)}: stop}}` under the provider in the AI settings.",
    )


def policy_of(retry: Retry) -> RetryPolicy:
    """How a failed call is tried again."""
    delay_s = retry.retry_delay_ms / 1000
    return RetryPolicy(
        attempts=1 + retry.max_retries, delay_s=delay_s,
        delay_s_max=max(delay_s, RETRY_DELAY_S_MAX), jitter=JITTER,
    )  # fmt: skip


class ProviderWatch:
    """Whether the calls of one run wait for a provider, and since when."""

    def __init__(self, store: RunStore, progress: ProgressReporter) -> None:
        self._store, self._progress = store, progress
        self._since: int | None = None
        self._written_at: int | None = None

    async def waits(self, error: Exception, wait_s: float) -> None:
        """A call failed, or was not let through, and is tried again later."""
        now = self._store.clock.now()
        self._since = now if self._since is None else self._since
        until = now + round(wait_s * SECOND)
        if until - self._since < REPORTED_AFTER_US:
            return
        reason = str(error)
        if self._progress.usage.waiting is None:
            log.warning("run %s waits for its provider: %s", self._store.root_id, reason)
        self._progress.wait_for(f"{reason}; next try in {wait_s:.0f} s")
        if self._written_at is None or now - self._written_at >= WRITTEN_EVERY_US:
            self._written_at = now
            await self._write(ProviderWait(reason, self._since, until))

    async def answered(self) -> None:
        """A provider has answered, so the run continues."""
        if self._since is None:
            return
        self._since = None
        self._progress.wait_for(None)
        if self._written_at is not None:
            self._written_at = None
            await self._write(None)

    async def _write(self, wait: ProviderWait | None) -> None:
        # The store replaces a completed step only if `started_at` is the same.
        step = self._store.made(PROVIDER_WAIT, kind="wait", output=wait or {}, started_at=0)
        await self._store.put([step])
