"""An answer to why, as the walk that led to it: what held, what decided, what was not reached.

Pure. The verdict and the texts come from `explain`, so that a page, `rota why` and the API agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rota.explain.run import RunState
from rota.explain.schedule import Explanation
from rota.http.pages.text import counted, sentence


@dataclass(frozen=True)
class WhyClause:
    """One clause of an answer to why."""

    head: str
    text: str
    shape: str = "g-dot"
    tone: str = "rest"
    is_hit: bool = False
    is_dim: bool = False


# A question of the walk, and what is said when nothing was in the way there.
Stage = tuple[str, str]


def walk(stages: Sequence[Stage], at: int, answer: str, *, is_good: bool) -> list[WhyClause]:
    """The stages before the deciding one held, those after it were not reached."""
    clauses = [WhyClause(head, passed, "g-check", "ok") for head, passed in stages[:at]]
    shape, tone = ("g-check", "ok") if is_good else ("s-warn", "warn")
    clauses.append(WhyClause(stages[at][0], answer, shape, tone, is_hit=not is_good))
    rest = [head for head, _ in stages[at + 1 :]]
    if rest and not is_good:
        heads = ", ".join([rest[0], *(head.lower() for head in rest[1:])])
        clauses.append(WhyClause("", f"{heads}: not reached", is_dim=True))
    return clauses


# -- a schedule ---------------------------------------------------------------------------------

_DECIDED: Mapping[str, str] = {
    "no_occurrence": "Times", "other_times": "Times", "unreadable": "Times",
    "gap": "Clock", "jitter": "Clock", "future": "Clock", "not_yet": "Clock",
    "before_start": "Bounds", "after_end": "Bounds", "ended": "Bounds", "not_made_yet": "Bounds",
    "pruned": "Bounds",
    "paused": "Pause", "quarantined": "Pause", "unrecorded": "Pause",
    "no_worker": "Workers", "due": "Workers", "disarmed": "Workers",
    "merged": "Overlap",
}  # fmt: skip
_SKIPPED: Mapping[str, str] = {"paused": "Pause", "missed": "Workers", "too late": "Workers"}
_GOOD = ("fired_completed", "fired_running", "fired_sleeps", "future", "not_yet", "due", "jitter")


def schedule_walk(explanation: Explanation) -> list[WhyClause]:
    """The walk over spec, clock, bounds, pause, workers, overlap and the run."""
    facts = explanation.facts
    zone = facts.get("timezone", "its zone")
    passed = {
        "Times": str(facts.get("when", "it is one of its times")),
        "Clock": str(facts.get("clock") or f"the time exists once in {zone}"),
        "Bounds": "after its start, and before its end if it has one",
        "Pause": "it was not paused",
        "Workers": "it was fired",
        "Overlap": "no earlier run was in its way",
        "Run": "",
    }
    answer = explanation.sentence.removeprefix(f"{facts.get('schedule', '')} ")
    is_good = explanation.verdict in _GOOD
    stages = list(passed.items())
    return walk(stages, [*passed].index(_stage(explanation)), sentence(answer), is_good=is_good)


def _stage(explanation: Explanation) -> str:
    if explanation.verdict == "skipped":
        return _SKIPPED.get(str(explanation.facts.get("reason")), "Overlap")
    if explanation.verdict.startswith("fired_"):
        return "Run"
    return _DECIDED.get(explanation.verdict, "Overlap")


# -- a run --------------------------------------------------------------------------------------

_WAITS: Mapping[str, int] = {
    "no_worker": 0, "disarmed": 0, "unknown_workflow": 1, "no_code": 1, "queue_paused": 2,
    "queue_limit": 3, "key_limit": 3, "key_open_limit": 3, "rate_limit": 3, "waits_alone": 4,
    "worker_reserved": 4, "slots": 4, "ready": 4,
}  # fmt: skip


def run_walk(state: RunState, name: str) -> list[WhyClause]:
    """The walk over workers, code, queue, limits and slots; one clause where a run sleeps."""
    answer = sentence(state.clause)
    at = _WAITS.get(state.verdict)
    if at is None:
        is_calm = state.verdict in ("sleeps", "retries", "waits_after", "waits_child")
        shape, tone = ("s-sleep", "rest") if is_calm else ("s-warn", "warn")
        clauses = [WhyClause("", answer, shape, tone, is_hit=not is_calm)]
    else:
        clauses = walk(_run_stages(state.facts, name), at, answer, is_good=state.verdict == "ready")
    if state.hint:
        clauses.append(WhyClause("To change that:", state.hint))
    return clauses


def _run_stages(facts: Mapping[str, Any], name: str) -> list[Stage]:
    alive = counted(int(facts.get("workers_on") or 0), "worker")
    queue = facts.get("queue", "default")
    return [
        ("Worker", f"{alive} alive; queue {queue} is served"),
        ("Code", f"a worker knows {name}"),
        ("Queue", f"{queue} is not paused"),
        ("Limit", "no limit is reached"),
        ("Slot", "a slot is free"),
    ]
