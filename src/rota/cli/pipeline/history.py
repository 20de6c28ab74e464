"""`rota pipeline history`: how a pipeline's runs went, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from rota.cli import complete, connect, render
from rota.cli.base import BaseCommand, CommonOptions, is_given, limit_option
from rota.cli.pipeline.progress import money
from rota.cli.pipeline.run import result_document, summary
from rota.cli.pipeline.runner import chosen_run, client_of, never_ran, runs_of
from rota.client.client import Client
from rota.core.runs.ids import short_id
from rota.core.runs.model import Run
from rota.core.runs.stored_errors import read_error
from rota.core.time.instants import iso_if_known
from rota.errors import WrongState
from rota.pipelines.definition.locate import locate
from rota.pipelines.outcome import ItemOutcome, PipelineResult, shown_item
from rota.pipelines.run import result_reader

ITEM_WIDTH, MODELS_WIDTH = 40, 60
GOOD = {"completed": 1, "filtered": 2}  # the order in which items are shown
RESULT_WIDTH = 60


class HistoryEntry(NamedTuple):
    """A chain: its newest attempt, and what came of it."""

    run: Run
    result: PipelineResult | None  # None: an occurrence that was skipped
    attempts: Sequence[Run]  # all of the chain, the first one first

    @property
    def first(self) -> Run:
        """The attempt that began it: what started the run, and when."""
        return self.attempts[0]

    @property
    def took_us(self) -> int | None:
        """How long its attempts took together; None while one is in progress."""
        ends = [
            (attempt.started_at, attempt.finished_at)
            for attempt in self.attempts
            if attempt.started_at
        ]
        if not ends or any(end is None for _, end in ends):
            return None
        return sum((end or 0) - (start or 0) for start, end in ends)

    @property
    def outcome(self) -> str:
        """The outcome, or the progress so far."""
        if self.result is None or not self.run.is_final:
            return self.run.label
        return self.result.outcome


@click.command("history", cls=BaseCommand)
@complete.PATH
@limit_option(text="How many runs; with --run, how many items.")
@click.option("--run", "run_id", metavar="ID", help="Show the items and errors of this run.")
@click.option("--result", is_flag=True, help="Print only the result of the (newest) run.")
@click.pass_obj
def history(call: CommonOptions, path: str, limit: int, run_id: str | None, result: bool) -> None:
    """List runs of a pipeline: outcome, cost, model, definition.

    Runs started by hand and by its schedule, as far as they are in the same database (see `rota
    pipeline run`). With --run it lists the items of one run with their outcomes; with --result it
    prints the result.
    """
    if result and is_given("limit"):
        raise click.UsageError("--result prints one result: omit --limit.")
    place = locate(path)
    client = client_of(call, place)
    if run_id is not None or result:
        _one(call, client, place, run_id, limit, result=result)
        return
    entries: Sequence[HistoryEntry] = []
    if client is not None:
        entries = connect.run(client, lambda opened: _entries(opened, place, limit))
    now = client.clock.now() if client else 0
    render.listing(
        call.json, entries, document, lambda entry: _row(entry, now),
        f"no runs yet; `rota pipeline run {path}` makes one", optional=["note"],
        page=render.NextPage(limit),
    )  # fmt: skip
    if entries and not call.json:
        click.echo(f"more about one: rota pipeline history {path} --run ID", err=True)


# -- one run -----------------------------------------------------------------------------------


def _one(
    call: CommonOptions,
    client: Client | None,
    path: Path,
    run_id: str | None,
    limit: int,
    *,
    result: bool,
) -> None:
    if client is None:
        raise never_ran(path)
    entry, outcome, items = connect.run(client, lambda opened: _read(opened, path, run_id))
    root_id = entry.run.root_id
    if result:
        if outcome.output is None:
            raise WrongState(
                f"run {root_id} is {entry.run.label}: it has no result",
                hint=f"Its items: `rota pipeline history {path} --run {root_id}`.",
            )
        render.whole(outcome.output)
    elif call.json:
        listed = {"items": msgspec.to_builtins(items)}
        render.document({"run": root_id} | result_document(outcome) | listed)
    else:
        _page(entry, outcome, items, path, limit)


async def _read(
    client: Client, path: Path, run_id: str | None
) -> tuple[HistoryEntry, PipelineResult, list[ItemOutcome]]:
    run = await chosen_run(client, path, run_id)
    result = await result_reader.result(client, run.root_id)
    items = [shown_item(item) async for item in result_reader.items(client, run.root_id)]
    return HistoryEntry(run, result, await client.runs.chain(run.root_id)), result, items


def _page(
    entry: HistoryEntry,
    result: PipelineResult,
    items: Sequence[ItemOutcome],
    path: Path,
    limit: int,
) -> None:
    run = entry.run
    outcome = run.label if run.status == "skipped" else entry.outcome
    render.say(f"run {run.root_id}  {render.coloured(summary(result, outcome))}")
    render.facts([
        ("trigger", entry.first.trigger), ("attempt", run.attempt),
        ("started", render.clock(entry.first.started_at)),
        ("models", ", ".join(result.models)), ("definition", result.definition),
        ("results", result.result_file and path / result.result_file), ("error", result.error),
    ])  # fmt: skip
    render.heading("items")
    # People look for failures first; these must not be hidden among thousands.
    shown = sorted(items, key=lambda item: (GOOD.get(item.status, 0), item.position))[:limit]
    rows = [
        {
            "#": "-" if item.status == "filtered" else item.position + 1,
            "item": render.short(msgspec.json.encode(item.item).decode(), ITEM_WIDTH),
            "status": item.status, "result": _result_of(item),
        }
        for item in shown
    ]  # fmt: skip
    render.table(rows, "no items")
    if more := len(items) - len(shown):
        click.echo(f"and {more} more: --limit N, or --json for all", err=True)


def _result_of(item: ItemOutcome) -> str:
    if item.error:
        return render.short(f"{item.error_type}: {item.error}", RESULT_WIDTH)
    if item.output is not None:
        return render.short(msgspec.json.encode(item.output).decode(), RESULT_WIDTH)
    return render.short(item.text or item.reason or "", RESULT_WIDTH)


# -- the list ----------------------------------------------------------------------------------


async def _entries(client: Client, path: Path, limit: int) -> Sequence[HistoryEntry]:
    """Chains by their newest attempts."""
    chains: dict[str, Run] = {}
    async with aclosing(runs_of(client, path, limit)) as runs:
        async for run in runs:
            chains.setdefault(run.root_id, run)
            if len(chains) == limit:
                break
    entries = []
    for run in chains.values():
        result: PipelineResult | None = None
        if run.output:
            result = msgspec.json.decode(run.output, type=PipelineResult)
        elif run.status != "skipped":  # not ended, or cut off: counted from what it has stored
            result = await result_reader.result(client, run.root_id)
        attempts = [run] if run.id == run.root_id else await client.runs.chain(run.root_id)
        entries.append(HistoryEntry(run, result, attempts))
    return entries


def document(entry: HistoryEntry) -> dict[str, Any]:
    """A run for machines."""
    run = entry.run
    return {
        "run": run.root_id, "outcome": entry.outcome, "status": run.label,
        "trigger": entry.first.trigger, "attempt": run.attempt,
        "started_at": iso_if_known(entry.first.started_at),
        "finished_at": iso_if_known(run.finished_at),
        "result": None if entry.result is None else result_document(entry.result),
        "error": render.parsed(run.error),
    }  # fmt: skip


def _row(entry: HistoryEntry, now: int) -> render.Row:
    run, result = entry.run, entry.result
    note = read_error(run.error)["message"] if run.error else ""
    items, cost, models, definition = "-", "-", "-", "-"
    if result is not None:
        items = f"{result.processed}/{result.total}"
        models, definition = ", ".join(result.models) or "-", result.definition[:8] or "-"
        cost = money(result.cost_usd) + ("+" if result.unpriced_calls else "")
        note = "; ".join(filter(None, (f"{result.failed} failed" if result.failed else "", note)))
    return {
        "run": short_id(run.root_id), "status": entry.outcome, "trigger": entry.first.trigger,
        "started": render.ago(entry.first.started_at, now),
        "took": "-" if entry.took_us is None else render.took(0, entry.took_us),
        "items": items, "cost": cost, "definition": definition,
        "models": render.short(models, MODELS_WIDTH),
        "note": render.short(note.partition("\n")[0], 60),
    }  # fmt: skip
