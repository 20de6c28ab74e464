"""Handlers that call in odd ways, and the line of a call."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rota.automations import Context, Prepared
from tests.automations.kit import Line

Mutate = Callable[[Any, Context, Prepared], Any]


def line_of(function: Any, text: str) -> int:
    """The number of the last line of a function that holds this text."""
    lines, first = inspect.getsourcelines(function)
    return max(first + number for number, line in enumerate(lines) if text in line)


def mutates(app: Line, function: Any) -> None:
    """From now on this is the consumer's mutate."""
    app.line.handlers["worker"].functions["mutate"] = function


class Sender:
    """An object of the handler that keeps `ctx`."""

    def __init__(self, ctx: Context, app: Line) -> None:
        self.ctx = ctx
        self.app = app

    async def send(self, item: int) -> None:
        await self.ctx.call(self.app.outside, items=item)

    def note(self, text: str) -> None:
        self.ctx.log(text)
