"""The Responses API over HTTP: OpenAI. Its codex and pro models have no other interface."""

from __future__ import annotations

from typing import Any

import msgspec

from rota.ai.base import Request
from rota.ai.base_invoker import count, counts
from rota.ai.errors import Refusal, judge
from rota.ai.finish import RESPONSES
from rota.ai.openai import OPENAI
from rota.ai.provider_call import HttpInvoker, ReplyParser

_ENDS = ("response.completed", "response.incomplete", "response.failed")


class _ResponseParser(ReplyParser):
    """Reads the last event of a stream, which has the whole response, or the object."""

    def __init__(self, provider: str) -> None:
        super().__init__(provider)
        self._refusal: list[str] = []

    @property
    def refusal(self) -> str:
        """The text of the model."""
        return "".join(self._refusal)

    def event(self, value: dict[str, Any]) -> None:
        """Read one event; the parts of the text come again at the end."""
        if value.get("type") == "error":
            self._fail(value)
        if value.get("type") in _ENDS and isinstance(value.get("response"), dict):
            self.whole(value["response"])
            self.done = True

    def whole(self, value: dict[str, Any]) -> None:
        """Read the response."""
        if value.get("error"):
            self._fail(value["error"])
        self.named(value.get("id"))
        self.model = str(value.get("model") or "") or None
        output = [each for each in value.get("output") or [] if isinstance(each, dict)]
        for item in output:
            for part in item.get("content") or []:
                self._add(item, part)
        details = value.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        calls = any(item.get("type") == "function_call" for item in output)
        self.finish_word = str(reason or ("function_call" if calls else value.get("status") or ""))
        self._count(value.get("usage"), value.get("service_tier"))

    def _add(self, item: dict[str, Any], part: Any) -> None:
        if item.get("type") != "message" or not isinstance(part, dict):
            return
        text, refusal = part.get("text"), part.get("refusal")
        self.parts += [text] if isinstance(text, str) else []
        self._refusal += [refusal] if isinstance(refusal, str) else []

    def _count(self, usage: Any, tier: Any) -> None:
        used = counts(usage, "input_tokens", "output_tokens")
        details = "input_tokens_details"
        self.used = used and msgspec.structs.replace(
            used, tier=tier if isinstance(tier, str) else "",
            cache_read=count(usage, details, "cached_tokens") or 0,
            cache_write=count(usage, details, "cache_write_tokens") or 0,
            cache_write_long=count(
                usage, details, "cache_write_tokens_details", "ttl_12h_tokens") or 0,
        )  # fmt: skip

    def _fail(self, error: Any) -> None:
        body = msgspec.json.encode({"error": error})
        raise judge(Refusal(self.provider, 0, body, {}, None))


class Responses(HttpInvoker):
    """Asks at `base_url`, as `OpenAI` does, but by the Responses API; nothing is stored there."""

    home = OPENAI
    key_header = "Authorization"
    path = "/responses"
    parser = _ResponseParser
    words = RESPONSES
    vendor = "openai"

    def _body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {
            "store": False, **request.body, "model": request.model, "input": request.prompt,
        }  # fmt: skip
        if self._stream:
            body["stream"] = True
        if request.system:
            body["instructions"] = request.system
        if request.max_tokens is not None:
            body["max_output_tokens"] = request.max_tokens
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if self.takes_schema(request):
            form = {"type": "json_schema", "name": "answer", "schema": request.schema}
            body["text"] = {"format": {**form, "strict": True}, **request.body.get("text", {})}
        return body
