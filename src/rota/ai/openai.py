"""Chat completions over HTTP: OpenAI, and servers with the same interface (vLLM, Ollama)."""

from __future__ import annotations

from typing import Any, Unpack

import msgspec

from rota.ai.base import Request, passing
from rota.ai.base_invoker import count, counts
from rota.ai.finish import CHAT
from rota.ai.model_data import TokenUsage, find
from rota.ai.prices import is_amount
from rota.ai.provider_call import Home, HttpInvoker, HttpInvokerOptions, ReplyParser


class _CompletionParser(ReplyParser):
    """Reads the chunks or the object of a completion."""

    def __init__(self, provider: str) -> None:
        super().__init__(provider)
        self._refusal: list[str] = []
        self._finished = False
        self.states_cost = False

    @property
    def refusal(self) -> str:
        """The text of the model."""
        return "".join(self._refusal)

    def event(self, value: dict[str, Any]) -> None:
        """Read one chunk; the usage comes after the end."""
        self._take(value, "delta")

    def whole(self, value: dict[str, Any]) -> None:
        """Read the reply in one piece."""
        self._take(value, "message")
        if not self._finished:
            raise passing(f"{self.provider} answered without a choice", sent=True)

    def ended(self) -> bool:
        """Whether a stream may end here, for servers that do not mark the end."""
        return self._finished

    def _counted(self, usage: Any, tier: Any) -> TokenUsage | None:
        used = counts(usage, "prompt_tokens", "completion_tokens")
        if used is None:
            return None
        tier = usage.get("service_tier") or tier  # Mistral
        long = count(usage, "prompt_tokens_details", "cache_write_tokens_details", "ttl_12h_tokens")
        return msgspec.structs.replace(
            used, tier=tier if isinstance(tier, str) else "",
            cache_read=count(usage, "prompt_tokens_details", "cached_tokens")
            or count(usage, "prompt_cache_hit_tokens") or 0,  # DeepSeek
            cache_write=count(usage, "prompt_tokens_details", "cache_write_tokens") or 0,
            cache_write_long=long or 0, cost_usd=_stated(usage) if self.states_cost else None,
        )  # fmt: skip

    def _take(self, value: dict[str, Any], field: str) -> None:
        if isinstance(value.get("model"), str) and value["model"]:
            self.model = value["model"]
        self.named(value.get("id"))
        if value.get("usage") is not None:  # some count in every chunk: the last one is the total
            self.used = self._counted(value["usage"], value.get("service_tier"))
        choices = value.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return
        message = choice.get(field)
        if isinstance(message, dict):
            self.parts.append(_text(message.get("content")))
            self._refusal.append(_text(message.get("refusal")))
        reason = choice.get("finish_reason")
        if reason or field == "message":
            self._finished = True
            self.finish_word = str(reason or "")


def _stated(usage: dict[str, Any]) -> float | None:
    """The cost of OpenRouter in dollars; with a key of one's own, the vendor's is apart."""
    details = usage.get("cost_details")
    upstream = details.get("upstream_inference_cost") if isinstance(details, dict) else None
    parts = [usage.get("cost"), upstream if usage.get("is_byok") else 0]
    known = [float(each) for each in parts if is_amount(each)]
    return sum(known) if len(known) == len(parts) else None


def _text(content: Any) -> str:
    """Content is a text, or a list of parts some of which are."""
    if isinstance(content, list):
        return "".join(_text(part.get("text")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


OPENAI = Home(
    "https://api.openai.com/v1", "OPENAI_BASE_URL", "OPENAI_API_KEY",
    r"([a-z]{2}\.)?api\.openai\.com",
)  # fmt: skip


class OpenAI(HttpInvoker):
    """Asks at `base_url`, with the key that is in the environment variable `key_env`.

    OPENAI_API_KEY goes only to OpenAI, or where OPENAI_BASE_URL points; for any other address name
    the variable, or no key is sent. `stream=False` and `json_mode=False` are for a server without
    streams or without JSON mode. `tokens_field` is its name for the longest answer; by default it
    is `max_completion_tokens` for the reasoning models of OpenAI. `states_cost=True`: its
    `usage.cost` is in dollars.
    """

    home = OPENAI
    key_header = "Authorization"
    path = "/chat/completions"
    tokens_field = ""  # by the model
    stream_usage = True  # whether a stream counts its tokens when it is asked to
    json_object = True  # whether there is a JSON mode without a schema
    states_cost = False
    words = CHAT

    def __init__(
        self,
        name: str = "openai",
        *,
        json_mode: bool | None = None,
        states_cost: bool | None = None,
        stream_usage: bool | None = None,
        tokens_field: str | None = None,
        **options: Unpack[HttpInvokerOptions],
    ) -> None:
        super().__init__(name, **options)
        self.json_object = self.json_object if json_mode is None else json_mode
        self.states_cost = self.states_cost if states_cost is None else states_cost
        self.stream_usage = self.stream_usage if stream_usage is None else stream_usage
        self.tokens_field = self.tokens_field if tokens_field is None else tokens_field

    def _parser(self) -> ReplyParser:
        parser = _CompletionParser(self.name)
        parser.states_cost = self.states_cost
        return parser

    def _body(self, request: Request) -> dict[str, Any]:
        system = [{"role": "system", "content": request.system}] if request.system else []
        body: dict[str, Any] = {
            **request.body,
            "model": request.model,
            "messages": [*system, {"role": "user", "content": request.prompt}],
        }
        if self._stream:
            body["stream"] = True
            if self.stream_usage:
                body["stream_options"] = {"include_usage": True}
        if request.max_tokens is not None:
            body[self._tokens_field(request.model)] = request.max_tokens
        if request.temperature is not None:
            body["temperature"] = request.temperature
        # OpenAI refuses JSON mode for a question that does not mention JSON.
        mentions_json = "json" in (request.prompt + (request.system or "")).lower()
        if self.takes_schema(request):
            form = {"name": "answer", "strict": True, "schema": request.schema}
            body.setdefault("response_format", {"type": "json_schema", "json_schema": form})
        elif request.wants_json and self.json_object and mentions_json:
            body.setdefault("response_format", {"type": "json_object"})
        return body

    def _tokens_field(self, model: str) -> str:
        """OpenAI renamed the field. Its reasoning models refuse the old name, also behind gateways;
        other servers may not know the new one."""
        if self.tokens_field:
            return self.tokens_field
        facts = find("openai", model.removeprefix("openai/"))
        is_new = self._at_home or (facts is not None and facts.reasons)
        return "max_completion_tokens" if is_new else "max_tokens"
