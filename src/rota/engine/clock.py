"""The only module that reads the clock. On PostgreSQL all machines follow the server's clock.

The engine reads `now` once per iteration and passes it down. It detects jumps of the wall clock,
so that a jump of an hour does not make it reap living runs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from rota.core.time.instants import SECOND

STEP_US = 1 * SECOND
STEP_NS = STEP_US * 1000
# Shortest time between reads of the wall clock; the monotonic clock fills in. A step needs the time
# twice.
READ_NS = 10_000_000


class Timer(Protocol):
    """A callback that can be cancelled."""

    def cancel(self) -> None:
        """Cancel the callback."""
        ...


class Clock(Protocol):
    """Reads the time and waits for instants."""

    def now(self) -> int:
        """Microseconds since the epoch."""
        ...

    def call_at(self, at: int, callback: Callable[[], object]) -> Timer:
        """Call back at an instant, on the running event loop."""
        ...

    def steady_for(self) -> int:
        """Microseconds since the clock was last seen to jump."""
        ...

    async def wait(self, event: asyncio.Event, until: int) -> None:
        """Return when the event is set or the instant has come."""
        ...


class SystemClock:
    """This machine's clock, corrected by the database's own when it has one."""

    def __init__(self) -> None:
        self._offset = 0
        self._shared = False
        self._lead_ns = time.time_ns() - time.monotonic_ns()
        self._read_at_ns = 0
        # A new process cannot know whether the clock jumped just before it started.
        self._stepped_at = time.monotonic_ns() // 1000

    def now(self) -> int:
        """Microseconds since the epoch, by the database's clock."""
        steady_ns = time.monotonic_ns()
        if steady_ns >= self._read_at_ns:
            self._read_wall(steady_ns)
        return (steady_ns + self._lead_ns) // 1000 + self._offset

    def _read_wall(self, steady_ns: int) -> None:
        lead_ns = time.time_ns() - steady_ns
        if not -STEP_NS <= (jump_ns := lead_ns - self._lead_ns) <= STEP_NS:
            self._note_jump(jump_ns // 1000)
        self._lead_ns = lead_ns  # a slow drift is never a step
        self._read_at_ns = steady_ns + READ_NS

    def _note_jump(self, jump_us: int) -> None:
        self._stepped_at = time.monotonic_ns() // 1000
        if self._shared:
            # The server's clock did not jump with ours: stay with it until the next sync.
            self._offset -= jump_us

    def steady_for(self) -> int:
        """Microseconds since the clock was last seen to jump."""
        self._read_wall(time.monotonic_ns())
        return time.monotonic_ns() // 1000 - self._stepped_at

    def follow(self, server_us: int, *, sent: int, received: int) -> None:
        """Adopt the server's time from a query sent and answered at these local instants."""
        # A step of our own clock since the last reading does not concern the server.
        self._read_wall(time.monotonic_ns())
        before = self._offset
        self._offset = server_us - (sent + received) // 2
        if self._shared and abs(self._offset - before) > STEP_US:
            self._stepped_at = time.monotonic_ns() // 1000
        self._shared = True

    def call_at(self, at: int, callback: Callable[[], object]) -> Timer:
        """Call back at an instant, on the running event loop."""
        delay_s = max(0, at - self.now()) / SECOND
        return asyncio.get_running_loop().call_later(delay_s, callback)

    async def wait(self, event: asyncio.Event, until: int) -> None:
        """Return when the event is set or the instant has come."""
        if event.is_set():
            return
        timer = self.call_at(until, event.set)
        try:
            await event.wait()
        finally:
            timer.cancel()

    @staticmethod
    def local_us() -> int:
        """This machine's uncorrected wall time."""
        return time.time_ns() // 1000
