"""Notifications: the kinds, the record, and the sentence that says what happened. Pure."""

from __future__ import annotations

import re
import shlex
from datetime import datetime
from enum import StrEnum
from typing import Literal, TypeAlias

import msgspec

from rota.core.plurals import counted
from rota.core.time.instants import iso, moment

TEXT_CHARS_MAX = 600
ERROR_CHARS_MAX = 2000
# The names of Rota's own workflows begin so; their ends are not news.
OWN = "rota."
# The workflow that sends to the receivers of a schedule, and their name in the list of rules.
NOTIFY = "rota.notify"
NOTIFY_BLOCK = "pipeline.yaml"

Source: TypeAlias = Literal["workflow", "schedule", "automation", "pipeline"]
KindName: TypeAlias = Literal[
    "needs_attention", "approval_wanted", "unknown_outcome", "quarantined", "failed", "recovered",
    "missed", "outage", "stranded", "skipped", "waiting",
]  # fmt: skip
SOURCES: tuple[Source, ...] = ("workflow", "schedule", "automation", "pipeline")


class NotificationKind(StrEnum):
    """The event; the text is what the database stores."""

    NEEDS_ATTENTION = "needs_attention"  # it stopped until a person acts
    APPROVAL_WANTED = "approval_wanted"  # a proposed change waits for a person
    UNKNOWN_OUTCOME = "unknown_outcome"  # it is unknown whether a change happened
    QUARANTINED = "quarantined"  # quarantined: it crashed too often, or cannot be read
    FAILED = "failed"  # it failed, and no retry is left
    RECOVERED = "recovered"  # it works again, after one of the above
    MISSED = "missed"  # an occurrence of a schedule did not run
    OUTAGE = "outage"  # its counterpart has not answered for some time
    STRANDED = "stranded"  # work is due, and no worker has its code
    SKIPPED = "skipped"  # an item was skipped by policy
    WAITING = "waiting"  # it has waited for a person for hours
    BEGAN = "began"  # an execution of a schedule began
    SUCCEEDED = "succeeded"  # it completed, and no failure was open (otherwise RECOVERED)


# The usual course of work. Only the receivers of a schedule want it, no rule.
ROUTINE = frozenset({NotificationKind.BEGAN, NotificationKind.SUCCEEDED})
RULE_KINDS = frozenset(NotificationKind) - ROUTINE
KINDS: tuple[str, ...] = tuple(kind.value for kind in NotificationKind if kind in RULE_KINDS)
# The events that a later success ends with `recovered`.
TROUBLES = RULE_KINDS - {
    NotificationKind.RECOVERED, NotificationKind.MISSED, NotificationKind.STRANDED,
    NotificationKind.SKIPPED, NotificationKind.WAITING,
}  # fmt: skip
# The kinds that ask a person; `waiting` reminds of them.
ASKS = frozenset({
    NotificationKind.NEEDS_ATTENTION, NotificationKind.APPROVAL_WANTED,
    NotificationKind.UNKNOWN_OUTCOME, NotificationKind.QUARANTINED,
})  # fmt: skip
# Each of these is about another change, so none is a repetition of another.
OF_A_CHANGE = frozenset({NotificationKind.APPROVAL_WANTED, NotificationKind.UNKNOWN_OUTCOME})
PARAMS_CHARS_MAX = 400

_WAITS = {
    "approval": NotificationKind.APPROVAL_WANTED,
    "reconciliation": NotificationKind.UNKNOWN_OUTCOME,
    "crashes": NotificationKind.QUARANTINED,
}

# Why an occurrence was skipped, by the reason of its row.
SKIPPED = {
    "missed": "no worker started it in time",
    "too late": "it was later than its window allows",
    "overlap": "the execution before it had not ended",
    "overtaken": "a newer one was due as well",
    "after": "its dependency had not completed",
    "condition": "its condition did not hold",
    "expired": "it had not begun in time",
}


# The sentence about each kind, after the title; MISSED has one of its own.
_SENTENCES = {
    NotificationKind.NEEDS_ATTENTION: "needs attention{reason}{cause}",
    NotificationKind.APPROVAL_WANTED: "waits for your approval{change}{commands}",
    NotificationKind.UNKNOWN_OUTCOME: "does not know whether a change happened{change}{cause}"
    "{commands}",
    NotificationKind.OUTAGE: "has been waiting for {of} since {since}{cause}",
    NotificationKind.STRANDED: "does not run: since {since} no worker has its code{cause}",
    NotificationKind.SKIPPED: "skipped {items}{failures}{cause}{commands}",
    NotificationKind.WAITING: "has waited for you since {since}{change}{cause}{commands}",
    NotificationKind.QUARANTINED: "was quarantined{cause}",
    NotificationKind.FAILED: "failed{tries}{cause}",
    NotificationKind.RECOVERED: "works again.",
    NotificationKind.BEGAN: "began.",
    NotificationKind.SUCCEEDED: "completed.",
}


# Why a run stopped until a person acts, by the reason of its status.
_REASONS = {
    "logic": "its code failed",
    "auth": "it needs a login",
    "permission": "it needs a permission",
    "transient": "it kept failing and was given up",
    "timeout": "it kept taking too long and was given up",
    "internal": "an internal error stopped it",
}


def kind_of_wait(reason: str | None) -> NotificationKind:
    """The kind of notification for a run that waits for a person."""
    return _WAITS.get(reason or "", NotificationKind.NEEDS_ATTENTION)


class ProposedChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The change that a person is asked about. `params` is JSON of bounded length."""

    id: str
    tool: str
    params: str
    title: str | None = None

    @property
    def words(self) -> str:
        """In one line: `Pay Anna (send with {"amount":12})`."""
        call = f"{self.tool} with {self.params}"
        return one_line(f"{self.title} ({call})" if self.title else call, 2 * PARAMS_CHARS_MAX)


class Details(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The part of a notification that no query asks about; stored as JSON."""

    reason: str | None = None
    error: str | None = None
    attempt: int = 1
    due_at: int | None = None
    occurrences: int = 1  # missed: how many in a row
    change: ProposedChange | None = None
    waits_for: str | None = None  # outage: the counterpart
    since: int | None = None  # outage, stranded, waiting
    after_us: int | None = None  # the time after which rules with this time want it
    items: tuple[str, ...] = ()  # skipped: topic/id of each event
    failures: int = 0
    dead_letters: tuple[str, ...] = ()  # skipped: topic and id of each letter


class Notification(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something a person may want to know about, as it was recorded."""

    id: str
    kind: NotificationKind
    source: Source
    name: str  # of the workflow, automation or pipeline
    run_id: str
    at: int  # microseconds since the epoch
    queue: str = "default"
    schedule: str | None = None  # the schedule's name, if one started the run
    tags: dict[str, str] = {}
    details: Details = Details()

    @property
    def created_at(self) -> datetime:
        """When it happened, in UTC."""
        return moment(self.at)

    @property
    def error(self) -> str | None:
        """Class and message of the error, if there was one."""
        return self.details.error

    @property
    def reason(self) -> str | None:
        """The reason of the run's status, such as `logic`."""
        return self.details.reason

    @property
    def key(self) -> str:
        """Notifications with equal keys are repetitions of each other."""
        about = self.details.change.id if self.details.change else self.run_id
        own = f"/{about}" if self.kind in OF_A_CHANGE else ""
        return f"{self.kind}/{self.source}/{self.schedule or ''}/{self.name}{own}"

    @property
    def title(self) -> str:
        """The subject: `schedule nightly (backup)`."""
        if self.schedule is None or self.source == "pipeline":
            return one_line(f"{self.source} {self.name}")
        inner = f" ({self.name})" if self.name != self.schedule else ""
        return one_line(f"schedule {self.schedule}{inner}")

    @property
    def text(self) -> str:
        """One sentence for people."""
        return one_line(f"{self.title} {self._sentence()}")

    def _sentence(self) -> str:
        if self.kind is NotificationKind.MISSED:
            return self._missed()
        details, change = self.details, self.details.change
        is_known = details.error is not None and details.error != ""
        return _SENTENCES[self.kind].format(
            cause=f": {details.error}" if is_known else ".",
            tries=f" after {details.attempt} attempts" if details.attempt > 1 else "",
            reason=f": {_REASONS.get(details.reason, details.reason)}" if details.reason else "",
            change=f": {change.words}" if change else "",
            of=details.waits_for or "its counterpart",
            since=f"{moment(details.since or self.at):%Y-%m-%d %H:%M} UTC",
            items=", ".join(details.items) or "an item",
            failures=f" after {counted(details.failures, 'failure')}" if details.failures else "",
            commands="".join(f" `{one}`" for one in self.commands),
        )

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands that answer it."""
        answered = self.details.change.id if self.details.change else self.run_id
        if self.details.reason == "approval":
            return (f"rota run approve {answered}", f"rota run reject {answered}")
        if self.details.reason == "reconciliation":
            return (f"rota automation show {shlex.quote(self.name)}",)
        name = shlex.quote(self.name)
        return tuple(
            f"rota automation requeue {name} {shlex.quote(topic)} {shlex.quote(letter)}"
            for topic, letter in map(_split, self.details.dead_letters)
        )

    def _missed(self) -> str:
        details = self.details
        when = f" for {iso(details.due_at)}" if details.due_at is not None else ""
        count = f" ({details.occurrences} executions)" if details.occurrences > 1 else ""
        why = details.error or SKIPPED.get(details.reason or "", details.reason or "unknown")
        return f"was skipped{when}{count}: {why}."


def _split(letter: str) -> tuple[str, str]:
    topic, _, message_id = letter.partition("/")
    return topic, message_id


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def one_line(text: str, chars_max: int = TEXT_CHARS_MAX) -> str:
    """A text as one line of bounded length: no line break can end a header or a log line."""
    line = _CONTROL.sub(" ", text).strip()
    return line if len(line) <= chars_max else f"{line[: chars_max - 1]}…"
