"""The messages API over HTTP: Anthropic, and gateways with the same interface."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

from rota.ai.base import Request, passing
from rota.ai.base_invoker import count
from rota.ai.finish import MESSAGES
from rota.ai.model_data import TokenUsage
from rota.ai.provider_call import Home, HttpInvoker, HttpInvokerOptions, ReplyParser

VERSION = "2023-06-01"
MAX_TOKENS = 4096  # the API requires a limit; this is the default
THINKING_MAX_TOKENS = 16_384  # the same for models that always think, which counts as an answer


class _MessageParser(ReplyParser):
    """Reads the events or the object of a message."""

    def __init__(self, provider: str) -> None:
        super().__init__(provider)
        self._usage: dict[str, Any] = {}

    @property
    def refusal(self) -> str:
        """Anthropic gives no text."""
        return ""

    def event(self, value: dict[str, Any]) -> None:
        """Read one event of a stream; unknown ones are ignored."""
        delta = value.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        match value.get("type"):
            case "message_start":
                self._head(value.get("message"))
            case "content_block_delta":
                self._add(delta.get("text"))
            case "message_delta":
                self._count(value.get("usage"))
                self._stop(delta.get("stop_reason"))
            case "message_stop":
                self.done = True

    def whole(self, value: dict[str, Any]) -> None:
        """Read the reply in one piece."""
        content = value.get("content")
        if not isinstance(content, list):
            raise passing(f"{self.provider} answered without content", sent=True)
        self._head(value, is_whole=True)
        for block in content:
            if isinstance(block, dict) and block.get("type") == "text":
                self._add(block.get("text"))
        self._stop(value.get("stop_reason"))

    def _head(self, message: Any, *, is_whole: bool = False) -> None:
        if isinstance(message, dict):
            self.model = str(message["model"]) if message.get("model") else None
            self.named(message.get("id"))
            usage = message.get("usage")
            if isinstance(usage, dict) and not is_whole:  # the answer is not counted yet
                usage = {name: value for name, value in usage.items() if name != "output_tokens"}
            self._count(usage)

    def _add(self, text: Any) -> None:
        if isinstance(text, str):
            self.parts.append(text)

    def _stop(self, reason: Any) -> None:
        if isinstance(reason, str):
            self.finish_word = reason

    def _count(self, usage: Any) -> None:
        """Tokens in include those written to and read from a cache."""
        # The counts of later events are totals, not additions.
        self._usage |= usage if isinstance(usage, dict) else {}
        asked, answered = count(self._usage, "input_tokens"), count(self._usage, "output_tokens")
        read, written = (
            0 if self._usage.get(name) is None else count(self._usage, name)
            for name in ("cache_read_input_tokens", "cache_creation_input_tokens")
        )
        if asked is None or answered is None or read is None or written is None:
            self.used = None
            return
        speed, tier = self._usage.get("speed"), self._usage.get("service_tier")
        self.used = TokenUsage(
            asked + read + written, answered, cache_read=read, cache_write=written,
            cache_write_long=count(self._usage, "cache_creation", "ephemeral_1h_input_tokens") or 0,
            searches=count(self._usage, "server_tool_use", "web_search_requests") or 0,
            tier=str(tier or "") if speed in (None, "standard") else str(speed),
        )  # fmt: skip


class Anthropic(HttpInvoker):
    """Asks at `base_url`, with the key that is in the environment variable `key_env`.

    ANTHROPIC_API_KEY goes only to Anthropic, or where ANTHROPIC_BASE_URL points; for any other
    address name the variable, or no key is sent.
    """

    home = Home("https://api.anthropic.com", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY")
    key_header = "x-api-key"
    path = "/v1/messages"
    base_suffix = "/v1"
    own_headers: ClassVar = {"anthropic-version": VERSION}
    parser = _MessageParser
    caches_unasked = False
    words = MESSAGES

    def __init__(
        self,
        name: str = "anthropic",
        *,
        max_tokens: int | None = None,
        **options: Unpack[HttpInvokerOptions],
    ) -> None:
        super().__init__(name, **options)
        self._max_tokens = max_tokens

    def answer_tokens_max(self, request: Request) -> int:
        """The bound that is sent: the API requires one."""
        facts = self.facts(request.model)
        thinks = facts is not None and facts.always_thinks
        default = THINKING_MAX_TOKENS if thinks else MAX_TOKENS
        return request.max_tokens or self._max_tokens or default

    def _body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {
            **request.body,
            "model": request.model,
            "max_tokens": self.answer_tokens_max(request),
            "messages": [{"role": "user", "content": request.prompt}],
        }
        if self._stream:
            body["stream"] = True
        if request.system:
            body["system"] = request.system
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if self.takes_schema(request):
            form = {"format": {"type": "json_schema", "schema": request.schema}}
            body["output_config"] = {**form, **request.body.get("output_config", {})}
        return body
