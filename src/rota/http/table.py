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
    audits: bool = False  # the handler itself writes to the audit list
    is_signed: bool = False  # its handler checks a secret, so the page that sent it does not matter
