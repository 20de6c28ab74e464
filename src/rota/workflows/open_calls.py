"""The open calls of a run: made, begun, waiting or on their way to the code, in order."""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter, deque
from collections.abc import Awaitable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from rota.core.runs.failures import describe
from rota.core.runs.model import StoredStep
from rota.engine.clock import Timer
from rota.engine.journal import Written
from rota.workflows.calls import DurableCall
from rota.workflows.leftovers import CLOSE_US, leave_behind
from rota.workflows.records import completed, has_end, is_cancelled

if TYPE_CHECKING:
    from rota.workflows.calls import DurableCall
    from rota.workflows.workflow_run import WorkflowRun


class Waits:
    """Calls that have begun and wait, with the times of those that wait for a time."""

    __slots__ = ("_alarms", "_calls", "_made")

    def __init__(self) -> None:
        self._calls: dict[DurableCall, None] = {}
        self._alarms: list[tuple[int, int, DurableCall]] = []
        self._made = 0

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, call: DurableCall, wake_at: int | None) -> None:
        """Wait, at most until a time."""
        self._calls[call] = None
        if wake_at is not None:
            self._made += 1
            heapq.heappush(self._alarms, (wake_at, self._made, call))

    def discard(self, call: DurableCall) -> None:
        """The call waits no longer."""
        self._calls.pop(call, None)

    def next_at(self) -> int | None:
        """When the first wait for a time is over."""
        alarms = self._alarms
        while alarms and alarms[0][2] not in self._calls:
            heapq.heappop(alarms)
        return alarms[0][0] if alarms else None

    def take_due(self, now: int) -> list[DurableCall]:
        """The calls that are due: they wait no longer."""
        due = []
        while (at := self.next_at()) is not None and at <= now:
            call = heapq.heappop(self._alarms)[2]
            del self._calls[call]
            due.append(call)
        return due

    def take_all(self) -> list[DurableCall]:
        """All calls: they wait no longer."""
        taken = list(self._calls)
        self._calls.clear()
        self._alarms.clear()
        return taken

    def kinds(self) -> Counter[str]:
        """The kinds of things that the run waits for, and how many of each."""
        return Counter(call.what for call in self._calls)


class OpenCalls:
    """The calls of one run until their ends are delivered."""

    __slots__ = ("_alarm", "_calls", "_closing", "_coming", "_fresh", "_run", "waits")

    def __init__(self, run: WorkflowRun) -> None:
        self._run = run
        self._calls: dict[str, DurableCall] = {}  # made, and their ends not delivered
        self._fresh: list[DurableCall] = []  # made in this drain
        self._coming: deque[DurableCall] = deque()  # ends on their way to the code, earliest first
        self.waits = Waits()
        self._alarm: tuple[int, Timer] | None = None
        # Steps that the code cancelled and that have not ended: their keys, and until when to wait.
        self._closing: dict[asyncio.Task[Any], tuple[str, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def take_recorded(self, key: str) -> DurableCall | None:
        """The call to which this recorded end belongs; None if the code has cancelled it."""
        return self._calls.pop(key, None)

    def take_written(self) -> DurableCall | None:
        """The call with the next end, once that is written."""
        coming = self._coming
        while coming and coming[0].is_written:
            call = coming.popleft()
            if not call.is_withdrawn:
                del self._calls[call.key]
                return call
        return None

    @property
    def are_in_progress(self) -> bool:
        """Whether an end is on its way, or a cancelled step has not ended."""
        return bool(self._coming or self._closing)

    def undelivered_signals(self) -> tuple[str, ...]:
        """Waits that may have taken a signal that the code has not got."""
        calls = {call.key: call for call in (*self._calls.values(), *self._coming)}
        return tuple(key for key, call in calls.items() if call.kind == "signal")

    def stop_all(self) -> list[asyncio.Task[Any]]:
        """Stop all work, as the run is over. Returns what needs time to close."""
        works = []
        for call in self._calls.values():
            call.is_withdrawn = True
            if (work := call.stop()) is not None:
                works.append(work)
        for task in self._closing:
            task.cancel()
        works += self._closing
        self._calls.clear()
        self.waits = Waits()
        return works

    def add(self, call: DurableCall) -> None:
        """Make a call. It begins when the code has come to rest, unless its end is recorded."""
        self._calls[call.key] = call
        record = call.record
        if record is not None and is_cancelled(record):
            self._run.records.replay.expect_cancel(call)
        elif record is None or not has_end(record):
            self._fresh.append(call)

    def withdraw(self, call: DurableCall, stop: BaseException | None = None) -> None:
        """The code does not wait for this call any more."""
        if call.is_withdrawn or call.is_delivered:
            return
        call.is_withdrawn = True
        self._calls.pop(call.key, None)
        self.waits.discard(call)
        self._run.records.replay.cancelled(call)
        if call.is_ending or not (call.is_begun or self._run.ending.cancels(call)):
            return  # it has no record, or gets that of its end
        cancelled = msgspec.structs.replace(
            call.record or call.new_record(), status="failed", output=None, wake_at=None,
            error=describe(stop or asyncio.CancelledError()),
            finished_at=max(self._run.clock.now(), self._run.loop_time_us()),
        )  # fmt: skip
        self._run.records.note(cancelled, is_urgent=call.kind == "step")
        if (work := call.stop()) is not None:
            self._run.busy -= 1
            self._closing[work] = call.key, self._run.clock.now() + CLOSE_US
            work.add_done_callback(self._closed)

    def _closed(self, work: asyncio.Task[Any]) -> None:
        if self._closing.pop(work, None) is not None:
            self._run.proceed_soon()

    def begin_before_others(self, call: DurableCall) -> None:
        """Begin a call that the code has not made, before all that it has made and not begun."""
        for one in self._fresh:
            one.position = one.position or self._run.records.next_position()
        self._calls[call.key] = call
        call.is_begun = True
        call.position = self._run.records.next_position()
        call.begin()

    def begin_fresh(self) -> None:
        """Begin what the code has asked for since it last came to rest."""
        records = self._run.records
        if not (self._fresh or records.is_urgent):
            return
        if records.replay.undelivered or records.is_under_way:
            return  # before the code has got all recorded ends, and what it knows is written
        fresh, self._fresh = self._fresh, []
        for call in fresh:
            call.is_begun = True
            call.position = call.position or records.next_position()
        if records.is_dirty and (
            records.is_urgent or not all(call.records_alone for call in fresh)
        ):
            self._run.work(self._begin_written(fresh))
        else:
            self._begin_all(fresh)

    async def _begin_written(self, fresh: list[DurableCall]) -> None:
        if await self._run.records.flush():
            self._begin_all(fresh)

    def _begin_all(self, fresh: Iterable[DurableCall]) -> None:
        for call in fresh:
            if not call.is_withdrawn:
                call.begin()
        if self._run.records.is_urgent:
            self._run.work(self._run.records.flush())

    def put_end(
        self, call: DurableCall, record: StoredStep, *, is_final: bool
    ) -> Awaitable[Written] | None:
        """Record how the work of a call ended; the call gets the answer. If this returns one, the
        caller awaits it and passes it on."""
        if is_final:
            call.is_ending = True
            self._coming.append(call)
        call.carries = self._run.records.begin_write()
        return self._run.context.journal.put_for(
            call, self._run.claim, self._run.records.with_outbox((record,))
        )

    def wait(
        self, call: DurableCall, wake_at: int | None, record: StoredStep | None = None
    ) -> None:
        """The call waits until a time, or until something outside pokes the run."""
        if record is not None:
            self._run.records.note(record, is_urgent=True)
        self.waits.add(call, wake_at)

    def expect(self, call: DurableCall) -> int:
        """The end of a call is about to be recorded, at the instant that this returns. No later
        one is delivered before it."""
        call.is_ending = True
        self._coming.append(call)
        return self._run.records.next_at()

    def drop(self, call: DurableCall) -> None:
        """Expect the end no longer: it did not come."""
        call.is_ending = False
        self._coming.remove(call)

    def complete(self, call: DurableCall, record: StoredStep) -> None:
        """The end of a call that is written later, with what the code does then."""
        self.waits.discard(call)
        # Alone it has one possible place in the order; otherwise a crash must not change its place.
        is_urgent = len(self._calls) > 1
        call.record = completed(record, self.expect(call))
        call.is_written = True
        self._run.records.note(call.record, is_urgent=is_urgent)
        self._run.proceed_soon()

    async def complete_written(self, ends: Sequence[tuple[DurableCall, StoredStep]]) -> None:
        """Ends of calls, recorded at their places in the order."""
        for call, record in ends:
            call.record = msgspec.structs.replace(record, finished_at=self.expect(call))
        records = [call.record for call, _ in ends if call.record is not None]
        if records and await self._run.records.put(*records):
            for call, _ in ends:
                call.is_written = True

    def set_alarm(self) -> None:
        """While work is in progress the run keeps its slot, and time passes here."""
        if not self.waits and not self._closing and self._alarm is None:
            return
        at = self.waits.next_at()
        for _, close_at in self._closing.values():
            at = close_at if at is None else min(at, close_at)
        if self._alarm is not None and at == self._alarm[0]:
            return
        self.cancel_alarm()
        if at is not None:
            self._alarm = at, self._run.clock.call_at(at, self._wake)

    def cancel_alarm(self) -> None:
        """Let no time pass here."""
        if self._alarm is not None:
            self._alarm[1].cancel()
            self._alarm = None

    def _wake(self) -> None:
        self._alarm = None
        if self._run.rest is not None:
            return
        now = self._run.clock.now()
        for call in self.waits.take_due(now):
            call.begin()
        late = {task: key for task, (key, close_at) in self._closing.items() if close_at <= now}
        if late:
            leave_behind(self._run, late)
            for task in late:
                del self._closing[task]
        self._run.proceed_soon()
