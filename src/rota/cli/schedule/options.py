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
            help="A wall time that happens twice runs the first or second time, or both."),
        click.option("--gap", type=click.Choice(GAPS),
            help="A wall time that does not exist runs next, after the gap, or is skipped."),
        click.option("--zone", metavar="ZONE",
            help="Time zone: Europe/Berlin. Of this machine, if none is given."),
    ):  # fmt: skip
        command = option(command)
    return command
