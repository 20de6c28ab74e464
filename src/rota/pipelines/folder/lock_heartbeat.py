"""Keeps the lock of a folder while a scheduler lives: takes it, beats, notices its loss."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rota.errors import SchedulerLockError
from rota.pipelines.folder import lock_file
from rota.pipelines.folder.lock_file import Lock

if TYPE_CHECKING:
    from rota.engine.clock import Clock

log = logging.getLogger("rota.pipelines")


class LockHeartbeat:
    """The lock of one folder; `lost` is called once when another process has it."""

    def __init__(
        self,
        folder: Path,
        clock: Callable[[], Clock],
        *,
        stale_us: int,
        beat_us: int,
        lost: Callable[[], None],
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._stale_us, self._beat_us = stale_us, beat_us
        self._on_lost = lost
        self._lock: Lock | None = None
        self.lost: SchedulerLockError | None = None

    def take(self) -> None:
        """Take the lock, or raise SchedulerLockError that names the holder."""
        now = self._clock().now()
        self._lock = lock_file.acquire(self._folder, now=now, stale_us=self._stale_us)
        self.lost = None

    def release(self) -> None:
        """Give it back, if it is held."""
        if self._lock is not None:
            lock_file.release(self._lock)
            self._lock = None

    async def beat(self) -> None:
        """Say again and again that the holder lives, until the lock is lost."""
        while self._lock is not None:
            clock = self._clock()
            await clock.wait(asyncio.Event(), clock.now() + self._beat_us)
            if not self._folder.is_dir():
                continue  # away, as a mount may be: no other process can take it either
            try:
                self._lock = lock_file.heartbeat(self._lock, now=clock.now())
            except SchedulerLockError as error:
                log.error("%s %s", error, error.advice)
                self.lost, self._lock = error, None
                self._on_lost()
            except OSError as error:  # a full disk does not mean that the folder is left alone
                log.warning("the heartbeat of the lock cannot be written: %s", error)
