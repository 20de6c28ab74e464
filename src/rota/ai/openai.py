"""Chat completions over HTTP: OpenAI, and all that speak like it (gateways, vLLM, Ollama)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rota.ai.base import Reply, Request, passing
from rota.ai.errors import filtered
from rota.ai.priced_invoker import Priced, check, count
from rota.ai.prices import Prices
from rota.ai.provider_call import Home, Wire, is_at, key_for

HOME = Home("https://api.openai.com/v1", "OPENAI_BASE_URL", "OPENAI_API_KEY")

# Servers that speak like OpenAI use words of their own for an answer that was cut off.
_FINISH = {"max_tokens": "length", "MAX_TOKENS": "length", "SAFETY": "content_filter"}


class OpenAI(Priced):
    """Asks at `base_url`, with the key that is in the environment variable `key_env`.

    OPENAI_API_KEY goes only to OpenAI, or where OPENAI_BASE_URL points; for any other address name
    the variable, or no key is sent. A server that cannot stream or does not know JSON mode is
    asked without, by `stream=False` and `json_mode=False`.
    """

    def __init__(
        self,
        name: str = "openai",
        *,
        base_url: str | None = None,
        key_env: str | None = None,
        key_header: str = "Authorization",
        stream: bool = True,
        json_mode: bool = True,
        prices: Prices | None = None,
        env: Mapping[str, str] = os.environ,
    ) -> None:
        super().__init__(name, prices)
        address, key = key_for(base_url, HOME, name, named=key_env, header=key_header, env=env)
        self._at_home = is_at(address, HOME)
        self._stream, self._json_mode = stream, json_mode
        self._wire = Wire(name, address, key)

    async def ask(self, request: Request) -> Reply:
        """Ask once; see `rota.ai.base` for what may be raised."""
        check(request)
        fold = _CompletionParser(self.name)
        await self._wire.post(
            "/chat/completions", self._body(request), fold, headers=request.headers,
            timeout_s=request.timeout_s,
        )  # fmt: skip
        text = "".join(fold.parts)
        reply = self.reply(request, text, model=fold.model, used=fold.used, finish=fold.finish)
        if fold.is_filtered:
            raise filtered(self.name, fold.refused or "its content filter stepped in", reply)
        return reply

    async def aclose(self) -> None:
        """Close the kept connections."""
        await self._wire.aclose()

    def _body(self, request: Request) -> dict[str, Any]:
        system = [{"role": "system", "content": request.system}] if request.system else []
        body: dict[str, Any] = {
            **request.body,
            "model": request.model,
            "messages": [*system, {"role": "user", "content": request.prompt}],
        }
        if self._stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if request.max_tokens is not None:
            # OpenAI has given the field a new name, and its new models refuse the old one.
            field = "max_completion_tokens" if self._at_home else "max_tokens"
            body[field] = request.max_tokens
        if request.temperature is not None:
            body["temperature"] = request.temperature
        asks_json = request.wants_json and self._json_mode and _speaks_of_json(request)
        if asks_json and "response_format" not in body:
            body["response_format"] = {"type": "json_object"}
        return body


def _speaks_of_json(request: Request) -> bool:
    """The mode is refused for a question that does not mention it."""
    return "json" in (request.prompt + (request.system or "")).lower()


class _CompletionParser:
    """An answer, gathered from chunks or taken whole."""

    def __init__(self, who: str) -> None:
        self.done = False
        self.parts: list[str] = []
        self.refusal: list[str] = []
        self.model: str | None = None
        self.used: tuple[int, int] | None = None
        self.finish = "stop"
        self._who = who
        self._finished = False

    def event(self, value: dict[str, Any]) -> None:
        """One chunk; the usage comes after the end."""
        self._take(value, "delta")

    def whole(self, value: dict[str, Any]) -> None:
        """All in one."""
        self._take(value, "message")
        if not self._finished:
            raise passing(f"{self._who} answered without a choice", sent=True)

    def ended(self) -> bool:
        """Whether the stream is complete, for servers that end without saying so."""
        return self._finished

    @property
    def refused(self) -> str:
        """The refusal of the model instead of an answer."""
        return "".join(self.refusal)

    @property
    def is_filtered(self) -> bool:
        """Whether there is no answer, since the model or a filter would not give one."""
        return self.finish == "content_filter" or bool(self.refused)

    def _take(self, value: dict[str, Any], field: str) -> None:
        if isinstance(value.get("model"), str) and value["model"]:
            self.model = value["model"]
        self._count(value.get("usage"))
        choices = value.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return
        message = choice.get(field)
        if isinstance(message, dict):
            self.parts.append(_text(message.get("content")))
            self.refusal.append(_text(message.get("refusal")))
        if choice.get("finish_reason") or field == "message":
            self._finish(str(choice.get("finish_reason") or "stop"))

    def _finish(self, reason: str) -> None:
        self._finished = True
        self.finish = _FINISH.get(reason, reason)

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            asked = count(usage.get("prompt_tokens"))
            answered = count(usage.get("completion_tokens"))
            if asked is not None and answered is not None:
                self.used = (asked, answered)


def _text(content: Any) -> str:
    """Content is a text, or a list of parts some of which are."""
    if isinstance(content, list):
        return "".join(_text(part.get("text")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
