"""`rota automation resolve`: one answer for many automations; and the options of all answers."""

from __future__ import annotations

from typing import Any, get_args

import click

from rota.cli import connect, render, values
from rota.cli.base import BaseCommand, CommonOptions, F
from rota.client.answers import Answer

RESULT = click.option("--result", metavar="JSON", help="With happened: the tool's result, as JSON.")


def PERSON(command: F) -> F:  # noqa: N802 - a pair of options
    """Who answers, and why."""
    noted = click.option("--note", help="Reason, stored with the answer.")(command)
    return click.option("--by", metavar="NAME", help="Name of the operator. Default: you.")(noted)


def result_of(text: str | None) -> Any:
    """The result of a change as a person gives it: JSON, or otherwise a string."""
    return None if text is None else values.loose(text)


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
    *,
    how: Answer,
    name: str,
    reason: str | None,
    tool: str | None,
    yes: bool,
    result: str | None,
    by: str | None,
    note: str | None,
) -> None:
    """Resolve all automations that wait for the same answer.

    HOW is approve, reject, try-again, happened, did-not-happen or skip. Without --yes nothing is
    changed: the automations are counted and listed.
    """

    done = connect.ask(
        call,
        lambda client: client.automations.answer_all(
            how, dry_run=not yes, result=result_of(result), name=name, reason=reason, tool=tool,
            by=by, note=note,
        ),
    )  # fmt: skip
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
