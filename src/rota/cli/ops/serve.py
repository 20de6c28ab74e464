"""`rota serve` and `rota open`: API and dashboard in a process of their own, and in a browser."""

from __future__ import annotations

import asyncio
import logging
import sys
import webbrowser

import click
import msgspec

from rota.cli import complete, connect, exit_codes, render
from rota.cli.base import BaseCommand, CommonOptions
from rota.cli.ops.up import StopSignals, write_logs
from rota.client.client import Client
from rota.errors import UsageError
from rota.http.server import HttpServer, require_installed

log = logging.getLogger("rota.serve")


@click.command(cls=BaseCommand)
@click.argument("target", required=False, shell_complete=complete.files)
@click.option(
    "--http", "address", metavar="HOST:PORT", help="Address to listen on. [127.0.0.1:8420]"
)
@click.option(
    "--socket", metavar="PATH", type=click.Path(), help="Listen on a Unix socket instead."
)
@click.pass_obj
def serve(call: CommonOptions, target: str | None, address: str | None, socket: str | None) -> int:
    """Serve the API and dashboard without a worker.

    TARGET is a project, as for `rota up`; --database alone is enough to show and manage. The
    database must exist: `rota up` and `rota migrate` create it.

    A Unix socket has the mode 0600: only this user can connect, and may do everything.
    """
    require_installed()
    if address and socket:
        raise click.UsageError("--http and --socket are two places: give one.")
    call.project = target or call.project
    options = connect.http_options(connect.project_of(call), address)
    if socket:
        options = msgspec.structs.replace(options, socket=socket)
    client = connect.client_of(call)
    write_logs(call)
    return asyncio.run(_serve(client, HttpServer(client, options)))


async def _serve(client: Client, server: HttpServer) -> int:
    signals = StopSignals()
    signals.listen()
    await client.connect()
    try:
        await server.start()
        log.info("API and dashboard: %s", server.address)
        await signals.stop.wait()
    finally:
        await server.stop()
        await client.close()
    return exit_codes.OK


@click.command("open", cls=BaseCommand)
@click.option("--http", "address", metavar="HOST:PORT", help="Address of the server.")
@click.option("--print", "only_print", is_flag=True, help="Print the address only.")
@click.pass_obj
def open_(call: CommonOptions, address: str | None, only_print: bool) -> None:
    """Open the dashboard in a browser.

    Prints its address. If a login is needed, the address holds a login link. It works once, within
    a minute.
    """
    from rota.http import address as addresses  # loads http.client

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
