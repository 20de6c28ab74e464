"""The Gemini API over HTTP: Google's models with a key of AI Studio."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from rota.ai.base import Request, passing
from rota.ai.base_invoker import count
from rota.ai.finish import GEMINI
from rota.ai.model_data import TokenUsage
from rota.ai.provider_call import Home, HttpInvoker, ReplyParser

_TIERS = {"ON_DEMAND": "", "ON_DEMAND_PRIORITY": "priority", "ON_DEMAND_FLEX": "flex"}


class _ContentParser(ReplyParser):
    """Reads the chunks or the object of a generated content."""

    def __init__(self, provider: str) -> None:
        super().__init__(provider)
        self._blocked = ""

    @property
    def refusal(self) -> str:
        """Why the prompt was blocked."""
        return self._blocked

    def event(self, value: dict[str, Any]) -> None:
        """Read one chunk; it has the form of the object."""
        self._take(value)

    def whole(self, value: dict[str, Any]) -> None:
        """Read the reply in one piece."""
        self._take(value)
        if not self.finish_word and not self._blocked:
            raise passing(f"{self.provider} answered without a candidate", sent=True)

    def ended(self) -> bool:
        """Whether a stream may end here: it has no mark for the end."""
        return bool(self.finish_word or self._blocked)

    def _take(self, value: dict[str, Any]) -> None:
        self.named(value.get("responseId"))
        self.model = str(value.get("modelVersion") or "") or self.model
        self._count(value.get("usageMetadata"))
        feedback = value.get("promptFeedback")
        if isinstance(feedback, dict) and feedback.get("blockReason"):
            self._blocked = f"the prompt was blocked ({feedback['blockReason']})"
        candidates = value.get("candidates")
        candidate = candidates[0] if isinstance(candidates, list) and candidates else None
        if not isinstance(candidate, dict):
            return
        content = candidate.get("content")
        for part in (content.get("parts") or []) if isinstance(content, dict) else []:
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                self.parts += [] if part.get("thought") else [part["text"]]
        self.finish_word = str(candidate.get("finishReason") or self.finish_word)

    def _count(self, usage: Any) -> None:
        """Thoughts are part of the answer; what a tool put into the prompt, of the prompt."""
        asked = count(usage, "promptTokenCount")
        if asked is None:
            return
        said = [count(usage, name) or 0 for name in ("candidatesTokenCount", "thoughtsTokenCount")]
        tier = str(usage.get("trafficType") or "")
        self.used = TokenUsage(
            asked + (count(usage, "toolUsePromptTokenCount") or 0), sum(said),
            cache_read=count(usage, "cachedContentTokenCount") or 0, tier=_TIERS.get(tier, tier),
        )  # fmt: skip


class Gemini(HttpInvoker):
    """Asks at `base_url`, with the key that is in the environment variable `key_env`."""

    home = Home("https://generativelanguage.googleapis.com", "GEMINI_BASE_URL", "GEMINI_API_KEY")
    key_header = "x-goog-api-key"
    path = "/v1beta/models"
    base_suffix = "/v1beta"
    parser = _ContentParser
    words = GEMINI
    vendor = "gemini"

    def _address(self, model: str) -> str:
        verb = "streamGenerateContent?alt=sse" if self._stream else "generateContent"
        return f"{self._url}/{quote(model.removeprefix('models/'), safe='')}:{verb}"

    def _body(self, request: Request) -> dict[str, Any]:
        options: dict[str, Any] = {**request.body.get("generationConfig", {}), "candidateCount": 1}
        if request.max_tokens is not None:
            options["maxOutputTokens"] = request.max_tokens
        else:
            options.pop("maxOutputTokens", None)
        if request.temperature is not None:
            options["temperature"] = request.temperature
        if request.wants_json:
            options["responseMimeType"] = "application/json"
        if self.takes_schema(request):
            options["responseJsonSchema"] = request.schema
        body: dict[str, Any] = {
            **request.body, "generationConfig": options,
            "contents": [{"role": "user", "parts": [{"text": request.prompt}]}],
        }  # fmt: skip
        if request.system:
            body["systemInstruction"] = {"parts": [{"text": request.system}]}
        return body
