"""The list of pipeline runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from rota.core.pipelines.names import run_name
from rota.core.runs.model import Run
from rota.http.pages.run_row import RunRowView, run_row
from rota.http.pages.text import MISSING, WallClock, counted, money, number, tokens
from rota.http.pages.view import SEARCH_FROM, clock_of, link, page
from rota.http.request import Answer, WebRequest
from rota.pipelines.executor import PART_NAME
from rota.pipelines.outcome import PipelineResult

LIVE = "pipeline run"
PAGE_SIZE = 50


@dataclass(frozen=True)
class PipelineRow:
    """One run of a pipeline, with the numbers of its result."""

    run: RunRowView
    schedule: bool
    items: str
    failed: str
    tokens: str
    cost: str
    spent: float


async def show(request: WebRequest) -> Answer:
    """The page."""
    clock, query = clock_of(request), request.query
    name, before, search = query.get("name"), query.get("before"), query.get("q").strip()
    listed = await request.client.runs.page(
        kind="pipeline", name=run_name(name) if name else "", search=search,
        after=before or None, limit=PAGE_SIZE,
    )  # fmt: skip
    rows = [row_of(run, clock) for run in listed.runs if run.name != PART_NAME]
    older = link("/pipelines", name=name, q=search, before=listed.next) if listed.next else ""
    headline, context = sentences(rows, name)
    is_filtered = bool(name or search or before)
    return page(
        request, "pipelines.html", title="Pipelines", place="pipelines", live=LIVE,
        headline=headline, context=context, rows=rows, older=older, search=search, name=name,
        newest=link("/pipelines", name=name, q=search) if before else "",
        is_filtered=is_filtered, is_long=len(rows) > SEARCH_FROM or is_filtered,
        shown=f"{counted(len(rows), 'run')} shown",
    )  # fmt: skip


def result_of(run: Run) -> PipelineResult | None:
    """The stored result, if the run has one that can be read."""
    if run.output is None:
        return None
    try:
        return msgspec.json.decode(run.output, type=PipelineResult)
    except (msgspec.DecodeError, RecursionError):
        return None


def row_of(run: Run, clock: WallClock) -> PipelineRow:
    """The row of a run."""
    result, row = result_of(run), run_row(run, clock)
    return PipelineRow(
        run=row, schedule=run.schedule_id is not None,
        items=number(result.total) if result else MISSING,
        failed=number(result.failed) if result else MISSING,
        tokens=tokens(result.tokens) if result else MISSING,
        cost=money(result.cost_usd) if result else MISSING,
        spent=result.cost_usd if result else 0.0,
    )  # fmt: skip


def sentences(rows: Sequence[PipelineRow], name: str) -> tuple[str, str]:
    """The state of the pipelines."""
    if not rows:
        return "No pipeline has run yet.", ""
    running = sum(row.run.state.word == "Running" for row in rows)
    bad = sum(bool(row.run.mark) for row in rows)
    head = f"{counted(running, 'run')} in progress." if running else "Nothing runs now."
    spent = sum(row.spent for row in rows)
    of = f" of {name}" if name else ""
    newest = "run" if len(rows) == 1 else counted(len(rows), "run")
    cost = f"The newest {newest}{of} cost {money(spent)}."
    return head, f"{cost} {bad} did not complete." if bad else cost
