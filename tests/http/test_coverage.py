"""Every verb of the client has its route, every route its documentation and its test."""

from __future__ import annotations

import inspect

import pytest

from rota.automations.deploy import AppAutomations
from rota.client.audit import Audit
from rota.client.client import Client
from rota.client.notifications import Notifications
from rota.client.operations import Operations
from rota.client.overview import Overview
from rota.client.runs import Runs
from rota.client.schedules import Schedules
from rota.client.tokens import Sessions, Tokens
from rota.core.runs.filters import RunSelection
from rota.http.routes import ROUTES
from rota.http.routes.runs import RunSelectionBody
from rota.http.routes.schedules import OptionsBody
from rota.pipelines.client import PipelineClient
from rota.schedules.definition import PolicyOptions

NOUNS = {
    "runs": Runs, "schedules": Schedules, "automations": AppAutomations,
    "pipelines": PipelineClient, "tokens": Tokens, "audit": Audit, "overview": Overview,
    "sessions": Sessions, "operations": Operations, "notifications": Notifications,
}  # fmt: skip
# Methods that no route renders, and why.
WITHOUT_ROUTE = {
    "runs.list": "runs.page is the same in pages",
    "runs.steps": "runs.steps_page is the same in pages",
    "runs.newest": "GET /runs/{run_id} of a run that continued, and the last of …/attempts",
    "runs.ready": "GET /metrics has it by queue",
    "runs.counts": "GET /counts has them, bounded",
    "schedules.trigger": "schedules.trigger_once is the same with a key",
    "schedules.history": "schedules.ledger is the same in pages",
    "schedules.last_outcomes": "GET …/occurrences has them",
    "automations.refused_deploys": "GET /doctor lists them",
    "automations.event": "GET …/events has it",
    "automations.users_of": "GET …/activity has it",
    "automations.is_pruned": "a remark for people",
    "automations.handler_run": "GET …/activity has it",
    "automations.touched": "GET …/activity has it",
    "automations.answer_all": "answers name what they expect, one by one",
    "automations.answers": "GET …/activity has it",
    "automations.prune_versions": "the command line does it",
    "pipelines.items": "pipelines.items_page is the same in pages",
    "pipelines.forecast": "a dry run of POST /pipelines/{id}/runs",
    "pipelines.write_results": "it writes a file on this machine",
    "pipelines.close": "it ends the client",
    "overview.activity": "a chart of the dashboard",
    "overview.failures": "GET /runs?status=failed has them",
    "schedules.count": "a page counts what schedules.list has",
    "automations.deploy_all": "a worker does it when it starts",
    "automations.dry_run": "it needs the code: `rota automation dry-run` imports it",
    "tokens.authenticate": "the gate calls it",
    "sessions.open": "POST /login, a page",
    "sessions.redeem": "POST /open/{secret}, a page",
    "sessions.close": "POST /logout, a page",
    "sessions.get": "the gate calls it",
    "notifications.latest": "a remark on the page of a run",
    **dict.fromkeys(
        (
            "operations.archive",
            "operations.archive_months",
            "operations.archived",
            "operations.drop_archive",
            "operations.arm",
            "operations.disarm",
            "operations.disarmed",
            "operations.must_be_armed",
        ),
        "about all namespaces of a database: the command line does it",
    ),
    "sessions.link": "the command line makes links: `rota open`",
    "audit.record": "the site calls it",
}
# The same for methods of the client itself.
WITHOUT_NOUN = {
    "connect": "it opens the client", "close": "it ends the client",
    "backup": "it writes a file on this machine",
    "queues": "GET /queues has their limits",
}  # fmt: skip


def verbs() -> dict[str, object]:
    """Every public coroutine of the client's nouns."""
    return {
        f"{noun}.{name}": method
        for noun, kind in NOUNS.items()
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
        and (inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method))
    }


def test_every_verb_of_the_client_has_its_route() -> None:
    rendered = {route.client for route in ROUTES}
    missing = sorted(set(verbs()) - rendered - set(WITHOUT_ROUTE))
    assert not missing, f"no route, and no reason why: {missing}"
    stale = sorted(set(WITHOUT_ROUTE) & rendered | set(WITHOUT_ROUTE) - set(verbs()))
    assert not stale, f"no longer without a route: {stale}"


def test_every_verb_without_a_noun_has_its_route() -> None:
    own = {
        name
        for name, method in inspect.getmembers(Client, inspect.isfunction)
        if not name.startswith("_")
        and (inspect.iscoroutinefunction(method) or name in ("start", "start_many"))
    }
    rendered = {route.client for route in ROUTES}
    missing = sorted(own - rendered - set(WITHOUT_NOUN))
    assert not missing, f"no route, and no reason why: {missing}"
    assert not set(WITHOUT_NOUN) & rendered | set(WITHOUT_NOUN) - own


def test_every_route_names_a_verb_that_exists() -> None:
    named = [route.client.split(".") for route in ROUTES if "." in route.client]
    assert not [f"{noun}.{verb}" for noun, verb in named if not hasattr(NOUNS[noun], verb)]


@pytest.mark.parametrize("route", ROUTES, ids=lambda one: one.name)
def test_every_route_is_described(route) -> None:  # type: ignore[no-untyped-def]
    assert route.summary.endswith(".")
    assert set(route.parameters) == set(route.hints) - {"request", "query", "body", "return"}


def test_bodies_take_every_filter_of_runs_and_every_policy_of_schedules() -> None:
    assert RunSelectionBody.__struct_fields__ == tuple(RunSelection.__annotations__)
    assert set(PolicyOptions.__annotations__) < set(OptionsBody.__struct_fields__)
