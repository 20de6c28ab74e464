"""`rota disarm` and `rota arm`: keep a copy of a database from acting."""

from __future__ import annotations

import click

from rota.cli import connect, render
from rota.cli.base import BaseCommand, CommonOptions
from rota.client.client import Client
from rota.client.operations import Disarmed
from rota.core.time.instants import iso_if_known


@click.command(cls=BaseCommand)
@click.option("--reason", default="by an operator", metavar="TEXT", help="Reason, shown to others.")
@click.pass_obj
def disarm(call: CommonOptions, reason: str) -> None:
    """Keep a database from acting until `rota arm`.

    For a restored copy, before the first worker starts on it. No schedule fires, no run is claimed,
    no notification is sent, nothing is deleted, in any namespace. Running workers notice it at
    their next heartbeat, and finish the runs that they hold.
    """

    async def switch(client: Client) -> tuple[str, Disarmed, int]:
        disarmed = await client.operations.disarm(reason=reason)
        return client.connection.database.place, disarmed, len(await client.workers())

    where, disarmed, on = connect.ask(call, switch, notes=False)
    if call.json:
        since = iso_if_known(disarmed.at)
        render.document({"database": where, "disarmed_at": since, "reason": disarmed.reason})
        return
    render.say(f"{where} is disarmed: nothing fires, runs or is sent until `rota arm`")
    if on:
        render.say(
            f"{render.count(on, 'worker')} may be running: they notice it at their next heartbeat"
        )


@click.command(cls=BaseCommand)
@click.pass_obj
def arm(call: CommonOptions) -> None:
    """Let a disarmed database act again.

    Workers begin at their next heartbeat. Schedules treat what they missed by their policy.
    """

    async def switch(client: Client) -> tuple[str, Disarmed | None]:
        return client.connection.database.place, await client.operations.arm()

    where, ended = connect.ask(call, switch, notes=False)
    text = " already" if ended is None else ": workers begin at their next heartbeat"
    facts = {"database": where, "was_disarmed": ended is not None}
    render.report(call.json, facts, f"{where} is armed{text}")
