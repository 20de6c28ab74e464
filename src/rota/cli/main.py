"""`rota`: all commands under one name."""

from __future__ import annotations

import click

from rota.cli import exit_codes
from rota.cli.automation.commands import automation
from rota.cli.base import Root
from rota.cli.notification.commands import notification
from rota.cli.ops.access import audit, token
from rota.cli.ops.archive import archive
from rota.cli.ops.check import check
from rota.cli.ops.database import arm, backup, disarm, doctor, migrate
from rota.cli.ops.deploy import deploy
from rota.cli.ops.mcp import mcp
from rota.cli.ops.metrics import metrics
from rota.cli.ops.serve import open_, serve
from rota.cli.ops.up import up
from rota.cli.ops.why import why
from rota.cli.ops.workers import queue, worker
from rota.cli.pipeline.groups import pipeline, scheduler
from rota.cli.run.commands import run
from rota.cli.schedule.commands import schedule
from rota.cli.schedule.next import next_

EPILOG = "\b\nExit codes:\n" + "\n".join(
    f"  {code:<5}{meaning}" for code, meaning in exit_codes.MEANINGS.items()
)


@click.group("rota", cls=Root, epilog=EPILOG)
@click.version_option(package_name="rota", message="rota %(version)s")
def cli() -> None:
    """Run durable workflows, schedules, automations and pipelines."""


for command in (
    up,
    serve,
    mcp,
    open_,
    run,
    schedule,
    automation,
    pipeline,
    scheduler,
    notification,
    why,
    next_,
    check,
    worker,
    queue,
    deploy,
    migrate,
    backup,
    disarm,
    arm,
    archive,
    doctor,
    metrics,
    token,
    audit,
):
    cli.add_command(command)


def main() -> None:
    """The entry point of the installed command."""
    cli()
