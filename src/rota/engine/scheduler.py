"""The scheduler: fires due schedules, then sleeps until the next one is due.

Any number of processes may run one. Its cost grows with the number of due schedules, not with the
number of stored ones; no schedule is kept in memory.
"""

from __future__ import annotations

import asyncio
import logging

from rota.core.process_metrics import SCHEDULE_LATENESS, SCHEDULE_SKIPPED
from rota.core.time.instants import SECOND
from rota.engine.context import EngineContext
from rota.engine.timed_loop import TimedLoop
from rota.engine.wakeups import CANCEL, DONE, READY, SCHEDULE
from rota.store.schedules import expiry, fire
from rota.store.schedules.fire import Fired

log = logging.getLogger("rota.scheduler")

BATCH = 1000
GLANCE_S = 0.1


class Scheduler(TimedLoop):
    """Fires schedules of one namespace."""

    def __init__(self, base: EngineContext) -> None:
        super().__init__(base, SCHEDULE)

    async def run(self) -> None:
        """Fire and sleep until cancelled."""
        clock = self._base.clock
        while True:
            self._wake.clear()
            created = await self.tick()
            if (rest_until := self._rest_until()) > clock.now():
                await clock.wait(self._wake, rest_until)
            elif not created:
                # Another scheduler holds the row locks. Retry shortly instead of spinning.
                await asyncio.sleep(GLANCE_S)

    async def tick(self) -> int:
        """Fire everything due now; return how many runs were created."""
        self.next_at = None
        if not self.armed:
            return 0
        created = 0
        await self._end_pauses(self._base.clock.now())
        await self.expire(self._base.clock.now())
        while True:
            now = self._base.clock.now()
            fired = await self._fire(now)
            created += fired.run_count
            if fired.cancelled:
                self._base.wakeups.notify_soon(CANCEL)
            if fired.run_count:
                self._base.wakeups.notify_soon(READY)
            if not fired.more:
                next_at = await self._next(fired)
                if self.next_at is None:  # otherwise a poll came meanwhile
                    self.next_at = next_at
                return created

    async def _fire(self, now: int) -> Fired:
        namespace = self._base.settings.namespace
        fired = await self._base.database.write(
            fire.fire, namespace=namespace, now=now, limit=BATCH,
            new_ids=self._base.ids.endless(now),
        )  # fmt: skip
        self._complain(fired.quarantined)
        for name, late_us in fired.lateness:
            SCHEDULE_LATENESS.observe(max(late_us, 0) / SECOND, namespace, name)
        for name, reason, count in fired.skips:
            SCHEDULE_SKIPPED.add(namespace, name, reason, by=count)
        return fired

    async def _end_pauses(self, now: int) -> None:
        namespace = self._base.settings.namespace
        count = fire.PAUSES
        while count == fire.PAUSES:
            count, quarantined = await self._base.database.write(
                fire.end_pauses, namespace=namespace, now=now,
                new_ids=self._base.ids.endless(now),
            )  # fmt: skip
            self._complain(quarantined)

    async def expire(self, now: int) -> None:
        """End fired runs that have waited too long to begin."""
        namespace, more = self._base.settings.namespace, True
        while more:
            count, more = await self._base.database.write(
                expiry.expire, namespace=namespace, now=now
            )
            if count:
                # Runs that waited behind them may start, and callers that await them are notified.
                self._base.wakeups.notify_soon(READY)
                self._base.wakeups.notify_soon(DONE)

    def _complain(self, quarantined: list[tuple[str, str]]) -> None:
        for name, reason in quarantined:
            log.error(
                "schedule %s: %s. Its runs and history stay. Fix it with `rota schedule update "
                "%s`.", name, reason, name,
            )  # fmt: skip

    async def _next(self, fired: Fired) -> int | None:
        """The next instant with work: a schedule is due, a pause ends or a run expires."""
        namespace = self._base.settings.namespace
        pause = await self._base.database.read(fire.next_pause_end, namespace=namespace)
        expires = await self._base.database.read(expiry.next_at, namespace=namespace)
        ats = (fired.next_at, pause, expires)
        return min((at for at in ats if at is not None), default=None)
