"""Prices and facts of models: dated data of each vendor, in `models.json`.

`scripts/model_data.py` writes the file from the list of LiteLLM. It is read on first use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any

import msgspec

MILLION = 1_000_000
# A name may carry the day on which its model was frozen; the price is that of the family.
_DATED = re.compile(r"[-@](?:latest|\d{8}|\d{4}-\d{2}-\d{2})$")
# Vendors of models that others serve too, under the same names, and their names at OpenRouter.
FIRST_PARTIES = ("openai", "anthropic", "gemini", "mistral", "deepseek", "xai")
_VENDORS_OF_NAMES = {"google": "gemini", "mistralai": "mistral", "x-ai": "xai", "amazon": "bedrock"}
# Names for the tier without an extra or a discount.
_STANDARD = ("", "default", "standard", "standard_only", "on_demand")


class TokenUsage(msgspec.Struct, frozen=True):
    """The usage of one call, as its provider counts it."""

    tokens_in: int  # those that were written to and read from a cache are among them
    tokens_out: int  # those of thinking are among them
    cache_read: int = 0
    cache_write: int = 0
    cache_write_long: int = 0  # of `cache_write`: for an hour or longer
    searches: int = 0  # by a tool of the provider
    tier: str = ""
    cost_usd: float | None = None  # as the provider states it

    def is_believable(self, text: str) -> bool:
        """Whether a call with this answer can take so little: each prompt and text has tokens."""
        cached = self.cache_read + self.cache_write
        is_sum = cached <= self.tokens_in and self.cache_write_long <= self.cache_write
        return is_sum and self.tokens_in > 0 and (self.tokens_out > 0 or not text.strip())


class Rates(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    rename={"in_usd": "in", "out_usd": "out"},
):
    """US dollars for a million tokens. `above`: they hold for prompts of more tokens."""

    in_usd: float
    out_usd: float
    cache_read: float | None = None
    cache_write: float | None = None
    cache_write_long: float | None = None
    above: int = 0

    def cost(self, usage: TokenUsage) -> float:
        """The price of the tokens of a call, in dollars."""
        short = usage.cache_write - usage.cache_write_long
        plain = usage.tokens_in - usage.cache_read - usage.cache_write
        write = self.in_usd if self.cache_write is None else self.cache_write
        long = write if self.cache_write_long is None else self.cache_write_long
        read = self.in_usd if self.cache_read is None else self.cache_read
        return (
            plain * self.in_usd + usage.cache_read * read + short * write
            + usage.cache_write_long * long + usage.tokens_out * self.out_usd
        ) / MILLION  # fmt: skip

    def cost_max(self, asked: int, answered: int, *, writes: bool) -> float:
        """The most that so many tokens cost; `writes`: they may go to a cache."""
        rates = [self.in_usd, self.cache_read]
        rates += [self.cache_write, self.cache_write_long] if writes else []
        most = max(rate for rate in rates if rate is not None)
        return (asked * most + answered * self.out_usd) / MILLION


class Price(msgspec.Struct, frozen=True):
    """The price of a model: rates by tier, "" the standard one, and by the length of the prompt."""

    rates: dict[str, list[Rates]]
    search_usd: float | None = None

    @property
    def is_free(self) -> bool:
        """Whether nothing costs anything."""
        return not self.search_usd and all(
            not rates.in_usd and not rates.out_usd
            for steps in self.rates.values()
            for rates in steps
        )

    @property
    def has_writes(self) -> bool:
        """Whether all writes to a cache have a price."""
        steps = [rates for steps in self.rates.values() for rates in steps]
        return all(None not in (each.cache_write, each.cache_write_long) for each in steps)

    def tier(self, name: str) -> list[Rates] | None:
        """The rates of a tier by the name that a provider has for it."""
        name = name.lower()
        return self.rates.get("" if name in _STANDARD else name)

    def cost(self, usage: TokenUsage) -> float | None:
        """The cost of a call in dollars; None where a part of it has no price."""
        steps = self.tier(usage.tier)
        if steps is None or (usage.searches and self.search_usd is None):
            return None
        rates = max(
            (each for each in steps if usage.tokens_in > each.above or not each.above),
            key=lambda each: each.above,
        )
        return rates.cost(usage) + usage.searches * (self.search_usd or 0.0)

    def cost_max(self, asked: int, answered: int, tier: str, *, writes: bool) -> float | None:
        """The most that a call of at most so many tokens costs. The tier "auto" may be any."""
        tiers = list(self.rates.values()) if tier == "auto" else [self.tier(tier)]
        costs = [
            rates.cost_max(asked, answered, writes=writes)
            for steps in tiers if steps is not None
            for rates in steps if rates.above < max(asked, 1)
        ]  # fmt: skip
        return max(costs, default=None)


class ModelFacts(Price, frozen=True):
    """The facts of a model that requests and checks need."""

    context: int | None = None  # tokens of a prompt at most
    answer_max: int | None = None  # tokens of an answer at most
    reasons: bool = False
    always_thinks: bool = False
    takes_temperature: bool = True
    takes_schema: bool = False
    only_responses: bool = False  # OpenAI serves it by the Responses API alone


class _Listed(msgspec.Struct, frozen=True):
    """The data file; models are decoded when they are needed."""

    date: str
    source: str
    models: dict[str, dict[str, msgspec.Raw]]


@cache
def listed() -> _Listed:
    """The data file."""
    text = (resources.files("rota.ai") / "models.json").read_bytes()
    return msgspec.json.decode(text, type=_Listed)


def vendors() -> list[str]:
    """The vendors with models in the list."""
    return sorted(listed().models)


@cache
def find(vendor: str, model: str) -> ModelFacts | None:
    """The facts of a model; None if the list does not have it.

    The vendor is the provider, where the list has its models. Otherwise the name alone decides, as
    `vendor/model` or among the models of the first parties.
    """
    models = listed().models
    for source, name in _places(vendor, model):
        raw = models.get(source, {}).get(name)
        if raw is not None:
            return msgspec.json.decode(raw, type=ModelFacts)
    return None


def _places(vendor: str, model: str) -> Iterator[tuple[str, str]]:
    names = list(dict.fromkeys([model, family_of(model)]))
    if vendor in listed().models:
        yield from ((vendor, name) for name in names)
        return
    maker, slash, rest = model.partition("/")
    if slash:
        plain = rest.partition(":")[0]
        known = _VENDORS_OF_NAMES.get(maker, maker)
        yield from ((known, name) for name in (plain, plain.replace(".", "-"), family_of(plain)))
        return
    yield from ((first, name) for first in FIRST_PARTIES for name in names)


def family_of(model: str) -> str:
    """The name without the day on which the model was frozen."""
    return _DATED.sub("", model)


def known_models(vendor: str) -> list[str]:
    """The names of a vendor's models."""
    return list(listed().models.get(vendor, {}))


def decoded(value: Any) -> Rates:
    """Rates from a mapping; msgspec.ValidationError if they are not."""
    return msgspec.convert(value, Rates)
