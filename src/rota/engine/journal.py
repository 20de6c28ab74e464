"""Writes steps for the runs of this process, many in one commit, and insists on it.

A broken connection is not the run's fault: the write is repeated until it succeeds or the run
turns out not to be ours any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from rota.core.runs.model import Claim, NewRun, Started, StepRecord, StoredStep
from rota.core.time.instants import SECOND
from rota.engine.clock import Clock
from rota.errors import LeaseLost, StoreBusy, StoreFull, StoreUnreachable
from rota.store.backend.batching import Batch
from rota.store.backend.database import BRIEF, Database
from rota.store.runs import steps
from rota.store.runs.steps import ChildEnd

log = logging.getLogger("rota.journal")
T = TypeVar("T")

PASSING = (StoreUnreachable, StoreBusy, StoreFull)
PAUSE_US_MIN, PAUSE_US_MAX = SECOND // 20, 2 * SECOND
# Of more runs than this, some go on while the steps of the others are written.
TOGETHER = 250


async def insist(clock: Clock, call: Callable[[], Awaitable[T]], what: str) -> T:
    """Repeat a write that fails for a passing reason. Only for writes that may be repeated."""
    pause = PAUSE_US_MIN
    while True:
        try:
            return await call()
        except PASSING as error:
            log.warning("%s waits for the database: %s", what, error)
        await clock.wait(asyncio.Event(), clock.now() + pause)
        pause = min(pause * 2, PAUSE_US_MAX)


class Journal:
    """The steps of every run this process performs."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self.clock = clock
        self._batch: Batch[StepRecord, bool] = Batch(self._send, TOGETHER)

    async def record(self, claim: Claim, step: StoredStep) -> None:
        """Durable when this returns; LeaseLost when the run is not ours any more."""
        if not await self.put(claim, step):
            raise LeaseLost(f"run {claim.id} is no longer held by this worker", run_id=claim.id)

    def put(self, claim: Claim, step: StoredStep) -> Awaitable[bool]:
        """The same; the answer is whether the run is still ours."""
        record = StepRecord(claim, step)
        return self._batch.join(record) or self._batch.put(record)

    async def record_child(self, claim: Claim, step: StoredStep, child: NewRun) -> Started:
        """Start a child run and remember it as a step, in one transaction."""
        return await insist(
            self.clock,
            lambda: self._database.write(
                steps.record_child, StepRecord(claim, step), child, now=self.clock.now()
            ),
            "starting a child",
        )

    async def await_signal(
        self, claim: Claim, name: str, step: StoredStep, fits: steps.Fits
    ) -> StoredStep:
        """Take a signal for this step, or record that it waits."""
        return await insist(
            self.clock,
            lambda: self._database.write(
                steps.await_signal, claim, name, step, fits=fits, now=self.clock.now()
            ),
            "taking a signal",
        )

    async def look_after_child(self, claim: Claim, child_id: str) -> ChildEnd:
        """How a child ended, if it has."""
        return await insist(
            self.clock,
            lambda: self._database.write(steps.look_after_child, claim, child_id),
            "looking after a child",
        )

    async def retry_child(self, claim: Claim, step: StoredStep, child_id: str, new_id: str) -> None:
        """Try a failed child again, and remember to wait for it."""
        await insist(
            self.clock,
            lambda: self._database.write(
                steps.retry_child, StepRecord(claim, step), child_id, new_id,
                now=self.clock.now(),
            ),
            "retrying a child",
        )  # fmt: skip

    async def _send(self, records: Sequence[StepRecord]) -> list[bool]:
        brief = len(records) <= BRIEF
        write = self._database.write_brief if brief else self._database.write
        written = await insist(self.clock, lambda: write(steps.record, records), "recording steps")
        if len(written) == len(records):
            return [True] * len(records)
        return [(record.claim.root_id, record.step.key) in written for record in records]
