"""Tells that a run waits for its provider: listeners, the log, and the step `rota why` reads."""

from __future__ import annotations

import logging

import msgspec

from rota.core.time.instants import SECOND
from rota.pipelines.run.context import ProgressReporter
from rota.pipelines.run.run_store import RunStore
from rota.store.pipelines.steps import PROVIDER_WAIT, ProviderWait

log = logging.getLogger("rota.pipelines")
TOLD_AFTER_US = SECOND  # a shorter wait is not reported
WRITTEN_EVERY_US = 5 * SECOND


class ProviderWatch:
    """Whether the calls of one run wait for a provider, and since when."""

    def __init__(self, store: RunStore, progress: ProgressReporter) -> None:
        self._store, self._progress = store, progress
        self._since: int | None = None
        self._written_at: int | None = None

    async def waits(self, error: Exception, wait_s: float) -> None:
        """A call failed, or was not let through, and is tried again later."""
        now = self._store.clock.now()
        self._since = now if self._since is None else self._since
        until = now + round(wait_s * SECOND)
        if until - self._since < TOLD_AFTER_US:
            return
        said = str(error)
        if self._progress.usage.waiting is None:
            log.warning("run %s waits for its provider: %s", self._store.root_id, said)
        self._progress.wait_for(f"{said}; next try in {wait_s:.0f} s")
        if self._written_at is None or now - self._written_at >= WRITTEN_EVERY_US:
            self._written_at = now
            await self._write(ProviderWait(said, self._since, until))

    async def answered(self) -> None:
        """A provider has answered, so the run continues."""
        if self._since is None:
            return
        self._since = None
        self._progress.wait_for(None)
        if self._written_at is not None:
            self._written_at = None
            await self._write(None)

    async def _write(self, wait: ProviderWait | None) -> None:
        text = {} if wait is None else msgspec.to_builtins(wait)
        # A completed step is only written again with the same beginning.
        await self._store.note(PROVIDER_WAIT, kind="wait", output=text, started_at=0)
