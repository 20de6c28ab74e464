"""The graceful end of a run: its code is cancelled once, and has some time to clean up.

The end is delivered like the completion of a call: it has a record with a place in the order. It
comes before anything new begins, so a run that is woken to be ended does nothing else first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from rota.core.runs.end_request import CANCEL_KEY, KIND, TIMEOUT_KEY, EndRequest
from rota.core.runs.model import StoredStep
from rota.store.runs import steps
from rota.workflows.calls import DurableCall
from rota.workflows.records import has_end, is_cancelled

if TYPE_CHECKING:
    from rota.workflows.workflow_run import WorkflowRun


class Cancelled(asyncio.CancelledError):
    """The durable call that a workflow awaits raises this when its run is cancelled with a grace.
    The text is the reason. Clean up in `except` or `finally`; the run ends as cancelled."""


class TimedOut(asyncio.CancelledError):
    """The same when the timeout of a workflow with `cleanup` is over."""


CAUSES: dict[str, type[asyncio.CancelledError]] = {CANCEL_KEY: Cancelled, TIMEOUT_KEY: TimedOut}


class EndCall(DurableCall):
    """The end that the code is about to get."""

    __slots__ = ("request",)
    what = "end"
    kind = KIND

    def __init__(
        self, run: WorkflowRun, key: str, request: EndRequest, record: StoredStep | None = None
    ) -> None:
        super().__init__(run, key, record)
        self.request = request

    def begin(self) -> None:
        """Record it at its place in the order."""
        record = self.new_record(status="waiting", output=self.request.text())
        self.run.calls.complete(self, record)

    def deliver(self, ended: StoredStep) -> None:
        """Cancel the code."""
        self.is_delivered = True
        self.run.ending.deliver(self, ended)


def _nothing() -> None:
    pass


class GracefulEnd:
    """Whether and why the code of a run has to end, and until when it may clean up."""

    __slots__ = ("_asked", "_run", "_waits", "changed", "end", "until")

    def __init__(self, run: WorkflowRun) -> None:
        self._run = run
        self._asked: EndCall | None = None
        self._waits = False  # asked, and the end is not on its way to the code
        self.end: EndCall | None = None  # the one that the code has got
        self.until: int | None = None  # when the time to clean up is over
        self.changed: Callable[[], None] = _nothing
        if not run.records.replay.is_finished:
            self._take_recorded()

    def _take_recorded(self) -> None:
        replay = self._run.records.replay
        found = [step for key in CAUSES if (step := replay.ask(key)) is not None]
        for record in sorted(found, key=lambda step: not has_end(step)):
            self._take(record.key, EndRequest.read(record.output), record)

    def _take(self, key: str, request: EndRequest, record: StoredStep | None = None) -> None:
        if self._asked is not None:
            return  # a run ends once
        if record is not None and has_end(record):
            self._asked = EndCall(self._run, key, request, record)
            self._run.calls.add(self._asked)
            self.until = request.until(record.finished_at or 0)
        else:
            self._asked = EndCall(self._run, key, request)
            self._waits = True
            self.until = request.until(self._run.clock.now())

    @property
    def is_asked(self) -> bool:
        """Whether the run has to end."""
        return self._asked is not None

    @property
    def request(self) -> EndCall | None:
        """The end that the code has got, or has to get."""
        return self.end or self._asked

    @property
    def is_due(self) -> bool:
        """Whether the code has to get the end now."""
        return self._waits and not self._run.undo.has_begun

    def ask(self, key: str, request: EndRequest) -> None:
        """End the run, if it does not end already."""
        if self._asked is None:
            self._take(key, request)
            self.changed()
            self._run.proceed_soon()

    def look_again(self) -> None:
        """Look for a request that was recorded from outside."""
        if self._asked is None and self._run.rest is None:
            self._run.work(self._look())

    async def _look(self) -> None:
        run = self._run
        for record in await run.context.journal.read(
            steps.ends, "reading a request to end", root_id=run.segment
        ):
            if record.finished_at is None:
                self.ask(record.key, EndRequest.read(record.output))

    def begin(self) -> None:
        """Let the code get the end, as the next completion."""
        assert self._asked is not None
        self._waits = False
        self._run.calls.begin_before_others(self._asked)

    def deliver(self, call: EndCall, ended: StoredStep) -> None:
        """The code gets the end."""
        if self._run.undo.has_begun:
            self.until = None  # it has failed for good before
            return
        self.end = call
        self.until = call.request.until(ended.finished_at or 0)
        self.changed()
        self._run.cancel_code(call.request.reason)

    def cancels(self, call: DurableCall) -> bool:
        """Whether the end cancels a call that waited under an earlier claim."""
        record = call.record
        return (
            self.end is not None and record is not None
            and not has_end(record) and not is_cancelled(record)
        )  # fmt: skip

    def error_for(
        self, stop: asyncio.CancelledError, reacts_to: DurableCall | None
    ) -> asyncio.CancelledError:
        """The error for a call that the code awaits and that was cancelled, maybe by the end."""
        if self.end is None or reacts_to is not self.end:
            return stop
        return CAUSES[self.end.key](self.end.request.reason)
