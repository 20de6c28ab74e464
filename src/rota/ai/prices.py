"""Prices of tokens, in US dollars per million. A short table that users extend and override.

List prices change, and discounts differ: the table is a starting point, the user's prices win.
A model that is not in it costs None, not 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from rota.errors import BadSetting

MILLION = 1_000_000


class Price(NamedTuple):
    """US dollars for a million tokens in, and for a million out."""

    in_usd: float
    out_usd: float


# List prices of the first half of 2026, without discounts for caching or batches.
LISTED: dict[str, Price] = {
    "claude-3-haiku": Price(0.25, 1.25),
    "claude-3-5-haiku": Price(0.80, 4.0),
    "claude-haiku-4-5": Price(1.0, 5.0),
    "claude-3-7-sonnet": Price(3.0, 15.0),
    "claude-sonnet-4": Price(3.0, 15.0),
    "claude-sonnet-4-5": Price(3.0, 15.0),
    "claude-sonnet-4-6": Price(3.0, 15.0),
    "claude-opus-4": Price(15.0, 75.0),
    "claude-opus-4-1": Price(15.0, 75.0),
    "claude-opus-4-5": Price(5.0, 25.0),
    "claude-opus-4-6": Price(5.0, 25.0),
    "gpt-4o": Price(2.50, 10.0),
    "gpt-4o-mini": Price(0.15, 0.60),
    "gpt-4.1": Price(2.0, 8.0),
    "gpt-4.1-mini": Price(0.40, 1.60),
    "gpt-4.1-nano": Price(0.10, 0.40),
    "gpt-5": Price(1.25, 10.0),
    "gpt-5-mini": Price(0.25, 2.0),
    "gpt-5-nano": Price(0.05, 0.40),
    "gpt-5.1": Price(1.25, 10.0),
    "gpt-5.2": Price(1.75, 14.0),
    "gpt-5.4": Price(2.50, 15.0),
    "gpt-5.4-mini": Price(0.75, 4.50),
    "gpt-5.4-nano": Price(0.20, 1.25),
    "o3": Price(2.0, 8.0),
    "o3-mini": Price(1.10, 4.40),
    "o4-mini": Price(1.10, 4.40),
    "offline:*": Price(0.0, 0.0),
}
# A name may carry the day on which its model was frozen; the price is that of the family.
_DATED = re.compile(r"[-@](?:latest|\d{8}|\d{4}-\d{2}-\d{2})$")


class Prices:
    """The table, with the user's prices over it.

    `own` maps a model to `[in, out]`. `provider:model` is for that provider alone, and
    `provider:*` for everything of it.
    """

    def __init__(self, own: Mapping[str, Sequence[float]] | None = None) -> None:
        self._table = {**LISTED, **{name: _price(name, pair) for name, pair in (own or {}).items()}}

    def find(self, provider: str, model: str) -> Price | None:
        """The price of a model, or None."""
        family = _DATED.sub("", model)
        for name in (f"{provider}:{model}", f"{provider}:{family}", f"{provider}:*", model, family):
            if name in self._table:
                return self._table[name]
        return None

    def cost(self, provider: str, model: str, tokens_in: int, tokens_out: int) -> float | None:
        """The price of a call, or None when no price is known."""
        price = self.find(provider, model)
        if price is None:
            return None
        return (tokens_in * price.in_usd + tokens_out * price.out_usd) / MILLION


def read_prices(path: str | Path) -> Prices:
    """The table with the prices of a YAML or JSON file over it."""
    return Prices(read_mapping(path, "the prices", hint=_FORM))


def read_mapping(path: str | Path, what: str, hint: str | None = None) -> dict[str, Any]:
    """The mapping in a YAML or JSON file, or BadSetting; `what` the file holds, for people."""
    try:
        content: Any = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadSetting(f"{what} in {path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadSetting(f"{what} in {path} are neither YAML nor JSON: {error}") from error
    if not isinstance(content, dict | None):
        raise BadSetting(f"{what} in {path} are not a mapping", hint=hint)
    return content or {}


_FORM = "Write `model: [dollars in, dollars out]`, each for a million tokens."


def _price(name: str, pair: Any) -> Price:
    fits = isinstance(pair, list | tuple) and len(pair) == 2
    if not fits or not all(_is_amount(each) for each in pair):
        raise BadSetting(f"the price of {name} cannot be {pair!r}", hint=_FORM)
    return Price(float(pair[0]), float(pair[1]))


def _is_amount(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value < MILLION
