"""`rota`: all commands under one name."""

from __future__ import annotations

from importlib.metadata import version

import click

from rota.cli import exits
from rota.cli.answers import approve, reject, resolve
from rota.cli.automation import automation
from rota.cli.base import Root
from rota.cli.database import doctor, migrate
from rota.cli.metrics import metrics
from rota.cli.next import next_
from rota.cli.pipeline import pipeline
from rota.cli.runs import run
from rota.cli.schedule import schedule
from rota.cli.scheduler import scheduler
from rota.cli.up import up
from rota.cli.why import why
from rota.cli.workers import queue, worker

EPILOG = "\b\nExit codes:\n" + "\n".join(
    f"  {code:<5}{meaning}" for code, meaning in exits.MEANINGS.items()
)


def _version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        click.echo(f"rota {version('rota')}")
        context.exit()


@click.group("rota", cls=Root, epilog=EPILOG)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version,
    help="Show the version and exit.",
)  # fmt: skip
def cli() -> None:
    """Rota runs what must run, once, and says why it did or did not."""


for answer in (approve, reject, resolve):
    run.add_command(answer)
for command in (
    up,
    run,
    schedule,
    automation,
    pipeline,
    scheduler,
    why,
    next_,
    worker,
    queue,
    migrate,
    doctor,
    metrics,
):
    cli.add_command(command)


def main() -> None:
    """The entry point of the installed command."""
    cli()
