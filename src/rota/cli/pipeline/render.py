"""`rota pipeline render`: the prompts and the cost, before a model is called."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click
import msgspec

from rota.ai.registry import invoker_of
from rota.cli import complete, render
from rota.cli.base import BaseCommand, CommonOptions, is_given
from rota.cli.pipeline import text
from rota.cli.pipeline.options import AI, choices, piped, prepare
from rota.pipelines.preview.dry_run import DryRunOptions, Forecast, PreviewedPrompt, Share, dry_run


@click.command("render", cls=BaseCommand)
@complete.PATH
@choices
@click.option(
    "--first", type=click.IntRange(0), default=1, show_default=True, metavar="N",
    help="Show N prompts of each part.",
)  # fmt: skip
@click.option("--all", "every", is_flag=True, help="Show all prompts.")
@AI
@click.option("--run-commands", is_flag=True, help="Run the command that the items come from.")
@click.pass_obj
def render_(
    call: CommonOptions,
    /,
    path: str,
    *,
    first: int,
    every: bool,
    ai: Path | None,
    run_commands: bool,
    model: str | None,
    **chosen: Any,
) -> None:
    """Show the prompts and estimate the cost; call no model.

    The dry run: the prompts as a run would send them, and the calls, tokens and cost of all of it.
    Every item is read and counted, and the first prompts are shown. Nothing is stored, no AI is
    called, no command is run (but see --run-commands). Rota estimates numbers that only a run can
    know, and the notes say how. PATH is as for `rota pipeline show`.
    """
    if every and is_given("first"):
        raise click.UsageError("--all shows every prompt: omit --first.")
    prepared = prepare(path, **chosen)
    gallery = _Gallery(None if every else first, as_json=call.json)
    options = DryRunOptions(
        parameters=prepared.given, model=model, runs_commands=run_commands, stdin=piped()
    )
    forecast = asyncio.run(dry_run(prepared.loaded, invoker_of(ai), options, gallery.show))
    if call.json:
        render.document(_document(prepared.loaded.pipeline_id, forecast, gallery.kept))
    else:
        _page(forecast, gallery, text.budget_words(prepared.loaded.pipeline.settings.budget))


class _Gallery:
    """Shows prompts as they come, so many of each part."""

    def __init__(self, most: int | None, *, as_json: bool) -> None:
        self._most, self._as_json = most, as_json
        self._counts: dict[str, int] = {}
        self.kept: list[PreviewedPrompt] = []
        self.hidden = 0

    def show(self, asked: PreviewedPrompt) -> None:
        """Print or keep one, if it is among those wanted."""
        count = self._counts[asked.place] = self._counts.get(asked.place, 0) + 1
        if self._most is not None and count > self._most:
            self.hidden += 1
            return
        if self._as_json:
            self.kept.append(asked)
            return
        item = f", item {asked.number}" if asked.number is not None else ""
        model = asked.model or "no model"
        click.secho(f"--- {asked.place}{item} ({model})", bold=True)
        render.whole(asked.prompt)
        click.echo()


def _page(forecast: Forecast, gallery: _Gallery, budget: str | None) -> None:
    total = forecast.total()
    shares = [*forecast.shares, total] if len(forecast.shares) != 1 else forecast.shares
    rows = [
        {
            "part": share.place, "calls": _bounded(share, share.calls),
            "tokens in": _bounded(share, share.tokens_in),
            "tokens out": _bounded(share, share.tokens_out), "cost": _cost(share),
        }
        for share in shares
    ]  # fmt: skip
    render.table(rows, "no calls")
    click.echo()
    if forecast.items is not None:
        kept = f", {forecast.kept} after the filter" if forecast.kept not in (
            None, forecast.items) else ""  # fmt: skip
        click.echo(f"items: {forecast.items}{kept}")
    if budget is not None:
        click.echo(f"budget: {budget}")
    if gallery.hidden:
        click.echo(f"prompts not shown: {gallery.hidden} (--first N or --all shows them)")
    for note in forecast.notes:
        click.echo(f"note: {render.clean(note)}")
    click.echo("Dry run: no model was called and nothing was saved")


def _bounded(share: Share, number: object) -> str:
    return f"{'≤ ' if share.is_bound else '≥ ' if share.is_open else ''}{number}"


def _cost(share: Share) -> str:
    """Dollars, or a question mark where a price is not known."""
    return "?" if share.cost_usd is None else _bounded(share, f"${share.cost_usd:.4f}")


def _document(
    pipeline_id: str, forecast: Forecast, prompts: list[PreviewedPrompt]
) -> dict[str, Any]:
    return {
        "pipeline": pipeline_id,
        "items": forecast.items,
        "kept": forecast.kept,
        "parts": msgspec.to_builtins(forecast.shares),
        "total": msgspec.to_builtins(forecast.total()),
        "notes": forecast.notes,
        "prompts": msgspec.to_builtins(prompts),
    }
