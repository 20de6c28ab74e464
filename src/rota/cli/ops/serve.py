"""`rota serve`: API and dashboard in a process of their own."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import TYPE_CHECKING

import click

from rota.cli import complete, connect, exit_codes
from rota.cli.base import BaseCommand, CommonOptions
from rota.cli.ops.up import write_logs

if TYPE_CHECKING:
    from rota.client.client import Client
    from rota.http.server import HttpServer

log = logging.getLogger("rota.serve")


@click.command(cls=BaseCommand)
@click.argument("target", required=False, shell_complete=complete.files)
@click.option(
    "--http", "address", metavar="HOST:PORT", help="Address to listen on. [127.0.0.1:8420]"
)
@click.pass_obj
def serve(call: CommonOptions, target: str | None, address: str | None) -> int:
    """Serve the API and dashboard without a worker.

    TARGET is a project, as for `rota up`; --database alone is enough to show and manage. The
    database must exist: `rota up` and `rota migrate` create it.
    """
    from rota import project
    from rota.http import server

    server.require_installed()
    call.project = target or call.project
    found = connect.project_of(call)
    options = connect.http_options(found, address)
    client = client_of(call)
    project.must_exist(client.url)
    client.migrates = False
    write_logs(call)
    return asyncio.run(_serve(client, server.HttpServer(client, options)))


def client_of(call: CommonOptions) -> Client:
    """The project's app, which knows its workflows; without one, a bare client."""
    from rota.client.client import Client

    found = connect.project_of(call)
    if found is not None and found.app is not None:
        return connect.app_of(call, found)
    place = connect.place_of(call)
    return Client(place.url, settings=place.settings)


async def _serve(client: Client, server: HttpServer) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await client.connect()
    try:
        await server.start()
        log.info("API and dashboard: %s", server.address)
        await stop.wait()
    finally:
        await server.stop()
        await client.close()
    return exit_codes.OK
