"""`rota pipeline bill`: the calls of a run, to compare with the bill of the provider."""

from __future__ import annotations

import click
import msgspec

from rota.cli import complete, connect, render
from rota.cli.base import BaseCommand, CommonOptions
from rota.cli.pipeline.progress import money
from rota.cli.pipeline.runner import chosen_run, client_of, never_ran
from rota.client.client import Client
from rota.pipelines.definition.locate import locate
from rota.pipelines.outcome import CostReport, ItemOutcome
from rota.pipelines.run import assumed_costs, result_reader

WHY_WIDTH = 40


@click.command("bill", cls=BaseCommand)
@complete.PATH
@click.option("--run", "run_id", metavar="ID", help="This run, instead of the newest one.")
@click.option("--call", "name", metavar="CALL", help="Correct this call: its number or request id.")
@click.option("--cost", type=float, metavar="USD", help="Set the true cost of --call.")
@click.pass_obj
def cost_report(
    call: CommonOptions, path: str, run_id: str | None, name: str | None, cost: float | None
) -> None:
    """List assumed costs and the request ids of a run.

    A call without an answer, or without a believable count of tokens, is assumed to cost its
    maximum. Compare these calls with the bill of the provider, and correct them with --call and
    --cost. The budget of a later `resume` counts the correction.
    """
    if (name is None) != (cost is None):
        raise click.UsageError("--call and --cost belong together.")
    place = locate(path)
    client = client_of(call, place)
    if client is None:
        raise never_ran(place)

    async def read(opened: Client) -> tuple[str, CostReport, list[ItemOutcome]]:
        run = await chosen_run(opened, place, run_id)
        reader = (await result_reader.find(opened, run.root_id)).reader
        if name is not None and cost is not None:
            await assumed_costs.correct(opened, reader, name, cost)
        found, _ = await assumed_costs.of_run(reader)
        items = [each async for each in result_reader.items(opened, run.root_id) if each.requests]
        return run.root_id, found, items

    root_id, found, items = connect.run(client, read)
    if call.json:
        render.document({"run": root_id} | msgspec.to_builtins(found) | {
            "items": [{"position": each.position, "requests": each.requests, "model": each.model,
                       "cost_usd": each.cost_usd} for each in items]
        })  # fmt: skip
        return
    _page(root_id, path, found, len(items))


def _page(root_id: str, path: str, found: CostReport, items: int) -> None:
    render.say(
        f"run {root_id}: {render.count(found.calls, 'call')}, {money(found.cost_usd)} certain, "
        f"up to {money(found.assumed_cost_usd)} assumed"
    )
    rows = [
        {
            "#": number + 1, "at": each.at or "-", "model": each.model,
            "request": each.request_id or "-", "at most": money(each.cost_usd),
            "corrected": "-" if each.corrected_usd is None else money(each.corrected_usd),
            "why": render.short(each.why, WHY_WIDTH),
        }
        for number, each in enumerate(found.assumed)
    ]  # fmt: skip
    render.table(rows, "no assumed costs")
    if items:
        click.echo(
            f"request ids of {render.count(items, 'item')}: rota pipeline bill {path} --json",
            err=True,
        )
