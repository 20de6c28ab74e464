"""AI: one way to ask a model of any provider. Invokers load on first use, as do their extras."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rota.ai.base import Estimate, Invoker, Reply, Request, release
from rota.ai.finish import Finish

if TYPE_CHECKING:
    from rota.ai.anthropic import Anthropic
    from rota.ai.budget import Budget, Budgeted
    from rota.ai.command import CommandInvoker
    from rota.ai.limiter import Limiter
    from rota.ai.limits import Limits
    from rota.ai.offline import Offline
    from rota.ai.openai import OpenAI
    from rota.ai.prices import Prices
    from rota.ai.registry import Switchboard, invoker_of

_MODULES = {
    "Anthropic": "anthropic",
    "Budget": "budget",
    "Budgeted": "budget",
    "CommandInvoker": "command",
    "Limiter": "limiter",
    "Limits": "limits",
    "Offline": "offline",
    "OpenAI": "openai",
    "Prices": "prices",
    "Switchboard": "registry",
    "invoker_of": "registry",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


__all__ = [
    "Anthropic",
    "Budget",
    "Budgeted",
    "CommandInvoker",
    "Estimate",
    "Finish",
    "Invoker",
    "Limiter",
    "Limits",
    "Offline",
    "OpenAI",
    "Prices",
    "Reply",
    "Request",
    "Switchboard",
    "invoker_of",
    "release",
]
