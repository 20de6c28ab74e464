"""Prices of calls in US dollars: the user's prices, then the dated list of `model_data`.

List prices change, and discounts differ: the user's prices win. A model without a price costs
None, not 0. A cost that the provider states wins over both.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

import msgspec
import yaml

from rota.ai import model_data
from rota.ai.model_data import MILLION, Price, Rates, TokenUsage, family_of
from rota.errors import BadSetting

_FREE = Price({"": [Rates(0.0, 0.0)]}, search_usd=0.0)
_LISTED_FOR_ALL = {"offline:*": _FREE}


class Prices:
    """The user's prices over the list.

    `own` maps a model to `[in, out]` or to a mapping of rates. `provider:model` is for that
    provider alone, and `provider:*` for everything of it.
    """

    def __init__(self, own: Mapping[str, Any] | None = None) -> None:
        self._own = _LISTED_FOR_ALL | {
            name: _price(name, value) for name, value in (own or {}).items()
        }

    def find(self, provider: str, model: str, vendor: str = "") -> Price | None:
        """The price of a model, or None. `vendor`: the list to look into, by default the name of
        the provider."""
        family = family_of(model)
        for name in (f"{provider}:{model}", f"{provider}:{family}", f"{provider}:*", model, family):
            if name in self._own:
                return self._own[name]
        return model_data.find(vendor or provider, model)

    def cost(self, provider: str, model: str, usage: TokenUsage, vendor: str = "") -> float | None:
        """The cost of a call, or None when no price is known."""
        price = self.find(provider, model, vendor)
        return None if price is None else price.cost(usage)


def read_prices(path: str | Path) -> Prices:
    """The list with the prices of a YAML or JSON file over it."""
    return Prices(read_mapping(path, "the prices", hint=FORM))


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


FORM = (
    "Write `model: [dollars in, dollars out]`, each for a million tokens, or a mapping with in, "
    "out, cache_read, cache_write, cache_write_long, search and tiers."
)


def _price(name: str, value: Any) -> Price:
    try:
        return _mapped(value) if isinstance(value, Mapping) else Price({"": [_rates(value)]})
    except (ValueError, TypeError, msgspec.ValidationError) as error:
        raise BadSetting(f"the price of {name} cannot be {value!r}", hint=FORM) from error


def _mapped(value: Mapping[str, Any]) -> Price:
    more = dict(value)
    tiers, search = more.pop("tiers", {}), more.pop("search", None)
    rates = {"": [_rates(more)]} | {str(tier): [_rates(each)] for tier, each in tiers.items()}
    return Price(rates, None if search is None else _amount(search))


def _rates(value: Any) -> Rates:
    if not isinstance(value, Mapping):
        in_usd, out_usd = value
        value = {"in": in_usd, "out": out_usd}
    return model_data.decoded({name: _amount(each) for name, each in value.items()})


def _amount(value: Any) -> float:
    if not is_amount(value):
        raise ValueError(value)
    return float(value)


def is_amount(value: object) -> TypeGuard[int | float]:
    """Whether a value is a believable number of dollars."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return 0 <= value < MILLION
