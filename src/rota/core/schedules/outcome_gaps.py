"""Occurrences without an outcome, between others that have one. Pure.

After the clock was set back, a change of a schedule may place it before occurrences that ran or
were skipped. The schedule then fires around them: an occurrence has one outcome.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import msgspec

from rota.core.schedules.firing_plan import Before, FiringPlan, decide
from rota.core.schedules.intent import NO_FURTHER, Intent, Missed


class OutcomeGap(NamedTuple):
    """Occurrences in a row without an outcome; the next one after them has one."""

    first_at: int
    last_at: int
    next_at: int | None  # the first one without an outcome behind that


def decide_within(
    intent: Intent, free: OutcomeGap, *, now: int, before: Before, most: int = sys.maxsize
) -> FiringPlan:
    """Which occurrences of the range to run. Those behind it are decided in the next round."""
    if free.last_at < free.first_at:  # its first occurrence has an outcome: there is nothing to run
        rests = NO_FURTHER if free.next_at is None else None
        return FiringPlan([], [], free.next_at, False, rests)
    end_at = free.last_at if intent.spec.end_at is None else min(free.last_at, intent.spec.end_at)
    policies = intent.policies
    if policies.missed is Missed.RUN and free.next_at is not None and free.next_at <= now:
        # Only the latest missed one runs, and that lies behind this range.
        policies = msgspec.structs.replace(policies, missed=Missed.SKIP)
    within = msgspec.structs.replace(
        intent, spec=msgspec.structs.replace(intent.spec, end_at=end_at), policies=policies
    )
    plan = decide(within, due_at=free.first_at, now=now, before=before, most=most)
    if plan.next_due_at is None and plan.pause == NO_FURTHER and free.next_at is not None:
        return plan._replace(next_due_at=free.next_at, pause=None)
    return plan
