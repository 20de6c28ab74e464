"""The OpenAPI document holds, and random requests get documented answers, on both databases."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import httpx2
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from openapi_spec_validator import validate
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.generation import GenerationMode

from rota.http.adapter import asgi
from rota.http.openapi import openapi_document
from rota.http.options import HttpOptions
from rota.http.route import PREFIX
from rota.http.routes import ROUTES
from rota.http.site import Site
from tests.http.kit import BASE, PORT, app_on, seed

EXAMPLES = 500 if os.environ.get("ROTA_NIGHTLY") else 4  # of each mode and operation
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


NOUNS = sorted({route.path.split("/")[1] for route in ROUTES if route.name not in STREAMS})


@pytest.mark.slow
@pytest.mark.parametrize("noun", NOUNS)
def test_random_requests_get_documented_answers(database_url: str, noun: str) -> None:
    app = app_on(database_url)
    with asyncio.Runner() as runner:
        runner.run(app.connect())
        runner.run(seed(app))
        transport = httpx2.ASGITransport(app=asgi(Site(app, HttpOptions(), port=PORT)))
        try:
            for operation in operations(noun):
                for mode in GenerationMode:
                    attack(operation, mode, runner, transport)
        finally:
            runner.run(app.close())


def operations(noun: str) -> list[Any]:
    """Every operation of the document about one noun."""
    whole = document()
    whole["paths"] = {
        path: methods
        for path, methods in whole["paths"].items()
        if path.removeprefix(PREFIX).split("/")[1] == noun
    }
    schema: Any = schemathesis.openapi.from_dict(whole)
    return [one.ok() for one in schema.get_all_operations()]


def _bytes(request: Any) -> list[tuple[str, bytes]]:
    """Headers as requests would send them."""
    return [
        (name, value if isinstance(value, bytes) else value.encode("latin-1"))
        for name, value in request.headers.items()
    ]


def attack(operation: Any, mode: Any, runner: asyncio.Runner, transport: Any) -> None:
    """Send what the schema allows, or what it does not, and compare the answers with it."""

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
        reported = {**case.as_transport_kwargs(base_url=BASE)}
        reported.pop("stream", None)
        request = requests.Request(**reported).prepare()
        request.headers.setdefault("content-type", "application/json")
        case.validate_response(runner.run(send(request)), checks=CHECKED)

    try:
        check()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE, "nothing can be wrong with an operation"
