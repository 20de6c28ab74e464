"""The list of automations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.client.automation_views import AutomationView
from rota.http.pages.status import AUTOMATION_WORDS, StatusView, named
from rota.http.pages.text import Stamp, WallClock, clipped, counted, number, segment
from rota.http.pages.view import clock_of, page
from rota.http.request import Answer, WebRequest

LIVE = "automation run"
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
    clock = clock_of(request)
    rows = [row_of(view, clock) for view in await request.client.automations.list()]
    headline, context = sentences(rows)
    return page(
        request, "automations.html", title="Automations", place="automations", live=LIVE,
        headline=headline, context=context, rows=rows,
    )  # fmt: skip


def row_of(view: AutomationView, clock: WallClock) -> AutomationRow:
    """The row of an automation."""
    name = view.automation.name
    open_run = view.open_run
    at = open_run.available_at if open_run is not None and view.status == "Idle" else None
    return AutomationRow(
        name, f"/automations/{segment(name)}", view.schedule, named(AUTOMATION_WORDS, view.status),
        clipped(view.sentence, SENTENCE_WIDTH), sum(view.pending.values()), clock.stamp(at),
        "warn" if view.status == "Needs attention" else "",
    )  # fmt: skip


def sentences(rows: Sequence[AutomationRow]) -> tuple[str, str]:
    """The state of the automations."""
    if not rows:
        return "No automation is deployed.", ""
    waits = [row.name for row in rows if row.mark]
    pending = sum(row.pending for row in rows)
    behind = f"{number(pending)} events are pending." if pending else "No event is pending."
    if not waits:
        return "Nothing needs you.", f"{counted(len(rows), 'automation')}. {behind}"
    head = f"{', '.join(waits[:3])} {'needs' if len(waits) == 1 else 'need'} you."
    return head, behind
