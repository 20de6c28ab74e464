"""The error tree, on one page: the failures, with advice that a person can act on.

    RotaError
    ├── UsageError    the caller asked for something that cannot be
    ├── StoreError    the database cannot do it now, or not this way
    ├── LeaseLost     another worker owns the run now
    ├── RunFailed     the awaited run ended badly (also RunCancelled, RunCrashed)
    ├── StepFailed · StepTimeout · RunTimeout · Stranded · BadReply
    └── Failure       raised by user code, and by tools, to name the class of the failure

Control flow (`Suspended`, `HostStop`, `RunInterrupted`) derives from BaseException: user code that
catches `Exception` can never swallow it.
"""

from __future__ import annotations

from typing import ClassVar


class RotaError(Exception):
    """Anything Rota raises on purpose: a sentence, a stable code, a hint, and the facts."""

    code: ClassVar[str] = "error"
    hint: ClassVar[str] = "See the message; run `rota doctor` if it is not enough."

    def __init__(self, message: str, *, hint: str | None = None, **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts
        self.advice = hint or self.hint

    @property
    def advice(self) -> str:
        """The advice."""
        return self._advice

    @advice.setter
    def advice(self, hint: str) -> None:
        # A note is the part of an exception that Python prints below its message.
        self._advice = hint
        self.__notes__ = [f"Hint: {hint}"]


class UsageError(RotaError):
    """The request itself is wrong; nothing was changed."""

    code = "usage"
    hint = "Correct the call; nothing was changed."


class BadSetting(UsageError):
    """A setting is unknown or outside its bounds."""

    code = "bad_setting"
    hint = "See docs/reference/settings.md for names, units and bounds."


class UnknownOption(UsageError, TypeError):
    """A call has no option of that name; the hint holds the nearest one."""

    code = "unknown_option"
    hint = "Check the spelling; arguments of a workflow go to `start`, options to `options`."


class BadInput(UsageError):
    """An argument does not fit the workflow's type hints; the message holds the path."""

    code = "bad_input"
    hint = "Compare the input with the workflow's signature; nothing was started."


class PayloadTooBig(UsageError):
    """An input, output or step result is larger than the limit."""

    code = "payload_too_big"
    hint = "Store the bulk elsewhere and pass a reference, or raise `payload_bytes_max`."


class NotSerialisable(UsageError):
    """A value cannot be written as JSON."""

    code = "not_serialisable"
    hint = "Use plain types, dataclasses, msgspec structs or pydantic models."


class Unstorable(UsageError):
    """The database cannot hold a value: a number beyond 64 bits, or text that is not Unicode."""

    code = "unstorable"
    hint = "Nothing was written. Look for a huge number, a NUL or a lone surrogate in the values."


class UnknownWorkflow(UsageError):
    """No workflow of that name is registered."""

    code = "unknown_workflow"
    hint = "Check the name, or register the workflow before starting it."


class UnknownRun(UsageError):
    """No run has that id in this namespace."""

    code = "unknown_run"
    hint = "List runs with `rota run list`; old ones may have been pruned."


class UnknownSchedule(UsageError):
    """No schedule has that name in this namespace."""

    code = "unknown_schedule"
    hint = "List schedules with `rota schedule list`."


class AlreadyStarted(UsageError):
    """A run with this external id exists and the caller asked for a new one."""

    code = "already_started"
    hint = "Use another external_id, or on_conflict='return' to get the run that exists."


class WrongState(UsageError):
    """The run is in a status from which this verb does not lead anywhere."""

    code = "wrong_state"
    hint = "Look at the run with `rota run show`; the verb does not apply to its status."


class ChangedSince(UsageError):
    """A definition is no longer the one that the caller has read."""

    code = "changed_since"
    hint = "Read it again, then decide."


class UnknownQueue(UsageError):
    """No queue of that name is declared or served."""

    code = "unknown_queue"
    hint = "List queues with `rota queue list`."


class UnknownToken(UsageError):
    """No valid token has that name or id in this namespace."""

    code = "unknown_token"
    hint = "List tokens with `rota token list`."


class BadSchedule(UsageError):
    """A schedule cannot be understood, or could never fire; the message points at the place."""

    code = "bad_schedule"
    hint = "Write cron (0 9 * * MON-FRI), an interval (5m), a time, or words (weekdays at 9:30)."


class UnknownZone(UsageError):
    """No time zone of that name is known."""

    code = "unknown_zone"
    hint = "Use a name of the IANA database, such as Europe/Berlin, America/New_York or UTC."


class BadPipeline(UsageError):
    """A pipeline cannot be read; the message holds every problem with its file, line and column."""

    code = "bad_pipeline"
    hint = "Correct the lines named in the message; see docs/reference/pipeline.md for the format."


class NotTrusted(UsageError):
    """A pipeline from elsewhere would execute commands or a schedule without confirmation."""

    code = "not_trusted"
    hint = "Read the files of the pipeline, then run `rota pipeline trust PATH`."


class SchedulerLockError(UsageError):
    """Another scheduler looks after this folder; the message names it."""

    code = "scheduler_locked"
    hint = "Stop the other one first; if its machine is gone, its lock lapses by itself."


class UnknownAutomation(UsageError):
    """No automation of that name is deployed in this namespace."""

    code = "unknown_automation"
    hint = "List automations with `rota automation list`; deploy it first if it is new."


class UnknownPipeline(UsageError):
    """There is no pipeline at the given place."""

    code = "unknown_pipeline"
    hint = "Name a pipeline.yaml or its folder; `rota pipeline list FOLDER` shows what is there."


class UnknownInput(UsageError):
    """An automation has no input with that id."""

    code = "unknown_input"
    hint = "List what came in with `rota automation inputs NAME`."


class BadAutomation(UsageError):
    """An automation cannot be deployed; the message lists everything wrong with it."""

    code = "bad_automation"
    hint = "Correct all that is listed; the version deployed before stays in force."


class BadReservation(UsageError):
    """A consumer asked for events that it cannot have."""

    code = "bad_reservation"
    hint = "Reserve only events that `peek` returned, of topics the consumer subscribes to."


class NotAllowed(UsageError):
    """A handler asked for something that its phase does not allow."""

    code = "not_allowed"
    hint = "Do reads in prepare, one change in mutate, publish in next; see the guide."


class BadToken(UsageError):
    """A token, session or login link is unknown, used, expired or revoked."""

    code = "bad_token"
    hint = "Ask for a token, or make one with `rota token create NAME --role read`."


class StaleCursor(UsageError):
    """A cursor belongs to another list, or to other filters."""

    code = "stale_cursor"
    hint = "Begin with the first page again."


class StoreError(RotaError):
    """The database refused or could not be reached."""

    code = "store"
    hint = "Run `rota doctor` for the state of the database."


class BadDatabaseUrl(StoreError):
    """The database URL cannot be understood."""

    code = "bad_database_url"
    hint = "Write sqlite:///path/to/rota.db or postgresql://user@host:5432/name."


class MissingExtra(StoreError):
    """An optional package is needed for this."""

    code = "missing_extra"
    hint = "Install the extra named in the message."


class StoreUnreachable(StoreError):
    """The server does not answer, or the connection broke."""

    code = "store_unreachable"
    hint = "Check that the server runs and accepts this host, user and database name."


class StoreBusy(StoreError):
    """Another process holds the database for too long."""

    code = "store_busy"
    hint = "Find who holds the file open in a long transaction; the call may be repeated."


class StoreFull(StoreError):
    """The disk, a quota or a file-size limit is full; the write was refused."""

    code = "store_full"
    hint = "Free some space: workers continue. Repeat a start with its external_id: it starts once."


class StoreIOError(StoreError):
    """The disk failed to read or write; whether the last write took place is not known."""

    code = "store_io"
    hint = "Check the disk and the system log. Repeat a start with its external_id: it starts once."


class StoreNoSharedMemory(StoreError):
    """The file system offers no shared memory, which SQLite's write-ahead log needs."""

    code = "store_no_shared_memory"
    hint = "Put the file on a local disk (not NFS, SMB or a container's mount), or use PostgreSQL."


class StoreGone(StoreError):
    """The SQLite file or its log was deleted or replaced while Rota had it open."""

    code = "store_gone"
    hint = "Restart this process; nothing is written until then. Copy with `rota backup FILE` only."


class StoreReadOnly(StoreError):
    """The database may not be written."""

    code = "store_read_only"
    hint = "Check the permissions of the file and its folder, or the role's grants."


class StoreHeld(StoreError):
    """Other code opens the SQLite file that Rota has open in the same process."""

    code = "store_held"
    hint = "Copy it with `rota backup FILE` or `app.backup(path)`. Read it in another process."


class StoreCorrupt(StoreError):
    """The file is not a SQLite database, or is damaged."""

    code = "store_corrupt"
    hint = "Restore the file from a backup; Rota will not write to it."


class SchemaTooNew(StoreError):
    """The database was migrated by a newer Rota."""

    code = "schema_too_new"
    hint = "Upgrade Rota on this machine; going back is not supported."


class SchemaMissing(StoreError):
    """The database has not been migrated to what this version needs."""

    code = "schema_missing"
    hint = "Run `rota migrate`; in code, write Rota(…, migrate=True)."


class LeaseLost(RotaError):
    """The run was taken from this worker: cancelled, or reaped after its lease lapsed."""

    code = "lease_lost"
    hint = "Stop working on this run; nothing this worker writes about it counts any more."


class RunFailed(RotaError):
    """The awaited run ended without a result."""

    code = "run_failed"
    hint = "See `rota run show` for the error and the steps; `rota run retry` tries again."


class RunCancelled(RunFailed):
    """The awaited run was cancelled."""

    code = "run_cancelled"
    hint = "It was cancelled; `rota run retry` tries again from its last finished step."


class RunCrashed(RunFailed):
    """The awaited run crashed its worker more often than the bound allows."""

    code = "run_crashed"
    hint = "It killed its worker every time. Fix the cause, then `rota run retry`."


class StepFailed(RotaError):
    """A step used up its attempts; the message has the error of the last one."""

    code = "step_failed"
    hint = "Run `rota run show ID` for the traceback of the step."


class StepTimeout(RotaError):
    """A step took longer than its timeout."""

    code = "step_timeout"
    hint = "Raise the step's timeout, or make the step smaller."


class RunTimeout(RotaError):
    """A run took longer than its timeout."""

    code = "run_timeout"
    hint = "Raise the workflow's timeout, or split the work into child runs."


class Stranded(RotaError):
    """The code no longer makes the calls that the chain has recorded (non-deterministic)."""

    code = "stranded"
    hint = (
        "Restore the code and `rota run retry` it; or keep the old path behind `rota.patched`, "
        "deploy and retry; or `rota run fork` it from an earlier step."
    )


class BadReply(RotaError):
    """A model's reply does not hold what was asked for, also not when asked again."""

    code = "bad_reply"
    hint = "The reply is kept with the item. Name the fields in the prompt, or retry the item."


class TruncatedReply(BadReply):
    """A model's reply was cut off at its longest length, also with more room."""

    code = "truncated_reply"
    hint = "Raise `maxTokens`, ask for less, or make `batchSize` smaller; then retry the item."


class EmptyReply(BadReply):
    """A model replied with nothing, even when asked again."""

    code = "empty_reply"
    hint = "Change the prompt or the model, then retry the item."


class Failure(RotaError):
    """User code raises it to say which class its failure belongs to."""

    code = "failure"
    hint = "Use one of its subclasses; each leads to another next action."


class Transient(Failure):
    """Try again later; `retry_after_s` overrides the policy's delay."""

    code = "transient"
    hint = "Nothing to do: it is tried again under the retry policy."

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NeedsLogin(Failure):
    """Credentials are missing or expired: a person has to act."""

    code = "auth"
    hint = "Renew the credentials, then `rota run retry`."


class NeedsPermission(Failure):
    """The credentials are good but not allowed to do this."""

    code = "permission"
    hint = "Grant the permission, then `rota run retry`."


class Fatal(Failure):
    """Trying again cannot help."""

    code = "fatal"
    hint = "Fix the cause, then `rota run retry`."


class BudgetSpent(Fatal):
    """A call could pass the budget, so it was not made."""

    code = "budget_spent"
    hint = "Raise the budget or lower `maxTokens`; `run --reuse last` keeps what is done."


class ItemsFailed(Failure):
    """So many items of a pipeline failed that its run did too; what succeeded is kept."""

    code = "items_failed"
    hint = "Look at the errors of the items; a retry executes only what did not succeed."


class NotSent(Transient):
    """A tool's effect did not happen, and may well happen next time: refused, throttled, busy."""

    code = "not_sent"
    hint = "Nothing to do: the effect did not happen, and is tried again."


class Rejected(Failure):
    """The counterpart refused the effect: it did not happen, and the same call would fail again."""

    code = "rejected"
    hint = "Correct the parameters or the counterpart; the effect did not happen."


class ReadFailed(Failure):
    """A read was refused for good (gone, too big). A handler may catch it; `facts` has the tool."""

    code = "read_failed"
    hint = 'Catch `ReadFailed` in the handler, or declare failed_reads="skip".'


class FilteredReply(Rejected):
    """A model refused to answer, or a content filter of its provider stepped in."""

    code = "filtered_reply"
    hint = "The provider will not answer this; change the prompt or the item."


class OutcomeUnknown(Fatal):
    """The effect may have happened; only the counterpart knows."""

    code = "outcome_unknown"
    hint = "Let the tool reconcile, or look at the counterpart yourself and say what happened."

    def __init__(
        self, message: str, *, retry_after_s: float | None = None, **facts: object
    ) -> None:
        super().__init__(message, **facts)  # type: ignore[arg-type]
        self.retry_after_s = retry_after_s


class Suspended(BaseException):
    """Unwinds user code when its run gives its slot back; never to be caught."""


class HostStop(BaseException):
    """Unwinds a handler when the host has stopped it; `cause` says why. Never to be caught."""

    def __init__(self, cause: Exception | None = None) -> None:
        super().__init__(str(cause) if cause else "the side effect is done")
        self.cause = cause


class RunInterrupted(BaseException):
    """Unwinds user code when its run is cancelled or no longer ours; never to be caught."""
