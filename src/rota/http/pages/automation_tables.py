"""The further parts of an automation's page: inputs, outputs, events, runs, versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rota.core.automations.model import StoredEvent
from rota.core.automations.text import deed
from rota.core.runs.stored_errors import error_line
from rota.http.pages.status import EVENTS, MUTATIONS, StatusView, named, state_of
from rota.http.pages.text import (
    Stamp,
    ValueField,
    WallClock,
    automation_href,
    clipped,
    counted,
    stored_value,
    took,
)
from rota.http.pages.view import link
from rota.http.request import WebRequest

PAGE_SIZE = 50


@dataclass(frozen=True)
class CellView:
    """One cell; the first form that has a value is shown."""

    text: str = ""
    cls: str = ""
    sub: str = ""
    href: str = ""
    state: StatusView | None = None
    at: Stamp | None = None
    fields: Sequence[ValueField] = ()
    skip: StoredEvent | None = None  # that a button skips


@dataclass(frozen=True)
class TableRow:
    """One row, known by its key."""

    key: str
    cells: Sequence[CellView]


@dataclass(frozen=True)
class TableView:
    """A table with its columns."""

    title: str
    heads: Mapping[str, str]  # the class of each column
    rows: Sequence[TableRow]
    none: str
    older: str = ""
    line: str = ""


# The classes of the columns by their heads, and the rows.
Table: TypeAlias = tuple[Mapping[str, str], Sequence[TableRow]]


async def table_of(request: WebRequest, name: str, tab: str, clock: WallClock) -> TableView:
    """The table of a tab. Versions have no further pages."""
    heads, rows = await TABLES[tab](request, name, clock)
    older = ""
    if len(rows) == PAGE_SIZE and tab != "versions":
        topic, status = request.query.get("topic"), request.query.get("status")
        href = automation_href(name)
        older = link(href, tab=tab, topic=topic, status=status, before=rows[-1].key)
    line = counted(len(rows), "row")
    return TableView(title_of(tab), heads, rows, f"No {tab} yet", older, line)


def title_of(tab: str) -> str:
    """The title of a tab."""
    return tab.capitalize()


async def _inputs(request: WebRequest, name: str, clock: WallClock) -> Table:
    inputs = await request.client.automations.inputs(
        name, before=request.query.get("before"), limit=PAGE_SIZE
    )
    rows = [
        TableRow(seen.input.id, (
            CellView(clipped(seen.input.title, 120), "", f"{seen.input.source} {seen.input.type}"),
            CellView(cls="p2", state=named(EVENTS, seen.status)),
            CellView(str(seen.event_count), "num p2"),
            CellView(str(seen.unfinished_count), "num p2"),
            CellView(at=clock.stamp(seen.input.created_at), cls="num p2"),
        ))
        for seen in inputs
    ]  # fmt: skip
    heads = {"Input": "", "Status": "p2", "Events": "num p2", "Open": "num p2",
        "Came in": "num p2"}  # fmt: skip
    return heads, rows


async def _outputs(request: WebRequest, name: str, clock: WallClock) -> Table:
    query = request.query
    changes = await request.client.automations.outputs(
        name, status=query.get("status"), before=query.get("before"), limit=PAGE_SIZE
    )
    rows = [
        TableRow(row.id, (
            CellView(clipped(row.title or row.tool, 100), "", f"{row.tool} by {row.handler}",
                fields=stored_value(row.params).fields),
            CellView(cls="p2", state=named(MUTATIONS, row.status)),
            CellView(row.run_id[-8:], "p2 id", href=f"/runs/{row.run_id}"),
            CellView(at=clock.stamp(row.created_at), cls="num p2"),
        ))
        for row in changes
    ]  # fmt: skip
    heads = {"Change": "", "Status": "p2", "Run": "p2", "When": "num p2"}
    return heads, rows


async def _events(request: WebRequest, name: str, clock: WallClock) -> Table:
    query = request.query
    events = await request.client.automations.events(
        name, topic=query.get("topic"), status=query.get("status"), before=query.get("before"),
        limit=PAGE_SIZE,
    )  # fmt: skip
    rows = [_event(event, clock) for event in events]
    heads = {"Event": "", "Status": "p2", "Published": "num p2", "": "num"}
    return heads, rows


def _event(event: StoredEvent, clock: WallClock) -> TableRow:
    body = stored_value(event.payload)
    fields = body.fields or ((ValueField("payload", body.text),) if body.text else ())
    return TableRow(event.id, (
        CellView(f"{event.topic}/{event.message_id}", fields=fields),
        CellView(cls="p2", state=named(EVENTS, event.status)),
        CellView(at=clock.stamp(event.created_at), cls="num p2"),
        CellView("", "num", skip=event if event.status == "pending" else None),
    ))  # fmt: skip


async def _runs(request: WebRequest, name: str, clock: WallClock) -> Table:
    handler_runs = await request.client.automations.activity(
        name, before=request.query.get("before"), limit=PAGE_SIZE
    )
    rows = []
    for seen in handler_runs:
        run = seen.run
        text = deed(run, seen.change)
        if seen.error:
            text = error_line(seen.error).removeprefix("HandlerSuspended: ")
        rows.append(TableRow(run.run_id, (
            CellView(run.handler, "what", clipped(text, 120), href=f"/runs/{run.run_id}"),
            CellView(cls="p2", state=state_of(seen.status, seen.reason)),
            CellView(took(run.started_at, run.finished_at), "num p2"),
            CellView(at=clock.stamp(run.started_at), cls="num p2"),
        )))  # fmt: skip
    heads = {"Handler run": "", "Status": "p2", "Took": "num p2", "Started": "num p2"}
    return heads, rows


async def _versions(request: WebRequest, name: str, clock: WallClock) -> Table:
    versions = await request.client.automations.versions(name, limit=PAGE_SIZE)
    rows = [
        TableRow(str(version.version), (
            CellView(f"Version {version.version}", "", version.comment or ""),
            CellView(f"by {'a fix' if version.made_by == 'fix' else 'a deploy'}"),
            CellView(version.digest[:12], "p2 id"),
            CellView(at=clock.stamp(version.created_at), cls="num"),
        ))
        for version in versions
    ]  # fmt: skip
    heads = {"Version": "", "Made": "", "Digest": "p2", "When": "num"}
    return heads, rows


# The table of each tab.
TABLES = {
    "inputs": _inputs, "outputs": _outputs, "events": _events, "runs": _runs, "versions": _versions,
}  # fmt: skip
