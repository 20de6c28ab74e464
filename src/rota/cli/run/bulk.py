"""The options that select runs; and one verb for all of them: `rota run retry --all`."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import Any, cast

import click

from rota.cli import complete, connect, render
from rota.cli.base import CommonOptions, option_group
from rota.client.bulk import BulkResult, BulkVerb
from rota.client.client import Client
from rota.core.runs.filters import KINDS, STATUSES, RunSelection
from rota.core.time.instants import micros, moment
from rota.errors import BadInput
from rota.schedules.host_zone import host_zone_name
from rota.schedules.preview import time_in

# The options that select runs.
run_filters = option_group(
    click.option("--name", help="Only runs of this workflow.", shell_complete=complete.workflows),
    click.option(
        "--status", type=click.Choice([s.value for s in STATUSES]),
        help="Only runs in this status.",
    ),
    click.option("--queue", help="Only runs of this queue.", shell_complete=complete.queues),
    click.option(
        "--external-id", metavar="ID", help="Only runs with this external id (one per workflow)."
    ),
    click.option("--kind", type=click.Choice(KINDS), help="Only runs of this kind."),
    click.option("--tag", metavar="KEY[=VALUE]", help="Only runs with this tag."),
    click.option(
        "--schedule", metavar="NAME", help="Only runs of this schedule.",
        shell_complete=complete.schedules,
    ),
    click.option("--error", metavar="CLASS", help="Only runs that ended with this error."),
    click.option("--search", metavar="TEXT", help="Part of a name, external id or id."),
    click.option("--since", metavar="TIME", help="Created since: 2h, 9:00, 2027-03-28."),
    click.option("--until", metavar="TIME", help="Created before: 2h, 9:00, 2027-03-28."),
)  # fmt: skip
# The options that apply a command to many runs.
many_options = option_group(
    click.option("--all", "every", is_flag=True, help="All runs that fit the filters."),
    click.option("--yes", is_flag=True, help="With --all: do it; otherwise only count."),
    run_filters,
)


def selection(client: Client, given: dict[str, Any]) -> RunSelection:
    """The filters that were given, for the client."""
    named = {name: given.get(name) for name in RunSelection.__annotations__}
    chosen: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    if "" in chosen.values():  # as of a variable that is not set: it must not select every run
        empty = next(name for name, value in chosen.items() if value == "")
        raise BadInput(f"--{empty.replace('_', '-')} is empty", hint="Omit it, or give a value.")
    for name in ("since", "until"):
        if name in chosen:
            chosen[name] = _time(chosen[name], client.clock.now())
    return cast("RunSelection", chosen)


def _time(text: str, now: int) -> datetime:
    """A written time; a duration is that long ago."""
    zone = host_zone_name()
    with contextlib.suppress(BadInput):
        return moment(max(0, now - micros(text)))
    try:
        return time_in(text, zone, now)
    except BadInput as error:
        error.advice = (
            "Write 2h (that long ago), 9:00 (today), yesterday 9:00 or 2027-03-28T02:30; it is in "
            "this machine's zone, unless it has an offset as +02:00 or Z."
        )
        raise


# -- one verb for many runs ---------------------------------------------------------------------


def check(run_id: str | None, every: bool, given: dict[str, Any]) -> None:
    """One run by its id, or all that fit: not both, not neither."""
    if every and run_id is None:
        return
    if run_id is None:
        raise click.UsageError("Missing argument 'ID', or --all with filters.")
    if every or any(given.values()):
        raise click.UsageError("an ID names one run: leave out --all and the filters.")


def apply(
    call: CommonOptions,
    verb: BulkVerb,
    given: dict[str, Any],
    *,
    yes: bool,
    reason: str = "retry",
    grace: str | None = None,
) -> None:
    """Count the runs that fit, or apply the verb to them."""

    async def work(client: Client) -> BulkResult:
        chosen = selection(client, given)
        return await client.runs.apply(verb, dry_run=not yes, reason=reason, grace=grace, **chosen)

    done = connect.ask(call, work)
    if call.json:
        render.document(done._asdict())
        return
    more_fit = ", and more fit: repeat the command" if done.has_more else ""
    if done.dry_run:
        click.echo(f"{verb} would take {render.count(done.matched, 'run')}{more_fit}")
        if done.matched:
            click.echo(f"to {verb} them: the same command with --yes", err=True)
        return
    click.echo(f"{verb}: {render.count(len(done.run_ids), 'run')}{more_fit}")
    for run_id, why in done.refused.items():
        click.echo(f"not {run_id}: {render.clean(why)}", err=True)
