"""The records of a run: those of earlier executions, which the code repeats, and new ones.

Facts, ends of timers and cancelled calls are gathered, and written with or before the next thing
that has an effect.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from rota.core.runs.model import Claim, StoredStep
from rota.core.runs.stored_errors import read_error
from rota.errors import Stranded
from rota.workflows import nondeterminism

if TYPE_CHECKING:
    from rota.workflows.calls import DurableCall
    from rota.workflows.workflow_run import WorkflowRun


WITH_REACTION = ("sleep", "timer")  # the end is recorded when the code has reacted to it
FACTS = ("now", "patch")  # known to the code at once: they have no place in the order of results


class Replay:
    """Answers the calls of the code from the records, and gives their ends in the recorded order.

    Unchanged code makes every recorded call before it needs an end that was not recorded. So code
    that does not has changed, and its run is stranded."""

    __slots__ = (
        "_claim",
        "_recorded",
        "_to_cancel",
        "_unasked",
        "failed_before",
        "last_at",
        "position",
        "repeats",
        "undelivered",
    )

    def __init__(self, claim: Claim, recorded: Sequence[StoredStep]) -> None:
        # A failure that ended an earlier attempt is forgotten, with the calls that handled it: a
        # retry makes them again. A failure that user code caught is raised again at every replay.
        kept = {step.key: step for step in recorded if not step.is_forgotten}
        ended = [step for step in kept.values() if has_end(step)]
        ended.sort(key=lambda step: (step.finished_at or 0, step.position))
        self._claim = claim
        self._recorded = kept
        self._unasked = dict(kept)
        self.repeats = False  # whether the code repeats its reaction to a recorded end
        self.undelivered = deque(ended)  # recorded ends that the code has not got
        self._to_cancel: dict[
            str, DurableCall
        ] = {}  # the recorded code cancelled them, this one not yet
        self.failed_before: Collection[str] = {step.key for step in recorded} - kept.keys()
        self.position = max((step.position for step in recorded), default=0)
        self.last_at = max((step.finished_at or 0 for step in recorded), default=0)

    @property
    def is_going_on(self) -> bool:
        """Whether the code has not made all recorded calls yet, or has not got their ends."""
        return bool(self.undelivered or self._unasked or self.repeats)

    @property
    def lacks_calls(self) -> bool:
        """Whether the code has not made all recorded calls that it has to make."""
        return not all(map(_may_be_left_out, self._unasked.values()))

    def expects(self, prefix: str) -> bool:
        """Whether the recorded code made a call of such a key, and this code has not yet."""
        return any(key.startswith(prefix) for key in self._unasked)

    def ask(self, key: str) -> StoredStep | None:
        """The record under a key."""
        if not self._recorded:
            return None
        self._unasked.pop(key, None)
        return self._recorded.pop(key, None)

    def ask_fact(self, key: str) -> StoredStep | None:
        """The same for a fact, which may be asked for again."""
        self._unasked.pop(key, None)
        return self._recorded.get(key)

    def ask_call(
        self, key: str, digest: int | None, call: str, args: Any, kwargs: Any
    ) -> StoredStep | None:
        """The same for a call with arguments. Raises Stranded if they are not the recorded ones."""
        step = self.ask(key)
        if step is None or step.digest == digest or step.digest is None or digest is None:
            return step
        twin = next((one.key for one in self._recorded.values() if one.digest == digest), None)
        raise nondeterminism.other_arguments(self._claim, step.key, call, args, kwargs, twin)

    def next_end(self) -> StoredStep | None:
        """The earliest recorded end of a call that the code has made. Unchanged code has always
        made the call of the first; changed code may make it later."""
        for n, step in enumerate(self.undelivered):
            if step.key not in self._unasked:
                del self.undelivered[n]
                # Its record was written together with what the code did then.
                self.repeats = step.kind in WITH_REACTION
                return step
        return None

    def expect_cancel(self, call: DurableCall) -> None:
        """The recorded code cancelled this call, so this code will too."""
        self._to_cancel[call.key] = call

    def cancelled(self, call: DurableCall) -> None:
        """The code has cancelled it."""
        self._to_cancel.pop(call.key, None)

    def finish(self) -> Stranded | None:
        """The code has got all recorded ends and has come to rest. It may have omitted patches
        and timers that never fired; the error if it omitted anything else."""
        if self.lacks_calls or self._to_cancel:
            return self.stranded()
        self._unasked.clear()
        return None

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to compare."""
        return not (self._unasked or self._to_cancel)

    def omitted(self) -> Stranded | None:
        """The error when code that has ended has not made the recorded calls. It may have ended
        before it got the end of each."""
        return self.stranded() if self.lacks_calls else None

    def stranded(self) -> Stranded:
        """The error when the code does not do what is recorded."""
        due_at = self.undelivered[0].finished_at if self.undelivered else None
        for call in self._to_cancel.values():
            ended_at = call.record.finished_at if call.record is not None else None
            if due_at is None or ended_at is None or ended_at < due_at:
                return nondeterminism.not_cancelled(self._claim, call.key)
        return nondeterminism.not_asked_for(self._claim, self._unasked)


def is_cancelled(step: StoredStep) -> bool:
    """Whether the record says that the workflow cancelled the call itself."""
    return (
        step.status == "failed"
        and step.error is not None
        and read_error(step.error)["type"] == asyncio.CancelledError.__name__
    )


def has_end(step: StoredStep) -> bool:
    """Whether the end of this call has a place in the order of results."""
    if step.kind in FACTS or step.finished_at is None:
        return False
    if step.status == "failed":
        # A failed step with a time is tried again then; for a signal it is the end of its wait.
        return (step.kind != "step" or step.wake_at is None) and not is_cancelled(step)
    return step.status == "completed"


def _may_be_left_out(step: StoredStep) -> bool:
    """Whether code that does not make this call may still be the recorded one."""
    return step.kind == "patch" or (step.kind == "timer" and step.status != "completed")


class Records:
    """The records of one run."""

    __slots__ = (
        "_facts", "_last_at", "_outbox", "_position", "_run", "_under_way", "is_urgent", "replay",
    )  # fmt: skip

    def __init__(self, run: WorkflowRun, recorded: Sequence[StoredStep]) -> None:
        self._run = run
        self.replay = Replay(run.claim, recorded) if recorded else _NOTHING_RECORDED
        self._position = self.replay.position
        self._last_at = self.replay.last_at
        self._outbox: dict[str, StoredStep] = {}
        self.is_urgent = False  # write it soon, whether or not anything else is written
        self._under_way = 0  # writes that took something urgent along
        self._facts: dict[str, StoredStep] = {}

    def new_step(self, key: str, kind: str, *, position: int = 0, **fields: Any) -> StoredStep:
        """A step record, at the next position of the chain if none is given."""
        run = self._run
        values: dict[str, Any] = {
            "status": "completed", "attempt": 1, "run_attempt": run.claim.attempt,
            "output": None, "error": None, "wake_at": None, "child_id": None,
            "started_at": run.clock.now(), "finished_at": None,
        }  # fmt: skip
        values.update(fields)
        return StoredStep(
            root_id=run.segment, key=key, position=position or self.next_position(), kind=kind,
            **values,
        )  # fmt: skip

    def next_position(self) -> int:
        """The position of the next call in the chain."""
        self._position += 1
        return self._position

    def next_at(self) -> int:
        """The instant of the next completion; it is unique within the run."""
        self._last_at = max(self._run.clock.now(), self._last_at + 1)
        return self._last_at

    def fact(self, key: str, kind: str, read: Callable[[], str]) -> StoredStep:
        """A value that the code learns at once, the same at every replay."""
        run, step = self._run, self.replay.ask(key)
        if step is None:
            if kind == "now" and self.replay.lacks_calls:
                # The recorded code made those calls before it read a clock here.
                raise run.refuse(self.replay.stranded())
            step = self.new_step(key, kind, output=read(), finished_at=run.clock.now())
            self.note(step, is_urgent=True)
        return step

    def is_patched(self, name: str) -> bool:
        """Whether the run takes the new path: not if an execution under old code passed here."""
        self._run.check_open()
        key, replay = f"patch {name}", self.replay
        if key not in self._facts:
            is_old = replay.lacks_calls or bool(replay.undelivered)
            answer = "false" if is_old else "true"
            self._facts[key] = replay.ask_fact(key) or self.fact(key, "patch", lambda: answer)
        return self._facts[key].output == "true"

    def note(self, step: StoredStep, *, is_urgent: bool) -> None:
        """Write this with the next record."""
        self._outbox[step.key] = step
        self.is_urgent = self.is_urgent or is_urgent

    @property
    def is_dirty(self) -> bool:
        """Whether something is not written yet."""
        return bool(self._outbox)

    async def flush(self) -> bool:
        """Write all that the code has learned. Returns whether the run is still ours."""
        return await self.put() if self._outbox else True

    async def put(self, *steps: StoredStep) -> bool:
        """Write records, and before them what the code has learned. Returns whether the run is
        still ours."""
        run, is_urgent = self._run, self.begin_write()
        written = await run.context.journal.put(run.claim, self.with_outbox(steps))
        self.end_write(is_urgent)
        return run.is_ours(written)

    def begin_write(self) -> bool:
        """A write takes along what the code has learned. Returns whether that is urgent: it counts
        as not written until the write has ended."""
        self._under_way += self.is_urgent
        return self.is_urgent

    def end_write(self, is_urgent: bool) -> None:
        """The write has ended."""
        self._under_way -= is_urgent

    @property
    def is_under_way(self) -> bool:
        """Whether something urgent is being written: nothing new begins before that."""
        return self._under_way > 0

    def with_outbox(self, steps: Sequence[StoredStep]) -> Sequence[StoredStep]:
        """These records, and before them what the code has learned."""
        outbox = self._outbox
        if not outbox:
            return steps
        self._outbox, self.is_urgent = {}, False
        for step in steps:
            outbox.pop(step.key, None)
        return [*outbox.values(), *steps]


# All runs without records share it: it never changes.
_NOTHING_RECORDED = Replay(cast(Claim, None), ())


def completed(record: StoredStep, at: int) -> StoredStep:
    """A record of a call that has ended."""
    return msgspec.structs.replace(record, status="completed", finished_at=at)
