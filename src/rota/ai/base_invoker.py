"""The parts that all invokers share: a name, a table of prices, and the counting by them."""

from __future__ import annotations

from typing import Any

from rota.ai import tokens
from rota.ai.base import (
    ANSWER_TOKENS,
    Estimate,
    Reply,
    Request,
    TokenUsage,
    estimated_tokens,
    prompt_tokens_max,
)
from rota.ai.finish import Finish
from rota.ai.prices import Prices
from rota.ai.request_fields import body_problems, header_problems
from rota.core.process_metrics import AI_COST, AI_TOKENS
from rota.core.runs.names import is_whole
from rota.errors import UsageError

TOKENS_MAX = 1_000_000_000  # of one call: a larger count is a mistake of the provider


class Priced:
    """Base of the shipped invokers."""

    def __init__(self, name: str, prices: Prices | None) -> None:
        self.name = name
        self._prices = prices or Prices()

    def estimate(self, request: Request) -> Estimate:
        """Estimates what `ask` would take; calls no model."""
        asked, answered = estimated_tokens(request)
        bound = self.answer_tokens_max(request)
        asked_max, answered_max = self.prompt_tokens_max(request), bound or ANSWER_TOKENS
        answered = min(answered, answered_max)
        return Estimate(
            request.model, asked, answered,
            self._prices.cost(self.name, request.model, asked, answered),
            tokens_max=asked_max + answered_max,
            cost_usd_max=self._prices.cost(self.name, request.model, asked_max, answered_max),
            is_bounded=bound is not None,
        )  # fmt: skip

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
        cost = self._prices.cost(self.name, request.model, asked, answered)
        if cost is None and model:
            cost = self._prices.cost(self.name, model, asked, answered)
        named = model or request.model
        AI_TOKENS.add(named, "in", by=asked)
        AI_TOKENS.add(named, "out", by=answered)
        if cost is not None:
            AI_COST.add(named, by=cost)
        return Reply(
            text, named, asked, answered, cost, finish, finish_word, guessed=used is None,
            request_id=request_id,
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
    if not isinstance(usage, dict):
        return None
    tokens_in, tokens_out = count(usage.get(asked)), count(usage.get(answered))
    return None if tokens_in is None or tokens_out is None else TokenUsage(tokens_in, tokens_out)


def count(value: object) -> int | None:
    """A number of tokens as a provider reports it, or None if it makes no sense."""
    return value if is_whole(value, 0, TOKENS_MAX) else None
