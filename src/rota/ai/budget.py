"""Budgets that stop before they are passed: held by estimate, settled by what was really used.

The arithmetic is pure and in whole billionths of a dollar: `Spent` in, `Spent` out.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from typing import Literal

import msgspec

from rota.ai.base import Estimate, Invoker, Reply, Request, release
from rota.errors import BadSetting, BudgetSpent, RotaError

NANO = 1_000_000_000


class BudgetUsage(msgspec.Struct, frozen=True):
    """What is gone, and what is held for calls under way."""

    nano_usd: int = 0
    tokens: int = 0
    held_nano_usd: int = 0
    held_tokens: int = 0


class Amount(msgspec.Struct, frozen=True):
    """What one call takes; an unknown price counts for nothing where no money is limited."""

    nano_usd: int
    tokens: int


class Limit(msgspec.Struct, frozen=True):
    """How much may be spent at most."""

    nano_usd: int | None = None
    tokens: int | None = None


Verdict = Literal["go", "wait", "refuse"]


def judge(limit: Limit, spent: BudgetUsage, amount: Amount) -> Verdict:
    """Whether a call may begin. "wait": it depends on what the calls under way really take."""
    verdicts = {
        _judge(limit.nano_usd, spent.nano_usd, spent.held_nano_usd, amount.nano_usd),
        _judge(limit.tokens, spent.tokens, spent.held_tokens, amount.tokens),
    }
    return "refuse" if "refuse" in verdicts else "wait" if "wait" in verdicts else "go"


def _judge(limit: int | None, gone: int, held: int, wanted: int) -> Verdict:
    if limit is None or gone + held + wanted <= limit:
        return "go"
    return "refuse" if gone + wanted > limit else "wait"


def hold(spent: BudgetUsage, amount: Amount) -> BudgetUsage:
    """Set aside for a call that begins."""
    return msgspec.structs.replace(
        spent,
        held_nano_usd=spent.held_nano_usd + amount.nano_usd,
        held_tokens=spent.held_tokens + amount.tokens,
    )


def settle(spent: BudgetUsage, held: Amount, used: Amount) -> BudgetUsage:
    """Replace what was set aside by what was used."""
    return BudgetUsage(
        nano_usd=spent.nano_usd + used.nano_usd,
        tokens=spent.tokens + used.tokens,
        held_nano_usd=spent.held_nano_usd - held.nano_usd,
        held_tokens=spent.held_tokens - held.tokens,
    )


NOTHING = Amount(0, 0)


class Hold:
    """One call under way; `paid` says what it took."""

    def __init__(self) -> None:
        self.reply: Reply | None = None

    def paid(self, reply: Reply) -> None:
        """The call was answered."""
        self.reply = reply


class Budget:
    """What may be spent; of a run, a schedule, or whoever shares it.

    Estimates are guesses: an answer without `max_tokens` may take more than was held for it, and
    so may pass the limit by that much. The next call is refused.
    """

    def __init__(
        self,
        limit_usd: float | None = None,
        limit_tokens: int | None = None,
        *,
        spent: BudgetUsage | None = None,
    ) -> None:
        for name, value in (("limit_usd", limit_usd), ("limit_tokens", limit_tokens)):
            if value is not None and not (value >= 0 and math.isfinite(value)):
                raise BadSetting(f"{name} cannot be {value!r}; it is 0 or more")
        nano = None if limit_usd is None else math.floor(limit_usd * NANO + 0.5)
        self._limit = Limit(nano, limit_tokens)
        self.spent = spent or BudgetUsage()
        self._settled = asyncio.Condition()

    @property
    def spent_usd(self) -> float:
        """Dollars gone; those held for calls under way are not among them."""
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
        held = await self._hold(estimate)
        call = Hold()
        used = NOTHING
        try:
            yield call
            used = self._of_reply(call.reply, held) if call.reply else NOTHING
        except BaseException as error:
            used = held if _may_be_billed(error) else NOTHING
            raise
        finally:
            self.spent = settle(self.spent, held, used)
            async with self._settled:
                self._settled.notify_all()

    async def _hold(self, estimate: Estimate) -> Amount:
        amount = self._of_estimate(estimate)
        async with self._settled:
            while (verdict := judge(self._limit, self.spent, amount)) == "wait":
                await self._settled.wait()
            if verdict == "refuse":
                raise self._refused(estimate)
            self.spent = hold(self.spent, amount)
        return amount

    def _of_estimate(self, estimate: Estimate) -> Amount:
        if estimate.cost_usd is None and self._limit.nano_usd is not None:
            raise BadSetting(
                f"no price is known for {estimate.model}, so a budget in dollars cannot be kept",
                hint="Add the model to the prices, or limit tokens instead.",
            )
        return _amount(estimate.cost_usd, estimate.tokens)

    def _of_reply(self, reply: Reply, held: Amount) -> Amount:
        used = _amount(reply.cost_usd, reply.tokens_in + reply.tokens_out)
        if reply.cost_usd is None:  # priced by the estimate, so better that than nothing
            return Amount(held.nano_usd, used.tokens)
        return used

    def _refused(self, estimate: Estimate) -> BudgetSpent:
        parts = []
        if self._limit.nano_usd is not None:
            parts.append(f"${self.spent_usd:.4f} of ${self._limit.nano_usd / NANO:.4f}")
        if self._limit.tokens is not None:
            parts.append(f"{self.spent_tokens} of {self._limit.tokens} tokens")
        next_one = f"{estimate.tokens} tokens"
        if estimate.cost_usd is not None:
            next_one += f" (${estimate.cost_usd:.4f})"
        return BudgetSpent(
            f"the budget is used up: {' and '.join(parts)} are spent, and the next call would take "
            f"about {next_one}",
            spent_usd=self.spent_usd,
            spent_tokens=self.spent_tokens,
        )


class Budgeted:
    """An invoker that spends from a budget."""

    def __init__(self, invoker: Invoker, budget: Budget) -> None:
        self._invoker, self.budget = invoker, budget

    @property
    def name(self) -> str:
        """That of the invoker it pays for."""
        return self._invoker.name

    def estimate(self, request: Request) -> Estimate:
        """What `ask` would take; calls nobody, spends nothing."""
        return self._invoker.estimate(request)

    async def ask(self, request: Request) -> Reply:
        """Ask, if the budget allows it."""
        async with self.budget.spending(self.estimate(request)) as call:
            reply = await self._invoker.ask(request)
            call.paid(reply)
        return reply

    async def aclose(self) -> None:
        """Close what the invoker holds open."""
        await release(self._invoker)


def _may_be_billed(error: BaseException) -> bool:
    if isinstance(error, RotaError):
        return bool(error.facts.get("sent"))
    return not isinstance(error, Exception)  # cancelled, at a moment that nobody knows


def _amount(cost_usd: float | None, tokens: int) -> Amount:
    # What comes from a float is rounded first, or 0.1 would be more than 0.1.
    return Amount(math.ceil(round((cost_usd or 0.0) * NANO, 3)), tokens)
