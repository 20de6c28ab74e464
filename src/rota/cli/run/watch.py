"""`--watch`: ask every two seconds, and print the answer when it has changed."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click

from rota.cli import connect
from rota.cli.base import CommonOptions
from rota.client.client import Client
from rota.core.time.instants import SECOND

T = TypeVar("T")
LOOK_US = 2 * SECOND

OPTION = click.option("--watch", is_flag=True, help="Refresh every 2 s until Ctrl-C.")


def watch(
    call: CommonOptions,
    query: Callable[[Client], Awaitable[T]],
    show: Callable[[T], None],
    *,
    shape: Callable[[T], object],
    is_over: Callable[[T], bool] = lambda _: False,
) -> None:
    """Show the answer of `query` whenever its `shape` has changed, until `is_over` or Ctrl-C."""

    async def work(client: Client) -> None:
        before: object = None
        while True:
            found = await query(client)
            seen = shape(found)
            if seen != before:
                before = seen
                if sys.stdout.isatty():
                    click.clear()
                show(found)
            if is_over(found):
                return
            await client.clock.wait(asyncio.Event(), client.clock.now() + LOOK_US)

    with contextlib.suppress(KeyboardInterrupt):
        connect.ask(call, work)
