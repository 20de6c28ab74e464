"""Options about time that several commands share."""

from __future__ import annotations

import click

from rota.cli.base import F, add_options
from rota.core.time.spec import GAPS, REPEATS

_OPTIONS = (
    click.option("--timezone", metavar="ZONE",
        help="Time zone: Europe/Berlin. Default: that of this machine."),
    click.option("--gap", type=click.Choice(GAPS),
        help="Run a missing wall time after the gap (next), or skip it."),
    click.option("--repeat", type=click.Choice(REPEATS),
        help="Run a repeated wall time the first, second or both times."),
)  # fmt: skip


def zone_options(command: F) -> F:
    """Give a command the options about its time zone and the changes of its clock."""
    return add_options(_OPTIONS, command)
