"""The list of automations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.client.automation_views import AutomationView
from rota.http.pages.status import AUTOMATION_WORDS, StatusView, named
from rota.http.pages.text import Stamp, WallClock, automation_href, clipped, counted, number
from rota.http.pages.view import SEARCH_FROM, clock_of, link, page
from rota.http.request import Answer, WebRequest

LIVE = "automation run"
PAGE_SIZE = 50
SENTENCE_WIDTH = 160


@dataclass(frozen=True)
class AutomationRow:
    """One row of the list."""

    name: str
    href: str
    schedule: str
    state: StatusView
    sentence: str
    pending: int
    next: Stamp | None
    mark: str


async def show(request: WebRequest) -> Answer:
    """The page."""
    clock, automations = clock_of(request), request.client.automations
    search, after = request.query.get("q").strip(), request.query.get("after")
    views = await automations.list(search=search, after=after, limit=PAGE_SIZE + 1)
    rows = [row_of(view, clock) for view in views[:PAGE_SIZE]]
    waits = [item.name for item in await request.client.overview.attention()
        if item.kind == "automation"]  # fmt: skip
    headline, context = sentences(rows, waits)
    has_more = len(views) > PAGE_SIZE
    return page(
        request, "automations.html", title="Automations", place="automations", live=LIVE,
        headline=headline, context=context, rows=rows, search=search,
        is_long=has_more or len(rows) > SEARCH_FROM or bool(search or after),
        older=link("/automations", q=search, after=rows[-1].name) if has_more else "",
        first=link("/automations", q=search) if after else "",
        shown=f"{counted(len(rows), 'automation')} shown, by name",
    )  # fmt: skip


def row_of(view: AutomationView, clock: WallClock) -> AutomationRow:
    """The row of an automation."""
    name = view.automation.name
    open_run = view.open_run
    at = open_run.available_at if open_run is not None and view.status == "Idle" else None
    return AutomationRow(
        name, automation_href(name), view.schedule, named(AUTOMATION_WORDS, view.status),
        clipped(view.sentence, SENTENCE_WIDTH), sum(view.pending.values()), clock.stamp(at),
        "warn" if view.status == "Needs attention" else "",
    )  # fmt: skip


def sentences(rows: Sequence[AutomationRow], waits: Sequence[str]) -> tuple[str, str]:
    """The state of the automations: those that wait for a person, and what is pending here."""
    if not rows and not waits:
        return "No automation is deployed.", ""
    pending = sum(row.pending for row in rows)
    behind = f"{counted(pending, 'event')} pending." if pending else "No event is pending."
    if not waits:
        return "Nothing needs you.", behind
    names = ", ".join(clipped(name, 48) for name in waits[:3])
    more = f" and {number(len(waits) - 3)} more" if len(waits) > 3 else ""
    return f"{names}{more} {'needs' if len(waits) == 1 else 'need'} you.", behind
