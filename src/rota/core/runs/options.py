"""The stored options of a run: JSON that travels along its chain, one field at a time. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

# When the first attempt began. The timeout of a chain counts from here.
BEGAN_AT = "began_at"


def with_default(options: str | None, name: str, value: Any) -> str:
    """The options with a field set, unless they have it already."""
    fields = _fields(options)
    fields.setdefault(name, value)
    return msgspec.json.encode(fields).decode()


def without(options: str | None, name: str) -> str | None:
    """The options without a field."""
    fields = _fields(options)
    fields.pop(name, None)
    return msgspec.json.encode(fields).decode() if fields else None


def _fields(options: str | None) -> dict[str, Any]:
    return msgspec.json.decode(options, type=dict[str, Any]) if options else {}
