"""A loop with work at known instants: it sleeps until the next one, or until it is notified."""

from __future__ import annotations

import asyncio

from rota.core.time.instants import micros
from rota.engine.context import EngineContext
from rota.engine.wakeups import ANY

# The timer is exact, and notifications report changes. As a safety net the loop also polls, every
# POLLS × `poll_s`.
POLLS = 5


class TimedLoop:
    """Base of the scheduler and the notification loop: their next time, and their wake-up."""

    def __init__(self, base: EngineContext, topic: str) -> None:
        self._base = base
        self._topic = topic
        self._wake = asyncio.Event()
        self.next_at: int | None = 0  # None: no work is known
        self.armed = True
        base.wakeups.subscribe(self._notified)

    def _notified(self, topic: str) -> None:
        if topic in (self._topic, ANY):
            self.poll()

    def poll(self) -> None:
        """Look for work at once: something was recorded or changed."""
        self.next_at = 0
        self._wake.set()

    def _rest_until(self) -> int:
        poll_at = self._base.clock.now() + POLLS * micros(self._base.settings.poll_s)
        return poll_at if self.next_at is None else min(poll_at, self.next_at)
