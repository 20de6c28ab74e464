"""`rota run start`: start a run and, on request, wait for its result."""

from __future__ import annotations

from typing import Any

import click

from rota.cli import argument_values, complete, connect, render
from rota.cli.base import BaseCommand, CommonOptions
from rota.cli.run.wait import Waiter
from rota.client.client import Client
from rota.client.handle import RunHandle
from rota.client.start import StartOptions
from rota.core.time.instants import micros
from rota.errors import BadInput


@click.command(cls=BaseCommand)
@click.argument("name", shell_complete=complete.workflows)
@click.argument("arguments", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "--input", "source", metavar="JSON", help="All arguments: JSON, @file, or - for stdin."
)
@click.option(
    "--external-id", metavar="ID", help="Start it once: the same id finds this workflow's run."
)
@click.option("--queue", help="Queue. Default: the workflow's.", shell_complete=complete.queues)
@click.option("--priority", type=int, help="Priority, higher first. Default: the workflow's.")
@click.option("--delay", metavar="DURATION", help="Start later: 90s, 5m, 1h30m.")
@click.option(
    "--at",
    "at_text",
    metavar="TIME",
    help="Start at: 2030-01-31T09:00, this machine's zone if none.",
)
@click.option("--key", help="Concurrency key, for queues with a limit per key.")
@click.option("--tag", "tags", multiple=True, metavar="KEY=VALUE", help="Label; may be repeated.")
@click.option("--wait", is_flag=True, help="Wait for the end and print the result.")
@click.option("--timeout", metavar="DURATION", help="With --wait: longest wait.")
@click.pass_obj
def start(
    call: CommonOptions,
    /,
    name: str,
    arguments: tuple[str, ...],
    source: str | None,
    tags: tuple[str, ...],
    wait: bool,
    timeout: str | None,
    **options: Any,
) -> None:
    """Start a run of workflow NAME.

    VALUE is JSON if it parses as JSON, otherwise a string: count=3 flag=true who=Ann.
    With a project, the arguments are checked against the workflow; with only --database they are
    sent unchanged.
    """
    given = argument_values.arguments(arguments, source)
    chosen = _start_options(tags, **options)
    waiter = Waiter(call, timeout, waits=wait)

    async def begin(client: Client, workflow: Any, kwargs: dict[str, Any]) -> None:
        ref = await client.options(**chosen).start(workflow, **kwargs)
        _report(call, ref, name, waits=wait)
        if wait:
            await waiter.wait(client, ref.id, existed=ref.existed)

    waiter.run(lambda: connect.run_checked(call, name, given, begin))


def _start_options(
    tags: tuple[str, ...], delay: str | None, at_text: str | None, **given: Any
) -> StartOptions:
    """The options that were given, refused before anything is started if they make no sense."""
    if delay is not None and at_text is not None:
        raise BadInput("give --delay or --at, not both")
    if delay is not None:
        micros(delay)
    at = None if at_text is None else argument_values.instant(at_text)
    return {**given, "delay": delay, "at": at, "tags": argument_values.pairs(tags, "a tag") or None}  # type: ignore[typeddict-item]


def _report(call: CommonOptions, ref: RunHandle[Any], name: str, *, waits: bool) -> None:
    """Print the id: on stdout, or on stderr when stdout is for the result."""
    if call.json:
        if not waits:
            render.document({"id": ref.id, "name": name, "existed": ref.existed})
        return
    what = "existed already" if ref.existed else "started"
    click.echo(f"run {ref.id} ({name}) {what}", err=waits)
