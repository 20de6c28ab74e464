"""`rota metrics`: the state of the store as numbers, for Prometheus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rota.cli import connect, render
from rota.cli.base import BaseCommand, CommonOptions
from rota.core import prometheus_text
from rota.core.prometheus_text import Metric
from rota.errors import BadInput


@click.command(cls=BaseCommand)
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(path_type=Path),
    help="Replace FILE with the text instead of printing it.",
)  # fmt: skip
@click.pass_obj
def metrics(call: CommonOptions, output: Path | None) -> None:
    """Print metrics in the text format of Prometheus.

    Text exposition format 0.0.4, for the textfile collector of node_exporter: let a timer run it
    with --output. Open runs are counted exactly; ended runs, within the range that each HELP line
    states. With --json and --output, stdout names the file and how many numbers it has.
    """
    from rota.client.metrics import collect

    found = connect.ask(call, collect)
    if output is not None:
        _write(output, prometheus_text.text(found))
        if call.json:
            count = sum(len(one.samples) for one in found)
            render.document({"file": str(output), "samples": count})
    elif call.json:
        render.document([_document(one) for one in found if one.samples])
    else:
        render.whole(prometheus_text.text(found))


def _document(metric: Metric) -> dict[str, Any]:
    samples = [{"labels": dict(one.labels), "value": one.value} for one in metric.samples]
    return {"name": metric.name, "type": "gauge", "help": metric.help, "samples": samples}


def _write(path: Path, text: str) -> None:
    from rota.pipelines.files import write_whole

    try:
        write_whole(path, [text])
    except OSError as error:
        raise BadInput(
            f"{path} cannot be written: {error.strerror or error}",
            hint="Give a file in a folder that this user may write to; an older file is unchanged.",
        ) from error
