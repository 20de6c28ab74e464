"""Signals: a workflow waits durably for a value from outside, without holding a worker."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import msgspec

from rota.core import typed
from rota.core.json_schema import shape_of
from rota.core.runs.argument_digest import digest_of
from rota.core.runs.failures import describe
from rota.core.runs.model import StoredStep
from rota.core.runs.stored_errors import read_error
from rota.core.time.instants import after
from rota.errors import BadInput
from rota.workflows.calls import DurableCall
from rota.workflows.workflow_run import WorkflowRun

log = logging.getLogger("rota.workflows")


async def take_signal(
    run: WorkflowRun, key: str, name: str, timeout_us: int | None, type_: Any
) -> StoredStep:
    """The next signal of that name as a step; `failed` when none came in time."""
    shape = _shape_text(type_)
    digest = None if shape is None else digest_of((), (shape,), {})
    record = run.ask_call(key, digest, "wait_for", (name,), {"type": type_})
    call = SignalCall(run, key, record, name, typed.JsonReader(type_))
    call.timeout_us, call.shape, call.digest = timeout_us, shape, digest
    return await run.end_of(call)


class SignalCall(DurableCall):
    """A wait for a signal."""

    __slots__ = ("digest", "name", "reader", "shape", "timeout_us")
    what = "signal"
    kind = "signal"

    def __init__(
        self,
        run: WorkflowRun,
        key: str,
        record: StoredStep | None,
        name: str,
        reader: typed.JsonReader,
    ) -> None:
        super().__init__(run, key, record)
        self.name = name
        self.reader = reader
        self.timeout_us: int | None = None
        self.shape: str | None = None
        self.digest: int | None = None

    def begin(self) -> None:
        """Look whether a signal has come."""
        self.run.work(self._look())

    def _fits(self, text: str | None) -> BadInput | None:
        try:
            self.reader.read(text, what=f"signal {self.name}")
        except BadInput as problem:
            return problem
        return None

    async def _look(self) -> None:
        run = self.run
        known = self.record
        if known is None:
            deadline = None if self.timeout_us is None else after(run.clock.now(), self.timeout_us)
            # The shape is stored in place of the value: a sender of a wrong value gets an error.
            known = self.new_record(
                status="waiting", wake_at=deadline, output=self.shape, digest=self.digest
            )
        at, journal = run.calls.expect(self), run.context.journal
        try:
            step = await journal.await_signal(run.claim, self.name, known, self._fits, at)
        except BaseException:
            run.calls.drop(self)
            raise
        if step.error is not None and step.error != known.error:
            log.warning(
                "run %s ignores a signal that does not fit, and keeps waiting: %s",
                run.claim.id, read_error(step.error)["message"],
            )  # fmt: skip
        self.record = step
        if step.status == "waiting":
            run.calls.drop(self)
            if not self.is_withdrawn:
                run.calls.wait(self, step.wake_at)
            return
        if self.is_withdrawn and step.status == "completed":
            await run.records.flush()  # first what led to the cancellation
            error = describe(asyncio.CancelledError())
            await journal.give_back_signal(run.claim, msgspec.structs.replace(step, error=error))
        self.is_written = True


def _shape_text(kind: Any) -> str | None:
    shape = shape_of(kind)
    return None if shape is None else json.dumps(shape, sort_keys=True)
