"""`rota automation resolve`: one answer for many automations; and the options of all answers."""

from __future__ import annotations

from typing import Unpack, get_args

import click

from rota.cli import argument_values, connect, render
from rota.cli.base import BaseCommand, CommonOptions, option_group
from rota.client.answers import Answer, BulkAnswer, BulkOptions
from rota.client.client import Client

RESULT = click.option("--result", metavar="JSON", help="With happened: the tool's result, as JSON.")

# Who answers, and why.
PERSON = option_group(
    click.option("--by", metavar="NAME", help="Name of the operator. Default: you."),
    click.option("--note", metavar="WHY", help="Reason, stored with the answer."),
)


@click.command("resolve", cls=BaseCommand)
@click.argument("how", type=click.Choice(get_args(Answer)), metavar="HOW")
@click.option("--name", default="*", metavar="PATTERN", help="Only these automations.")
@click.option("--reason", help="Only runs that wait for this: transient, reconciliation …")
@click.option("--tool", help="Only changes of this tool.")
@click.option("--yes", is_flag=True, help="Answer them. Without it they are only counted.")
@RESULT
@PERSON
@click.pass_obj
def resolve(
    call: CommonOptions,
    /,
    how: Answer,
    yes: bool,
    result: str | None,
    **chosen: Unpack[BulkOptions],
) -> None:
    """Resolve all automations that wait for the same answer.

    HOW is approve, reject, try-again, happened, did-not-happen or skip. Without --yes nothing is
    changed: the automations are counted and listed.
    """

    async def answer(client: Client) -> BulkAnswer:
        given = argument_values.loose(result)
        return await client.automations.answer_all(how, dry_run=not yes, result=given, **chosen)

    done = connect.ask(call, answer)
    if call.json:
        render.document({
            "answer": how, "dry_run": not yes, "count": done.count, "names": done.names,
            "refused": done.refused,
        })  # fmt: skip
        return
    counted = render.count(done.count, "automation")
    click.echo(f"{how}: {counted} answered" if yes else f"{how} would answer {counted}")
    for automation in done.names:
        click.echo(f"  {render.clean(automation)}")
    for automation, why in done.refused.items():
        click.echo(f"  {render.clean(automation)} was not answered: {render.clean(why)}", err=True)
    if done.names and not yes:
        click.echo("to answer them: the same command with --yes", err=True)
