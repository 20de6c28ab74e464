"""Cursors of lists: the last key of a page, bound to the filters it was made with."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from rota.errors import StaleCursor


def cursor(rows: Sequence[Any], limit: int, key: str, filters: msgspec.Struct) -> str | None:
    """The cursor after these rows; None when there are no more."""
    if len(rows) < limit:
        return None
    text = f"{_digest(filters)}{key}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def position(given: str, filters: msgspec.Struct) -> str:
    """The key that a cursor holds, or StaleCursor if it was made with other filters."""
    if not given:
        return ""
    try:
        text = base64.b64decode(given + "=" * (-len(given) % 4), b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        text = ""
    if not text.startswith(_digest(filters)):
        raise StaleCursor("the cursor does not belong to this list and these filters")
    return text[8:]


def _digest(filters: msgspec.Struct) -> str:
    """The filters without the cursor and the size of the page."""
    given = {
        name: getattr(filters, name)
        for name in filters.__struct_fields__
        if name not in ("cursor", "limit")
    }
    text = msgspec.json.encode([type(filters).__name__, given])
    return hashlib.sha256(text).hexdigest()[:8]
