"""One total table: exception → failure class → status, reason and next action. Pure."""

from __future__ import annotations

import json
import traceback
from enum import StrEnum
from typing import NamedTuple

from rota import errors
from rota.core.redaction import without_secrets
from rota.core.runs.lifecycle import Status


class Kind(StrEnum):
    """The class of a failure; also the run's `reason`."""

    TRANSIENT = "transient"
    TIMEOUT = "timeout"
    LOGIC = "logic"
    AUTH = "auth"
    PERMISSION = "permission"
    FATAL = "fatal"
    STRANDED = "stranded"
    INTERNAL = "internal"


class Consequence(NamedTuple):
    """The consequence of a failure class."""

    status: Status
    retried: bool  # by the retry policy, while it has attempts left
    action: str
    passes: bool = False  # the cause may go away by itself


TABLE: dict[Kind, Consequence] = {
    Kind.TRANSIENT: Consequence(Status.FAILED, True, "back off, new run", passes=True),
    Kind.TIMEOUT: Consequence(Status.FAILED, True, "back off, new run", passes=True),
    Kind.LOGIC: Consequence(Status.FAILED, True, "new run if the policy allows it"),
    Kind.AUTH: Consequence(Status.WAITING, False, "renew the credentials, then retry"),
    Kind.PERMISSION: Consequence(Status.WAITING, False, "grant the permission, then retry"),
    Kind.FATAL: Consequence(Status.FAILED, False, "give up"),
    Kind.STRANDED: Consequence(
        Status.FAILED, False, "restore the code or patch it, then retry; or fork"
    ),
    Kind.INTERNAL: Consequence(Status.FAILED, False, "find the cause, then retry"),
}

# First match wins, so subclasses are before their bases; Exception makes the table total.
_KINDS: tuple[tuple[type[BaseException], Kind], ...] = (
    (errors.Transient, Kind.TRANSIENT),
    (errors.NeedsLogin, Kind.AUTH),
    (errors.NeedsPermission, Kind.PERMISSION),
    (errors.Fatal, Kind.FATAL),
    (errors.Stranded, Kind.STRANDED),
    (errors.StepTimeout, Kind.TIMEOUT),
    (errors.RunTimeout, Kind.TIMEOUT),
    (errors.StoreError, Kind.TRANSIENT),
    (errors.RunFailed, Kind.LOGIC),
    (errors.Unstorable, Kind.INTERNAL),
    (errors.UsageError, Kind.LOGIC),
    (errors.Failure, Kind.LOGIC),
    (errors.RotaError, Kind.INTERNAL),
    (TimeoutError, Kind.TIMEOUT),
    (ConnectionError, Kind.TRANSIENT),
    (OSError, Kind.TRANSIENT),
    (MemoryError, Kind.INTERNAL),
    (SystemError, Kind.INTERNAL),
    (Exception, Kind.LOGIC),
    (BaseException, Kind.INTERNAL),
)


def kind_of(error: BaseException) -> Kind:
    """The class of a failure. A failed step has the class of its cause."""
    if isinstance(error, errors.StepFailed):
        stored = error.facts.get("kind")
        return next((kind for kind in Kind if kind == stored), Kind.LOGIC)
    return next(kind for cls, kind in _KINDS if isinstance(error, cls))


def is_outage(error: BaseException, kind: Kind) -> bool:
    """Whether a call failed because its counterpart does not answer. A file that is not ours to
    read does not come back by itself."""
    return TABLE[kind].passes and not isinstance(error, PermissionError)


def advice(reason: str | None, run_id: str) -> str:
    """The advice about a run that failed for this reason."""
    if reason == Kind.STRANDED:
        return f"{errors.Stranded.hint} `rota run show {run_id}` names the steps."
    return (
        f"Fix the cause, then `rota run retry {run_id}`: it resumes after its last finished step."
    )


def names_of(error: BaseException) -> tuple[str, ...]:
    """Class names of the error and its bases, for `never` lists."""
    return tuple(cls.__name__ for cls in type(error).__mro__[:-1])


TRACE_CHARS_MAX = 6_000
MESSAGE_CHARS_MAX = 2_000


def describe(error: BaseException) -> str:
    """The error as stored JSON: class, sentence, kind, and where it happened."""
    fields = {
        "type": type(error).__name__,
        "message": _clipped(without_secrets(message_of(error)), MESSAGE_CHARS_MAX),
        "kind": kind_of(error).value,
        "trace": _clipped(without_secrets(_trace(error)), TRACE_CHARS_MAX),
    }
    if notes := [str(note) for note in getattr(error, "__notes__", ())]:
        fields["notes"] = _clipped(without_secrets("\n".join(notes)), MESSAGE_CHARS_MAX)
    facts = getattr(error, "facts", {})
    # The owner of a login or a permission; the class of the error that a step failed with.
    for name in ("service", "account", "error_type"):
        if isinstance(facts.get(name), str):
            fields[name] = _clipped(facts[name], MESSAGE_CHARS_MAX)
    text = json.dumps(fields, ensure_ascii=False)
    # A file name that is not text must not make the report of it unstorable.
    return text.encode("utf-8", "backslashreplace").decode()


def message_of(error: BaseException) -> str:
    """The text of an error, even of one that fails to give it."""
    try:
        return str(error)
    except Exception as worse:
        return f"(its own text cannot be read: {type(worse).__name__})"


def _trace(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception:
        return ""


def _clipped(text: str, chars_max: int) -> str:
    """Both ends matter: where it began and its message."""
    if len(text) <= chars_max:
        return text
    half = chars_max // 2
    return f"{text[:half]}\n    …\n{text[-half:]}"
