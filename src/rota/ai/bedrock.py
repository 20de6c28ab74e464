"""The Converse API over HTTP: models of Amazon Bedrock, with an API key of Bedrock."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from rota.ai.base import Request, passing
from rota.ai.base_invoker import count
from rota.ai.finish import CONVERSE
from rota.ai.model_data import TokenUsage
from rota.ai.provider_call import Home, HttpInvoker, ReplyParser


class _ConverseParser(ReplyParser):
    """Reads the object of an answer."""

    @property
    def refusal(self) -> str:
        """Bedrock gives no text."""
        return ""

    def event(self, value: dict[str, Any]) -> None:
        """There are no such streams: those of Bedrock are binary, and Rota asks for none."""

    def whole(self, value: dict[str, Any]) -> None:
        """Read the reply."""
        output = value.get("output")
        message = output.get("message") if isinstance(output, dict) else None
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, list):
            raise passing(f"{self.provider} answered without content", sent=True)
        texts = [block.get("text") for block in content if isinstance(block, dict)]
        self.parts += [text for text in texts if isinstance(text, str)]
        self.finish_word = str(value.get("stopReason") or "")
        tier = value.get("serviceTier")
        name = tier.get("type") if isinstance(tier, dict) else ""
        self._count(value.get("usage"), str(name or ""))

    def _count(self, usage: Any, tier: str) -> None:
        """Tokens in include those written to and read from a cache."""
        asked, answered = count(usage, "inputTokens"), count(usage, "outputTokens")
        if asked is None or answered is None:
            return
        read = count(usage, "cacheReadInputTokens") or 0
        written = count(usage, "cacheWriteInputTokens") or 0
        long = [
            count(each, "inputTokens") or 0
            for each in usage.get("cacheDetails") or []
            if isinstance(each, dict) and each.get("ttl") != "5m"
        ]
        self.used = TokenUsage(
            asked + read + written, answered, read, written, min(sum(long), written), tier=tier
        )


class Bedrock(HttpInvoker):
    """Asks at `base_url`, the address of a region, with the key that is in `key_env`."""

    home = Home(
        "https://bedrock-runtime.us-east-1.amazonaws.com", "AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
        "AWS_BEARER_TOKEN_BEDROCK", r"bedrock-runtime\.[a-z0-9-]{1,40}\.amazonaws\.com",
    )  # fmt: skip
    key_header = "Authorization"
    path = "/model"
    parser = _ConverseParser
    words = CONVERSE
    vendor = "bedrock"
    caches_unasked = False

    def _address(self, model: str) -> str:
        return f"{self._url}/{quote(model, safe='')}/converse"

    def _body(self, request: Request) -> dict[str, Any]:
        options: dict[str, Any] = {**request.body.get("inferenceConfig", {})}
        options.pop("maxTokens", None)
        if request.max_tokens is not None:
            options["maxTokens"] = request.max_tokens
        if request.temperature is not None:
            options["temperature"] = request.temperature
        body: dict[str, Any] = {
            **request.body, "inferenceConfig": options,
            "messages": [{"role": "user", "content": [{"text": request.prompt}]}],
        }  # fmt: skip
        if request.system:
            body["system"] = [{"text": request.system}]
        if self.takes_schema(request):
            schema = msgspec.json.encode(request.schema).decode()
            form = {"jsonSchema": {"name": "answer", "schema": schema}}
            body["outputConfig"] = {"textFormat": {"type": "json_schema", "structure": form}}
        return body
