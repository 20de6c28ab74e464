"""Fields that several routes share, cursors of lists, and the problems of most routes."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Sequence
from http import HTTPStatus
from operator import attrgetter
from typing import Annotated, TypeVar

import msgspec

from rota.errors import StaleCursor

R = TypeVar("R")
Limit = Annotated[int, msgspec.Meta(ge=1, le=200)]
Text = Annotated[str, msgspec.Meta(max_length=1_000)]
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=1_000)]
Reason = Annotated[str, msgspec.Meta(min_length=1, max_length=500)]

# The problems of a route: the thing is unknown, or its state refuses the command.
NOT_FOUND = (HTTPStatus.NOT_FOUND,)
CONFLICT = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)


class RequestFields(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Fields of a query or a body. Unknown ones are refused."""


class PageQuery(RequestFields, frozen=True, kw_only=True):
    """A page of a list; `cursor` is `next` of the page before."""

    cursor: Text = ""
    limit: Limit = 50


class NamesQuery(RequestFields, frozen=True):
    """A page of a list by name: `search` is part of the name, `after` the previous last name."""

    search: Text = ""
    after: Text = ""
    limit: Limit = 200


class NoteBody(RequestFields, frozen=True, kw_only=True):
    """Why the command is given; the record keeps it."""

    note: Text | None = None


# -- cursors: the last key of a page, bound to the filters it was made with ---------------------


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
