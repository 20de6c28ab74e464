"""The error tree, on one page: each error with a hint that says what to do.

    RotaError
    ├── UsageError    the call is wrong; nothing was changed
    ├── StoreError    the database refused the call or is not available
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
    """Base of all errors that Rota raises: a message, a stable code, a hint and facts.

    `exit_code` is what a command ends with, `http_status` what the HTTP API answers.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500
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

    @property
    def explained(self) -> str:
        """The message, and the hint if it was given with the message."""
        own = self.advice != type(self).hint
        return f"{self.message.rstrip('.')}. {self.advice}" if own else self.message


class UsageError(RotaError):
    """The request itself is wrong; nothing was changed."""

    code = "usage"
    exit_code, http_status = 2, 422
    hint = "Correct the call; nothing was changed."


class BadSetting(UsageError):
    """A setting is unknown or outside its bounds."""

    code = "bad_setting"
    hint = "See docs/reference/settings.md for names, units and bounds."


class UnknownOption(UsageError, TypeError):
    """A call has no option of that name; the hint names the nearest one."""

    code = "unknown_option"
    hint = "Check the spelling; arguments of a workflow go to `start`, options to `options`."


class BadInput(UsageError):
    """An argument does not fit the workflow's type hints; the message names the path."""

    code = "bad_input"
    hint = "Compare the input with the workflow's signature; nothing was started."


class PayloadTooBig(UsageError):
    """An input, output or step result is larger than the limit."""

    code = "payload_too_big"
    http_status = 413
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
    exit_code, http_status = 4, 404
    hint = "Check the name, or register the workflow before starting it."


class UnknownRun(UsageError):
    """No run has that id in this namespace."""

    code = "unknown_run"
    exit_code, http_status = 4, 404
    hint = "List runs with `rota run list`; old ones may have been pruned."


class UnknownSchedule(UsageError):
    """No schedule has that name in this namespace."""

    code = "unknown_schedule"
    exit_code, http_status = 4, 404
    hint = "List schedules with `rota schedule list`."


class AlreadyStarted(UsageError):
    """A run with this external id or unique key exists, and the call rejects duplicates."""

    code = "already_started"
    exit_code, http_status = 5, 409
    hint = "Use another external_id, or on_conflict='return' to get the run that exists."


class WrongState(UsageError):
    """The status of the run, schedule or automation does not allow this operation."""

    code = "wrong_state"
    exit_code, http_status = 5, 409
    hint = "Check its status: `rota run show`, `rota schedule show`, `rota automation show`."


class ChangedSince(UsageError):
    """The definition has changed since the caller read it."""

    code = "changed_since"
    exit_code, http_status = 5, 412
    hint = "Read it again, then repeat the change."


class UnknownQueue(UsageError):
    """No queue of that name is declared or served."""

    code = "unknown_queue"
    exit_code, http_status = 4, 404
    hint = "List queues with `rota queue list`."


class UnknownToken(UsageError):
    """No valid token has that name or id in this namespace."""

    code = "unknown_token"
    exit_code, http_status = 4, 404
    hint = "List tokens with `rota token list`."


class BadSchedule(UsageError):
    """A schedule cannot be parsed, or would never fire; the message points at the error."""

    code = "bad_schedule"
    hint = "Write cron (0 9 * * MON-FRI), an interval (5m), a time, or words (weekdays at 9:30)."


class UnknownZone(UsageError):
    """No time zone of that name is known."""

    code = "unknown_zone"
    hint = "Use a name of the IANA database, such as Europe/Berlin, America/New_York or UTC."


class BadPipeline(UsageError):
    """A pipeline cannot be read; the message lists every problem with its file, line and column."""

    code = "bad_pipeline"
    hint = "Correct the lines named in the message; see docs/reference/pipeline.md for the format."


class NotTrusted(UsageError):
    """A pipeline outside of the project has commands or a schedule, and is not trusted yet."""

    code = "not_trusted"
    http_status = 403
    hint = "Read the files of the pipeline, then run `rota pipeline trust PATH`."


class SchedulerLockError(UsageError):
    """Another scheduler runs in this folder; the message names it."""

    code = "scheduler_locked"
    exit_code, http_status = 5, 409
    hint = "Stop the other scheduler first. If its machine is gone, its lock lapses by itself."


class UnknownAutomation(UsageError):
    """No automation of that name is deployed in this namespace."""

    code = "unknown_automation"
    exit_code, http_status = 4, 404
    hint = "List automations with `rota automation list`; deploy it first if it is new."


class UnknownPipeline(UsageError):
    """There is no pipeline at the given path."""

    code = "unknown_pipeline"
    exit_code, http_status = 4, 404
    hint = "Name a pipeline.yaml or its folder; `rota pipeline list FOLDER` shows what is there."


class UnknownInput(UsageError):
    """An automation has no input with that id."""

    code = "unknown_input"
    exit_code, http_status = 4, 404
    hint = "List what came in with `rota automation inputs NAME`."


class BadAutomation(UsageError):
    """An automation cannot be deployed; the message lists everything wrong with it."""

    code = "bad_automation"
    hint = "Correct every problem listed; the version deployed before stays in force."


class BadReservation(UsageError):
    """A consumer tried to reserve events that are not pending, or not of its topics."""

    code = "bad_reservation"
    http_status = 409
    hint = "Reserve only events that `peek` returned, of topics the consumer subscribes to."


class NotAllowed(UsageError):
    """A handler made a call that its phase does not allow."""

    code = "not_allowed"
    http_status = 403
    hint = "Read in prepare, return one change from mutate, publish in next; see the guide."


class BadToken(UsageError):
    """A token, session or login link is unknown, used, expired or revoked."""

    code = "bad_token"
    http_status = 401
    hint = "Ask for a token, or create one with `rota token create NAME --role read`."


class StaleCursor(UsageError):
    """A cursor belongs to another list, or to other filters."""

    code = "stale_cursor"
    hint = "Begin with the first page again."


class StoreError(RotaError):
    """The database refused a call, or cannot be reached."""

    code = "store"
    exit_code, http_status = 3, 503
    hint = "Run `rota doctor` for the state of the database."


class BadDatabaseUrl(StoreError):
    """The database URL cannot be parsed."""

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
    hint = "Find the process with a long transaction on the file; the call may be repeated."


class StoreFull(StoreError):
    """The disk, a quota or a file-size limit is full; the write was refused."""

    code = "store_full"
    hint = "Free some space; workers then continue. A start with an external_id can be repeated."


class StoreIOError(StoreError):
    """The disk failed to read or write; whether the last write took place is not known."""

    code = "store_io"
    hint = "Check the disk and the system log. A start with an external_id can be repeated."


class StoreNoSharedMemory(StoreError):
    """The file system offers no shared memory, which SQLite's write-ahead log needs."""

    code = "store_no_shared_memory"
    hint = "Put the file on a local disk (not NFS, SMB or a container's mount), or use PostgreSQL."


class StoreGone(StoreError):
    """The SQLite file or its log was deleted or replaced while Rota had it open."""

    code = "store_gone"
    hint = "Restart this process; nothing is written until then. Copy with `rota backup FILE` only."


class StoreReadOnly(StoreError):
    """Rota has no permission to write to the database, or it is read-only."""

    code = "store_read_only"
    hint = "Check the permissions of the file and its folder, or the role's grants."


class StoreHeld(StoreError):
    """Other code in this process opens the SQLite file that Rota has open."""

    code = "store_held"
    hint = "Copy it with `rota backup FILE` or `app.backup(path)`. Read it in another process."


class StoreCorrupt(StoreError):
    """The file is not a SQLite database, or is damaged."""

    code = "store_corrupt"
    hint = "Restore the file from a backup; Rota will not write to it."


class SchemaTooNew(StoreError):
    """The database was migrated by a newer Rota."""

    code = "schema_too_new"
    hint = "Upgrade Rota on this machine; downgrades are not supported."


class SchemaMissing(StoreError):
    """The database lacks a migration that this version needs."""

    code = "schema_missing"
    hint = "Run `rota migrate`; in code, write Rota(…, migrate=True)."


class LeaseLost(RotaError):
    """This worker lost the run: it was cancelled, or reaped after its lease lapsed."""

    code = "lease_lost"
    exit_code = 5
    hint = "Stop work on this run; Rota discards everything this worker still writes about it."


class RunFailed(RotaError):
    """The awaited run ended without a result."""

    code = "run_failed"
    hint = "See `rota run show` for the error and the steps; `rota run retry` tries again."


class RunCancelled(RunFailed):
    """The awaited run was cancelled."""

    code = "run_cancelled"
    hint = "It was cancelled; `rota run retry` tries again from its last finished step."


class RunCrashed(RunFailed):
    """The awaited run crashed its worker more often than `recoveries_max` allows."""

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


class CleanupTimeout(RunTimeout):
    """The code of a run that was ended gracefully had not cleaned up in time."""

    code = "cleanup_timeout"
    hint = "Give it a longer grace or `cleanup`; see `rota run show` for the cleanup steps it did."


class Stranded(RotaError):
    """The code no longer makes the calls that the chain has recorded (non-deterministic)."""

    code = "stranded"
    http_status = 409
    hint = (
        "Restore the code and `rota run retry` it; or keep the old path behind `rota.patched`, "
        "deploy and retry; or `rota run fork` it from an earlier step."
    )


class BadReply(RotaError):
    """A model's reply lacks the requested fields, even after a second request."""

    code = "bad_reply"
    hint = "The reply is kept with the item. Name the fields in the prompt, or retry the item."


class TruncatedReply(BadReply):
    """A model's reply was cut off at `maxTokens`, even with a higher limit."""

    code = "truncated_reply"
    hint = "Raise `maxTokens`, ask for less, or make `batchSize` smaller; then retry the item."


class UnfinishedReply(BadReply):
    """A model was interrupted, asked for a tool, or stopped for an unknown reason."""

    code = "unfinished_reply"
    hint = "Retry the item; the message says why the model stopped."


class EmptyReply(BadReply):
    """A model's reply was empty, even after a second request."""

    code = "empty_reply"
    hint = "Change the prompt or the model, then retry the item."


class Failure(RotaError):
    """Base of the errors that user code and tools raise to classify a failure."""

    code = "failure"
    hint = "Raise one of its subclasses; the class decides what Rota does next."


class Transient(Failure):
    """A temporary failure, to be retried; `retry_after_s` overrides the policy's delay."""

    code = "transient"
    hint = "Nothing to do: Rota retries it by its retry policy."

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NeedsLogin(Failure):
    """Credentials are missing or expired; an operator must renew them."""

    code = "auth"
    hint = "Renew the credentials, then `rota run retry`."


class NeedsPermission(Failure):
    """The credentials are valid, but lack a permission."""

    code = "permission"
    hint = "Grant the permission, then `rota run retry`."


class Fatal(Failure):
    """A permanent failure: a retry cannot succeed."""

    code = "fatal"
    hint = "Fix the cause, then `rota run retry`."


class BudgetSpent(Fatal):
    """A call could exceed the budget, so Rota did not make it."""

    code = "budget_spent"
    exit_code = 8
    hint = "Raise the budget or lower `maxTokens`; `run --reuse last` reuses finished items."


class ItemsFailed(Failure):
    """Too many items of a pipeline failed, so its run failed; finished items are kept."""

    code = "items_failed"
    hint = "Check the errors of the items; a retry executes only those that did not succeed."


class NotSent(Transient):
    """A side effect did not happen, and a retry may succeed: throttled, busy, unreachable."""

    code = "not_sent"
    hint = "Nothing to do: the side effect did not happen, and Rota retries it."


class Rejected(Failure):
    """The counterpart refused the side effect; the same call would fail again."""

    code = "rejected"
    hint = "Correct the parameters or the counterpart; the side effect did not happen."


class ReadFailed(Failure):
    """A read failed for good (missing, too big). A handler may catch it; `facts` has the tool."""

    code = "read_failed"
    hint = 'Catch `ReadFailed` in the handler, or declare failed_reads="skip".'


class FilteredReply(Rejected):
    """A model refused to answer, or a content filter of its provider blocked it."""

    code = "filtered_reply"
    hint = "The provider will not answer this; change the prompt or the item."


class OutcomeUnknown(Fatal):
    """The side effect may have happened; only the counterpart knows."""

    code = "outcome_unknown"
    hint = "Let the tool reconcile, or check the counterpart yourself, then `rota run resolve`."

    def __init__(
        self, message: str, *, retry_after_s: float | None = None, **facts: object
    ) -> None:
        super().__init__(message, **facts)  # type: ignore[arg-type]
        self.retry_after_s = retry_after_s


class CodeExit(RotaError):
    """Code that Rota called raised SystemExit or its like; its worker continues."""

    code = "code_exit"
    hint = "Return, or raise an error of your own; a call may not end its worker."


class Suspended(BaseException):
    """Unwinds user code when its run gives its slot back; never to be caught."""


class ContinueAsNew(BaseException):
    """Ends a run; the next run of its chain begins with `input` and no history.

    `rota.continue_as_new` makes it, and no code should catch it."""

    def __init__(self, workflow: str, input: str | None = None) -> None:  # noqa: A002
        super().__init__(f"workflow {workflow} continues as new")
        self.input = input


class HostStop(BaseException):
    """Unwinds a handler when the host has stopped it; `cause` says why. Never to be caught."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class RunInterrupted(BaseException):
    """Unwinds user code when its run is cancelled or no longer ours; never to be caught."""
