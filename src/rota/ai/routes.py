"""Routes: which provider, and which model of it, the text `provider:model` means. Pure."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from rota.core.suggest import did_you_mean, nearest
from rota.errors import UsageError

MODEL_VARIABLE = "ROTA_AI_MODEL"


class ModelRoute(NamedTuple):
    """A provider, and a model as the provider calls it. `text` is what the invoker is asked for."""

    provider: str
    model: str
    text: str


class Routes(msgspec.Struct, frozen=True, omit_defaults=True):
    """The providers by name, and the default model. An invoker of one provider routes nothing."""

    default: str = ""  # provider:model
    providers: tuple[str, ...] = ()
    is_single: bool = False

    def route(self, model: str) -> ModelRoute:
        """The provider and the model that a text means; UsageError if there is no such provider.

        Colons are also part of models (`llama3:8b`): a text without a provider means the provider
        of the default model.
        """
        if self.is_single or not self.providers:
            return ModelRoute("".join(self.providers), model, model)
        text = model.strip() or self.default
        if not text:
            raise UsageError(
                "no model is named, and there is no default",
                hint=f"Write `model: provider:model`, or set {MODEL_VARIABLE}.",
            )
        provider, colon, rest = text.partition(":")
        if provider in self.providers and (colon or provider == text):
            return ModelRoute(provider, rest, f"{provider}:{rest}")
        default = self.default.partition(":")[0]
        if default in self.providers and not (colon and nearest(provider, self.providers)):
            return ModelRoute(default, text, f"{default}:{text}")
        known = ", ".join(sorted(self.providers))
        what = (
            f"{provider!r} is not a provider" if colon else f"{text!r} does not name its provider"
        )
        raise UsageError(
            f"{what}{did_you_mean(provider, self.providers)}",
            hint=f"Write provider:model; there are {known}.",
        )


def routes_of(invoker: object) -> Routes:
    """The routes of an invoker; one that has none is its own provider, for every model."""
    routes = getattr(invoker, "routes", None)
    if isinstance(routes, Routes):
        return routes
    return Routes(providers=(str(getattr(invoker, "name", "")),), is_single=True)
