"""How far a handler run got (phase), what it may do there, and what that means after an
interruption: tables. Store guards, CHECK constraints, docs and tests are made from them. Pure.

The phase only moves forward and never says why a run stopped; that is the run's status.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from rota.core.runs.lifecycle import label


class Phase(StrEnum):
    """The phase of a handler run; the text is what the database stores."""

    EXECUTING = "executing"  # a producer at work
    PREPARING = "preparing"
    PREPARED = "prepared"
    MUTATING = "mutating"
    MUTATED = "mutated"  # the outcome is known; not necessarily that it was applied
    EMITTING = "emitting"
    COMMITTED = "committed"


PRODUCER = (Phase.EXECUTING, Phase.COMMITTED)
CONSUMER = (
    Phase.PREPARING,
    Phase.PREPARED,
    Phase.MUTATING,
    Phase.MUTATED,
    Phase.EMITTING,
    Phase.COMMITTED,
)


class Act(StrEnum):
    """The calls that a handler may make."""

    READ = "call a read tool"
    PEEK = "read events"
    PUBLISH = "publish"
    INPUT = "register an input"
    LOG = "log"


ALLOWED: dict[Phase, frozenset[Act]] = {
    Phase.EXECUTING: frozenset({Act.READ, Act.PUBLISH, Act.INPUT, Act.LOG}),
    Phase.PREPARING: frozenset({Act.READ, Act.PEEK, Act.LOG}),
    Phase.MUTATING: frozenset({Act.LOG}),
    Phase.EMITTING: frozenset({Act.PUBLISH, Act.LOG}),
}


class Mutation(StrEnum):
    """The state of the one side effect of a chain in the ledger."""

    PROPOSED = "proposed"  # waits for approval; nothing was called
    IN_FLIGHT = "in_flight"  # written before the call: it may have happened
    APPLIED = "applied"
    FAILED = "failed"  # it certainly did not happen
    NEEDS_RECONCILE = "needs_reconcile"
    INDETERMINATE = "indeterminate"  # only a person can tell
    SKIPPED = "skipped"  # a person decided to continue without it


# The transitions. FAILED, APPLIED and SKIPPED are the ends.
LEDGER: dict[Mutation, frozenset[Mutation]] = {
    Mutation.PROPOSED: frozenset({Mutation.IN_FLIGHT, Mutation.FAILED, Mutation.SKIPPED}),
    Mutation.IN_FLIGHT: frozenset(
        {Mutation.APPLIED, Mutation.FAILED, Mutation.NEEDS_RECONCILE, Mutation.INDETERMINATE}
    ),
    Mutation.NEEDS_RECONCILE: frozenset(
        {Mutation.APPLIED, Mutation.FAILED, Mutation.INDETERMINATE, Mutation.SKIPPED}
    ),
    Mutation.INDETERMINATE: frozenset(
        {Mutation.NEEDS_RECONCILE, Mutation.APPLIED, Mutation.FAILED, Mutation.SKIPPED}
    ),
    Mutation.APPLIED: frozenset(),
    Mutation.FAILED: frozenset(),
    Mutation.SKIPPED: frozenset(),
}
UNCERTAIN = frozenset({Mutation.IN_FLIGHT, Mutation.NEEDS_RECONCILE, Mutation.INDETERMINATE})
DECIDED = frozenset({Mutation.APPLIED, Mutation.SKIPPED})


class EventStatus(StrEnum):
    """The state of an event."""

    PENDING = "pending"
    RESERVED = "reserved"  # pinned for the chain of a run
    CONSUMED = "consumed"
    SKIPPED = "skipped"


class Way(StrEnum):
    """How an open run takes up what its chain has left."""

    CHOOSE = "choose"  # nothing is left: pick a handler
    AGAIN = "again"  # release the events, start the same handler afresh
    ON = "on"  # the same run continues where it was
    RECONCILE = "reconcile"  # the world may have changed: find out first
    EMIT = "emit"  # the outcome is known: go forward to the end
    ASK = "ask"  # an approval is still missing
    GIVE_WAY = "give way"  # this run is over; a new one starts afresh


class Left(NamedTuple):
    """The records that a chain has left behind: its last handler run, and its ledger."""

    phase: Phase
    own: bool  # the run that takes over is the one that stopped
    mutation: Mutation | None
    found_out: bool = False  # FAILED was found out afterwards, by the tool or by a person
    approved: bool = False


def take_up(left: Left | None) -> Way:
    """The phase reset rules: before the mutation is applied a run may start over, after it must go
    forward; an unknown outcome is reconciled first. The key is the ledger, not the phase."""
    if left is None or left.phase is Phase.COMMITTED:
        return Way.CHOOSE
    if left.mutation in UNCERTAIN:
        return Way.RECONCILE
    if left.mutation in DECIDED:
        return Way.EMIT
    if not left.own:
        return Way.AGAIN
    if left.mutation is Mutation.PROPOSED:
        return Way.ON if left.approved else Way.ASK
    if left.mutation is Mutation.FAILED and left.found_out:
        return Way.GIVE_WAY
    return Way.ON


# Status and reason of a run → the words that people know from the model of automations.
STATUSES: dict[tuple[str, str | None], str] = {
    ("running", None): "active",
    ("failed", "transient"): "paused:transient",
    ("failed", "timeout"): "paused:transient",
    ("waiting", "auth"): "paused:approval",
    ("waiting", "permission"): "paused:approval",
    ("waiting", "approval"): "paused:approval",
    ("sleeping", "reconciliation"): "paused:reconciliation",
    ("waiting", "reconciliation"): "paused:reconciliation",
    ("completed", None): "committed",
    ("crashed", "lapsed"): "crashed",
    ("crashed", "worker gone"): "crashed",
}


def shown(status: str, reason: str | None) -> str:
    """Status and reason of a run in the words of the model."""
    return STATUSES.get((status, reason)) or label(status, reason)
