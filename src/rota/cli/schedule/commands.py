"""`rota schedule …`: make schedules, show and manage them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from rota.cli import complete, connect, render
from rota.cli.base import AFTER, SEARCH, CommandGroup, CommonOptions, limit_option
from rota.cli.run.wait import Waiter
from rota.cli.schedule import page
from rota.cli.schedule.edit import create, report, reset, update
from rota.cli.schedule.next import occurrence_document, occurrences
from rota.client.client import Client
from rota.client.schedule_view import ScheduleView
from rota.core.time.instants import micros, moment
from rota.schedules.host_zone import host_zone_name
from rota.schedules.preview import time_in, zone_of


@click.group(cls=CommandGroup)
def schedule() -> None:
    """Create, inspect and manage schedules."""


schedule.add_command(create)


# -- looking -----------------------------------------------------------------------------------


@schedule.command("list")
@SEARCH
@AFTER
@limit_option(100)
@click.pass_obj
def list_(call: CommonOptions, search: str, after: str, limit: int) -> None:
    """List schedules by name, with their next occurrence."""
    views, now = connect.ask_with_time(
        call, lambda client: client.schedules.list(search=search, after=after, limit=limit)
    )
    empty = "no schedules yet; create one with `rota schedule create`"
    render.listing(
        call.json, views, page.document,
        lambda view: {
            "name": view.schedule.name, "status": view.schedule.status,
            "workflow": view.intent.workflow, "next": _next(view, now),
            "means": view.intent.text if view.problem else view.text, "note": page.note(view),
        },
        render.not_found("schedule", search) or empty, optional=["note"],
        page=render.NextPage(limit, "--after", lambda view: view.schedule.name, search),
    )  # fmt: skip


def _next(shown: ScheduleView, now: int) -> str:
    row = shown.schedule
    return render.due(row.available_at, now) if row.status == "scheduled" else "-"


@schedule.command("show")
@complete.SCHEDULE
@click.pass_obj
def show(call: CommonOptions, name: str) -> None:
    """Show a schedule: meaning, next and last occurrences."""
    content = connect.ask(call, lambda client: page.read(client, name))
    render.page(call.json, content, page.page_document, page.print_page)


schedule.add_command(update)
schedule.add_command(reset)


@schedule.command("history")
@complete.SCHEDULE
@click.option("--from", "start", metavar="TIME", help="Only occurrences at or after this time.")
@click.option("--to", "end", metavar="TIME", help="Only occurrences at or before this time.")
@click.option(
    "--status", metavar="STATUS[:REASON]", default="", help="Only these: failed, skipped:missed."
)
@limit_option()
@click.pass_obj
def history(
    call: CommonOptions, name: str, start: str | None, end: str | None, status: str, limit: int
) -> None:
    """Show the outcome of every occurrence (the ledger).

    Newest first. An outcome is fired, skipped (with its reason), merged, backfilled or manual.
    Many skipped occurrences in a row are one line, at the time of the last, with their number and
    the first time.
    TIME is wall time in the schedule's zone, unless it has an offset.
    """

    async def query(client: Client) -> tuple[list[page.LedgerEntry], str]:
        zone, (first, last) = await _times(client, name, start, end)
        rows = await client.schedules.history(
            name, limit=limit, start=first, end=last, outcome=status
        )
        return await page.entries(client, rows), zone

    ledger, zone = connect.ask(call, query)
    if call.json:
        render.document([page.entry_document(entry) for entry in ledger])
        return
    page.ledger(ledger, zone, filtered=bool(start or end or status))
    if len(ledger) == limit:
        click.echo("more: --to with an earlier time, or a higher --limit", err=True)


async def _times(
    client: Client, name: str, *texts: str | None
) -> tuple[str, list[datetime | None]]:
    """The zone of a schedule, and times that were written as wall time in that zone."""
    zone = zone_of((await client.schedules.get(name)).intent.spec)
    now = client.clock.now()
    return zone, [None if text is None else time_in(text, zone, now) for text in texts]


@schedule.command("upcoming")
@click.option(
    "--within", metavar="DURATION", default="1d", show_default=True, help="Time span to show."
)
@limit_option()
@click.pass_obj
def upcoming(call: CommonOptions, within: str, limit: int) -> None:
    """Show the next occurrences of all schedules.

    In this machine's wall time and in UTC.
    """
    micros(within)
    coming, now = connect.ask_with_time(
        call, lambda client: client.schedules.upcoming(within=within, limit=limit)
    )
    zone = host_zone_name()
    if call.json:
        lines = [
            {"schedule": occurrence.schedule} | occurrence_document(occurrence, zone)
            for occurrence in coming
        ]
        render.document(lines)
    else:
        occurrences(coming, zone, now, names=True, empty=f"nothing fires within {within}")
        render.more(coming, render.NextPage(limit))


# -- commands ----------------------------------------------------------------------------------


@schedule.command("pause")
@complete.SCHEDULE
@click.option("--note", metavar="WHY", default="", help="Reason, shown while it is paused.")
@click.option("--until", metavar="TIME", help="Resume by itself at this time.")
@click.pass_obj
def pause(call: CommonOptions, name: str, note: str, until: str | None) -> None:
    """Pause a schedule. Runs already created continue."""

    async def stop(client: Client) -> ScheduleView:
        _, [until_at] = await _times(client, name, until)
        return await client.schedules.pause(name, note=note, until=until_at)

    report(call, connect.ask(call, stop))


@schedule.command("resume")
@complete.SCHEDULE
@click.option("--catch-up", is_flag=True, help="Catch up on occurrences missed while paused.")
@click.pass_obj
def resume(call: CommonOptions, name: str, catch_up: bool) -> None:
    """Resume a paused schedule from its next occurrence."""
    report(call, connect.ask(call, lambda client: client.schedules.resume(name, catch_up=catch_up)))


@schedule.command("trigger")
@complete.SCHEDULE
@click.option("--wait", is_flag=True, help="Wait for the end and print the result.")
@click.option("--timeout", metavar="DURATION", help="With --wait: longest wait.")
@click.pass_obj
def trigger(call: CommonOptions, name: str, wait: bool, timeout: str | None) -> None:
    """Run the workflow of a schedule now.

    The next occurrence of the schedule stays as it is.
    """
    waiter = Waiter(call, timeout, waits=wait)

    async def fire(client: Client) -> None:
        run_id = await client.schedules.trigger(name)
        if call.json and not wait:
            render.document({"id": run_id, "schedule": name})
        elif not call.json:
            click.echo(f"run {run_id} of schedule {name} started", err=wait)
        if wait:
            await waiter.wait(client, run_id, existed=False)

    waiter.run(lambda: connect.ask(call, fire))


@schedule.command("backfill")
@complete.SCHEDULE
@click.option("--from", "start", metavar="TIME", required=True, help="Begin of the range.")
@click.option("--to", "end", metavar="TIME", help="End of the range. Default: now.")
@click.option(
    "--parallel", type=click.IntRange(min=1), default=1, show_default=True,
    help="Runs at the same time.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only count what would run.")
@click.pass_obj
def backfill(
    call: CommonOptions, name: str, start: str, end: str | None, parallel: int, dry_run: bool
) -> None:
    """Run past occurrences that have not run yet.

    TIME is wall time in the schedule's zone, unless it has an offset.
    """

    async def fill(client: Client) -> dict[str, Any]:
        _, [first, last] = await _times(client, name, start, end)
        assert first is not None
        last = last or moment(client.clock.now())
        done = await client.schedules.backfill(
            name, first, last, parallel=parallel, dry_run=dry_run
        )
        return {
            "schedule": name, "from_at": first.isoformat(), "to_at": last.isoformat(),
            "occurrence_count": done.occurrence_count, "run_count": done.run_count,
            "run_ids": done.run_ids, "dry_run": dry_run,
        }  # fmt: skip

    result = connect.ask(call, fill)
    count, run_count = result["occurrence_count"], result["run_count"]
    rest = f"; {count - run_count:,} had a run already" if count > run_count else ""
    done = f"started, {parallel} at a time{rest}"
    if dry_run:
        done = f"would start{rest}; nothing was started"
    text = f"{count:,} occurrence{'' if count == 1 else 's'} in this range"
    render.report(call.json, result, f"{text}: {render.count(run_count, 'run')} {done}")


@schedule.command("delete")
@complete.SCHEDULE
@click.pass_obj
def delete(call: CommonOptions, name: str) -> None:
    """Delete a schedule. Its runs stay.

    A worker creates it again when it starts, as long as code or rota.toml declares it.
    """

    async def remove(client: Client) -> str | None:
        shown = await client.schedules.get(name)
        await client.schedules.delete(name)
        return shown.intent.origin

    origin = connect.ask(call, remove)
    text = f"schedule {name} is deleted; the runs it fired stay"
    if origin is not None:
        text += f". If {origin} still declares it, the next worker creates it again"
    render.report(call.json, {"deleted": name}, text)
