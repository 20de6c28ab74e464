"""Every route of the table answers a right request with the status that it documents."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from rota.http.route import Route
from rota.http.routes import ROUTES
from tests.http.kit import browsing
from tests.http.kit.office import Office

BY_NAME = {route.name: route for route in ROUTES}
STREAMS = {"stream_hints", "stream_run"}  # They do not end; test_events.py reads them.


class Ask(NamedTuple):
    """A request to a route: the values of its path, a body, a query."""

    route: str
    path: dict[str, str] = {}  # noqa: RUF012
    body: Any = None
    query: dict[str, str] = {}  # noqa: RUF012


def looks(office: Office) -> list[Ask]:
    """Requests that change nothing."""
    run = {"run_id": office.run_ids["parent"]}
    daily, direct = {"name": "daily"}, {"name": "direct"}
    triage = {"run_id": office.run_ids["triage"]}
    timing = {"when": "daily at 8:00"}
    return [
        *(Ask(name) for name in (
            "list_runs", "list_workflows", "list_schedules", "list_upcoming", "list_automations",
            "list_pipelines", "live", "ready", "metrics", "examine_store", "count_runs",
            "show_settings", "who_am_i", "list_workers", "list_queues", "list_attention",
            "list_notifications", "list_tokens", "list_audit", "show_openapi",
        )),
        *(Ask(name, run) for name in (
            "list_children", "show_run", "list_attempts", "list_steps", "list_logs", "explain_run",
            "run_result",
        )),
        Ask("show_workflow", {"name": "add"}),
        Ask("preview_timing", body=timing),
        Ask("diff_schedule", daily, timing),
        *(Ask(name, daily) for name in (
            "show_schedule", "preview_schedule", "list_occurrences", "show_calendar",
            "explain_schedule",
        )),
        *(Ask(name, direct) for name in (
            "show_automation", "list_versions", "list_events", "list_inputs", "list_outputs",
            "list_activity", "list_pending", "list_stale", "explain_automation",
        )),
        Ask("show_pipeline", {"pipeline_id": "triage"}),
        Ask("list_executions", {"pipeline_id": "triage"}),
        *(Ask(name, triage) for name in (
            "show_execution", "list_items", "show_cost", "stream_output",
        )),
    ]  # fmt: skip


async def verbs(office: Office) -> AsyncIterator[Ask]:
    """Requests that change something, in an order in which each can succeed."""
    ids, daily, direct = office.run_ids, {"name": "daily"}, {"name": "direct"}
    yield Ask("show_input", direct | office.row_ids)
    yield Ask("list_sources", direct | office.row_ids)
    yield Ask("start_run", body={"workflow": "add", "input": {"a": 1}})
    yield Ask("start_batch", body={"workflow": "add", "items": [{"input": {"a": 1}}]})
    yield Ask("act_on_runs", body={"verb": "retry", "filter": {"name": "fails"}, "dry_run": True})
    yield Ask("retry_run", {"run_id": ids["fails"]}, {})
    key = (await office.runs.steps(ids["add"]))[0].key
    yield Ask("fork_run", {"run_id": ids["add"]}, {"from_step": key})
    yield Ask("signal_run", {"run_id": ids["waits"], "name": "other"}, {"value": "yes"})
    yield Ask("cancel_run", {"run_id": ids["waits"]}, {"reason": "enough"})
    weekly = {"workflow": "add", "when": "weekly on monday at 9:00", "input": {"a": 1}}
    yield Ask("create_schedule", body={"name": "weekly", **weekly})
    yield Ask("replace_schedule", {"name": "weekly"}, weekly)
    yield Ask("delete_schedule", {"name": "weekly"})
    yield Ask("update_schedule", daily, {"when": "daily at 8:00"})
    yield Ask("reset_schedule", {"name": "hourly"}, {})
    yield Ask("pause_schedule", daily, {"note": "holiday"})
    yield Ask("resume_schedule", daily, {})
    yield Ask("trigger_schedule", daily, {})
    past = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-03T00:00:00Z"}
    yield Ask("backfill_schedule", daily, past | {"dry_run": True})
    yield Ask("start_pipeline", {"pipeline_id": "triage"}, {"dry_run": True})
    yield Ask("retry_execution", {"run_id": ids["triage"]})
    for name in ("limit_queue", "pause_queue", "resume_queue"):
        yield Ask(name, {"name": "default"}, {"concurrency": 5} if name == "limit_queue" else None)
    yield Ask("create_token", body={"name": "fresh"})
    yield Ask("revoke_token", {"name": "fresh"})
    async for one in answers(office):
        yield one


async def answers(office: Office) -> AsyncIterator[Ask]:
    """Verbs about automations, with what waits for a person."""
    approved, direct = {"name": "approved"}, {"name": "direct"}
    letters = approved | {"topic": "letters"}
    first, second = ({"message_id": name, "payload": {"sum": 1}} for name in ("a-1", "a-2"))
    yield Ask("publish_event", letters, first)
    yield Ask("approve_change", approved, {"expected": await office.waiting("approved")})
    yield Ask("publish_events", letters, {"events": [second]})
    yield Ask("reject_change", approved, {"expected": await office.waiting("approved")})
    office.bank.is_down = True
    await office.publish("direct", "m-2")
    expected = await office.waiting("direct")
    office.bank.is_down = False
    yield Ask("resolve_wait", direct, {"expected": expected, "how": "skip"})
    yield Ask("pause_automation", direct)
    for number in (3, 4):
        await office.publish("direct", f"m-{number}")
    yield Ask("skip_event", direct, {"topic": "letters", "message_id": "m-3"})
    yield Ask("requeue_events", direct, {"topic": "letters", "message_id": "m-3"})
    inputs = {one.input.title: one.input.id for one in await office.automations.inputs("direct")}
    yield Ask("skip_input", direct | {"input_id": inputs["m-4"]}, {})
    yield Ask("resume_automation", direct)
    yield Ask("run_automation", {"name": "reader"})
    yield Ask("deploy_automation", direct)
    yield Ask("rollback_automation", direct, {"version": 1})
    yield Ask("archive_automation", {"name": "reader"})


async def send(http: httpx2.AsyncClient, ask: Ask) -> httpx2.Response:
    """Send it."""
    route: Route = BY_NAME[ask.route]
    path = route.prefix + route.path.format(**ask.path)
    return await http.request(route.method, path, params=ask.query, json=ask.body)


@pytest.mark.slow
async def test_every_route_answers_as_documented(database_url: str, tmp_path: Path) -> None:
    office = Office(database_url, tmp_path)
    tried, wrong = set(STREAMS), []
    async with office.connected(), browsing(office) as http:
        await office.fill()
        asks = [*looks(office)]
        for ask in asks:
            wrong += _check(ask, await send(http, ask))
            tried.add(ask.route)
        async for ask in verbs(office):
            wrong += _check(ask, await send(http, ask))
            tried.add(ask.route)
    assert not wrong
    assert not set(BY_NAME) - tried, "routes without a test"


def _check(ask: Ask, answer: httpx2.Response) -> list[str]:
    route = BY_NAME[ask.route]
    if answer.status_code in (route.status, *route.also):
        return []
    return [f"{ask.route}: {answer.status_code} {answer.text[:300]}"]
