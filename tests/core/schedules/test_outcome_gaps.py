"""Firing between occurrences that have an outcome: each policy holds over all free ranges."""

from __future__ import annotations

import msgspec
import pytest

from rota.core.schedules.firing_plan import Before
from rota.core.schedules.intent import (
    NO_FURTHER,
    Intent,
    Missed,
    Overlap,
    Policies,
)
from rota.core.schedules.outcome_gaps import OutcomeGap, decide_within
from rota.core.time.instants import HOUR, MINUTE
from rota.core.time.recurrence import parse
from rota.testing import START

SPEC = parse("0 * * * *", zone="UTC", now=START)
IDLE = Before()


def hour(number: int) -> int:
    return START + number * HOUR


def intent(**policies: object) -> Intent:
    rules = msgspec.structs.replace(Policies(overlap=Overlap.ALLOW), **policies)
    return Intent("w", SPEC, "hourly", rules)


# 01:00 to 03:00 have no outcome, 04:00 to 06:00 have one.
FREE = OutcomeGap(hour(1), hour(4) - 1, hour(7))


def test_the_schedule_continues_behind_the_outcomes() -> None:
    plan = decide_within(intent(), FREE, now=hour(3) + MINUTE, before=IDLE)
    assert [one.due_at for one in plan.fires] == [hour(3)]
    assert [(one.due_at, one.reason) for one in plan.skips] == [
        (hour(1), "missed"),
        (hour(2), "missed"),
    ]
    assert (plan.next_due_at, plan.pause) == (hour(7), None)


def test_within_the_range_it_fires_as_ever() -> None:
    plan = decide_within(intent(), FREE, now=hour(1), before=IDLE)
    assert ([one.due_at for one in plan.fires], plan.next_due_at) == ([hour(1)], hour(2))


@pytest.mark.parametrize(
    ("missed", "fired"), [(Missed.RUN, []), (Missed.SKIP, []), (Missed.ALL, [1, 2, 3])]
)
def test_the_latest_missed_one_lies_behind_the_outcomes(missed: Missed, fired: list[int]) -> None:
    plan = decide_within(intent(missed=missed), FREE, now=hour(9), before=IDLE)
    assert [one.due_at for one in plan.fires] == [hour(n) for n in fired]
    assert sum(one.occurrences for one in plan.skips) == 3 - len(fired)
    assert (plan.next_due_at, plan.pause) == (hour(7), None)


def test_without_an_occurrence_behind_the_outcomes_it_has_come_to_its_end() -> None:
    last = FREE._replace(next_at=None)
    plan = decide_within(intent(), last, now=hour(9), before=IDLE)
    assert [one.due_at for one in plan.fires] == [hour(3)]
    assert (plan.next_due_at, plan.pause) == (None, NO_FURTHER)


@pytest.mark.parametrize(("next_at", "pause"), [(hour(7), None), (None, NO_FURTHER)])
def test_an_occurrence_that_has_its_outcome_is_passed_over(
    next_at: int | None, pause: str | None
) -> None:
    none_free = OutcomeGap(hour(4), hour(4) - 1, next_at)
    plan = decide_within(intent(), none_free, now=hour(5), before=IDLE)
    assert plan == ([], [], next_at, False, pause)


def test_the_last_allowed_run_ends_the_schedule() -> None:
    plan = decide_within(intent(runs_max=1), FREE, now=hour(1), before=IDLE)
    assert [one.due_at for one in plan.fires] == [hour(1)]
    assert (plan.next_due_at, plan.pause) == (None, "all its runs are done")
