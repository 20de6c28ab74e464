"""Records the steps of the runs of this process, many in one commit, and repeats failed writes.

A broken connection is not the run's fault: the write is repeated until it succeeds or the run
turns out not to be ours any more.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from rota.core.runs.model import Claim, NewRun, Started, StepRecord, StoredStep
from rota.core.time.instants import SECOND
from rota.engine.clock import Clock
from rota.errors import (
    StoreBusy,
    StoreError,
    StoreFull,
    StoreGone,
    StoreIOError,
    StoreNoSharedMemory,
    StoreReadOnly,
    StoreUnreachable,
    Unstorable,
)
from rota.store.backend.batching import BATCH_MAX, Batch, Receiver
from rota.store.backend.database import BRIEF, Database
from rota.store.runs import code_versions, signals, steps
from rota.store.runs.steps import ChildEnd, ChildQuery, ChildStart

log = logging.getLogger("rota.journal")
T = TypeVar("T")

# Errors of the database, not of the run: its claim was written before. The call is repeated until
# it succeeds.
PASSING = (
    StoreUnreachable,
    StoreBusy,
    StoreFull,
    StoreIOError,
    StoreReadOnly,
    StoreNoSharedMemory,
    StoreGone,
)
PAUSE_US_MIN, PAUSE_US_MAX = SECOND // 20, 2 * SECOND
# Most steps in one write. With more, some runs continue while the steps of others are written.
TOGETHER = 250


# Whether the run is still ours, or the reason why the database cannot hold the record.
Written = bool | Unstorable


def unstorable(error: Exception, what: str) -> Unstorable:
    """The error for a record that the database refuses although the database is well."""
    said = Unstorable(f"{what} cannot be stored: {type(error).__name__}: {error}")
    said.__cause__ = error
    return said


async def insist(
    clock: Clock,
    call: Callable[[], Awaitable[T]],
    what: str,
    passing: type[StoreError] | tuple[type[StoreError], ...] = PASSING,
) -> T:
    """Repeat a call that fails for a passing reason. Only for calls that may be repeated."""
    pause = PAUSE_US_MIN
    while True:
        try:
            return await call()
        except passing as error:
            log.warning("%s waits for the database: %s", what, error)
        await clock.wait(asyncio.Event(), clock.now() + pause)
        pause = min(pause * 2, PAUSE_US_MAX)


class Journal:
    """The steps of every run this process executes."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self.clock = clock
        # One batch for all: the records of a run are written in the order in which they are put.
        self._batch: Batch[Sequence[StepRecord], Written] = Batch(self._send, TOGETHER)
        self._children: Batch[ChildStart, Started | None] = Batch(self._send_children)
        self._progress: Batch[StepRecord, None] = Batch(self._send_progress)
        self._child_queries: Batch[ChildQuery, ChildEnd] = Batch(self._send_child_queries)

    async def read(self, function: Callable[..., Awaitable[T]], what: str, **where: Any) -> T:
        """Read, and repeat it while the database is unavailable."""
        return await insist(self.clock, lambda: self._database.read(function, **where), what)

    async def pin(self, claim: Claim, version: str) -> Claim:
        """Let only this version of the code execute a run. LeaseLost if it is not ours any more."""
        is_ours = await insist(
            self.clock, lambda: self._database.write(code_versions.pin, claim, version), "pinning"
        )
        if not is_ours:
            raise claim.lost()
        return msgspec.structs.replace(claim, pinned_version=version)

    async def record_together(self, claim: Claim, steps: Sequence[StoredStep]) -> None:
        """Record steps of one run, all or none. Durable when this returns; LeaseLost when the run
        is not ours any more. A cancellation waits for the write, which may hold a paid answer."""
        written = await _to_its_end(self.put(claim, steps))
        if isinstance(written, Unstorable):
            raise written
        if not written:
            raise claim.lost()

    def put(self, claim: Claim, steps: Sequence[StoredStep]) -> Awaitable[Written]:
        """Record steps of one run, all or none. Answers whether the run is still ours, or why
        nothing can store this."""
        return self._batch.put([StepRecord(claim, step) for step in steps])

    def put_for(
        self, receiver: Receiver[Written], claim: Claim, steps: Sequence[StoredStep]
    ) -> Awaitable[Written] | None:
        """The same, with the answer for a receiver; the caller awaits what this returns, if it
        returns anything, and passes it on."""
        return self._batch.put_for(receiver, [StepRecord(claim, step) for step in steps])

    async def report_progress(self, claim: Claim, step: StoredStep) -> None:
        """Write what a running step has reported. If the database is unavailable it is lost: the
        next report holds all that it said."""
        try:
            await self._progress.put(StepRecord(claim, step))
        except StoreError as error:
            log.info("the progress of step %s was not written: %s", step.key, error)

    async def record_child(self, claim: Claim, step: StoredStep, child: NewRun) -> Started:
        """Start a child run and remember it as a step, in one transaction."""
        return _ours(claim, await self._children.put(ChildStart(StepRecord(claim, step), child)))

    async def record_children(
        self, claim: Claim, children: Sequence[tuple[StoredStep, NewRun]]
    ) -> list[Started]:
        """The same for many children of one run, in few transactions."""
        starts = [ChildStart(StepRecord(claim, step), child) for step, child in children]
        started: list[Started | None] = []
        for begin in range(0, len(starts), BATCH_MAX):
            started += await self._send_children(starts[begin : begin + BATCH_MAX])
        return [_ours(claim, one) for one in started]

    async def await_signal(
        self, claim: Claim, name: str, step: StoredStep, fits: signals.Fits, at: int | None = None
    ) -> StoredStep:
        """Take a signal for this step, or record that it waits. `at` is the instant to record;
        without it, the time of the write."""
        return await insist(
            self.clock,
            lambda: self._database.write(
                signals.await_signal, claim, name, step, fits=fits, now=at or self.clock.now()
            ),
            "taking a signal",
        )

    async def give_back_signal(self, claim: Claim, step: StoredStep) -> None:
        """Leave a signal for the next wait: the code does not wait for this one any more."""
        await insist(
            self.clock,
            lambda: self._database.write(signals.give_back_signal, claim, step),
            "giving a signal back",
        )

    async def read_child_end(self, claim: Claim, child_id: str) -> ChildEnd:
        """How a child ended, if it has."""
        return await self._child_queries.put(ChildQuery(claim, child_id))

    async def read_child_ends(self, claim: Claim, ids: Sequence[str]) -> list[ChildEnd]:
        """The same for many children of one run, in one transaction."""
        return await self._send_child_queries([ChildQuery(claim, child_id) for child_id in ids])

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

    async def _send_children(self, starts: Sequence[ChildStart]) -> list[Started | None]:
        return await insist(
            self.clock,
            lambda: self._database.write(steps.record_children, starts, now=self.clock.now()),
            "starting children",
        )

    async def _send_progress(self, records: Sequence[StepRecord]) -> Sequence[None]:
        await self._database.write(steps.record_progress, records)
        return [None] * len(records)

    async def _send_child_queries(self, queries: Sequence[ChildQuery]) -> list[ChildEnd]:
        return await insist(
            self.clock,
            lambda: self._database.write(steps.read_child_ends, queries),
            "reading the results of children",
        )

    async def _send(self, groups: Sequence[Sequence[StepRecord]]) -> Sequence[Written]:
        written = await self._record([record for group in groups for record in group], len(groups))
        if isinstance(written, Unstorable):
            return [written]
        if len(written) == len(groups):
            return written
        ends = itertools.accumulate(map(len, groups))
        return [
            all(written[end - len(group) : end]) for group, end in zip(groups, ends, strict=True)
        ]

    async def _record(
        self, records: Sequence[StepRecord], units: int
    ) -> Sequence[bool] | Unstorable:
        brief = len(records) <= BRIEF
        write = self._database.write_brief if brief else self._database.write
        try:
            return await insist(self.clock, lambda: write(steps.record, records), "recording steps")
        except StoreError:
            raise
        except Exception as error:
            if units > 1:
                raise  # the batch sends each unit on its own, to find the bad one
            return unstorable(error, f"step {records[-1].step.key}")


async def _to_its_end(write: Awaitable[T]) -> T:
    """Await a write. A caller that is cancelled continues once the write has ended."""
    writing = asyncio.ensure_future(write)
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait({writing})
        raise


def _ours(claim: Claim, started: Started | None) -> Started:
    if started is None:
        raise claim.lost()
    return started
