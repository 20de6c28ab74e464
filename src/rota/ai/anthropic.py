"""The messages API over HTTP: Anthropic, and gateways that speak like it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rota.ai.base import Reply, Request, passing
from rota.ai.errors import filtered
from rota.ai.priced_invoker import Priced, check, count
from rota.ai.prices import Prices
from rota.ai.provider_call import Home, Wire, key_for

HOME = Home("https://api.anthropic.com", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY")
VERSION = "2023-06-01"
MAX_TOKENS = 4096  # the API requires a limit; this is the default

_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}


class Anthropic(Priced):
    """Asks at `base_url`, with the key that is in the environment variable `key_env`.

    ANTHROPIC_API_KEY goes only to Anthropic, or where ANTHROPIC_BASE_URL points; for any other
    address name the variable, or no key is sent.
    """

    def __init__(
        self,
        name: str = "anthropic",
        *,
        base_url: str | None = None,
        key_env: str | None = None,
        key_header: str = "x-api-key",
        stream: bool = True,
        max_tokens: int = MAX_TOKENS,
        prices: Prices | None = None,
        env: Mapping[str, str] = os.environ,
    ) -> None:
        super().__init__(name, prices)
        address, key = key_for(base_url, HOME, name, named=key_env, header=key_header, env=env)
        self._wire = Wire(name, address.rstrip("/").removesuffix("/v1"), key)
        self._stream, self._max_tokens = stream, max_tokens

    async def ask(self, request: Request) -> Reply:
        """Ask once; see `rota.ai.base` for what may be raised."""
        check(request)
        fold = _MessageParser(self.name)
        await self._wire.post(
            "/v1/messages",
            self._body(request),
            fold,
            headers={"anthropic-version": VERSION, **request.headers},
            timeout_s=request.timeout_s,
        )
        text = "".join(fold.parts)
        reply = self.reply(request, text, model=fold.model, used=fold.used, finish=fold.finish)
        if fold.finish == "refusal":
            raise filtered(self.name, "", reply)
        return reply

    async def aclose(self) -> None:
        """Close the kept connections."""
        await self._wire.aclose()

    def answer_tokens_max(self, request: Request) -> int:
        """The bound that is sent: the API wants one."""
        return request.max_tokens or self._max_tokens

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
        return body


class _MessageParser:
    """An answer, gathered from events or taken whole."""

    def __init__(self, who: str) -> None:
        self.done = False
        self.parts: list[str] = []
        self.model: str | None = None
        self.finish = "stop"
        self._who = who
        self._usage: dict[str, int] = {}

    @property
    def used(self) -> tuple[int, int] | None:
        """Tokens in, also those written to and read from a cache, and tokens out."""
        if not {"input_tokens", "output_tokens"} <= self._usage.keys():
            return None
        cached = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        return sum(self._usage.get(name, 0) for name in cached), self._usage["output_tokens"]

    def event(self, value: dict[str, Any]) -> None:
        """One event; those we do not know are passed over."""
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
        """All in one."""
        content = value.get("content")
        if not isinstance(content, list):
            raise passing(f"{self._who} answered without content", sent=True)
        self._head(value)
        for block in content:
            if isinstance(block, dict) and block.get("type") == "text":
                self._add(block.get("text"))
        self._stop(value.get("stop_reason"))

    def ended(self) -> bool:
        """Whether the stream is complete."""
        return self.done

    def _head(self, message: Any) -> None:
        if isinstance(message, dict):
            self.model = str(message["model"]) if message.get("model") else None
            self._count(message.get("usage"))

    def _add(self, text: Any) -> None:
        if isinstance(text, str):
            self.parts.append(text)

    def _stop(self, reason: Any) -> None:
        if isinstance(reason, str):
            self.finish = _FINISH.get(reason, reason)

    def _count(self, usage: Any) -> None:
        # The counts of later events are totals, not additions.
        counts = usage.items() if isinstance(usage, dict) else ()
        self._usage |= {
            name: number for name, value in counts if (number := count(value)) is not None
        }
