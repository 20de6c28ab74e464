"""`rota open`: the dashboard in a browser, with a login link where one is needed."""

from __future__ import annotations

import sys
import webbrowser

import click

from rota.cli import connect, render
from rota.cli.base import BaseCommand, CommonOptions
from rota.client.client import Client
from rota.errors import UsageError


@click.command("open", cls=BaseCommand)
@click.option("--http", "address", metavar="HOST:PORT", help="Address of the server.")
@click.option("--print", "only_print", is_flag=True, help="Print the address only.")
@click.pass_obj
def open_(call: CommonOptions, address: str | None, only_print: bool) -> None:
    """Open the dashboard in a browser.

    Prints its address. If a login is needed, the address logs in once, within a minute.
    """
    from rota.http import address as addresses

    options = connect.http_options(connect.project_of(call), address)

    async def query(client: Client) -> str:
        found = addresses.find(options, addresses.store_key(client))
        if found is None:
            raise UsageError(
                "no server of this database answers",
                hint="Start one with `rota up` or `rota serve`, or name it with --http.",
            )
        return found if options.is_free else f"{found}/open/{await client.sessions.link()}"

    found = connect.ask(call, query)
    if call.json:
        render.document({"address": found})
        return
    click.echo(found)
    if not only_print and sys.stdout.isatty():
        webbrowser.open(found)
