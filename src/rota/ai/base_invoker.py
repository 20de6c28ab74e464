"""The parts that all invokers share: a name, a table of prices, and the counting by them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rota.ai import tokens
from rota.ai.base import (
    ANSWER_TOKENS,
    Estimate,
    Reply,
    Request,
    estimated_tokens,
    prompt_tokens_max,
)
from rota.ai.finish import Finish
from rota.ai.model_data import ModelFacts, TokenUsage, find, listed
from rota.ai.prices import Prices
from rota.ai.request_fields import SAME_PRICE, body_problems, header_problems
from rota.core.process_metrics import AI_COST, AI_TOKENS
from rota.core.runs.names import is_whole
from rota.errors import UsageError

TOKENS_MAX = 1_000_000_000  # of one call: a larger count is a mistake of the provider


class Priced:
    """Base of the shipped invokers."""

    vendor = ""  # in the list of models; by default the name of the provider
    caches_unasked = True  # whether a prompt may be written to a cache without a field for it

    def __init__(self, name: str, prices: Prices | None, same_price: Collection[str] = ()) -> None:
        self.name = name
        self._prices = prices or Prices()
        self._same_price = frozenset(same_price)

    def facts(self, model: str) -> ModelFacts | None:
        """The facts of a model, where the list has it."""
        return find(self.vendor or self.name, model)

    def estimate(self, request: Request) -> Estimate:
        """Estimates what `ask` would take; calls no model."""
        asked, answered = estimated_tokens(request)
        bound = self.answer_tokens_max(request)
        asked_max, answered_max = self.prompt_tokens_max(request), bound or ANSWER_TOKENS
        answered = min(answered, answered_max)
        tier = str(request.body.get("service_tier") or request.body.get("speed") or "")
        usual = TokenUsage(asked, answered, tier="" if tier == "auto" else tier)
        return Estimate(
            request.model, asked, answered, self._cost(request.model, usual),
            tokens_max=asked_max + answered_max,
            cost_usd_max=self._cost_max(request, asked_max, answered_max, tier),
            is_bounded=bound is not None,
            no_price=self._no_price(request, tier),
        )  # fmt: skip

    def _cost(self, model: str, usage: TokenUsage) -> float | None:
        return self._prices.cost(self.name, model, usage, self.vendor)

    def _cost_max(self, request: Request, asked: int, answered: int, tier: str) -> float | None:
        price = self._prices.find(self.name, request.model, self.vendor)
        writes = self.caches_unasked or "cache_control" in str(request.body)
        return None if price is None else price.cost_max(asked, answered, tier, writes=writes)

    def _no_price(self, request: Request, tier: str) -> tuple[str, str] | None:
        """Why a budget in dollars cannot be kept for a question, and what to do about it."""
        price, name = self._prices.find(self.name, request.model, self.vendor), request.model
        own = f"`prices: {{'{self.name}:{name}': "
        if price is None:
            why = f"no price is known for {name} in the list of {listed().date}"
            return why, (
                "Write its dollars for a million tokens, in and out, into the AI settings: "
                f"{own}[1.25, 10.0]}}`. Or limit tokens instead."
            )
        if price.is_free:
            return None
        if tier != "auto" and price.tier(tier) is None:
            return f"no price is known for {name} in the tier {tier}", (
                "Remove it from `body`, or write its price into the AI settings: "
                f"{own}{{in: 1, out: 2, tiers: {{{tier}: [2, 4]}}}}}}`."
            )
        if "cache_control" in str(request.body) and not price.has_writes:
            return f"no price is known for writes of {name} to a cache", (
                "Remove `cache_control` from `body`, or write the price into the AI settings: "
                f"{own}{{in: 1, out: 2, cache_read: 0.1, cache_write: 1.25, "
                "cache_write_long: 2}}`."
            )
        dear = sorted(request.body.keys() - SAME_PRICE - self._same_price)
        if dear:
            return f"the body field {dear[0]} may change the price of {name}", (
                "Remove it from `body`, or limit tokens instead. If the price is the same, write "
                f"`same_price: [{dear[0]}]` under the provider {self.name} in the AI settings."
            )
        return None

    def answer_tokens_max(self, request: Request) -> int | None:
        """The longest answer that the provider may give; None when nothing bounds it."""
        return request.max_tokens

    def prompt_tokens_max(self, request: Request) -> int:
        """The most that the question itself may be counted as."""
        return prompt_tokens_max(request)

    def reply(
        self,
        request: Request,
        text: str,
        *,
        model: str | None = None,
        used: TokenUsage | None = None,
        finish: Finish = Finish.WHOLE,
        finish_word: str = "",
        request_id: str | None = None,
    ) -> Reply:
        """The answer with its tokens counted, or estimated if the count cannot be believed."""
        if used is not None and not used.is_believable(text):
            used = None
        counted = used or TokenUsage(estimated_tokens(request)[0], tokens.estimate(text))
        asked, answered = counted.tokens_in, counted.tokens_out
        # People set prices by the name that they ask for.
        cost = counted.cost_usd
        if cost is None:
            cost = self._cost(request.model, counted)
        if cost is None and model:
            cost = self._cost(model, counted)
        named = model or request.model
        AI_TOKENS.add(named, "in", by=asked)
        AI_TOKENS.add(named, "out", by=answered)
        if cost is not None:
            AI_COST.add(named, by=cost)
        return Reply(
            text, named, asked, answered, cost, finish, finish_word, guessed=used is None,
            is_cost_stated=counted.cost_usd is not None, request_id=request_id,
        )  # fmt: skip


def check(request: Request, *, model: bool = True) -> None:
    """Refuse a question that no provider could answer; nothing was sent."""
    if model and not request.model:
        raise UsageError("no model is named", hint="Set `model`, as in openai:gpt-5-mini.")
    if not request.prompt.strip():
        raise UsageError("the prompt is empty", hint="Look at how it is rendered.")
    if request.max_tokens is not None and request.max_tokens < 1:
        raise UsageError(f"max_tokens is {request.max_tokens}; an answer needs at least 1")
    problems = header_problems(request.headers) + body_problems(request.body)
    if problems:
        raise UsageError("; ".join(problems), hint="Remove it from `headers` or `body`.")
    if request.timeout_s <= 0:
        raise UsageError(f"timeout_s is {request.timeout_s:g}; it has to be more than 0")


def counts(usage: Any, asked: str, answered: str) -> TokenUsage | None:
    """Tokens in and out, by the names that a provider has for them; None if one is not there."""
    tokens_in, tokens_out = count(usage, asked), count(usage, answered)
    return None if tokens_in is None or tokens_out is None else TokenUsage(tokens_in, tokens_out)


def count(usage: Any, *names: str) -> int | None:
    """A number of tokens as a provider reports it, or None if it makes no sense. The names lead
    into nested objects."""
    value = usage
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if is_whole(value, 0, TOKENS_MAX) else None
