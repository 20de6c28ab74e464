"""The life of a run is one table: it must be total, closed, and agree with what is made of it."""

from __future__ import annotations

import re
from itertools import product

import pytest

from rota.core.runs.lifecycle import (
    FINAL,
    INITIAL,
    OPEN,
    RULES,
    SETTLING,
    Status,
    allowed,
    diagram,
    label,
)

TEMPLATES = {Status.SCHEDULED, Status.PAUSED}


def test_every_status_is_final_open_or_a_template() -> None:
    assert set(Status) == FINAL | OPEN | TEMPLATES
    assert not FINAL & OPEN
    assert not (FINAL | OPEN) & TEMPLATES


def test_nothing_leaves_a_final_status() -> None:
    assert not [verb for verb, status in product(RULES, FINAL) if allowed(verb, status)]


def test_every_status_that_is_not_final_can_be_left() -> None:
    assert {source for rule in RULES.values() for source in rule.sources} == set(Status) - FINAL


def test_every_status_can_be_reached() -> None:
    reached = set(INITIAL)
    for _ in Status:
        reached |= {rule.target for rule in RULES.values() if rule.sources & reached}
    assert reached == set(Status)


@pytest.mark.parametrize("status", sorted(OPEN))
def test_every_open_status_leads_to_an_end(status: Status) -> None:
    seen = {status}
    for _ in Status:
        seen |= {rule.target for rule in RULES.values() if rule.sources & seen}
    assert Status.COMPLETED in seen
    assert Status.CANCELLED in seen


def test_templates_and_runs_never_become_each_other() -> None:
    mixed = [
        verb
        for verb, rule in RULES.items()
        if (rule.target in TEMPLATES) != (rule.sources <= TEMPLATES)
    ]
    assert mixed == []


def test_a_verb_needs_a_lease_exactly_when_it_leaves_running() -> None:
    for verb, rule in RULES.items():
        if rule.lease in ("held", "lapsed"):
            assert rule.sources == {Status.RUNNING}, verb
        elif rule.lease == "none":
            assert Status.RUNNING not in rule.sources, verb


def test_only_a_claim_leads_to_running() -> None:
    assert [verb for verb, rule in RULES.items() if rule.target is Status.RUNNING] == ["claim"]


def test_workers_settle_by_the_verbs_that_need_the_lease() -> None:
    assert {
        "complete", "fail", "continue", "suspend", "skip", "ask", "release",
    } == SETTLING  # fmt: skip


def test_no_run_is_created_running_or_over() -> None:
    assert not INITIAL & {Status.RUNNING}
    assert {Status.SKIPPED} == INITIAL & FINAL


def test_every_open_run_can_be_cancelled() -> None:
    assert RULES["cancel"].sources == OPEN


def test_every_rule_says_what_it_means() -> None:
    assert not [verb for verb, rule in RULES.items() if not rule.means.strip()]


def test_an_unknown_verb_is_an_error() -> None:
    with pytest.raises(KeyError):
        allowed("rerun", Status.FAILED)


@pytest.mark.parametrize(
    ("status", "reason", "text"),
    [
        ("failed", "logic", "failed:logic"),
        ("waiting", "auth", "waiting:auth"),
        ("completed", None, "completed"),
        ("completed", "", "completed"),
    ],
)
def test_status_and_reason_print_as_one(status: str, reason: str | None, text: str) -> None:
    assert label(status, reason) == text


def test_the_diagram_shows_every_arrow_and_no_other() -> None:
    lines = diagram().splitlines()
    assert lines[0] == "stateDiagram-v2"
    arrows = {tuple(re.findall(r"[\w*\[\]]+", line)) for line in lines[1:]}
    expected: set[tuple[str, ...]] = {("[*]", status.value) for status in INITIAL}
    expected |= {(status.value, "[*]") for status in FINAL}
    expected |= {
        (source.value, rule.target.value, verb)
        for verb, rule in RULES.items()
        for source in rule.sources
    }
    assert arrows == expected
    assert len(lines) - 1 == len(expected), "an arrow is drawn twice"
