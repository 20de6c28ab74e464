"""The OpenAPI document holds, and random requests get documented answers, on both databases."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import httpx2
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from openapi_spec_validator import validate
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.generation import GenerationMode

from rota.http.dispatch import Site
from rota.http.openapi import openapi_document
from rota.http.options import HttpOptions
from rota.http.route import PREFIX
from rota.http.routes import ROUTES
from rota.http.starlette_adapter import asgi
from tests.http.kit import BASE, PORT
from tests.http.kit.office import Office

NIGHTLY = bool(os.environ.get("ROTA_NIGHTLY"))
EXAMPLES = int(os.environ.get("ROTA_EXAMPLES") or 0) or (
    500 if NIGHTLY else 4
)  # of each mode and operation
STREAMS = {"stream_hints", "stream_run"}  # They do not end; test_events.py reads them.
WANTED = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance",
    "response_headers_conformance", "response_schema_conformance", "negative_data_rejection",
)  # fmt: skip
load_all_checks()
CHECKED = CHECKS.get_by_names(WANTED)


def test_the_document_is_valid() -> None:
    validate(openapi_document(ROUTES))


def document() -> dict[str, Any]:
    """The document without the streams, and without tokens: a loopback server needs none."""
    whole = dict(openapi_document(ROUTES))
    whole["paths"] = {
        path: {
            method: {**one, "security": []}
            for method, one in methods.items()
            if one["operationId"] not in STREAMS
        }
        for path, methods in whole["paths"].items()
    }
    return whole


SHARDS = 10  # parts of the table, for tests beside each other


def known_parameters(office: Office, path: str) -> dict[str, str]:
    """Values for the path with which there is something at the address."""
    names = {"schedules": "daily", "automations": "direct", "runs": "reply"}
    others = {"queues": "default", "workflows": "add", "tokens": "reader"}
    noun = path.removeprefix(PREFIX).split("/")[1]
    run = office.run_ids["triage" if noun == "pipeline-runs" else "fails"]
    return {
        "name": names.get(noun) or others.get(noun, "none"), "run_id": run, "topic": "letters",
        "pipeline_id": "triage", **office.row_ids,
    }  # fmt: skip


def shards_on(database: str) -> range:
    """The parts that a database gets: all at night, otherwise every second one."""
    return range(SHARDS) if NIGHTLY else range(database == "postgres", SHARDS, 2)


ON_POSTGRES = [
    pytest.param("postgres", shard, marks=pytest.mark.pg) for shard in shards_on("postgres")
]
ON_SQLITE = [("sqlite", shard) for shard in shards_on("sqlite")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("database_url", "shard"), [*ON_SQLITE, *ON_POSTGRES], indirect=["database_url"]
)
def test_random_requests_get_documented_answers(
    database_url: str, shard: int, tmp_path: Path
) -> None:
    office = Office(database_url, tmp_path)
    with asyncio.Runner() as runner:
        runner.run(office.connect())
        runner.run(office.fill())
        runner.run(office.stop_worker())
        transport = httpx2.ASGITransport(app=asgi(Site(office, HttpOptions(), port=PORT)))
        try:
            for operation in operations()[shard::SHARDS]:
                known = known_parameters(office, operation.path)
                attack(operation, GenerationMode.POSITIVE, runner, transport, {})
                if can_be_wrong(operation):
                    attack(operation, GenerationMode.NEGATIVE, runner, transport, {})
                if "{" in operation.path:
                    attack(operation, GenerationMode.POSITIVE, runner, transport, known)
        finally:
            runner.run(office.close())


def operations() -> list[Any]:
    """Every operation; those that remove something come last."""
    schema: Any = schemathesis.openapi.from_dict(document())
    found = [one.ok() for one in schema.get_all_operations()]
    return sorted(found, key=lambda one: one.method == "DELETE" or "archive" in one.path)


def can_be_wrong(operation: Any) -> bool:
    """Whether a request can break the schema. Every text is a right path and a right header, unless
    the header has a pattern: Hypothesis would draw hundreds of requests to find none."""
    raw = operation.definition.raw
    return "requestBody" in raw or any(
        one["in"] == "query" or "pattern" in one["schema"] for one in raw.get("parameters", ())
    )


def test_every_route_gets_random_requests() -> None:
    assert len(operations()) == len(ROUTES) - len(STREAMS)


def _bytes(request: Any) -> list[tuple[str, bytes]]:
    """Headers as requests would send them."""
    return [
        (name, value if isinstance(value, bytes) else value.encode("latin-1"))
        for name, value in request.headers.items()
    ]


def attack(
    operation: Any, mode: Any, runner: asyncio.Runner, transport: Any, known: dict[str, str]
) -> None:
    """Send what the schema allows, or what it does not, and compare the answers with it. `known`
    are values of the path to send instead of random ones."""

    async def send(request: Any) -> httpx2.Response:
        async with httpx2.AsyncClient(transport=transport) as http:
            return await http.request(
                str(request.method), str(request.url), content=request.body,
                headers=[(name.encode(), value) for name, value in _bytes(request)],
            )  # fmt: skip

    @settings(
        max_examples=EXAMPLES, phases=[Phase.generate], database=None, deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(mode))
    def check(case: Any) -> None:
        names = set(known) & set(case.path_parameters or {})
        case.path_parameters.update({name: known[name] for name in names})
        reported = {**case.as_transport_kwargs(base_url=BASE)}
        reported.pop("stream", None)
        request = requests.Request(**reported).prepare()
        request.headers.setdefault("content-type", "application/json")
        case.validate_response(runner.run(send(request)), checks=CHECKED)

    check()
