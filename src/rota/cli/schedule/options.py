"""Options about time that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from rota.core.time.spec import GAPS, REPEATS

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def zone_options(command: Decorated) -> Decorated:
    """The zone, and what happens when its clock is moved."""
    for option in (
        click.option("--repeat", type=click.Choice(REPEATS),
            help="Run a repeated wall time the first, second or both times."),
        click.option("--gap", type=click.Choice(GAPS),
            help="Run a missing wall time after the gap (next), or skip it."),
        click.option("--timezone", metavar="ZONE",
            help="Time zone: Europe/Berlin. Default: that of this machine."),
    ):  # fmt: skip
        command = option(command)
    return command
