"""`--watch`: query every two seconds, and print the answer when it has changed."""

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
REFRESH_US = 2 * SECOND

OPTION = click.option("--watch", is_flag=True, help="Refresh every 2 s until Ctrl-C.")


def show_answer(
    call: CommonOptions,
    query: Callable[[Client], Awaitable[T]],
    show: Callable[[T], None],
    *,
    watch: bool,
    shape: Callable[[T], object],
    is_over: Callable[[T], bool] = lambda _: False,
) -> None:
    """Show the answer of `query` once. With `watch`, show it whenever its `shape` has changed,
    until `is_over` or Ctrl-C."""
    if not watch:
        show(connect.ask(call, query))
        return

    async def work(client: Client) -> None:
        before: object = None
        while True:
            answer = await query(client)
            seen = shape(answer)
            if seen != before:
                before = seen
                if sys.stdout.isatty():
                    click.clear()
                show(answer)
            if is_over(answer):
                return
            await client.clock.wait(asyncio.Event(), client.clock.now() + REFRESH_US)

    with contextlib.suppress(KeyboardInterrupt):
        connect.ask(call, work)
