"""`rota metrics`: the state of the store as numbers, for Prometheus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rota.cli import connect, render
from rota.cli.base import BaseCommand, CommonOptions, is_given
from rota.core import prometheus_text
from rota.core.prometheus_text import Metric
from rota.errors import BadInput


@click.command(cls=BaseCommand)
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(path_type=Path),
    help="Replace FILE with the text instead of printing it.",
)  # fmt: skip
@click.option("--alerts", is_flag=True, help="Print alert rules for Prometheus, as YAML.")
@click.option("--grafana", is_flag=True, help="Print a dashboard for Grafana, as JSON.")
@click.option(
    "--budget", metavar="DOLLARS", type=click.FloatRange(0), default=10.0, show_default=True,
    help="With --alerts: highest cost of models in an hour.",
)  # fmt: skip
@click.pass_obj
def metrics(
    call: CommonOptions, output: Path | None, alerts: bool, grafana: bool, budget: float
) -> None:
    """Print metrics in the text format of Prometheus.

    Text exposition format 0.0.4, for the textfile collector of node_exporter: let a timer run it
    with --output. Open runs are counted exactly; ended runs, within the range that each HELP line
    states. With --json and --output, stdout names the file and how many numbers it has.

    --alerts and --grafana need no database. They use the counters of `/metrics` as well, which
    only a process that serves HTTP has.
    """
    from rota.client.metrics import collect

    if is_given("budget") and not alerts:
        raise click.UsageError("--budget means something only with --alerts.")
    if alerts or grafana:
        _print_generated(call, output, alerts=alerts, grafana=grafana, budget=budget)
        return

    collected = connect.ask(call, collect)
    if output is not None:
        _write(output, prometheus_text.text(collected))
        if call.json:
            count = sum(len(metric.samples) for metric in collected)
            render.document({"file": str(output), "samples": count})
    elif call.json:
        render.document([_document(metric) for metric in collected if metric.samples])
    else:
        render.whole(prometheus_text.text(collected))


def _document(metric: Metric) -> dict[str, Any]:
    samples = [{"labels": dict(sample.labels), "value": sample.value} for sample in metric.samples]
    return {"name": metric.name, "type": metric.type, "help": metric.help, "samples": samples}


def _print_generated(
    call: CommonOptions, output: Path | None, *, alerts: bool, grafana: bool, budget: float
) -> None:
    """Rules and dashboard come from tables beside the metrics, so that the names are the same."""
    from rota.client import alert_rules, grafana_dashboard

    if alerts and grafana:
        raise BadInput("--alerts and --grafana are two files", hint="Ask for one at a time.")
    if alerts and call.json:
        raise click.UsageError("--alerts prints YAML, which Prometheus reads: omit --json.")
    text = alert_rules.as_yaml(budget) if alerts else grafana_dashboard.as_json()
    if output is None:
        render.whole(text)
        return
    _write(output, text)
    if call.json:
        render.document({"file": str(output)})


def _write(path: Path, text: str) -> None:
    from rota.pipelines.files import write_whole

    try:
        write_whole(path, [text])
    except OSError as error:
        raise BadInput(
            f"{path} cannot be written: {error.strerror or error}",
            hint="Give a file in a folder that this user may write to; an older file is unchanged.",
        ) from error
