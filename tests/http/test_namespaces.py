"""Ids and names of another namespace: every route answers as if they did not exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

from rota.client.client import Client
from rota.http.route import Route
from rota.http.routes import ROUTES
from rota.settings import Settings
from tests.http.kit import browsing
from tests.http.kit.office import Office

BODIES: dict[str, Any] = {
    "fork_run": {"from_step": "x"},
    "act_on_runs": {"verb": "retry"},
    **dict.fromkeys(("replace_schedule", "limit_queue")),  # they create what is not there
    "update_schedule": {"when": "daily at 8:00"},
    "diff_schedule": {"when": "daily at 8:00"},
    "backfill_schedule": {"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"},
    **{key: {"expected": "x"} for key in ("approve_change", "reject_change")},
    "resolve_wait": {"expected": "x", "how": "skip"},
    **{key: {"topic": "t", "message_id": "m"} for key in ("skip_event", "requeue_events")},
    "rollback_automation": {"version": 1},
}
ASKED = [route for route in ROUTES if route.parameters and BODIES.get(route.name, {}) is not None]
EMPTY = {"list_executions"}  # the list of what does not exist


class Foreign(Office):
    """An office in a namespace of its own."""

    def __init__(self, url: str, folder: Path) -> None:
        super().__init__(url, folder, namespace="theirs")

    def values_for(self, route: Route) -> dict[str, str]:
        """Existing values, for the names in the path of a route."""
        noun = route.path.split("/")[1]
        names = {"schedules": "daily", "automations": "direct", "workflows": "add",
            "queues": "slow", "tokens": "reader"}  # fmt: skip
        run = self.run_ids["triage" if noun == "pipeline-runs" else "fails"]
        found = {"name": names.get(noun, "signal-name"), "run_id": run, "pipeline_id": "triage",
            "topic": "letters", **self.row_ids}  # fmt: skip
        return {name: found[name] for name in route.parameters}


async def asked(http: httpx2.AsyncClient, route: Route, values: dict[str, str]) -> tuple[int, str]:
    path = route.prefix + route.path.format(**values)
    body = BODIES.get(route.name, {}) if route.body is not None else None
    answer = await http.request(route.method, path, json=body)
    text = re.sub(r'"request_id":"\w+"', "", answer.text)
    for value in values.values():
        text = text.replace(value, "ID")
    return answer.status_code, text


@pytest.mark.slow
async def test_every_route_answers_as_for_what_does_not_exist(
    database_url: str, tmp_path: Path
) -> None:
    theirs = Foreign(database_url, tmp_path)
    ours = Client(database_url, settings=Settings(namespace="ours"), migrate=False)
    wrong = []
    async with theirs.connected():
        await theirs.fill()
        await theirs.limit_queue("slow", concurrency=1)
        async with ours, browsing(ours) as http:
            for route in ASKED:
                values = theirs.values_for(route)
                nowhere = {name: "0" * len(value) for name, value in values.items()}
                there = await asked(http, route, values)
                if there != await asked(http, route, nowhere):
                    wrong.append((route.name, there))
                if there[0] < 400 and route.name not in EMPTY:
                    wrong.append((route.name, there))
            assert (await theirs.runs.get(theirs.run_ids["fails"])).status == "failed"
    assert not wrong


async def test_the_inputs_of_a_change_are_those_of_its_automation(
    database_url: str, tmp_path: Path
) -> None:
    theirs = Foreign(database_url, tmp_path)
    ours = Office(database_url, tmp_path / "ours")
    async with theirs.connected(), ours.connected(), browsing(ours) as http:
        await ours.automations.deploy_all()
        await theirs.fill()
        path = "/api/v1/automations/direct/outputs/{}/inputs"
        answers = [
            await http.get(path.format(change_id))
            for change_id in (theirs.row_ids["change_id"], "0" * 34)
        ]
        assert await ours.automations.inputs_of(theirs.row_ids["change_id"]) == []
    assert [(one.status_code, one.json()["code"]) for one in answers] == [
        (404, "unknown_change")
    ] * 2
