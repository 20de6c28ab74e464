"""Puts a test between an app and the writes of its database."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any


def replace_writes(database: Any, write: Callable[..., Awaitable[Any]]) -> None:
    """Send every write through `write(function, *args, **kwargs)`; it sends no notifications."""

    async def notify(topics: Any) -> None:
        return None

    database.write = database.write_brief = write
    database.notify = notify
