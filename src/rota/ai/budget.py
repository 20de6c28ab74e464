"""Budgets that are never exceeded: the most that a call may take is held until it is settled.

An answer is bounded by `max_tokens` of its question, or of its provider, or by `BOUND_TOKENS`. A
call that would exceed the budget waits for those in progress. It is refused when that cannot help.

The arithmetic is pure, and in whole billionths of a dollar.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Sequence
from typing import Literal

import msgspec

from rota.ai.base import BOUND_TOKENS, Estimate, Invoker, Reply, Request, Wrapper, announces
from rota.errors import BadSetting, BudgetSpent, RotaError

NANO = 1_000_000_000


class Amount(msgspec.Struct, frozen=True):
    """The usage of calls. An unknown price counts as 0 unless money is limited."""

    nano_usd: int
    tokens: int
    calls: int

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.nano_usd + other.nano_usd, self.tokens + other.tokens, self.calls + other.calls
        )

    def __sub__(self, other: Amount) -> Amount:
        return Amount(
            self.nano_usd - other.nano_usd, self.tokens - other.tokens, self.calls - other.calls
        )


NOTHING = Amount(0, 0, 0)


class Limit(msgspec.Struct, frozen=True):
    """How much may be spent at most."""

    nano_usd: int | None = None
    tokens: int | None = None
    calls: int | None = None


Verdict = Literal["go", "wait", "refuse"]


def judge(limit: Limit, spent: Amount, held: Amount, wanted: Amount) -> Verdict:
    """Whether a call may begin. "wait": it depends on what the calls in progress really take."""
    if _within(limit, spent + held + wanted):
        return "go"
    return "wait" if _within(limit, spent + wanted) else "refuse"


def _within(limit: Limit, amount: Amount) -> bool:
    pairs = zip(msgspec.structs.astuple(limit), msgspec.structs.astuple(amount), strict=True)
    return all(most is None or taken <= most for most, taken in pairs)


class Hold:
    """One call in progress; `paid` says what it took."""

    def __init__(self, amount: Amount, key: str = "") -> None:
        self.amount, self.key = amount, key
        self.reply: Reply | None = None

    def paid(self, reply: Reply) -> None:
        """The call was answered."""
        self.reply = reply


class Budget:
    """The limits of a run, a schedule, or a group that shares them.

    A provider that gives longer answers than its bound allows may pass the limit by that much.
    Later calls hold as much more, and `excess` says how much it was.
    """

    def __init__(
        self,
        limit_usd: float | None = None,
        limit_tokens: int | None = None,
        limit_calls: int | None = None,
    ) -> None:
        given = {
            "limit_usd": limit_usd, "limit_tokens": limit_tokens, "limit_calls": limit_calls,
        }  # fmt: skip
        for name, value in given.items():
            if value is not None and not (value >= 0 and math.isfinite(value)):
                raise BadSetting(f"{name} cannot be {value!r}; it is 0 or more")
        nano = None if limit_usd is None else math.floor(limit_usd * NANO + 0.5)
        self._limit = Limit(nano, limit_tokens, limit_calls)
        self.spent = NOTHING
        self.assumed_nano_usd = 0  # of the dollars spent: the most of calls with an unknown cost
        self.held = NOTHING  # for calls in progress
        self.excess = NOTHING
        self._settled = asyncio.Condition()

    @property
    def limit(self) -> Limit:
        """How much may be spent at most."""
        return self._limit

    @property
    def is_limited(self) -> bool:
        """Whether there is anything to keep to."""
        return self.bounds_answers or self._limit.calls is not None

    @property
    def bounds_answers(self) -> bool:
        """Whether an answer of any length could pass it."""
        return self._limit.nano_usd is not None or self._limit.tokens is not None

    def bounded(self, invoker: Invoker, request: Request) -> Request:
        """The question with a bound on its answer, if the budget needs one and neither the
        question nor the provider has one."""
        is_bounded = request.max_tokens is not None or not self.bounds_answers
        if is_bounded or invoker.estimate(request).is_bounded:
            return request
        return msgspec.structs.replace(request, max_tokens=BOUND_TOKENS)

    @property
    def spent_usd(self) -> float:
        """Dollars gone; those held for calls in progress are not among them."""
        return self.spent.nano_usd / NANO

    @property
    def spent_tokens(self) -> int:
        """Tokens gone."""
        return self.spent.tokens

    @contextlib.asynccontextmanager
    async def spending(self, estimate: Estimate) -> AsyncIterator[Hold]:
        """Set aside for one call, or raise BudgetSpent; settle when it is over.

        A call without an answer counts for nothing, unless the provider may have worked on it:
        then it counts in full, since it may be on the bill.
        """
        call = await self._hold(estimate)
        used = NOTHING
        try:
            yield call
            used = self._of_reply(call)
        except BaseException as error:
            used = self._of_error(call, error)
            raise
        finally:
            await self._settle(call, used)

    async def _settle(self, call: Hold, used: Amount) -> None:
        self.spent, self.held = self.spent + used, self.held - call.amount
        async with self._settled:
            self._settled.notify_all()

    async def _hold(self, estimate: Estimate) -> Hold:
        async with self._settled:
            amount = self._at_most(estimate)
            while (verdict := judge(self._limit, self.spent, self.held, amount)) == "wait":
                await self._settled.wait()
                amount = self._at_most(estimate)
            if verdict == "refuse":
                raise self._refused(amount)
            self.held += amount
        return Hold(amount)

    def _at_most(self, estimate: Estimate) -> Amount:
        """The most that a call may take, as far as its provider keeps to the request."""
        if self._limit.nano_usd is not None:
            _check_price(estimate)
        if self.bounds_answers and not estimate.is_bounded:
            raise BadSetting(
                f"nothing bounds the answers of {estimate.model}, so a budget in tokens or dollars "
                "cannot be kept",
                hint="Pass {max_tokens} to the program, or limit the number of calls instead.",
            )
        return most_of(estimate) + self.excess

    def _of_reply(self, call: Hold) -> Amount:
        if call.reply is None:
            return NOTHING
        used = amount_of(call.reply, call.amount)
        if call.reply.guessed and not call.reply.is_cost_stated:
            self.assumed_nano_usd += used.nano_usd
        self.excess = Amount(
            max(self.excess.nano_usd, used.nano_usd - call.amount.nano_usd),
            max(self.excess.tokens, used.tokens - call.amount.tokens), calls=0,
        )  # fmt: skip
        return used

    def _of_error(self, call: Hold, error: BaseException) -> Amount:
        used = usage_of(error)
        if used is not None:
            call.paid(used)
        if call.reply is not None:
            return self._of_reply(call)
        if not may_be_billed(error):
            return NOTHING
        self.assumed_nano_usd += call.amount.nano_usd
        return call.amount

    def _refused(self, amount: Amount, of: str = "") -> BudgetSpent:
        parts = []
        if self._limit.nano_usd is not None:
            parts.append(f"${self.spent_usd:.4f} of ${self._limit.nano_usd / NANO:.4f}")
            if self.assumed_nano_usd:
                parts[-1] += f" (up to ${self.assumed_nano_usd / NANO:.4f} of it assumed)"
        if self._limit.tokens is not None:
            parts.append(f"{self.spent_tokens} of {self._limit.tokens} tokens")
        if self._limit.calls is not None:
            parts.append(f"{self.spent.calls} of {self._limit.calls} calls")
        next_one = f"{amount.tokens} tokens"
        if self._limit.nano_usd is not None:
            next_one += f" (${amount.nano_usd / NANO:.4f})"
        name = f"the budget of {of}" if of else "the budget"
        return BudgetSpent(
            f"{name} is used up: {' and '.join(parts)} are spent, and the next call may take "
            f"up to {next_one}",
            spent_usd=self.spent_usd, spent_tokens=self.spent_tokens, calls=self.spent.calls,
        )  # fmt: skip


class Budgets:
    """Several budgets that each call has to keep: of its run, of a day, of a provider."""

    def __init__(self, budgets: Sequence[Budget]) -> None:
        self._budgets = [each for each in budgets if each.is_limited]

    @property
    def excess_tokens(self) -> int:
        """Tokens of an answer beyond its bound."""
        bounding = [each.excess.tokens for each in self._budgets if each.bounds_answers]
        return max(bounding, default=0)

    def bounded(self, invoker: Invoker, request: Request) -> Request:
        """The question with a bound on its answer, if a budget needs one."""
        for budget in self._budgets:
            request = budget.bounded(invoker, request)
        return request

    @contextlib.asynccontextmanager
    async def spending(self, estimate: Estimate) -> AsyncIterator[Hold]:
        """Set aside for one call in every budget, in their order."""
        async with contextlib.AsyncExitStack() as stack:
            holds = [await stack.enter_async_context(b.spending(estimate)) for b in self._budgets]
            yield HoldOfAll(holds, estimate)


class HoldOfAll(Hold):
    """One call in progress, in several budgets."""

    def __init__(self, holds: Sequence[Hold], estimate: Estimate) -> None:
        super().__init__(holds[0].amount if holds else most_of(estimate))
        self._holds = holds

    def paid(self, reply: Reply) -> None:
        """The call was answered."""
        super().paid(reply)
        for hold in self._holds:
            hold.paid(reply)


class Budgeted(Wrapper):
    """An invoker that spends from a budget."""

    def __init__(self, invoker: Invoker, budget: Budget) -> None:
        super().__init__(invoker)
        self.budget = budget

    @property
    def announces(self) -> bool:
        """As the invoker it pays for does."""
        return announces(self._invoker)

    async def ask(self, request: Request) -> Reply:
        """Ask, if the budget allows it."""
        request = self.budget.bounded(self._invoker, request)
        async with self.budget.spending(self.estimate(request)) as call:
            reply = await self._invoker.ask(request)
            call.paid(reply)
        return reply


def most_of(estimate: Estimate) -> Amount:
    """The most that a call may take, as estimated."""
    cost = estimate.cost_usd if estimate.cost_usd_max is None else estimate.cost_usd_max
    most = estimate.tokens if estimate.tokens_max is None else estimate.tokens_max
    return _amount(cost, most)


def amount_of(reply: Reply, reserved: Amount) -> Amount:
    """The usage of a reply. A part that the provider does not state takes what was reserved."""
    known = _amount(reply.cost_usd, reply.tokens_in + reply.tokens_out)
    has_cost = reply.is_cost_stated or not (reply.guessed or reply.cost_usd is None)
    return Amount(
        known.nano_usd if has_cost else reserved.nano_usd,
        reserved.tokens if reply.guessed else known.tokens, calls=1,
    )  # fmt: skip


def may_be_billed(error: BaseException) -> bool:
    """Whether a call that ended with this error may be on the bill."""
    if isinstance(error, RotaError):
        return bool(error.facts.get("sent"))
    return not isinstance(error, Exception)  # cancelled, at an unknown moment


def usage_of(error: BaseException) -> Reply | None:
    """The charge of a provider for a failed answer, where the provider reported it."""
    facts = error.facts if isinstance(error, RotaError) else {}
    asked, answered = facts.get("tokens_in"), facts.get("tokens_out")
    if not isinstance(asked, int) or not isinstance(answered, int):
        return None
    cost = facts.get("cost_usd")
    cost_usd = cost if isinstance(cost, float) else None
    return Reply("", str(facts.get("model") or ""), asked, answered, cost_usd)


def _check_price(estimate: Estimate) -> None:
    """Refuse a call without a most in dollars."""
    why, hint = estimate.no_price or (
        f"no price is known for {estimate.model}",
        "Add the model to the prices, or limit tokens.",
    )
    if estimate.no_price is not None or estimate.cost_usd is None:
        raise BadSetting(f"{why}, so a budget in dollars cannot be kept", hint=hint)


def _amount(cost_usd: float | None, tokens: int) -> Amount:
    # A number that comes from a float is rounded first, or 0.1 would be more than 0.1.
    return Amount(math.ceil(round((cost_usd or 0.0) * NANO, 3)), tokens, calls=1)
