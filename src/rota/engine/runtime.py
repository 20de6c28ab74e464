"""Starts and stops the loops of one process, and restarts a loop that failed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence

from rota.core.runs.model import Queue
from rota.core.time.instants import micros
from rota.engine.context import EngineContext
from rota.engine.executor import Executor
from rota.engine.log_capture import LogCapture
from rota.engine.maintenance import Maintenance
from rota.engine.notification_loop import NotificationLoop
from rota.engine.scheduler import Scheduler
from rota.engine.slots import QueueSlots
from rota.engine.watchdog import CodeInProgress, Watchdog
from rota.engine.worker import Worker
from rota.errors import RotaError
from rota.store.runs import workers

log = logging.getLogger("rota.runtime")

PAUSE_S_MIN, PAUSE_S_MAX = 0.1, 5.0


class Runtime:
    """The worker, the scheduler and the maintenance of one process."""

    def __init__(
        self,
        base: EngineContext,
        executors: Sequence[Executor],
        queues: Sequence[QueueSlots],
        limits: Sequence[Queue],
        version: str,
        *,
        fires: bool = True,
        notifies: bool = False,
        is_replay: Callable[[], bool] = lambda: False,
        code: Callable[[], CodeInProgress | None] = lambda: None,
        held_threads: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._database = base.database
        self._clock = base.clock
        self._settings = base.settings
        self._limits = limits
        self._version = version
        self._fires = fires
        self._queues = [queue.name for queue in queues]
        self._watchdog = Watchdog(base.settings.stuck_s, base.clock, code)
        self.worker = Worker(base.ids.make(base.clock.now()), base, executors, queues, version)
        self.maintenance = Maintenance(self.worker, base, self._watchdog, self._allow, held_threads)
        self.scheduler = Scheduler(base)
        self.notification_loop = NotificationLoop(base) if notifies else None
        keeps_logs = base.settings.keep_logs
        self.logs = LogCapture(self.worker.id, base, is_replay) if keeps_logs else None
        self._wakeups = base.wakeups
        self.is_stopping = False
        self._loops: dict[str, asyncio.Task[None]] = {}

    async def register(self) -> None:
        """Store limits, register the worker, and recover the runs of dead workers."""
        if self._limits:
            await self._database.write(workers.put_queues, self._limits)
        await self.maintenance.register(self._queues, self._version)
        if self.worker.claiming:
            await self.scheduler.expire(self._clock.now())  # before this worker could claim them

    def _allow(self, acts: bool) -> None:
        """Let the loops act, or stop them: a heartbeat found the database armed or disarmed."""
        self.scheduler.armed = acts
        self.scheduler.poll()
        if self.notification_loop is not None:
            self.notification_loop.armed = acts
            self.notification_loop.poll()
        self.worker.claiming = acts and not self.is_stopping
        self.worker.poll()

    async def start(self) -> None:
        """Register the worker and run the loops."""
        await self.register()
        await self._wakeups.listen()
        self._watchdog.start()
        self._loops = {
            name: asyncio.create_task(self._keep(name, loop), name=f"rota-{name}")
            for name, loop in (
                ("work", self.worker.run),
                ("schedules", self.scheduler.run),
                ("leases", self.maintenance.keep_leases),
                ("maintenance", self.maintenance.heartbeat_loop),
            )
            if name != "schedules" or self._fires
        }
        if self.notification_loop is not None:
            self._loops["notifications"] = asyncio.create_task(
                self._keep("notifications", self.notification_loop.run), name="rota-notifications"
            )
        if self.logs is not None:
            self.logs.start()
            self._loops["logs"] = asyncio.create_task(
                self._keep("logs", self.logs.run), name="rota-logs"
            )

    async def stop(self, timeout_s: float | None = None) -> None:
        """Stop claiming, drain until the deadline, hand over the rest, and go offline."""
        self.is_stopping = True
        await self._end("schedules")
        await self._end("notifications")
        self.worker.stop()
        work = self._loops.get("work")
        if work is not None:
            await asyncio.wait([work], timeout=PAUSE_S_MAX)
        await self._end("work")
        limit_us = micros(self._settings.stop_s if timeout_s is None else timeout_s)
        try:
            await self.worker.drain(self._clock.now() + limit_us)
        except RotaError as error:
            said = (
                "some runs could not be settled; other workers recover them when their leases lapse"
            )
            log.error("shutdown: %s: %s", said, error)
        await self._end("leases")
        await self._end("maintenance")
        await self._end_logs()
        self._watchdog.stop()
        with contextlib.suppress(RotaError):
            await self.maintenance.leave()

    async def _end_logs(self) -> None:
        await self._end("logs")
        if self.logs is not None:
            self.logs.stop()
            with contextlib.suppress(RotaError):
                await self.logs.flush()

    async def _end(self, name: str) -> None:
        task = self._loops.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _keep(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        """Run a loop until cancelled. After a database error or a bug it pauses and runs again."""
        pause_s = PAUSE_S_MIN
        while True:
            began = self._clock.now()
            try:
                return await loop()
            except RotaError as error:
                log.warning("%s loop retries in %.1f s: %s %s", name, pause_s, error, error.advice)
            except Exception:
                log.exception("%s loop failed and continues in %.1f s", name, pause_s)
            if self._clock.now() - began > micros(10):
                pause_s = PAUSE_S_MIN
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_S_MAX)
