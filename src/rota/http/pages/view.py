"""Renders a page: the templates, what every page shows around its content, notices and problems."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from minijinja import Environment

from rota import __version__ as version
from rota.client.client import Client
from rota.core.runs.ids import short_id
from rota.errors import RotaError
from rota.http.files import static_url
from rota.http.pages import text
from rota.http.request import Answer, Html, Redirect, WebRequest
from rota.http.router import PageHandler

TEMPLATES = Path(__file__).parent.parent / "templates"
FRAGMENT = "x-rota-fragment"
EVENTS = "/api/v1/events"  # the stream of hints
SEARCH_FROM = 8  # rows; lists with fewer fit on the screen and have no search field


@dataclass(frozen=True)
class NavEntry:
    """An entry of the navigation."""

    key: str
    href: str
    label: str
    icon: str
    on_phone: bool = True


PLACES = (
    NavEntry("overview", "/", "Overview", "n-home"),
    NavEntry("runs", "/runs", "Runs", "n-runs"),
    NavEntry("schedules", "/schedules", "Schedules", "n-sched"),
    NavEntry("automations", "/automations", "Automations", "n-auto"),
    NavEntry("pipelines", "/pipelines", "Pipelines", "n-pipe", on_phone=False),
    NavEntry("workers", "/workers", "Workers", "n-work", on_phone=False),
)
# The result of a form, by the word in `?done=`. Addresses can be forged, so only texts of Rota are
# shown.
NOTICES: Mapping[str, str] = {
    "retried": "A new attempt was started.",
    "cancelled": "The run was cancelled.",
    "asked_to_end": "The run was asked to clean up and end.",
    "signalled": "The signal was sent.",
    "started": "The run was started.",
    "created": "The schedule was created.",
    "saved": "The schedule was changed.",
    "paused": "It is paused.",
    "resumed": "It is resumed.",
    "triggered": "A run was started.",
    "backfilled": "The backfill was started.",
    "approved": "Approved. The change is made once, with these parameters.",
    "rejected": "Rejected. Nothing was called; its events are skipped.",
    "answered": "Your answer is recorded, and the automation continues.",
    "applied": "Done. The list shows the runs as they are now.",
    "queued": "Every producer was queued.",
    "skipped": "The event was skipped.",
    "reset": "The declared values apply again.",
}


@cache
def environment() -> Environment:
    """The templates. They escape by name (`.html`), and an undefined name is an error."""
    sources = {path.name: path.read_text(encoding="utf-8") for path in TEMPLATES.glob("*.html")}
    return Environment(
        templates=sources,
        undefined_behavior="strict",
        trim_blocks=True,
        lstrip_blocks=True,
        filters={
            "number": text.number,
            "segment": text.segment,
            "city": text.city,
            "short_id": short_id,
            "text_parts": text.text_parts,
        },
        globals={
            "static": static_url,
            "places": PLACES,
            "version": version,
            "events": EVENTS,
            "link": link,
        },
    )


def link(path: str, **query: Any) -> str:
    """An address with those parts of the query that have a value."""
    given = {name: value for name, value in query.items() if value not in (None, "", False)}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def clock_of(request: WebRequest) -> text.WallClock:
    """The wall clock of the person who looks."""
    return text.WallClock(request.zone, request.client.clock.now())


def page(
    request: WebRequest,
    template: str,
    *,
    title: str,
    place: str = "",
    live: str = "",
    problem: RotaError | None = None,
    problem_status: int = HTTPStatus.UNPROCESSABLE_ENTITY,
    **values: Any,
) -> Html:
    """One page, or only its body where the script asks for it. `live` names the topics that make
    the page fetch itself again."""
    rendered = environment().render_template(
        template,
        is_fragment=FRAGMENT in request.headers,
        title=title,
        place=place,
        live=live,
        namespace=request.client.settings.namespace,
        identity=request.identity,
        may_operate=request.identity.may("operate"),
        zone=request.zone,
        notice=NOTICES.get(request.query.get("done"), ""),
        problem=problem,
        attention=request.site.attention[1],
        retries=False,
        **values,
    )
    return Html(rendered, status=HTTPStatus.OK if problem is None else problem_status)


def form_target(
    show: Callable[[WebRequest, RotaError], Awaitable[Answer]],
) -> Callable[[Callable[[WebRequest], Awaitable[str]]], PageHandler]:
    """Make the target of a form from a function that acts and returns the address to go to. If
    Rota refuses the action, `show` renders the page again, with the reason and the typed text."""

    def make(action: Callable[[WebRequest], Awaitable[str]]) -> PageHandler:
        async def handler(request: WebRequest) -> Answer:
            try:
                return Redirect(await action(request))
            except RotaError as error:
                return await show(request, error)

        return handler

    return make


def button(
    show: Callable[[WebRequest, RotaError], Awaitable[Answer]],
    href: Callable[[str], str],
    done: str,
    command: Callable[[Client, str], Awaitable[object]],
) -> PageHandler:
    """The target of a button without further fields: a command about the thing that the path
    names. `href` is the page to go to, `done` the notice there."""

    @form_target(show)
    async def target(request: WebRequest) -> str:
        name = request.parameters["name"]
        await command(request.client, name)
        return f"{href(name)}?done={done}"

    return target
