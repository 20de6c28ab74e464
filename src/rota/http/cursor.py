"""Cursors of lists: the last key of a page, bound to the filters it was made with."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TypeVar

import msgspec

from rota.errors import StaleCursor
from rota.http.fields import PageQuery

R = TypeVar("R")


def cursor(
    rows: Sequence[R], query: PageQuery, key: Callable[[R], str] = attrgetter("id")
) -> str | None:
    """The cursor after these rows; None when there are no more. `key` is the id of a row."""
    if len(rows) < query.limit:
        return None
    text = f"{_digest(query)}{key(rows[-1])}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def position(query: PageQuery) -> str:
    """The key that a cursor holds, or StaleCursor if it was made with other filters."""
    given = query.cursor
    if not given:
        return ""
    try:
        text = base64.b64decode(given + "=" * (-len(given) % 4), b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        text = ""
    if not text.startswith(_digest(query)):
        raise StaleCursor("the cursor does not belong to this list and these filters")
    return text[8:]


def _digest(query: PageQuery) -> str:
    """The filters without the cursor and the size of the page."""
    given = {
        name: getattr(query, name)
        for name in query.__struct_fields__
        if name not in PageQuery.__struct_fields__
    }
    text = msgspec.json.encode([type(query).__name__, given])
    return hashlib.sha256(text).hexdigest()[:8]
