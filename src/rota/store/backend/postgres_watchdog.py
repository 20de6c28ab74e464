"""Connections that went silent: a firewall forgot them, the other machine stops.

One check now and then of all that is in progress, instead of a timer for every statement: setting
and cancelling one of those is a tenth of what a short statement costs on an idle machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

# Looks that find the same statement before its connection is given up. Looks are counted, not
# seconds: an event loop that was held up has the answer already when it continues.
LOOKS = 4


class WatchedConnection:
    """A user of the server, one statement after the other."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.looks = 0  # with its present statement; back to 0 with every other


class ConnectionWatchdog:
    """Ends connections with a statement that gets no answer for a time."""

    def __init__(self, limit_s: float, abandon: Callable[[Any], None]) -> None:
        self._every_s = limit_s / LOOKS
        self._abandon = abandon
        self._asking: set[WatchedConnection] = set()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, one: WatchedConnection) -> None:
        """Look after it until it is forgotten."""
        self._asking.add(one)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._every_s, self._look)

    def forget(self, one: WatchedConnection) -> None:
        """It has its answers."""
        self._asking.discard(one)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        for one in list(self._asking):
            one.looks += 1
            if one.looks > LOOKS:
                self._abandon(one.connection)
        # It continues through idle times: a timer that is always there costs nothing to set.
        self._timer = asyncio.get_running_loop().call_later(self._every_s, self._look)
