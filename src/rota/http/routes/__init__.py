"""The routes of the API: one table, made from a file per noun."""

from __future__ import annotations

from typing import Any

from rota.http.openapi import openapi_document
from rota.http.request import WebRequest
from rota.http.route import Route, route
from rota.http.routes import automations, events, pipelines, runs, schedules, system


@route("GET", "/openapi.json", "read", "")
async def show_openapi(request: WebRequest) -> dict[str, Any]:
    """Show this document."""
    return openapi_document(ROUTES)


ROUTES: tuple[Route, ...] = (
    *(
        entry
        for module in (runs, schedules, automations, pipelines, system, events)
        for entry in vars(module).values()
        if isinstance(entry, Route)
    ),
    show_openapi,
)
