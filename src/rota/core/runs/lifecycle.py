"""The life of a run as one table. Store guards, CHECK constraints, the docs diagram and the
property-test model are made from it; to change how runs live, change a row here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, NamedTuple


class Status(StrEnum):
    """The state of a run; the text is what the database stores."""

    PENDING = "pending"  # may be claimed now
    RUNNING = "running"  # a worker holds its lease
    SLEEPING = "sleeping"  # until `available_at`, or until something wakes it
    WAITING = "waiting"  # for a person, or for a reconciliation
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    CRASHED = "crashed"  # its worker died or went silent
    SCHEDULED = "scheduled"  # a template that makes runs
    PAUSED = "paused"  # a template that rests
    SKIPPED = "skipped"  # an occurrence that did not run


class Trigger(StrEnum):
    """Why a run was created."""

    MANUAL = "manual"
    SCHEDULE = "schedule"
    EVENT = "event"
    WAKE = "wake"
    RETRY = "retry"
    RECOVERY = "recovery"
    BACKFILL = "backfill"
    DEPLOY = "deploy"
    CHILD = "child"
    DETACHED = "detached"  # a child that outlives its parent
    FORK = "fork"
    CONTINUE = "continue"  # the next segment of a chain


# Which lease a verb needs: none may exist, the caller must hold it, it must have lapsed, or any.
Lease = Literal["none", "held", "lapsed", "any"]


class Transition(NamedTuple):
    """One verb of the table."""

    sources: frozenset[Status]
    target: Status
    lease: Lease
    means: str


P, R, S, W = Status.PENDING, Status.RUNNING, Status.SLEEPING, Status.WAITING


def _from(*sources: Status) -> frozenset[Status]:
    return frozenset(sources)


RULES: dict[str, Transition] = {
    "claim": Transition(_from(P), R, "none", "a worker takes the run and its lease"),
    "complete": Transition(_from(R), Status.COMPLETED, "held", "it returned a result"),
    "fail": Transition(_from(R), Status.FAILED, "held", "it raised an error; a retry is a new run"),
    "continue": Transition(
        _from(R),
        Status.COMPLETED,
        "held",
        "it continued as new: the next run begins with no history",
    ),
    "suspend": Transition(_from(R), S, "held", "it frees its slot until a time or an event"),
    "skip": Transition(
        _from(R), Status.SKIPPED, "held", "a precondition was not met; nothing was executed"
    ),
    "ask": Transition(_from(R), W, "held", "it needs an operator or a reconciliation"),
    "release": Transition(_from(R), P, "held", "a stopping worker gives it back to its queue"),
    "wake": Transition(_from(S), P, "none", "its time came, or its event arrived"),
    "resolve": Transition(_from(W), P, "none", "the operator or the reconciliation answered"),
    "cancel": Transition(_from(P, R, S, W), Status.CANCELLED, "any", "an operator cancelled it"),
    "expire": Transition(
        _from(P, S),
        Status.SKIPPED,
        "none",
        "it waited too long before it began; nothing was executed",
    ),
    "reap": Transition(
        _from(R), Status.CRASHED, "lapsed", "its worker is gone; a recovery takes over"
    ),
    "pause": Transition(
        _from(Status.SCHEDULED), Status.PAUSED, "none", "the schedule stops creating runs"
    ),
    "resume": Transition(
        _from(Status.PAUSED), Status.SCHEDULED, "none", "the schedule creates runs again"
    ),
}

# The statuses a row may be created with. Waiting: the next attempt of an automation that a person
# has to let begin.
INITIAL = frozenset({P, S, W, Status.SCHEDULED, Status.PAUSED, Status.SKIPPED})
# Verbs by which a worker settles what it holds.
SETTLING = frozenset(verb for verb, rule in RULES.items() if rule.lease == "held")
FINAL = frozenset(Status) - {source for rule in RULES.values() for source in rule.sources}
OPEN = frozenset({P, R, S, W})


# The reason of a child that was cancelled because its parent ended without a result.
PARENT_ENDED = "parent ended"
# The reason of a run that raised `continue_as_new`: another run of its chain follows.
CONTINUED = "continued"


def allowed(verb: str, status: Status) -> bool:
    """Whether the table lets `verb` leave `status`."""
    return status in RULES[verb].sources


def label(status: str, reason: str | None) -> str:
    """Status and reason as people read them, for example `failed:logic`."""
    return f"{status}:{reason}" if reason else status


def diagram() -> str:
    """The table as a Mermaid state diagram, for the docs."""
    lines = ["stateDiagram-v2"]
    lines += [f"    [*] --> {status}" for status in sorted(INITIAL)]
    for verb, rule in RULES.items():
        lines += [f"    {source} --> {rule.target}: {verb}" for source in sorted(rule.sources)]
    lines += [f"    {status} --> [*]" for status in sorted(FINAL)]
    return "\n".join(lines)
