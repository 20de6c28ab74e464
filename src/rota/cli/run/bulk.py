"""`rota run retry --all` and `rota run cancel --all`: one verb for every run that fits."""

from __future__ import annotations

from typing import Any

import click

from rota.cli import connect, render
from rota.cli.base import CommonOptions, F
from rota.cli.run.filters import run_filters, selection
from rota.client.bulk import BulkResult, BulkVerb
from rota.client.client import Client


def many_options(command: F) -> F:
    """Give a command the options that apply it to many runs."""
    yes = click.option("--yes", is_flag=True, help="With --all: do it; otherwise only count.")
    every = click.option("--all", "every", is_flag=True, help="All runs that fit the filters.")
    return every(yes(run_filters(command)))


def check(run_id: str | None, every: bool, given: dict[str, Any]) -> None:
    """One run by its id, or all that fit: not both, not neither."""
    if every and run_id is None:
        return
    if run_id is None:
        raise click.UsageError("Missing argument 'ID', or --all with filters.")
    if every or any(given.values()):
        raise click.UsageError("an ID names one run: leave out --all and the filters.")


def apply(
    call: CommonOptions, verb: BulkVerb, given: dict[str, Any], *, yes: bool, reason: str = "retry"
) -> None:
    """Count the runs that fit, or apply the verb to them."""

    async def work(client: Client) -> BulkResult:
        chosen = selection(client, given)
        return await client.runs.apply(verb, dry_run=not yes, reason=reason, **chosen)

    done = connect.ask(call, work)
    if call.json:
        render.document(done._asdict())
        return
    more_fit = ", and more fit: repeat the command" if done.has_more else ""
    if done.dry_run:
        click.echo(f"{verb} would take {render.count(done.matched, 'run')}{more_fit}")
        if done.matched:
            click.echo(f"to {verb} them: the same command with --yes", err=True)
        return
    click.echo(f"{verb}: {render.count(len(done.run_ids), 'run')}{more_fit}")
    for run_id, why in done.refused.items():
        click.echo(f"not {run_id}: {render.clean(why)}", err=True)
