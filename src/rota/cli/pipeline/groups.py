"""The groups `rota pipeline` and `rota scheduler`, without what their commands import."""

from __future__ import annotations

import click

from rota.cli.base import LazyGroup


@click.group(cls=LazyGroup, module="rota.cli.pipeline.commands")
def pipeline() -> None:
    """Create, check and run AI pipelines."""


@click.group(cls=LazyGroup, module="rota.cli.pipeline.scheduler")
def scheduler() -> None:
    """Run and manage pipelines on schedules.

    `rota pipeline schedule` and `rota scheduler` are the same. All commands work while a scheduler
    runs and while none does. An ID is the name of the pipeline's folder, or the id of its schedule.
    The folder of the pipelines is this one, or its `pipelines`, or the one named by --folder.
    """
