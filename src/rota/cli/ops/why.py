"""`rota why`: one sentence about what ran, what did not, and for which reason."""

from __future__ import annotations

import click

from rota.cli import complete, connect, render
from rota.cli.base import BaseCommand, CommonOptions
from rota.client.client import Client
from rota.errors import BadInput, UnknownSchedule
from rota.explain.schedule import Explanation
from rota.explain.why import why as ask
from rota.schedules.asked_time import said_span
from rota.schedules.host_zone import host_zone_name
from rota.schedules.preview import read_time, zone_of


@click.command(cls=BaseCommand)
@click.argument("name", metavar="NAME", shell_complete=complete.anything)
@click.option(
    "--at", "at_text", metavar="TIME", help="Ask about a time (9am, yesterday 9:00) or a span."
)
@click.pass_obj
def why(call: CommonOptions, name: str, at_text: str | None) -> None:
    """Explain why something ran or did not run.

    NAME is a schedule, an automation, or the id of a run. Without --at it explains the last
    occurrence, or what keeps the schedule from running. It changes nothing.

    TIME is 2027-03-28T02:30, 02:30, 9am or "yesterday 9:00", in the schedule's time zone unless it
    has an offset. Without seconds it means the whole minute. A span ("last night", yesterday,
    today, a date, "last 12h") asks about all its occurrences.
    """
    answer = connect.ask(call, lambda client: _ask(client, name, at_text), notes=False)
    if call.json:
        render.document(answer._asdict())
        return
    render.explanation(answer.sentence, answer.hint)


async def _ask(client: Client, name: str, at_text: str | None) -> Explanation:
    if at_text is None:
        return await ask(client, name)
    try:
        zone = zone_of((await client.schedules.get(name)).intent.spec)
    except UnknownSchedule:
        zone = host_zone_name()
    now = client.clock.now()
    span = said_span(at_text, zone, now)
    if span is not None:
        return await ask(client, name, between=span)
    try:
        asked = read_time(at_text, zone, now)
    except BadInput as error:
        error.advice = f'{error.advice} A span is "last night", yesterday or "last 12h".'
        raise
    return await ask(client, name, at=asked)
