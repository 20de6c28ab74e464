"""The life of a run as one table. Store guards, CHECK constraints, the docs diagram and the
property-test model are made from it; to change how runs live, change a row here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, NamedTuple


class Status(StrEnum):
    """Where a run stands; the text is what the database stores."""

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
    """Why a run was born."""

    MANUAL = "manual"
    SCHEDULE = "schedule"
    EVENT = "event"
    WAKE = "wake"
    RETRY = "retry"
    RECOVERY = "recovery"
    BACKFILL = "backfill"
    DEPLOY = "deploy"
    CHILD = "child"
    FORK = "fork"


# Which lease a verb needs: none may exist, the caller must hold it, it must have lapsed, or any.
Lease = Literal["none", "held", "lapsed", "any"]


class Rule(NamedTuple):
    """One verb of the table."""

    sources: frozenset[Status]
    target: Status
    lease: Lease
    means: str


P, R, S, W = Status.PENDING, Status.RUNNING, Status.SLEEPING, Status.WAITING


def _from(*sources: Status) -> frozenset[Status]:
    return frozenset(sources)


RULES: dict[str, Rule] = {
    "claim": Rule(_from(P), R, "none", "a worker takes the run and its lease"),
    "complete": Rule(_from(R), Status.COMPLETED, "held", "it returned a result"),
    "fail": Rule(_from(R), Status.FAILED, "held", "it raised; a retry is a new run"),
    "suspend": Rule(_from(R), S, "held", "it gives its seat back until a time or an event"),
    "skip": Rule(_from(R), Status.SKIPPED, "held", "what it depends on is not so; it did nothing"),
    "ask": Rule(_from(R), W, "held", "a person or a reconciliation is needed"),
    "release": Rule(_from(R), P, "held", "a stopping worker hands it over"),
    "wake": Rule(_from(S), P, "none", "its time came, or what it waited for arrived"),
    "resolve": Rule(_from(W), P, "none", "the person or the reconciliation answered"),
    "cancel": Rule(_from(P, R, S, W), Status.CANCELLED, "any", "somebody called it off"),
    "reap": Rule(_from(R), Status.CRASHED, "lapsed", "its worker is gone; a recovery takes over"),
    "pause": Rule(_from(Status.SCHEDULED), Status.PAUSED, "none", "the schedule rests"),
    "resume": Rule(_from(Status.PAUSED), Status.SCHEDULED, "none", "the schedule goes on"),
}

# The statuses a row may be born with. Waiting: the next attempt of an automation that a person
# has to let begin.
BIRTHS = frozenset({P, S, W, Status.SCHEDULED, Status.PAUSED, Status.SKIPPED})
# Verbs by which a worker settles what it holds.
SETTLING = frozenset(verb for verb, rule in RULES.items() if rule.lease == "held")
FINAL = frozenset(Status) - {source for rule in RULES.values() for source in rule.sources}
OPEN = frozenset({P, R, S, W})


def allowed(verb: str, status: Status) -> bool:
    """Whether the table lets `verb` leave `status`."""
    return status in RULES[verb].sources


def label(status: str, reason: str | None) -> str:
    """Status and reason as people read them, for example `failed:logic`."""
    return f"{status}:{reason}" if reason else status


def diagram() -> str:
    """The table as a Mermaid state diagram, for the docs."""
    lines = ["stateDiagram-v2"]
    lines += [f"    [*] --> {status}" for status in sorted(BIRTHS)]
    for verb, rule in RULES.items():
        lines += [f"    {source} --> {rule.target}: {verb}" for source in sorted(rule.sources)]
    lines += [f"    {status} --> [*]" for status in sorted(FINAL)]
    return "\n".join(lines)
