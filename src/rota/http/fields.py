"""Fields that queries and bodies of several routes share, and the problems of most routes."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

import msgspec

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
    """A page of a list by name; `search` is a part of the name, `after` the last name of the page
    before."""

    search: Text = ""
    after: Text = ""
    limit: Limit = 200


class NoteBody(RequestFields, frozen=True, kw_only=True):
    """Why the command is given; the record keeps it."""

    note: Text | None = None
