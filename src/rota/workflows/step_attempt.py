"""`this_step()`: facts for the code of a step, and its progress.

An attempt of a step is an object of its own. The code of an earlier attempt may still run in its
thread: it sees that its own attempt is over, and its reports count for nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from rota.client import caller
from rota.core.redaction import without_secrets
from rota.core.runs import progress as progress_
from rota.core.runs.model import StoredStep
from rota.core.runs.names import read_tags
from rota.core.runs.progress import StepProgress
from rota.core.time.instants import SECOND, moment
from rota.engine.clock import Clock, Timer
from rota.errors import StepTimeout, UsageError

if TYPE_CHECKING:
    from rota.workflows.steps import StepCall

PROGRESS_US = 2 * SECOND  # from a report to its write: later reports share the write


class StepAttempt:
    """One execution of a step: its times, and what it reports."""

    __slots__ = (
        "_earlier",
        "_progress",
        "_timer",
        "_will_write",
        "_writing",
        "began_at",
        "call",
        "is_over",
        "number",
        "reported_at",
    )  # fmt: skip

    def __init__(self, call: StepCall) -> None:
        self.call = call
        self.number = call.attempt
        self.began_at = self.reported_at = call.run.clock.now()
        self.is_over = False
        self._earlier = call.record
        self._progress: StepProgress | None = None
        self._writing: asyncio.Task[None] | None = None  # a reference keeps it alive
        self._will_write = False
        self._timer: Timer | None = None

    @property
    def name(self) -> str:
        """The name of the step."""
        return self.call.step.name

    @property
    def clock(self) -> Clock:
        """The clock of the engine that executes it."""
        return self.call.run.clock

    @property
    def is_cancelled(self) -> bool:
        """Whether nothing waits for its end any more."""
        return self.is_over or self.call.is_withdrawn or self.call.run.interrupted

    def end(self) -> None:
        """It is over: its code may still run, and counts for nothing."""
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()

    # -- time ------------------------------------------------------------------------------

    @property
    def timeout_at(self) -> int | None:
        """The instant at which its timeout ends."""
        timeout_us = self.call.step.timeout_us
        return None if timeout_us is None else self.began_at + timeout_us

    def ends_at(self) -> int | None:
        """The instant at which it fails, unless it reports progress before."""
        heartbeat_us = self.call.step.heartbeat_us
        if heartbeat_us is None:
            return self.timeout_at
        ends = [self.timeout_at, self.reported_at + heartbeat_us]
        return min((at for at in ends if at is not None), default=None)

    def time_over(self) -> StepTimeout:
        """The error when it took too long, or was silent for too long."""
        step, at = self.call.step, self.timeout_at
        if at is not None and at <= self.clock.now():
            return StepTimeout(f"step {step.name} took longer than {_seconds(step.timeout_us)}")
        return StepTimeout(
            f"step {step.name} reported no progress for its heartbeat of "
            f"{_seconds(step.heartbeat_us)}",
            hint="Call rota.this_step().progress(…) more often, or give the step a longer "
            "heartbeat.",
        )

    # -- progress --------------------------------------------------------------------------

    def report(self, done: float, of: float | None, note: str | None) -> None:
        """Keep what the code reports, and write it soon. Any thread may call this."""
        now = self.clock.now()
        if isinstance(note, str):
            note = without_secrets(note)
        self._progress = progress_.checked(done, of, note, moment(now))
        self.reported_at = now
        if not self._will_write and not self.is_cancelled:
            self._will_write = True
            with contextlib.suppress(RuntimeError):  # the loop of the worker has just closed
                self.call.run.host.call_soon_threadsafe(self._write_later)

    @property
    def last_progress(self) -> StepProgress | None:
        """The last report: its own, otherwise that of the attempt before it."""
        if self._progress is not None or self._earlier is None:
            return self._progress
        return progress_.progress_of(self._earlier)

    def stored_progress(self) -> str | None:
        """The last report, as a record without a result holds it."""
        return progress_.stored(self.last_progress)

    def _write_later(self) -> None:
        if not self.is_cancelled:
            self._timer = self.clock.call_at(self.clock.now() + PROGRESS_US, self._write)

    def _write(self) -> None:
        self._will_write = False
        if not self.is_cancelled:
            run = self.call.run
            work = run.context.journal.report_progress(run.claim, self.record())
            self._writing = asyncio.Task(work, loop=run.host)

    def record(self) -> StoredStep:
        """Its record while it runs."""
        call = self.call
        return StoredStep(
            call.run.segment, call.key, call.position, "step", "waiting", self.number,
            call.run.claim.attempt, self.stored_progress(), None, None, None, self.began_at, None,
            call.digest,
        )  # fmt: skip


class ThisStep:
    """The running attempt of a step, for its code: facts about its call and its run, and progress.

    Threads and tasks that the step makes may use it, if they copy its context.
    """

    __slots__ = ("_attempt",)

    def __init__(self, attempt: StepAttempt) -> None:
        self._attempt = attempt

    @property
    def key(self) -> str:
        """The key of this call in its run, such as `charge#0`."""
        return self._attempt.call.key

    @property
    def attempt(self) -> int:
        """The number of this attempt of the call; the first is 1."""
        return self._attempt.number

    @property
    def run_id(self) -> str:
        """The id of the running attempt of the run."""
        return self._attempt.call.run.claim.id

    @property
    def root_id(self) -> str:
        """The id of the chain: the same for all attempts of the run."""
        return self._attempt.call.run.claim.root_id

    @property
    def workflow(self) -> str:
        """The name of the workflow."""
        return self._attempt.call.run.name

    @property
    def external_id(self) -> str | None:
        """The external id of the run, if it has one."""
        return self._attempt.call.run.claim.external_id

    @property
    def tags(self) -> Mapping[str, str]:
        """The tags of the run."""
        return read_tags(self._attempt.call.run.claim.tags)

    @property
    def deadline(self) -> datetime | None:
        """The end of the timeout of this attempt or of the run, whichever comes first, in UTC."""
        ends = [self._attempt.timeout_at, self._attempt.call.run.deadline_at]
        return min((moment(at) for at in ends if at is not None), default=None)

    @property
    def is_cancelled(self) -> bool:
        """Whether nothing waits for this attempt any more: the run or the step was cancelled, or
        its time is over. A step in a thread should then return."""
        return self._attempt.is_cancelled

    @property
    def is_stopping(self) -> bool:
        """Whether the worker is stopping: it waits for this step for `stop_s` at most."""
        return self._attempt.call.run.context.is_stopping()

    @property
    def idempotency_key(self) -> str:
        """A text for services that recognise a repeated request. It is unique for each call, and
        the same at each attempt of it: `<segment>-<first 16 hex digits of the SHA-256 of key>`."""
        digest = hashlib.sha256(self.key.encode(errors="surrogatepass")).hexdigest()
        return f"{self._attempt.call.run.segment}-{digest[:16]}"

    def progress(self, done: float, of: float | None = None, note: str | None = None) -> None:
        """Report progress: people see it, and a later attempt reads it. It also is a heartbeat.

        It costs little: Rota keeps it in memory and writes the latest every two seconds.

        Args:
            done: How much is done.
            of: How much there is.
            note: Any text, such as where the next attempt may continue.

        Raises:
            UsageError: `done` or `of` is not a number, or `note` is not a text.

        Example:
            this_step().progress(3, of=10, note="pages")
        """
        self._attempt.report(done, of, note)

    @property
    def last_progress(self) -> StepProgress | None:
        """The last report of this attempt, otherwise of the one before it; None without any."""
        return self._attempt.last_progress


def _seconds(duration_us: int | None) -> str:
    return f"{(duration_us or 0) / 1e6:g} s"


def this_step() -> ThisStep:
    """The running attempt of the step around this code: ids, key, tags, deadline and progress.

    Raises:
        UsageError: It is called outside of a step.

    Example:
        stripe.charge(card, idempotency_key=this_step().idempotency_key)
    """
    attempt = caller.current_step()
    if not isinstance(attempt, StepAttempt):
        raise UsageError(
            "this_step was called outside of a step"
            if caller.current_run() is None
            else "this_step was called in a workflow, outside of its steps",
            hint="Call it in a function with @app.step or @rota.step that a workflow calls. In the "
            "workflow function itself, use rota.this_run().",
        )
    return ThisStep(attempt)
