"""The entries of the one table that routes requests: pages for people, routes for programs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from rota.http.request import Answer, Role, WebRequest

PageHandler: TypeAlias = Callable[[WebRequest], Awaitable[Answer]]


@dataclass(frozen=True)
class Page:
    """A page or a form's target. `{name}` in the path is a parameter, one segment long."""

    method: str
    path: str
    role: Role
    handler: PageHandler
    verb: str = ""  # for the audit list; without one, method and path
    audits: bool = False  # the handler writes to the audit list, or changes nothing
    is_signed: bool = False  # its handler checks a secret, so the page that sent it does not matter
    audits_body: bool = False  # the audit list keeps the JSON body
    limit_s: float | None = None  # the longest time for an answer; None is the usual one
