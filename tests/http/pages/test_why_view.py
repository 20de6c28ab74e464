"""The walk of an answer to why: what held, what decided, what was not reached."""

from __future__ import annotations

from typing import Any

import pytest

from rota.explain.run import RunState
from rota.explain.schedule import Explanation
from rota.http.pages.why_view import WhyClause, run_walk, schedule_walk

FACTS = {"schedule": "nightly", "when": "at 02:00", "timezone": "UTC", "queue": "default"}


def decided(clauses: list[WhyClause]) -> str:
    """The head of the clause that is marked."""
    [hit] = [one for one in clauses if one.is_hit]
    return hit.head


def explained(verdict: str, **facts: Any) -> Explanation:
    """An answer with a verdict."""
    return Explanation(verdict, "nightly did something.", FACTS | facts)


@pytest.mark.parametrize(
    ("verdict", "reason", "head"),
    [
        ("no_occurrence", "", "Times"),
        ("gap", "", "Clock"),
        ("before_start", "", "Bounds"),
        ("paused", "", "Pause"),
        ("skipped", "paused", "Pause"),
        ("skipped", "missed", "Workers"),
        ("skipped", "overlap", "Overlap"),
        ("no_worker", "", "Workers"),
        ("blocked_queue_paused", "", "Overlap"),
        ("fired_failed", "", "Run"),
    ],
)
def test_the_clause_that_decided_is_marked(verdict: str, reason: str, head: str) -> None:
    clauses = schedule_walk(explained(verdict, reason=reason))
    assert decided(clauses) == head
    assert "Did something." in [one.text for one in clauses]


def test_clauses_before_it_held_and_later_ones_were_not_reached() -> None:
    clauses = schedule_walk(explained("skipped", reason="missed"))
    assert [one.head for one in clauses if one.tone == "ok"] == [
        "Times",
        "Clock",
        "Bounds",
        "Pause",
    ]
    assert clauses[-1].text == "Overlap, run: not reached"


def test_nothing_is_marked_when_all_is_well() -> None:
    clauses = schedule_walk(explained("fired_completed"))
    assert not any(one.is_hit or one.is_dim for one in clauses)


def test_a_run_that_a_limit_holds_back() -> None:
    state = RunState(
        "queue_limit", "waits: it is full", {"workers_on": 2, "queue": "heavy"}, "Wait."
    )
    clauses = run_walk(state, "work")
    assert decided(clauses) == "Limit"
    assert clauses[0].text == "2 workers alive; queue heavy is served"
    assert clauses[-1].text == "Wait."


def test_a_run_that_sleeps_is_no_warning() -> None:
    [clause] = run_walk(RunState("sleeps", "sleeps until tomorrow", {}), "work")
    assert clause.text == "Sleeps until tomorrow."
    assert not clause.is_hit
