"""Which invoker answers: `provider:model` in a question, providers in the settings.

Addresses, programs and names of keys come only from the settings or the environment; a question
can choose among them, and add none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal

import msgspec

from rota.ai.base import Estimate, Invoker, Reply, Request, announced, announces, release
from rota.ai.finish import Finish
from rota.ai.limiter import Limiter
from rota.ai.limits import Limits
from rota.ai.prices import Prices, read_mapping, read_prices
from rota.ai.routes import MODEL_VARIABLE, Routes
from rota.core import trace_spans
from rota.core.suggest import did_you_mean
from rota.errors import BadSetting

FILE_VARIABLE = "ROTA_AI_FILE"
Env = Mapping[str, str]


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options that every provider may have. A subclass adds those of its invoker."""

    invoker: ClassVar[str]  # module and class; loaded on first use, since it may need an extra
    reads_env: ClassVar[bool] = True
    kind: str = ""
    limits: Limits | None = None

    def build(self, name: str, prices: Prices, env: Env) -> Invoker:
        """The invoker."""
        module, _, made = self.invoker.partition(":")
        fields = [field for field in self.__struct_fields__ if field not in ("kind", "limits")]
        options = {field: getattr(self, field) for field in fields}
        if self.reads_env:
            options["env"] = env
        invoker: Invoker = getattr(import_module(module), made)(name=name, prices=prices, **options)
        return invoker


class _HttpPart(_Part, frozen=True, kw_only=True):
    """A provider over HTTP."""

    limits: Limits | None = Limits()  # the breaker alone
    base_url: str | None = None
    key_env: str | None = None
    stream: bool = True
    schema: bool | None = None
    finish_words: dict[str, Finish] = {}
    same_price: list[str] = []


class OpenAIPart(_HttpPart, frozen=True, kw_only=True):
    """A provider with the interface of OpenAI."""

    invoker = "rota.ai.openai:OpenAI"
    key_header: str | None = None
    json_mode: bool | None = None
    states_cost: bool | None = None
    stream_usage: bool | None = None
    tokens_field: Literal["max_tokens", "max_completion_tokens"] | None = None


class AnthropicPart(_HttpPart, frozen=True, kw_only=True):
    """A provider with the interface of Anthropic."""

    invoker = "rota.ai.anthropic:Anthropic"
    key_header: str | None = None
    max_tokens: int | None = None


class ResponsesPart(_HttpPart, frozen=True, kw_only=True):
    """A provider with the Responses API of OpenAI."""

    invoker = "rota.ai.responses:Responses"
    key_header: str | None = None


class GeminiPart(_HttpPart, frozen=True, kw_only=True):
    """A provider with the Gemini API."""

    invoker = "rota.ai.gemini:Gemini"
    key_header: str | None = None


class BedrockPart(_HttpPart, frozen=True, kw_only=True):
    """Amazon Bedrock, with an API key."""

    invoker = "rota.ai.bedrock:Bedrock"
    key_header: str | None = None


class AzurePart(OpenAIPart, frozen=True, kw_only=True):
    """OpenAI's models at Azure."""

    invoker = "rota.ai.chat_vendors:Azure"


class MistralPart(OpenAIPart, frozen=True, kw_only=True):
    """Mistral."""

    invoker = "rota.ai.chat_vendors:Mistral"


class OpenRouterPart(OpenAIPart, frozen=True, kw_only=True):
    """OpenRouter."""

    invoker = "rota.ai.chat_vendors:OpenRouter"


class OllamaPart(OpenAIPart, frozen=True, kw_only=True):
    """A server of Ollama."""

    invoker = "rota.ai.chat_vendors:Ollama"


class VllmPart(OpenAIPart, frozen=True, kw_only=True):
    """A server of vLLM."""

    invoker = "rota.ai.chat_vendors:Vllm"


class LMStudioPart(OpenAIPart, frozen=True, kw_only=True):
    """A server of LM Studio."""

    invoker = "rota.ai.chat_vendors:LMStudio"


class CommandPart(_Part, frozen=True, kw_only=True):
    """A program."""

    invoker = "rota.ai.command:CommandInvoker"
    argv: list[str]
    exits: dict[int, str] = {}
    pass_env: list[str] = []
    cwd: str | None = None
    output: Literal["text", "json"] = "text"


class ClassPart(_Part, frozen=True, kw_only=True):
    """An invoker of another package, named as `package:Class`. It is called with its name and with
    the other settings."""

    limits: Limits | None = Limits()
    options: dict[str, Any] = {}

    def build(self, name: str, prices: Prices, env: Env) -> Invoker:
        """The invoker."""
        module, _, made = self.kind.partition(":")
        try:
            invoker: Invoker = getattr(import_module(module), made)(name=name, **self.options)
        except (ImportError, AttributeError, TypeError) as error:
            raise BadSetting(
                f"provider {name} of the AI settings cannot be made of {self.kind}: {error}",
                hint="Install the package; its class takes `name` and the settings by keyword.",
            ) from error
        return invoker


class OfflinePart(_Part, frozen=True, kw_only=True):
    """The invoker without a model."""

    invoker = "rota.ai.offline:Offline"
    reads_env = False
    delay_s: float = 0.0


KINDS: dict[str, type[_Part]] = {
    "openai": OpenAIPart,
    "anthropic": AnthropicPart,
    "responses": ResponsesPart,
    "gemini": GeminiPart,
    "bedrock": BedrockPart,
    "azure": AzurePart,
    "mistral": MistralPart,
    "openrouter": OpenRouterPart,
    "ollama": OllamaPart,
    "vllm": VllmPart,
    "lmstudio": LMStudioPart,
    "command": CommandPart,
    "offline": OfflinePart,
}
# The providers that need no settings. Others have names that are, or are near to, names of models
# without a provider: `mistral:7b`, `gemma:2b`, `llama3:8b`.
ALWAYS = ("openai", "responses", "anthropic", "openrouter", "bedrock", "offline")
_TOP = ("model", "providers", "prices")


class Switchboard:
    """An invoker that knows several providers and passes each question on."""

    announces = True

    def __init__(self, providers: Mapping[str, Callable[[], Invoker]], model: str | None) -> None:
        self.name = "ai"
        self.model = model
        self.routes = Routes((model or "").strip(), tuple(sorted(providers)))
        self._makers = dict(providers)
        self._made: dict[str, Invoker] = {}
        if model is not None:
            self.route(model)  # a default that is impossible is reported at once

    async def ask(self, request: Request) -> Reply:
        """Ask the one that `request.model` names."""
        invoker, model = self._chosen(request.model)
        if not announces(invoker):
            request = await announced(request)
        with trace_spans.chat(invoker.name, model) as span:
            reply = await invoker.ask(msgspec.structs.replace(request, model=model))
            span.note(_usage(reply))
        return reply

    def estimate(self, request: Request) -> Estimate:
        """Estimates what `ask` would take; calls no model."""
        invoker, model = self._chosen(request.model)
        estimate = invoker.estimate(msgspec.structs.replace(request, model=model))
        return msgspec.structs.replace(estimate, model=request.model or self.model or "")

    def route(self, model: str) -> tuple[str, str]:
        """The provider and the model that a text means; UsageError if there is no such provider."""
        return self.routes.route(model)[:2]

    async def aclose(self) -> None:
        """Close what the providers hold open."""
        for invoker in self._made.values():
            await release(invoker)

    def _chosen(self, text: str) -> tuple[Invoker, str]:
        provider, model = self.route(text)
        if provider not in self._made:  # only now: only its users need the extra
            self._made[provider] = self._makers[provider]()
        return self._made[provider], model


def _usage(reply: Reply) -> dict[str, int | float]:
    known: dict[str, int | float] = {
        "gen_ai.usage.input_tokens": reply.tokens_in,
        "gen_ai.usage.output_tokens": reply.tokens_out,
    }
    return known if reply.cost_usd is None else {**known, "rota.cost_usd": reply.cost_usd}


def invoker_of(
    settings: Mapping[str, Any] | str | Path | None = None,
    *,
    env: Env = os.environ,
    limit: Callable[[Invoker, Limits], Invoker] = Limiter,
) -> Switchboard:
    """The invoker of some settings: a mapping, a YAML file, or what the environment says.

    `model` is the default, `providers` maps names of your own to their settings, `prices` is a
    table or a file. Without settings ROTA_AI_FILE may name a file; ROTA_AI_MODEL is the default
    model where the settings have none. `limit` puts a provider under its limits: by default
    within this process; a host with a store may share them among all its workers.
    """
    if settings is None:
        settings = env.get(FILE_VARIABLE) or {}
    folder = Path()
    if isinstance(settings, str | Path):
        folder = Path(settings).parent
        settings = read_mapping(settings, "the AI settings")
    _known(settings, _TOP, "the AI settings")
    prices = _prices(settings.get("prices"), folder)
    given = settings.get("providers") or {}
    if not isinstance(given, Mapping):
        raise BadSetting("providers of the AI settings is a mapping from names to settings")
    parts = {name: _part(name, {}) for name in ALWAYS}
    parts |= {_name(name): _part(name, each) for name, each in given.items()}

    def make(name: str) -> Invoker:
        part = parts[name]
        invoker = part.build(name, prices, env)
        return invoker if part.limits is None else limit(invoker, part.limits)

    model = settings.get("model") or env.get(MODEL_VARIABLE) or None
    if model is not None and not isinstance(model, str):
        raise BadSetting(f"model of the AI settings is a text, not {model!r}")
    return Switchboard({name: partial(make, name) for name in parts}, model)


def _part(name: str, given: Any) -> _Part:
    where = f"provider {name} of the AI settings"
    if not isinstance(given, Mapping):
        raise BadSetting(f"{where} is a mapping, not {type(given).__name__}")
    kind = given.get("kind", name)
    if isinstance(kind, str) and ":" in kind:
        rest = {key: value for key, value in given.items() if key not in ("kind", "limits")}
        more = {"limits": given["limits"]} if "limits" in given else {}
        return _converted({"kind": kind, "options": rest, **more}, ClassPart, where)
    if kind not in KINDS:
        meant = did_you_mean(str(kind), KINDS)
        raise BadSetting(
            f"{where} has no known kind{meant}", hint=f"kind: {', '.join(KINDS)}, or package:Class."
        )
    fields = KINDS[kind].__struct_fields__
    _known(given, fields, where)
    if isinstance(given.get("limits"), Mapping):
        _known(given["limits"], Limits.__struct_fields__, f"limits of {where}")
    return _converted(given, KINDS[kind], where)


def _converted(given: Mapping[str, Any], part: type[_Part], where: str) -> _Part:
    try:
        return msgspec.convert(dict(given), part, strict=False)
    except msgspec.ValidationError as error:
        raise BadSetting(f"{where}: {error}") from error


def _known(given: Mapping[str, Any], names: tuple[str, ...], where: str) -> None:
    for name in given:
        if name not in names:
            meant = did_you_mean(str(name), names)
            hint = f"It may have: {', '.join(sorted(names))}."
            if "key" in str(name).lower() and "key_env" in names:
                hint = "Keys are not kept in settings: name an environment variable with key_env."
            raise BadSetting(f"{where} cannot have {name!r}{meant}", hint=hint)


def _name(name: Any) -> str:
    if not isinstance(name, str) or not name or ":" in name or name != name.strip():
        raise BadSetting(f"{name!r} cannot be the name of a provider", hint="Letters, no colon.")
    return name


def _prices(given: Any, folder: Path) -> Prices:
    if given is None:
        return Prices()
    if isinstance(given, str):
        return read_prices(folder / given)
    if not isinstance(given, Mapping):
        raise BadSetting("prices of the AI settings is a table or the name of a file")
    return Prices(given)
