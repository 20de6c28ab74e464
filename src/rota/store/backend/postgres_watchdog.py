"""Ends connections that stopped answering: a firewall dropped them, or the server hangs.

One periodic check covers all statements in progress. A timer for each statement would cost a tenth
of a short statement on an idle machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

# Looks that find the same statement before its connection is given up. Looks are counted, not
# seconds: an event loop that was held up has the answer already when it continues.
LOOKS = 4


class WatchedConnection:
    """A connection that executes one statement after the other."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.looks = 0  # checks during the present statement; 0 at the next one


class ConnectionWatchdog:
    """Ends connections with a statement that gets no answer for a time."""

    def __init__(self, limit_s: float, abandon: Callable[[Any], None]) -> None:
        self._every_s = limit_s / LOOKS
        self._abandon = abandon
        self._asking: set[WatchedConnection] = set()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, one: WatchedConnection) -> None:
        """Check this connection until `forget`."""
        self._asking.add(one)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._every_s, self._look)

    def forget(self, one: WatchedConnection) -> None:
        """Stop checking this connection: it has its answers."""
        self._asking.discard(one)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        for one in list(self._asking):
            one.looks += 1
            if one.looks > LOOKS:
                self._abandon(one.connection)
        # The timer continues while nothing is in progress: cheaper than setting it each time.
        self._timer = asyncio.get_running_loop().call_later(self._every_s, self._look)
