"""Schedules with a past, made on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from rota.app import Rota
from rota.testing import World, virtual
from tests.cli.kit import Shell

LONG_AGO = datetime(2026, 1, 5, 8, 30, tzinfo=UTC)


def past(shell: Shell, page: Callable[[Rota, World], Awaitable[None]]) -> None:
    """Let something happen long ago, by a clock of its own, in the shell's database."""

    async def live() -> None:
        app = shell.app()
        async with virtual(app, url=app.url, start=LONG_AGO) as world:
            await page(app, world)

    asyncio.run(live())
