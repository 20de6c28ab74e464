"""Phases, the ledger and the reset rules: tables of cases."""

from __future__ import annotations

import itertools
import re

import pytest

from rota.core.automations.phases import (
    ALLOWED,
    CONSUMER,
    DECIDED,
    LEDGER,
    UNCERTAIN,
    Act,
    EventStatus,
    Left,
    Mutation,
    Phase,
    Way,
    shown,
    take_up,
)
from tests.tidy.tree import ROOT

MIGRATION = (ROOT / "src/rota/store/migrations/0003_automations.sql").read_text()


@pytest.mark.parametrize(
    ("phase", "mutation", "way"),
    [
        (Phase.PREPARING, None, Way.AGAIN),
        (Phase.PREPARED, None, Way.AGAIN),
        (Phase.MUTATING, None, Way.AGAIN),
        (Phase.MUTATING, Mutation.FAILED, Way.AGAIN),
        (Phase.MUTATED, Mutation.APPLIED, Way.EMIT),
        (Phase.EMITTING, Mutation.APPLIED, Way.EMIT),
        (Phase.EMITTING, Mutation.SKIPPED, Way.EMIT),
        (Phase.EMITTING, None, Way.AGAIN),  # no change was made: prepare may be fixed
        (Phase.EXECUTING, None, Way.AGAIN),
        (Phase.COMMITTED, Mutation.APPLIED, Way.CHOOSE),
        (Phase.MUTATING, Mutation.IN_FLIGHT, Way.RECONCILE),
        (Phase.MUTATING, Mutation.NEEDS_RECONCILE, Way.RECONCILE),
        (Phase.MUTATING, Mutation.INDETERMINATE, Way.RECONCILE),
        (Phase.MUTATING, Mutation.PROPOSED, Way.AGAIN),
    ],
)
def test_a_new_run_takes_up_its_chain_by_the_reset_rules(
    phase: Phase, mutation: Mutation | None, way: Way
) -> None:
    assert take_up(Left(phase, own=False, mutation=mutation)) is way


@pytest.mark.parametrize(
    ("left", "way"),
    [
        (Left(Phase.PREPARING, True, None), Way.ON),
        (Left(Phase.MUTATING, True, None), Way.ON),
        (Left(Phase.MUTATING, True, Mutation.FAILED), Way.ON),
        (Left(Phase.MUTATING, True, Mutation.FAILED, found_out=True), Way.GIVE_WAY),
        (Left(Phase.MUTATING, True, Mutation.PROPOSED), Way.ASK),
        (Left(Phase.MUTATING, True, Mutation.PROPOSED, approved=True), Way.ON),
        (Left(Phase.MUTATING, True, Mutation.SKIPPED), Way.EMIT),
        (Left(Phase.MUTATING, True, Mutation.IN_FLIGHT), Way.RECONCILE),
    ],
)
def test_a_run_that_waited_goes_on_where_it_was(left: Left, way: Way) -> None:
    assert take_up(left) is way


def test_nothing_left_means_choose() -> None:
    assert take_up(None) is Way.CHOOSE


def test_no_way_starts_over_once_the_world_may_have_changed() -> None:
    for phase, mutation, own in itertools.product(CONSUMER, UNCERTAIN | DECIDED, (True, False)):
        if phase is not Phase.COMMITTED:
            assert take_up(Left(phase, own, mutation)) in (Way.RECONCILE, Way.EMIT)


def test_reads_and_changes_never_share_a_phase() -> None:
    for acts in ALLOWED.values():
        assert not {Act.READ, Act.INPUT, Act.PEEK} <= acts


def test_every_state_of_the_ledger_leads_to_an_end() -> None:
    ends = {state for state, after in LEDGER.items() if not after}
    assert ends == {Mutation.APPLIED, Mutation.FAILED, Mutation.SKIPPED}
    for state in LEDGER:
        reached, line = {state}, [state]
        while line:
            for after in LEDGER[line.pop()] - reached:
                reached.add(after)
                line.append(after)
        assert reached & ends


@pytest.mark.parametrize(
    ("constraint", "values"),
    [
        ("handler_runs_phase", set(Phase)),
        ("mutations_status", set(Mutation)),
        ("events_status", set(EventStatus)),
    ],
)
def test_the_checks_of_the_database_are_those_of_the_tables(
    constraint: str, values: set[str]
) -> None:
    found = re.search(rf"constraint {constraint} check \(([^)]*)\)", MIGRATION)
    assert found is not None
    assert set(re.findall(r"'(\w+)'", found.group(1))) == values


@pytest.mark.parametrize(
    ("status", "reason", "text"),
    [
        ("running", None, "active"),
        ("failed", "transient", "paused:transient"),
        ("waiting", "auth", "paused:approval"),
        ("waiting", "permission", "paused:approval"),
        ("waiting", "approval", "paused:approval"),
        ("sleeping", "reconciliation", "paused:reconciliation"),
        ("waiting", "reconciliation", "paused:reconciliation"),
        ("failed", "logic", "failed:logic"),
        ("failed", "internal", "failed:internal"),
        ("completed", None, "committed"),
        ("crashed", "lapsed", "crashed"),
    ],
)
def test_statuses_read_as_the_model_writes_them(status: str, reason: str | None, text: str) -> None:
    assert shown(status, reason) == text


def test_a_status_the_model_does_not_know_reads_as_it_is() -> None:
    assert shown("sleeping", "idle") == "sleeping:idle"
    assert shown("pending", None) == "pending"
