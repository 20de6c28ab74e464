"""The page of one pipeline run: items, tokens, money, failed items, results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

from rota.core.pipelines.names import pipeline_id_of
from rota.core.runs.lifecycle import OPEN, Status
from rota.core.runs.model import Run
from rota.errors import RotaError
from rota.http.pages.chart import Bar, Tile, share
from rota.http.pages.occurrence_view import Cell, LegendEntry
from rota.http.pages.run import Fact
from rota.http.pages.run_row import TRIGGERS, run_took
from rota.http.pages.runs import Chip
from rota.http.pages.status import ITEMS, StatusView, named, run_state
from rota.http.pages.text import (
    MISSING,
    Value,
    WallClock,
    clipped,
    counted,
    money,
    number,
    pretty,
    rough,
    stored_value,
    tokens,
)
from rota.http.pages.view import clock_of, form_target, link, page
from rota.http.request import Answer, Download, WebRequest
from rota.pipelines.client import PipelineClient
from rota.pipelines.outcome import ItemOutcome, ItemsPage, PipelineResult, shown_item
from rota.pipelines.snapshot import Snapshot
from rota.pipelines.snapshot import read as read_snapshot

LIVE = "pipeline run"
GRID_MAX = 1_000
FAILED_MAX = 20
FAILED_LOOKS_MAX = 10
ITEMS_SIZE = 25
RESULT_CHARS_MAX = 4_000


@dataclass(frozen=True)
class GridView:
    """All items as squares."""

    cells: Sequence[Cell]
    legend: Sequence[LegendEntry]
    line: str
    label: str
    earlier: str  # the address of the squares before
    later: str


@dataclass(frozen=True)
class ItemView:
    """One item in a table."""

    position: int
    number: str
    title: str
    error: str
    raw: str
    answer: str
    state: StatusView
    calls: str
    tokens: str
    cost: str
    detail: Value


async def show(request: WebRequest, problem: RotaError | None = None) -> Answer:
    """The page."""
    client, clock = request.client, clock_of(request)
    run = (await client.runs.chain(request.parameters["run_id"]))[-1]
    pipelines = request.pipelines
    result = await pipelines.result(run.id)
    snapshot = read_snapshot(run.input)
    wanted, href = request.query.get("status"), f"/pipeline-runs/{run.id}"
    at, after_item = _number(request, "grid"), _number(request, "after")
    item = _number(request, "item")
    if item:  # by its number: the grid and the list that have it
        at, after_item = (item - 1) // GRID_MAX * GRID_MAX, item - 1
    chosen = wanted or None
    grid = await pipelines.items_page(run.id, after=at, limit=GRID_MAX, status=chosen)
    failed = await _failed(pipelines, run.id) if result.failed else []
    listed = await pipelines.items_page(run.id, after=after_item, limit=ITEMS_SIZE, status=chosen)
    older = link(href, status=wanted, grid=at, after=listed.next)
    name = pipeline_id_of(run.name)
    output = result.output or ""
    return page(
        request, "pipeline_run.html", title=f"{name} {run.id[-8:]}", place="pipelines", live=LIVE,
        problem=problem, problem_status=HTTPStatus.CONFLICT, run=run, name=name, href=href,
        state=run_state(run), sentence=sentence_of(run, result, clock),
        follows=follows_of(run, result), tiles=tiles_of(result, snapshot),
        grid=grid_of(grid, run, at, result.total, wanted),
        item=item or "", failed=[item_view(outcome) for outcome in failed],
        failed_line=f"{number(len(failed))} of {number(result.failed)}",
        failed_all=link(href, status="failed") if result.failed > len(failed) else "",
        items=[item_view(outcome) for outcome in listed.items],
        items_line=f"{counted(len(listed.items), 'item')} shown", status_filter=wanted,
        older=f"{older}#items" if listed.next else "",
        first=f"{link(href, status=wanted, grid=at)}#items" if after_item else "",
        item_chips=item_chips(href, wanted, result),
        result=clipped_text(output), is_table=output.lstrip().startswith("|"),
        result_fields=stored_value(pretty(result.output_fields)) if result.output_fields else None,
        result_none=_no_result(run), has_output=bool(result.output_chars or output),
        facts=facts_of(run, snapshot, clock), can_stop=run.status in OPEN,
        can_retry=run.is_final and (run.status != Status.COMPLETED or run.reason == "partial"),
        retry_label=retry_label(result),
    )  # fmt: skip


def _number(request: WebRequest, name: str) -> int:
    """A number in the address; 0 if it is none."""
    text = request.query.get(name)
    return int(text) if text.isdecimal() and len(text) < 10 else 0


async def _failed(pipelines: PipelineClient, run_id: str) -> list[ItemOutcome]:
    """The first failed items. One read ends after some thousand items, so there are several."""
    failed: list[ItemOutcome] = []
    after_item = 0
    for _ in range(FAILED_LOOKS_MAX):
        page_of_items = await pipelines.items_page(
            run_id, after=after_item, limit=FAILED_MAX - len(failed), status="failed"
        )
        failed += page_of_items.items
        if page_of_items.next is None or len(failed) >= FAILED_MAX:
            break
        after_item = page_of_items.next
    return failed


def item_chips(href: str, wanted: str, result: PipelineResult) -> list[Chip]:
    """The items by what became of them; each is an address."""
    counts = {
        "": result.total, "completed": result.processed, "failed": result.failed,
        "skipped": result.skipped, "filtered": result.filtered,
    }  # fmt: skip
    return [
        Chip(ITEMS[key].word if key else "All", f"{link(href, status=key)}#grid", key == wanted,
            ITEMS[key] if key else None, number(count))
        for key, count in counts.items()
        if count or key == wanted
    ]  # fmt: skip


def retry_label(result: PipelineResult) -> str:
    """The button, with its amount."""
    return f"Retry {counted(result.failed, 'failed item')}" if result.failed else "Try again"


def sentence_of(run: Run, result: PipelineResult, clock: WallClock) -> str:
    """How far it is."""
    ended = result.processed + result.failed
    if run.status in OPEN:
        if not result.total:
            return (
                "The items are being loaded."
                if run.status == Status.RUNNING
                else "It waits for a worker."
            )
        failed = f", {number(result.failed)} of them failed" if result.failed else ""
        left = _left(run, ended, result.total, clock)
        return f"{number(ended)} of {number(result.total)} items have ended{failed}{left}."
    if run.status == Status.COMPLETED and run.reason == "partial":
        return (
            f"{number(result.failed)} of {number(result.total)} items failed; the others are done."
        )
    if run.status == Status.COMPLETED:
        return f"All {counted(result.processed, 'item')} are done."
    verb = "was cancelled" if run.status == Status.CANCELLED else run.status
    return f"The run {verb}: {result.error or run.reason}."


def _left(run: Run, ended: int, total: int, clock: WallClock) -> str:
    if not run.started_at or ended < 5 or run.status != Status.RUNNING:
        return ""
    rest = (clock.now - run.started_at) * (total - ended) // ended
    return f"; about {rough(rest)} left"


def follows_of(run: Run, result: PipelineResult) -> str:
    """The cost, and what a stop or a retry costs."""
    spent = f"{money(result.cost_usd)} is spent."
    if run.status in OPEN:
        return f"{spent} A crash or a stop now costs no answer: finished items are kept."
    if result.failed:
        return f"{spent} A retry asks only for what failed; answers are kept."
    return spent


def tiles_of(result: PipelineResult, snapshot: Snapshot) -> list[Tile]:
    """Items, money, tokens, calls."""
    ended = result.processed + result.failed
    total = max(result.total - result.filtered, ended)
    counts = f"{number(result.processed)} done, {number(result.failed)} failed"
    done_share, failed_share = share(result.processed, total), share(result.failed, total)
    bars = [Bar(0, 0, done_share, 8, "ok"), Bar(done_share, 0, failed_share, 8, "bad")]
    limits = snapshot.pipeline.settings.budget
    budget = None if limits is None else limits.max_cost
    cost, of_budget = money(result.cost_usd), "" if budget is None else f"of {money(budget)}"
    spent = () if budget is None else [Bar(0, 0, share(result.cost_usd, budget), 8, "run")]
    per_item = result.cost_usd / ended if ended else 0
    filtered = f", {number(result.filtered)} filtered" if result.filtered else ""
    unpriced = f", {number(result.unpriced_calls)} without a price" if result.unpriced_calls else ""
    lost = (
        f"{number(result.unanswered_calls)} without an answer"
        if result.unanswered_calls
        else "all answered"
    )
    if result.estimated_calls:
        lost += f", {number(result.estimated_calls)} without a count of tokens"
    if result.assumed_cost_usd:
        unpriced += f", up to {money(result.assumed_cost_usd)} assumed"
    return [
        Tile("Items", number(ended), f"of {number(total)}", f"{counts}{filtered}", meter=bars,
            meter_label=f"{counts}, of {number(total)}"),
        Tile("Cost, of the budget" if of_budget else "Cost", cost, of_budget,
            f"{money(per_item)} per item{unpriced}" if ended else "nothing asked yet",
            meter=spent, meter_label=f"{cost} {of_budget}"),
        Tile("Tokens", tokens(result.tokens),
            note=f"{tokens(result.tokens_in)} in, {tokens(result.tokens_out)} out"),
        Tile("Calls", number(result.calls), note=lost),
    ]  # fmt: skip


_KINDS = {
    "completed": ("ok", ""), "failed": ("bad", "g-x"), "running": ("run", "g-dot"),
    "skipped": ("wait", ""), "filtered": ("reuse", "g-slash"),
}  # fmt: skip


def grid_of(listed: ItemsPage, run: Run, at: int, total: int, wanted: str) -> GridView:
    """One square per item of a part of the list, in the order of the input."""
    items = listed.items
    counts: Counter[str] = Counter(item.status for item in items)
    cells = [
        Cell(
            *_KINDS[item.status], f"{item.position + 1}: {clipped(title_of(shown_item(item)), 60)}"
        )
        for item in sorted(items, key=lambda item: (item.status == "filtered", item.position))
    ]
    words = {
        "completed": "done", "filtered": "filtered", "failed": "failed",
        "skipped": "to come" if run.status in OPEN else "not begun",
    }  # fmt: skip
    legend = [
        LegendEntry(*_KINDS[key], f"{word} {number(counts[key])}")
        for key, word in words.items()
        if counts[key]
    ]
    label = ", ".join(entry.text for entry in legend)
    line = "in order of the input"
    if at or listed.next:
        end = listed.next or at + len(items)
        line = f"searched {number(at + 1)} to {number(end)} of {number(total)}, {line}"
    href = f"/pipeline-runs/{run.id}"
    earlier = f"{link(href, status=wanted, grid=max(0, at - GRID_MAX))}#grid" if at else ""
    later = f"{link(href, status=wanted, grid=listed.next)}#grid" if listed.next else ""
    return GridView(cells, legend, line, f"Items: {label}", earlier, later)


_TITLES = ("title", "name", "subject", "id", "text", "question")


def title_of(outcome: ItemOutcome) -> str:
    """The display name of an item: a field that looks like a title, or the first text."""
    for name in _TITLES:
        if isinstance(outcome.item.get(name), str | int) and outcome.item[name] != "":
            return str(outcome.item[name])
    texts = [str(value) for value in outcome.item.values() if isinstance(value, str | int)]
    return texts[0] if texts else f"item {outcome.position + 1}"


def item_view(outcome: ItemOutcome) -> ItemView:
    """An item in a table."""
    outcome = shown_item(outcome)
    answer, error = "", ""
    if outcome.error:
        error = clipped(f"{outcome.error_type or 'Error'}: {outcome.error}", 240)
    if outcome.output:
        answer = ", ".join(
            f"{value}" for value in outcome.output.values() if not isinstance(value, dict | list)
        )
    elif outcome.text:
        answer = outcome.text
    state = named(ITEMS, outcome.status)
    spent = outcome.tokens_in + outcome.tokens_out
    detail = pretty(
        {"item": outcome.item, "answer": outcome.output or outcome.text, "model": outcome.model}
    )
    return ItemView(
        outcome.position, number(outcome.position + 1), clipped(title_of(outcome), 90),
        error, clipped(outcome.raw or "", 1_000), clipped(answer, 60) or state.word, state,
        number(outcome.calls), number(spent), money(outcome.cost_usd), stored_value(detail),
    )  # fmt: skip


def clipped_text(text: str) -> str:
    """The result, or its beginning."""
    if len(text) <= RESULT_CHARS_MAX:
        return text
    return f"{text[:RESULT_CHARS_MAX]}\n… {number(len(text))} characters in all"


def _no_result(run: Run) -> str:
    if run.status in OPEN:
        return "The result is made when the last item has ended."
    return "This run has no result."


def facts_of(run: Run, snapshot: Snapshot, clock: WallClock) -> list[Fact]:
    """The facts about the run."""
    settings = snapshot.pipeline.settings
    model = snapshot.overrides.model or settings.model
    parallel = snapshot.overrides.parallel or settings.parallel
    cache = snapshot.overrides.cache_from
    facts = [
        Fact("Run", run.id, is_id=True),
        Fact("Why", TRIGGERS.get(run.trigger, run.trigger)),
        Fact("Created", clock.day(run.created_at)),
        Fact("Took", run_took(run, clock)),
        Fact("Attempt", str(run.attempt)) if run.attempt > 1 else None,
        Fact("Form", snapshot.pipeline.mode),
        Fact("Model", str(model)) if model else None,
        Fact("Parallel", f"{parallel} at once") if parallel else None,
        Fact("Queue", run.queue, link("/runs", queue=run.queue)),
        Fact("Takes over", f"answers of run {cache[-8:]}", f"/pipeline-runs/{cache}")
        if cache
        else None,
    ]
    return [fact for fact in facts if fact is not None and fact.text != MISSING]


async def output(request: WebRequest) -> Answer:
    """The whole result, as a file."""
    run_id = request.parameters["run_id"]
    chunks = request.pipelines.output(run_id)
    return Download(chunks, headers={"content-disposition": f'attachment; filename="{run_id}.txt"'})


# -- forms --------------------------------------------------------------------------------------


@form_target(show)
async def retry(request: WebRequest) -> str:
    """One more attempt, for what failed."""
    run = await request.pipelines.retry(request.parameters["run_id"])
    return f"/pipeline-runs/{run.id}?done=retried"


@form_target(show)
async def cancel(request: WebRequest) -> str:
    """Stop it; finished items are kept."""
    run_id = request.parameters["run_id"]
    await request.client.runs.cancel(run_id, reason=f"by {request.identity.name}")
    return f"/pipeline-runs/{run_id}?done=cancelled"
