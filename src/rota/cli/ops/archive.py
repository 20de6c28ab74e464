"""`rota archive …`: finished runs leave the tables in use, by month."""

from __future__ import annotations

import click

from rota.cli import connect, render
from rota.cli.base import CommandGroup, CommonOptions


@click.group(cls=CommandGroup)
def archive() -> None:
    """Move finished runs into the archive, by month."""


@archive.command("move")
@click.option(
    "--before",
    required=True,
    metavar="MONTH",
    help="Move runs that ended before this month: 2026-10.",
)
@click.pass_obj
def move(call: CommonOptions, before: str) -> None:
    """Move finished runs of this namespace into the archive.

    Runs with an external id or a schedule stay in place with their result, so that their keys stay
    taken; only their steps move. `rota run show ID` shows archived runs, too. Safe to interrupt and
    to repeat. On PostgreSQL run it as the owner of the tables.
    """
    count = connect.ask(call, lambda client: client.operations.archive(before))
    text = f"moved {render.count(count, 'run')} that ended before {before}"
    render.report(call.json, {"before": before, "runs": count}, text)


@archive.command("list")
@click.pass_obj
def list_(call: CommonOptions) -> None:
    """List the archived months, of all namespaces."""
    months = [
        {"month": archived.month, "runs": archived.chain_count}
        for archived in connect.ask(call, lambda client: client.operations.archive_months())
    ]
    render.listing(call.json, months, dict, dict, "the archive is empty")


@archive.command("drop")
@click.argument("month", metavar="MONTH")
@click.pass_obj
def drop(call: CommonOptions, month: str) -> None:
    """Delete an archived month, of all namespaces.

    On PostgreSQL the month is the table archive_YYYY_MM: to keep it, dump it before.
    """
    connect.ask(call, lambda client: client.operations.drop_archive(month))
    render.report(call.json, {"month": month, "dropped": True}, f"deleted {month} from the archive")
