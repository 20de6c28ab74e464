"""The OpenAPI 3.1 document, made from the table of routes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import msgspec

from rota.http import problems
from rota.http.problems import ProblemDocument
from rota.http.route import KEY_PATTERN, Route

REF = "#/components/schemas/{name}"
ALWAYS = (400, 401, 403, 421, 422, 429, 503)
WITH_BODY = (408, 413, 415)
SECURITY: list[dict[str, list[str]]] = [{"token": []}]


@cache
def openapi_document(routes: tuple[Route, ...]) -> dict[str, Any]:
    """The document."""
    kinds = _kinds(routes)
    schemas, components = msgspec.json.schema_components(kinds, ref_template=REF)
    by_kind = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        operation = _operation(route, by_kind, components)
        paths.setdefault(route.prefix + route.path, {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Rota", "version": version("rota")},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _kinds(routes: Sequence[Route]) -> list[Any]:
    kinds: list[Any] = [ProblemDocument]
    for route in routes:
        returns = route.returns if route.media == "application/json" else None
        kinds += [route.query, route.body, returns]
    return [kind for kind in dict.fromkeys(kinds) if kind is not None]


def _operation(route: Route, by_kind: dict[Any, Any], components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "description": f"Needs the role `{route.role}`." if route.role != "open" else "Open.",
        "tags": [route.path.split("/")[1]],
        "parameters": [*_path(route), *_query(route, components), *_headers(route)],
        "responses": _responses(route, by_kind),
        "security": [] if route.role == "open" else SECURITY,
    }
    if route.body is not None:
        required = any(field.required for field in msgspec.structs.fields(route.body))
        operation["requestBody"] = {
            "required": required,
            "content": {"application/json": {"schema": by_kind[route.body]}},
        }
    return operation


def _path(route: Route) -> list[dict[str, Any]]:
    schema = {"type": "string", "minLength": 1}
    return [
        {"name": name, "in": "path", "required": True, "schema": schema}
        for name in route.parameters
    ]


def _query(route: Route, components: dict[str, Any]) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    fields = components[route.query.__name__]["properties"]
    return [
        {"name": name, "in": "query", "required": False, "schema": _without_null(schema)}
        for name, schema in fields.items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A query cannot say null: a parameter is omitted instead."""
    kept = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    several = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    if len(several) == 1:
        return {**kept, **several[0]}
    return kept | ({"anyOf": several} if several else {})


def _headers(route: Route) -> list[dict[str, Any]]:
    headers = []
    if route.takes_key:
        schema = {"type": "string", "pattern": KEY_PATTERN}
        headers.append({"name": "Idempotency-Key", "in": "header", "schema": schema})
    if HTTPStatus.PRECONDITION_FAILED in route.problems:
        headers.append({"name": "If-Match", "in": "header", "schema": {"type": "string"}})
    return headers


def _responses(route: Route, by_kind: dict[Any, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status in sorted({route.status, *route.also}):
        answer: dict[str, Any] = {"description": HTTPStatus(status).phrase}
        if route.media != "application/json":
            medias = (route.media, *route.also_media)
            answer["content"] = {media: {"schema": {"type": "string"}} for media in medias}
        elif route.returns is not None:
            schema = by_kind[route.returns]
            answer["content"] = {"application/json": {"schema": schema}}
        if route.etag:
            answer["headers"] = {"ETag": {"schema": {"type": "string"}}}
        responses[str(int(status))] = answer
    return responses | _problems(route, by_kind)


def _problems(route: Route, by_kind: dict[Any, Any]) -> dict[str, Any]:
    schema = by_kind[ProblemDocument]
    statuses = {*ALWAYS, *route.problems, *(WITH_BODY if route.body is not None else ())}
    return {
        str(int(status)): {
            "description": HTTPStatus(status).phrase,
            "content": {problems.MEDIA: {"schema": schema}},
        }
        for status in sorted(statuses - {route.status, *route.also})
    }
