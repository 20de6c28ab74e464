"""`rota run …`: find runs, look at them, steer them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rota.cli import complete, connect, render, values
from rota.cli.base import CommandGroup, CommonOptions
from rota.cli.run import page
from rota.cli.run.start import start
from rota.cli.run.wait import Waiter
from rota.core.runs.ids import short_id
from rota.core.runs.lifecycle import Status
from rota.core.time.instants import patience_micros

if TYPE_CHECKING:
    from rota.client.client import Client
    from rota.core.runs.model import Run

TEMPLATES = {Status.SCHEDULED, Status.PAUSED}


@click.group(cls=CommandGroup)
def run() -> None:
    """Start runs, look at them, steer them."""


run.add_command(start)


@run.command("list")
@click.option("--name", help="Only runs of this workflow.", shell_complete=complete.workflows)
@click.option(
    "--status",
    type=click.Choice([s.value for s in Status if s not in TEMPLATES]),
    help="Only runs in this status.",
)
@click.option("--queue", help="Only runs of this queue.", shell_complete=complete.queues)
@click.option(
    "--external-id", metavar="ID", help="Only runs with this external id (one per workflow)."
)
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many."
)
@click.option("--before", metavar="ID", help="Older than this run: the next page.")
@click.pass_obj
def list_(call: CommonOptions, /, limit: int, **filters: str | None) -> None:
    """List runs, newest first; every attempt is a run."""
    chosen: dict[str, Any] = {name: value for name, value in filters.items() if value}

    async def look(client: Client) -> tuple[list[Run], int]:
        if "before" in chosen:
            chosen["before"] = (await client.get(chosen["before"])).id
        return await client.list(limit=limit, **chosen), client.clock.now()

    found, now = connect.ask(call, look)
    if call.json:
        render.document([render.record(run) for run in found])
        return
    # A narrow terminal has room for what differs only.
    queues = any(run.queue != "default" for run in found)
    rows = [
        (
            short_id(run.id), run.name, run.label, *([run.queue] if queues else []), _number(run),
            render.ago(run.created_at, now), render.took(run.started_at, run.finished_at),
        )
        for run in found
    ]  # fmt: skip
    heads = ("id", "name", "status", *(["queue"] if queues else []), "try", "created", "took")
    render.table(heads, rows, "no runs" + (" fit these filters" if chosen else " yet"))
    if len(found) == limit:
        click.echo(f"more: --before {found[-1].id}", err=True)


def _number(run: Run) -> str:
    return f"{run.attempt}+{run.recoveries}" if run.recoveries else str(run.attempt)


@run.command("show")
@complete.RUN_ID
@click.pass_obj
def show_(call: CommonOptions, run_id: str) -> None:
    """Show a run: attempts, steps, error, and what to do next.

    ID is the id of the run, its short id, a beginning that fits one run only, or its external id.
    """
    story = connect.ask(call, lambda client: page.read(client, run_id))
    if call.json:
        render.document(page.document(story))
    else:
        page.page(story)


@run.command("result")
@complete.RUN_ID
@click.option("--timeout", metavar="DURATION", help="How long to wait: 30s, 5m.")
@click.pass_obj
def result(call: CommonOptions, run_id: str, timeout: str | None) -> None:
    """Wait for a run and print its result.

    The result is the only thing on stdout, as JSON.
    """
    if timeout is not None:
        patience_micros(timeout)
    waiter = Waiter(call, timeout)

    async def wait(client: Client) -> None:
        await waiter.wait(client, (await client.get(run_id)).id)

    with waiter.interruptible():
        connect.ask(call, wait)
    waiter.show()


@run.command("cancel")
@complete.RUN_ID
@click.option(
    "--reason", metavar="WHY", default="by request", show_default=True, help="Why, for the record."
)
@click.pass_obj
def cancel(call: CommonOptions, run_id: str, reason: str) -> None:
    """Call off a run and everything below it."""
    ids = list(connect.ask(call, lambda client: client.cancel(run_id, reason=reason)))
    if call.json:
        render.document({"cancelled": ids})
    else:
        click.echo(f"cancelled {render.count(len(ids), 'run')}: {', '.join(ids)}")


@run.command("retry")
@complete.RUN_ID
@click.pass_obj
def retry(call: CommonOptions, run_id: str) -> None:
    """Try a run again, from its last finished step."""
    root_id, newest = connect.ask(call, lambda client: _retry(client, run_id))
    if call.json:
        render.document({"id": root_id, "run": render.record(newest)})
    else:
        click.echo(f"run {newest.id} takes it up again (attempt {newest.attempt})")


async def _retry(client: Client, run_id: str) -> tuple[str, Run]:
    ref = await client.retry(run_id)
    return ref.id, await ref.run()


@run.command("signal")
@complete.RUN_ID
@click.argument("name")
@click.argument("value", required=False, metavar="[JSON]")
@click.pass_obj
def signal(call: CommonOptions, run_id: str, name: str, value: str | None) -> None:
    """Send signal NAME to a run.

    It is kept until the run asks for it. The value is JSON, or else a string.
    """
    body = None if value is None else values.loose(value)
    connect.ask(call, lambda client: client.signal(run_id, name, body))
    if call.json:
        render.document({"id": run_id, "signal": name, "value": body})
    else:
        click.echo(f"signal {name} sent to run {run_id}")


@run.command("fork")
@complete.RUN_ID
@click.option(
    "--from",
    "from_step",
    required=True,
    metavar="STEP",
    help="First step to do again, as `run show` names it.",
)
@click.pass_obj
def fork(call: CommonOptions, run_id: str, from_step: str) -> None:
    """Start anew from a step of an old run.

    The new run has the same input and remembers every step before STEP.
    """
    ref = connect.ask(call, lambda client: client.fork(run_id, from_step=from_step))
    if call.json:
        render.document({"id": ref.id, "forked_from": run_id, "from_step": from_step})
    else:
        click.echo(f"run {ref.id} started from step {from_step}")
