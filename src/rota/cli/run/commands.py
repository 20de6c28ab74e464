"""`rota run …`: find runs, show and manage them."""

from __future__ import annotations

from typing import Any

import click

from rota.cli import argument_values, complete, connect, render
from rota.cli.automation.approvals import approve, reject, resolve
from rota.cli.base import CommandGroup, CommonOptions, limit_option
from rota.cli.run import bulk, page
from rota.cli.run import watch as watching
from rota.cli.run.bulk import run_filters, selection
from rota.cli.run.logs import logs
from rota.cli.run.start import start
from rota.cli.run.wait import Waiter
from rota.client.client import Client
from rota.core.runs.ids import short_id
from rota.core.runs.model import Run


@click.group(cls=CommandGroup)
def run() -> None:
    """Start, inspect and manage runs."""


run.add_command(start)


@run.command("list")
@run_filters
@limit_option()
@click.option("--before", metavar="ID", help="Older than this run: the next page.")
@watching.OPTION
@click.pass_obj
def list_(
    call: CommonOptions, /, limit: int, before: str | None, watch: bool, **given: Any
) -> None:
    """List runs, newest first; every attempt is a run."""

    async def query(client: Client) -> tuple[list[Run], int]:
        older = {"before": (await client.runs.get(before)).id} if before else {}
        chosen = selection(client, given)
        return await client.runs.list(limit=limit, **older, **chosen), client.clock.now()

    def show(found: tuple[list[Run], int]) -> None:
        _show_list(call, *found, limit=limit, filtered=bool(before or any(given.values())))

    watching.show_answer(call, query, show, watch=watch, shape=lambda found: found[0])


def _show_list(
    call: CommonOptions, runs: list[Run], now: int, *, limit: int, filtered: bool
) -> None:
    # A narrow terminal has space only for what differs.
    queues = any(run.queue != "default" for run in runs)
    render.listing(
        call.json, runs, render.record,
        lambda run: {
            "id": short_id(run.id), "name": run.name, "status": run.label,
            "queue": run.queue if queues else "", "try": _number(run),
            "created": render.ago(run.created_at, now),
            "took": render.took(run.started_at, run.finished_at),
        },
        "no runs" + (" fit these filters" if filtered else " yet"), optional=["queue"],
        page=render.NextPage(limit, "--before", lambda run: run.id),
    )  # fmt: skip


def _number(run: Run) -> str:
    return f"{run.attempt}+{run.recoveries}" if run.recoveries else str(run.attempt)


@run.command("show")
@complete.RUN_ID
@watching.OPTION
@click.pass_obj
def show_(call: CommonOptions, run_id: str, watch: bool) -> None:
    """Show a run: attempts, steps, error, and what to do next.

    ID is the id of the run, its short id, a beginning that fits one run only, or its external id.
    """
    watching.show_answer(
        call, lambda client: page.read(client, run_id),
        lambda content: render.page(call.json, content, page.document, page.print_page),
        watch=watch,
        shape=lambda content: (content.attempts, content.steps),
        is_over=lambda content: content.last.is_final,
    )  # fmt: skip


run.add_command(logs)


@run.command("result")
@complete.RUN_ID
@click.option("--timeout", metavar="DURATION", help="How long to wait: 30s, 5m.")
@click.pass_obj
def result(call: CommonOptions, run_id: str, timeout: str | None) -> None:
    """Wait for a run and print its result.

    The result is the only thing on stdout, as JSON.
    """
    waiter = Waiter(call, timeout)

    async def wait(client: Client) -> None:
        await waiter.wait(client, (await client.runs.get(run_id)).id)

    waiter.run(lambda: connect.ask(call, wait))


@run.command("cancel")
@complete.RUN_ID_OR_ALL
@click.option(
    "--reason",
    metavar="WHY",
    default="by request",
    show_default=True,
    help="Reason, stored with the run.",
)
@click.option("--grace", metavar="DURATION", help="Time for its code to clean up: 30s, 5m.")
@bulk.many_options
@click.pass_obj
def cancel(
    call: CommonOptions,
    /,
    run_id: str | None,
    reason: str,
    grace: str | None,
    every: bool,
    yes: bool,
    **given: Any,
) -> None:
    """Cancel a run and its children; many runs with --all.

    With --grace its code gets rota.Cancelled and may clean up first. A second cancel without
    --grace ends it at once.

    With --all and filters it takes every open run that fits, at most 1,000. Without --yes it only
    counts them.
    """
    bulk.check(run_id, every, given)
    if run_id is None:
        bulk.apply(call, "cancel", given, yes=yes, reason=reason, grace=grace)
        return
    ids = list(
        connect.ask(call, lambda client: client.runs.cancel(run_id, reason=reason, grace=grace))
    )
    done = "cancelled" if grace is None else "asked to end, or cancelled,"
    text = f"{done} {render.count(len(ids), 'run')}: {', '.join(ids)}"
    render.report(call.json, {"cancelled": ids}, text)


@run.command("retry")
@complete.RUN_ID_OR_ALL
@bulk.many_options
@click.pass_obj
def retry(call: CommonOptions, /, run_id: str | None, every: bool, yes: bool, **given: Any) -> None:
    """Retry a run from its last finished step; many with --all.

    With --all and filters it takes every run that fits and failed or crashed, at most 1,000.
    Without --yes it only counts them.
    """
    bulk.check(run_id, every, given)
    if run_id is None:
        bulk.apply(call, "retry", given, yes=yes)
        return

    async def work(client: Client) -> tuple[str, Run]:
        handle = await client.runs.retry(run_id)
        return handle.id, await handle.run()

    root_id, newest = connect.ask(call, work)
    text = f"retried as run {newest.id} (attempt {newest.attempt})"
    render.report(call.json, {"id": root_id, "run": render.record(newest)}, text)


@run.command("signal")
@complete.RUN_ID
@click.argument("name")
@click.argument("value", required=False, metavar="[JSON]")
@click.pass_obj
def signal(call: CommonOptions, run_id: str, name: str, value: str | None) -> None:
    """Send signal NAME to a run.

    Rota keeps the signal until the run waits for it. The value is JSON, or a string.
    """
    body = argument_values.loose(value)
    connect.ask(call, lambda client: client.runs.signal(run_id, name, body))
    sent = {"id": run_id, "signal": name, "value": body}
    render.report(call.json, sent, f"signal {name} sent to run {run_id}")


@run.command("fork")
@complete.RUN_ID
@click.option(
    "--from",
    "from_step",
    required=True,
    metavar="STEP",
    help="First step to execute again, as `run show` names it.",
)
@click.pass_obj
def fork(call: CommonOptions, run_id: str, from_step: str) -> None:
    """Start a copy of a run from one of its steps.

    The new run has the same input and keeps the results of all steps before STEP.
    """
    ref = connect.ask(call, lambda client: client.runs.fork(run_id, from_step=from_step))
    made = {"id": ref.id, "forked_from": run_id, "from_step": from_step}
    render.report(call.json, made, f"run {ref.id} started from step {from_step}")


for answer in (approve, reject, resolve):
    run.add_command(answer)
