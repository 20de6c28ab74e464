"""The place where a client was connected: its process and its event loop. It can be used nowhere
else.

Threads and sockets do not come along into a forked child, and what waits in one event loop is not
woken by another.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from typing import NamedTuple

from rota.errors import UsageError


class ClientHome(NamedTuple):
    """The process and the event loop of a connection."""

    pid: int
    loop: asyncio.AbstractEventLoop

    @classmethod
    def here(cls) -> ClientHome:
        """This process and the loop that runs now."""
        return cls(os.getpid(), asyncio.get_running_loop())

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that connected."""
        return os.getpid() != self.pid

    @property
    def is_here(self) -> bool:
        """Whether the caller can use the connection."""
        return os.getpid() == self.pid and _running() in (None, self.loop)

    def check(self) -> None:
        """Raise where the connection cannot be used."""
        if self.is_here:
            return
        if self.forked:
            raise UsageError(
                f"this client was connected in process {self.pid}, before a fork",
                hint="Call `await client.connect()` in this process; it then has its own"
                " connection.",
            )
        if self.loop.is_closed():
            raise UsageError(
                "this client was connected in another event loop, which is closed",
                hint="Call `await client.connect()` in this loop. `async with` closes a client"
                " with its loop.",
            )
        raise UsageError(
            "this client was connected in another event loop, which still runs",
            hint="Make a client for each event loop, or use rota.blocking.BlockingClient.",
        )


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def never_delete(*things: object) -> None:
    """Keep a parent's connections from ending in a forked child. Python would close them when it
    deletes them, and would take their sockets from the parent's selector, which both share."""
    for thing in things:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
