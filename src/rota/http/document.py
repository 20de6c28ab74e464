"""Rows of the client as bodies of the API: instants as RFC 3339, stored JSON as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec

from rota.core.redaction import shown
from rota.core.time.instants import instant, iso

Instant = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]
S = TypeVar("S", bound=msgspec.Struct)

# Columns that hold JSON.
STORED_JSON = frozenset({
    "input", "output", "error", "tags", "options", "queues", "payload", "params", "result",
    "detail", "graph",
})  # fmt: skip


class ApiDocument(msgspec.Struct, frozen=True):
    """A body of the API."""


def document(kind: type[S], row: Any, **more: Any) -> S:
    """A row as a document: instants as RFC 3339, stored JSON as JSON."""
    values = {}
    for name in kind.__struct_fields__:
        value = more[name] if name in more else getattr(row, name)
        if name == "at" or name.endswith(("_at", "_until")):
            value = written(value)
        elif name in STORED_JSON:
            value = shown(stored(value) if isinstance(value, str) else value)
        values[name] = value
    return kind(**values)


def documents(kind: type[S], rows: Iterable[Any]) -> list[S]:
    """Several rows."""
    return [document(kind, row) for row in rows]


def written(value: int | datetime | str | None) -> str | None:
    """An instant as RFC 3339 in UTC."""
    if isinstance(value, datetime):
        return iso(instant(value))
    return iso(value) if isinstance(value, int) else value


def stored(text: str) -> Any:
    """Stored JSON; text that is not JSON is shown as text."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
