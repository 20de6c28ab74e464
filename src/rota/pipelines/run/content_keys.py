"""Content keys: a call with the same content is the same call, in every run and at any time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from rota.pipelines.definition.sections import OutputField

VERSION = 2  # raise it when what is hashed changes: old results are then not found again
# Headers that say who asks and how to follow the call. Every other header may change the answer.
WITHOUT_EFFECT = frozenset({
    "http-referer", "idempotency-key", "openai-organization", "openai-project", "traceparent",
    "tracestate", "user-agent", "x-client-request-id", "x-request-id", "x-title",
})  # fmt: skip


class CallContent(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides about the answer of a call.

    `max_tokens` is not part of it: a higher limit gives the same answer.
    """

    provider: str
    model: str
    prompt: str
    system: str | None = None
    temperature: float | None = None
    body: dict[str, Any] = {}
    headers: dict[str, str] = {}
    fields: list[OutputField] = []
    batch: int | None = None


def call_key(content: CallContent) -> str:
    """The key of an item, of a batch and of a single call."""
    headers = {
        name.lower(): value
        for name, value in content.headers.items()
        if name.lower() not in WITHOUT_EFFECT
    }
    return _key("call", msgspec.to_builtins(msgspec.structs.replace(content, headers=headers)))


def unasked_key(item: Mapping[str, Any]) -> str:
    """The key of an item about which no call can be made."""
    return _key("item", dict(item))


def _key(kind: str, value: Any) -> str:
    """A short key; the order of keys in mappings does not matter."""
    text = json.dumps(
        [VERSION, value], sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )
    return f"{kind}:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def schedule_id(pipeline_id: str, folder: Path) -> str:
    """`daily-report-a1b2c3`: two checkouts of one pipeline are two schedules."""
    digest = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:6]
    return f"{pipeline_id}-{digest}"
